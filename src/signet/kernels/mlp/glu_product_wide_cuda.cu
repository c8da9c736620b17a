// The products of SwiGLU layers (glu_product.h) of any width, on Hopper. A tile is 128 rows of a result of
// 256 columns: forward 128 of gate beside the same 128 of up; backward 256 of dh. A block stays on its
// multiprocessor and walks tiles. Two warpgroups multiply, 64 rows each, and leave the rounded sums in shared
// memory; three warps of a third make of them what is wanted, while the others are at the next tile already;
// one thread of its fourth warp asks for what is multiplied, 64 of the sum at a time, up to kStages ahead.
//
// Two blocks, a cluster, have the same columns of neighbouring tiles of rows: each asks for half of the
// weights, and the copy engine gives them to both.
#include <algorithm>

#include "signet/kernels/activation/activation_device.cuh"
#include "signet/kernels/mlp/glu_product_cuda.cuh"
#include "signet/kernels/mlp/row_tiles.cuh"
#include "signet/tensor/bulk_copy.cuh"
#include "signet/tensor/launch_clusters.cuh"
#include "signet/tensor/tensor_map.h"

namespace signet::kernels {
namespace {

using row_tiles::aligned_base, row_tiles::kPanel, row_tiles::pack_pair, row_tiles::part, row_tiles::piece_at,
    row_tiles::unpack_pair, row_tiles::word_at;

constexpr int kCluster = 2;
constexpr int kStages = 3;
constexpr int kDeep = 64;                                       // of the sum, at once
constexpr int kMultiplying = 2, kTileRows = 64 * kMultiplying;  // warpgroups
constexpr int kFinishing = 3;                                   // warps
constexpr int kWideThreads = 128 * (kMultiplying + 1);
constexpr int kLeftBytes = kMultiplying * kPanel, kRightBytes = 4 * kPanel;
constexpr int kStageBytes = kLeftBytes + kRightBytes;
constexpr int kStagedPanel = kMultiplying * kPanel;  // sums of 64 columns
constexpr int kStagedBytes = 4 * kStagedPanel;

struct Barriers {
  uint64_t full[kStages], empty[kStages];
  uint64_t staged[kMultiplying], taken[kMultiplying];  // the sums of a warpgroup
};
constexpr int kWideBytes = 1024 + kStages * kStageBytes + kStagedBytes + static_cast<int>(sizeof(Barriers));
static_assert(kWideBytes <= 227 * 1024);

// Forward: left n, right Wg and Wu. Backward: left dy, right Wd.
struct WideGlu {
  CUtensorMap left, right[2];
  const bf16* in;  // backward: gate beside up
  bf16 *out, *h;   // gate beside up, or their gradients; null: not wanted
  int rows, hidden;
  int steps;                     // of a sum
  int row_pairs, columns, band;  // tiles: of rows, two at once, and of columns, `band` of which at a time
  __device__ int tiles() const { return row_pairs * columns; }
};

// The first row and column of a tile of this block. All rows of a band of columns come before the next, so
// that its weights stay in the cache.
struct TilePlace {
  int row, column;  // row: of the block; column: of gate, up and h
  __device__ TilePlace(const WideGlu& p, int tile, int block, int columns) {
    const int band = tile / (p.band * p.row_pairs), rest = tile - band * p.band * p.row_pairs;
    const int wide = min(p.band, p.columns - band * p.band);
    row = (rest / wide * kCluster + block) * kTileRows;
    column = (band * p.band + rest % wide) * columns;
  }
};

using WideSums = float[32][4];  // 16 rows of this warp, 256 columns

// How wgmma finds 16 rows and 256 columns of panels of 64 rows [k][n]: panels lie kPanel bytes apart.
__device__ inline uint64_t across(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | uint64_t{kPanel / 16} << 16 | uint64_t{64} << 32 |
         uint64_t{1} << 62;
}
// c = a b, + c where `add`: a 64 x 16 in shared memory, b 16 x 256 there, stored by columns or, kAcross, by
// rows.
template <bool kAcross>
__device__ inline void multiply_wide(WideSums& c, uint64_t a, uint64_t b, bool add) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SIGNET_SUMS(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define SIGNET_FOUR_SUMS(i) SIGNET_SUMS(i), SIGNET_SUMS(i + 1), SIGNET_SUMS(i + 2), SIGNET_SUMS(i + 3)
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
      "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,"
      "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,"
      "%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,"
      "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,"
      "%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,"
      "%121,%122,%123,%124,%125,%126,%127"
      "}, %128, %129, p, 1, 1, 0, %131;\n}\n"
      : SIGNET_FOUR_SUMS(0), SIGNET_FOUR_SUMS(4), SIGNET_FOUR_SUMS(8), SIGNET_FOUR_SUMS(12),
        SIGNET_FOUR_SUMS(16), SIGNET_FOUR_SUMS(20), SIGNET_FOUR_SUMS(24), SIGNET_FOUR_SUMS(28)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(kAcross ? 1 : 0));
#undef SIGNET_FOUR_SUMS
#undef SIGNET_SUMS
#endif
}
__device__ inline void keep_wide(WideSums& c) {
#pragma unroll
  for (auto& each : c)
    asm volatile("" : "+f"(each[0]), "+f"(each[1]), "+f"(each[2]), "+f"(each[3])::"memory");
}

template <int kRegisters, bool kMore>
__device__ void set_registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (kMore)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
  else
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
#endif
}

struct Pieces {  // 8 neighbours of a row
  uint4 bits;
  // Now: the compiler would rather ask for all rows at once, into registers from which it moves them later.
  __device__ void ask(const bf16* from) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                 : "l"(from));
  }
  __device__ void unpack(float (&v)[8]) const {
    const uint32_t words[] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpack_pair(words[i]);
      v[2 * i] = pair.x, v[2 * i + 1] = pair.y;
    }
  }
  __device__ static uint4 pack(const float (&v)[8]) {
    return make_uint4(pack_pair(v[0], v[1]), pack_pair(v[2], v[3]), pack_pair(v[4], v[5]),
                      pack_pair(v[6], v[7]));
  }
};

// Which of its kind a block is, and where its shared memory lies.
template <bool kForward>
struct GluBlock {
  static constexpr int kColumns = kForward ? 128 : 256;  // of gate, up and h in a tile
  const WideGlu& p;
  char *stages, *sums;
  Barriers& barriers;
  int block, cluster, clusters;  // of the cluster; which it is, of how many

  __device__ GluBlock(const WideGlu& problem, char* shared)
      : p(problem),
        stages(aligned_base(shared)),
        sums(stages + kStages * kStageBytes),
        barriers(*reinterpret_cast<Barriers*>(sums + kStagedBytes)),
        block(block_of_cluster()),
        cluster(static_cast<int>(blockIdx.x) / kCluster),
        clusters(static_cast<int>(gridDim.x) / kCluster) {
    if (threadIdx.x == 0) {
      prepare_barriers(barriers.full, kStages, 1);
      prepare_barriers(barriers.empty, kStages, kCluster * kMultiplying);
      prepare_barriers(barriers.staged, kMultiplying, 128);
      prepare_barriers(barriers.taken, kMultiplying, kFinishing);
    }
    cluster_barrier();
  }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32 % 4; }  // of its group
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ TilePlace place(int tile) const { return {p, tile, block, kColumns}; }
  // body(tile, how many came before) for the tiles of this cluster.
  template <class Body>
  __device__ void for_each_tile(Body body) const {
    const int tiles = p.tiles();
    for (int tile = cluster, i = 0; tile < tiles; tile += clusters, ++i) body(tile, i);
  }

  // One thread asks for what is multiplied.
  __device__ void feed() const {
    int stage = 0, phase = 0;
    for_each_tile([&](int tile, int) {
      const TilePlace at = place(tile);
      for (int step = 0; step < p.steps; ++step) {
        await_phase(&barriers.empty[stage], phase ^ 1);
        uint64_t* const full = &barriers.full[stage];
        expect_bytes(full, kStageBytes);
        char *const left = stages + stage * kStageBytes, *const right = left + kLeftBytes;
        tensor_copy(left, p.left, step * kDeep, at.row, full);
        constexpr unsigned kAll = (1 << kCluster) - 1;
        if constexpr (kForward) {  // 128 rows of Wg, or of Wu
          tensor_copy_to(kAll, right + 2 * block * kPanel, p.right[block], step * kDeep, at.column, full);
        } else {  // 64 rows of Wd, twice 64 columns
          for (int i = 2 * block; i < 2 * block + 2; ++i)
            tensor_copy_to(kAll, right + i * kPanel, p.right[0], at.column + 64 * i, step * kDeep, full);
        }
        if (++stage == kStages) stage = 0, phase ^= 1;
      }
    });
  }

  // A warpgroup multiplies its rows of every tile.
  __device__ void multiply(int group) const {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    const auto release = [&](int which) {
      if (thread < kCluster) arrive_in(&barriers.empty[which], thread);
    };
    int stage = 0, phase = 0;
    for_each_tile([&](int, int i) {
      WideSums c;
      int before = 0;
      for (int step = 0; step < p.steps; ++step) {
        await_phase(&barriers.full[stage], phase);
        const uint32_t at = shared_address(stages + stage * kStageBytes);
        const uint64_t left = part(at + group * kPanel),
                       right = kForward ? part(at + kLeftBytes) : across(at + kLeftBytes);
        keep_wide(c);
        begin_products();
#pragma unroll
        for (int s = 0; s < kDeep / 16; ++s)  // addresses in units of 16 bytes
          multiply_wide<!kForward>(c, left + 2 * s, right + (kForward ? 2 : 128) * s, step > 0 || s > 0);
        issue_products();
        await_products<1>();
        keep_wide(c);
        if (step > 0) release(before);  // whose products have ended
        before = stage;
        if (++stage == kStages) stage = 0, phase ^= 1;
      }
      await_products();
      keep_wide(c);
      release(before);
      await_phase(&barriers.taken[group], i & 1 ^ 1);
      const int row = 64 * group + 16 * warp() + lane() / 4;
#pragma unroll
      for (int n8 = 0; n8 < 32; ++n8) {
        char* const panel = sums + n8 / 8 * kStagedPanel;
        word_at(panel, row, n8 % 8, lane() % 4) = pack_pair(c[n8][0], c[n8][1]);
        word_at(panel, row + 8, n8 % 8, lane() % 4) = pack_pair(c[n8][2], c[n8][3]);
      }
      arrive(&barriers.staged[group]);
    });
  }

  // Finishing warps take four rows in turn. A lane has 8 columns of one of them in every panel of 64.
  struct Rows {
    int first, left;   // its first row, and how many the tile has
    int column, wide;  // its first column, and how many there are from the tile's on
    __device__ Rows(const WideGlu& p, const TilePlace& tile)
        : first(4 * warp() + lane() / 8),
          left(min(p.rows - tile.row, kTileRows)),
          column(tile.column + lane() % 8 * 8),
          wide(p.hidden - tile.column) {}
    static constexpr int kStep = 4 * kFinishing;
  };
  __device__ Pieces sum(int panel, int row) const {
    return {*reinterpret_cast<const uint4*>(sums + panel * kStagedPanel + piece_at(row, lane() % 8))};
  }
  __device__ void await_sums(int i) const {
    for (uint64_t& each : barriers.staged) await_phase(&each, i & 1);
  }
  __device__ void give_back_sums() const {
    __syncwarp();
    if (lane() < kMultiplying) arrive(&barriers.taken[lane()]);
  }
};
__device__ inline void put(bf16* to, const uint4& bits) { *reinterpret_cast<uint4*>(to) = bits; }

// kKeep: gate and up are wanted, too.
template <bool kKeep>
__device__ void finish_forward(const GluBlock<true>& me) {
  const WideGlu& p = me.p;
  me.for_each_tile([&](int tile, int i) {
    const TilePlace at = me.place(tile);
    const GluBlock<true>::Rows rows(p, at);
    int64_t to = int64_t{at.row + rows.first} * p.hidden;
    me.await_sums(i);
    for (int row = rows.first; row < rows.left; row += rows.kStep, to += int64_t{rows.kStep} * p.hidden) {
#pragma unroll
      for (int panel = 0; panel < 2; ++panel) {
        if (64 * panel >= rows.wide) break;
        const Pieces gate = me.sum(panel, row), up = me.sum(2 + panel, row);
        const int column = rows.column + 64 * panel;
        if constexpr (kKeep) {
          put(p.out + 2 * to + column, gate.bits);
          put(p.out + 2 * to + p.hidden + column, up.bits);
        }
        // Of the rounded ones: backward makes the same bits of them.
        float x[8], h[8];
        gate.unpack(x), up.unpack(h);
#pragma unroll
        for (int j = 0; j < 8; ++j) h[j] *= glu_gate(GluGate::kSilu, x[j]).y;
        put(p.h + to + column, Pieces::pack(h));
      }
    }
    me.give_back_sums();
  });
}

template <bool kWithH>
__device__ void finish_backward(const GluBlock<false>& me) {
  const WideGlu& p = me.p;
  constexpr int kPanels = GluBlock<false>::kColumns / 64, kTogether = 2;  // whose latencies overlap
  me.for_each_tile([&](int tile, int i) {
    const TilePlace at = me.place(tile);
    const GluBlock<false>::Rows rows(p, at);
    const int64_t first = int64_t{at.row + rows.first} * p.hidden, step = int64_t{rows.kStep} * p.hidden;
    const bf16* from = p.in + 2 * first + rows.column;
    bf16 *to = p.out + 2 * first + rows.column, *h = p.h + first + rows.column;
    Pieces gate[kPanels], up[kPanels];  // of the next row, on their way
    const auto fetch = [&](int panel) {
      gate[panel].ask(from + 64 * panel);
      up[panel].ask(from + p.hidden + 64 * panel);
    };
    if (rows.first < rows.left) {
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel)
        if (64 * panel < rows.wide) fetch(panel);
    }
    me.await_sums(i);
    for (int row = rows.first; row < rows.left; row += rows.kStep, to += 2 * step, h += step) {
      const bool more = row + rows.kStep < rows.left;
      from += 2 * step;
#pragma unroll
      for (int panel = 0; panel < kPanels; panel += kTogether) {
        if (64 * panel >= rows.wide) break;
        float x[kTogether][8], u[kTogether][8], d[kTogether][8], dgate[kTogether][8];
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
          gate[panel + k].unpack(x[k]), up[panel + k].unpack(u[k]);
#pragma unroll
          for (int j = 0; j < 8; ++j)
            asm volatile("" : "+f"(x[k][j]), "+f"(u[k][j]));  // before the next ones take their place
          if (more) fetch(panel + k);
        }
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
          me.sum(panel + k, row).unpack(d[k]);
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            const GluValue g = glu_gate(GluGate::kSilu, x[k][j]);
            dgate[k][j] = d[k][j] * u[k][j] * g.slope;
            d[k][j] *= g.y, u[k][j] *= g.y;
          }
        }
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
          const int column = 64 * (panel + k);
          put(to + column, Pieces::pack(dgate[k]));
          put(to + p.hidden + column, Pieces::pack(d[k]));
          if constexpr (kWithH) put(h + column, Pieces::pack(u[k]));
        }
      }
    }
    me.give_back_sums();
  });
}

// kOption: forward, gate and up are wanted, too; backward, h.
template <bool kForward, bool kOption>
__global__ void __launch_bounds__(kWideThreads, 1) wide_glu_kernel(const __grid_constant__ WideGlu p) {
  begin_kernel();
  extern __shared__ char shared[];
  const GluBlock<kForward> me(p, shared);
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group < kMultiplying) {
    set_registers<176, true>();
    me.multiply(group);
  } else {
    set_registers<152, false>();
    if (me.warp() == kFinishing) {
      if (me.lane() == 0) me.feed();
    } else if constexpr (kForward) {
      finish_forward<kOption>(me);
    } else {
      finish_backward<kOption>(me);
    }
  }
  cluster_barrier();  // neither block ends while the other may write to it
}

template <bool kForward>
void launch_wide(const char* name, void (*kernel)(WideGlu), WideGlu& p, int64_t rows, int64_t width,
                 int64_t hidden, Cuda device) {
  constexpr int64_t kBand = int64_t{12} << 20;  // bytes of weights at a time, in a cache of 50 MiB and more
  const auto parts = [](int64_t whole, int64_t part) { return (whole + part - 1) / part; };
  p.rows = static_cast<int>(rows), p.hidden = static_cast<int>(hidden);
  p.steps = static_cast<int>(parts(width, kDeep));
  p.row_pairs = static_cast<int>(parts(rows, kCluster * kTileRows));
  p.columns = static_cast<int>(parts(hidden, GluBlock<kForward>::kColumns));
  const int64_t bands = parts(p.columns * 256 * width * int64_t{sizeof(bf16)}, kBand);
  p.band = static_cast<int>(parts(p.columns, bands));
  const int64_t clusters =
      std::min<int64_t>(int64_t{p.row_pairs} * p.columns, cuda_device().multiprocessors / kCluster);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kWideBytes), name);
  launch_clusters(name, kernel, static_cast<unsigned>(clusters * kCluster), kWideThreads, kCluster,
                  kWideBytes, device, p);
}

void check_maps(bool made, int64_t width, int64_t hidden) {
  if (!made)
    fail(ErrorCode::kUsage, "no product of a SwiGLU layer of width {} and hidden width {} here", width,
         hidden);
}

}  // namespace

bool wide_glu_covers(int64_t width, int64_t hidden) {
  return width >= 256 && width % 64 == 0 && hidden >= 256 && hidden % 128 == 0 && width <= (1 << 20) &&
         hidden <= (1 << 20) && cuda_device().hopper && tensor_maps_usable();
}

void wide_glu_forward(const GluProductForward& f, Cuda device) {
  WideGlu p{};
  p.out = f.gate_up, p.h = f.h;
  bool made = encode_matrix(p.left, f.n, f.rows, f.width, f.n_stride, kTileRows);
  for (int i = 0; i < 2; ++i)
    made = made && encode_matrix(p.right[i], f.gate_up_weight + i * f.hidden * f.width, f.hidden, f.width,
                                 f.width, 128);
  check_maps(made, f.width, f.hidden);
  launch_wide<true>("glu_product_forward",
                    f.gate_up ? wide_glu_kernel<true, true> : wide_glu_kernel<true, false>, p, f.rows,
                    f.width, f.hidden, device);
}

void wide_glu_backward(const GluProductBackward& b, Cuda device) {
  WideGlu p{};
  p.in = b.gate_up, p.out = b.dgate_up, p.h = b.h;
  check_maps(encode_matrix(p.left, b.dy, b.rows, b.width, b.dy_stride, kTileRows) &&
                 encode_matrix(p.right[0], b.down_weight, b.width, b.hidden, b.hidden, 64),
             b.width, b.hidden);
  launch_wide<false>("glu_product_backward",
                     b.h ? wide_glu_kernel<false, true> : wide_glu_kernel<false, false>, p, b.rows, b.width,
                     b.hidden, device);
}

}  // namespace signet::kernels
