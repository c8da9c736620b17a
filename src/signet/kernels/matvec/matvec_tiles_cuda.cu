// matvec.h for more rows than a warp has registers for, on the tensor cores (Hopper). A block makes a tile of
// rows x columns of the result. Where there would be fewer blocks than multiprocessors, a cluster of blocks
// shares a tile: each sums over a part of k, and their sums are added in the order of the parts, so that the
// result does not depend on who is first.
//
// Tiles of x and W go through shared memory, kDepth columns at a time: rows of 128 bytes whose 16-byte pieces
// are exchanged, piece ^ row % 8, so that neither copies nor ldmatrix meet in a bank. The first tiles of W
// are asked for before the kernel ahead on the stream has ended.
#include <algorithm>

#include "signet/kernels/activation/activation_device.cuh"
#include "signet/kernels/matvec/matvec_tiles.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch_clusters.cuh"
#include "signet/tensor/packet.cuh"

namespace signet::kernels {
namespace {

constexpr int kDepth = 64;  // columns of x and W under way as one tile
constexpr int kRowBytes = 2 * kDepth;
constexpr int kMostParts = 8;  // of k: blocks of a cluster

// Warps lie kDown x kAcross over the tile; each has kRowParts x kColumnParts results of 16 x 8.
template <int kRows>
struct Tile {
  static constexpr int kColumns = kRows == 128 ? 128 : 64, kStages = kRows == 128 ? 3 : 4;
  static constexpr int kDown = kRows >= 64 ? 2 : 1, kAcross = kRows == 128 ? 4 : 4 / kDown;
  static constexpr int kThreads = 32 * kDown * kAcross;
  static constexpr int kRowParts = kRows / kDown / 16, kColumnParts = kColumns / kAcross / 8;
  static constexpr int kStageBytes = (kRows + kColumns) * kRowBytes;
  static constexpr int kPitch = kColumns + 8;  // floats between rows of the sums
  static constexpr int kBytes = kStages * kStageBytes;
  static_assert(kRows * kPitch * 4 <= kBytes && kColumnParts % 2 == 0);
  static_assert(kRows * 8 % kThreads == 0 && kColumns * 8 % kThreads == 0);
};

struct Product {
  Matvec<bf16> p;
  int parts = 1, row_tiles = 1;
  bool packets = false;  // residual and result can be moved in packets of four
};

__device__ inline uint32_t shared_at(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ inline int piece_at(int row, int piece) { return row * kRowBytes + ((piece ^ (row & 7)) << 4); }
__device__ inline void copy_piece(char* to, const bf16* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_at(to)), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
__device__ inline void load_fragments(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void cluster_barrier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
#endif
}
// Four sums of the block `rank` of the cluster, at the address that they would have here.
__device__ inline float4 sums_of(uint32_t address, int rank) {
  float4 v{};
#if __CUDA_ARCH__ >= 900
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(there)
               : "memory");
#endif
  return v;
}

// Gated: eight rows of Wg lie before the eight of Wu that belong to them, so that a thread has both.
template <int kRows, bool kGated>
__global__ void __launch_bounds__(Tile<kRows>::kThreads, 2) tiles_kernel(Product product) {
  using L = Tile<kRows>;
  extern __shared__ __align__(128) char memory[];
  const Matvec<bf16>& p = product.p;
  const int in = static_cast<int>(p.in), parts = product.parts;
  const int part = static_cast<int>(blockIdx.x) % parts, tile = static_cast<int>(blockIdx.x) / parts;
  const int64_t first_row = int64_t{tile % product.row_tiles} * kRows;
  constexpr int kOuts = kGated ? L::kColumns / 2 : L::kColumns;
  const int64_t first_out = int64_t{tile / product.row_tiles} * kOuts;
  const int depths = (in + kDepth - 1) / kDepth, share = (depths + parts - 1) / parts;
  const int begin = min(part * share, depths), count = min(share, depths - begin);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;

  const auto load_weights = [&](int step) {
    char* const to = memory + step % L::kStages * L::kStageBytes + kRows * kRowBytes;
#pragma unroll
    for (int j = 0; j < L::kColumns * 8 / L::kThreads; ++j) {
      const int i = j * L::kThreads + thread, row = i / 8, piece = i % 8,
                column = (begin + step) * kDepth + piece * 8;
      const int64_t out = first_out + (kGated ? row / 16 * 8 + row % 8 : row);
      const bool there = out < p.out && column < in;
      const int64_t from = kGated && row / 8 % 2 == 1 ? out + p.out : out;
      copy_piece(to + piece_at(row, piece), there ? p.weight + from * p.in + column : p.weight, there);
    }
  };
  const auto load_rows = [&](int step) {
    char* const to = memory + step % L::kStages * L::kStageBytes;
#pragma unroll
    for (int j = 0; j < kRows * 8 / L::kThreads; ++j) {
      const int i = j * L::kThreads + thread, row = i / 8, piece = i % 8,
                column = (begin + step) * kDepth + piece * 8;
      const bool there = first_row + row < p.rows && column < in;
      copy_piece(to + piece_at(row, piece), there ? p.x + (first_row + row) * p.x_stride + column : p.x,
                 there);
    }
  };
  for (int step = 0; step < L::kStages - 1; ++step)
    if (step < count) load_weights(step);
  begin_kernel();
  for (int step = 0; step < L::kStages - 1; ++step) {
    if (step < count) load_rows(step);
    close_copy_group();  // the first has W of all of them
  }

  float sums[L::kRowParts][L::kColumnParts][4] = {};
  const int warp_row = warp % L::kDown * (kRows / L::kDown),
            warp_column = warp / L::kDown * (L::kColumns / L::kAcross);
  for (int step = 0; step < count; ++step) {
    wait_for_copies<L::kStages - 2>();
    __syncthreads();  // and nobody reads the tiles of the step before any more
    if (const int next = step + L::kStages - 1; next < count) {
      load_weights(next);
      load_rows(next);
    }
    close_copy_group();
    const uint32_t rows = shared_at(memory + step % L::kStages * L::kStageBytes),
                   weights = rows + kRows * kRowBytes;
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      uint32_t a[L::kRowParts][4], b[L::kColumnParts / 2][4];
#pragma unroll
      for (int m = 0; m < L::kRowParts; ++m)
        load_fragments(
            a[m], rows + static_cast<uint32_t>(piece_at(warp_row + m * 16 + lane % 16, 2 * k + lane / 16)));
#pragma unroll
      for (int n = 0; n < L::kColumnParts / 2; ++n)
        load_fragments(
            b[n], weights + static_cast<uint32_t>(piece_at(warp_column + n * 16 + lane / 16 * 8 + lane % 8,
                                                           2 * k + lane / 8 % 2)));
#pragma unroll
      for (int m = 0; m < L::kRowParts; ++m)
#pragma unroll
        for (int n = 0; n < L::kColumnParts; ++n)
          multiply_add(sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
    }
  }
  wait_for_copies<0>();
  __syncthreads();
  auto* const all = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int m = 0; m < L::kRowParts; ++m)
#pragma unroll
    for (int n = 0; n < L::kColumnParts; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp_row + m * 16 + half * 8 + lane / 4, column = warp_column + n * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(all + row * L::kPitch + column) =
            make_float2(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
      }
  if (parts > 1)
    cluster_barrier();
  else
    __syncthreads();

  // Every block of the cluster finishes some of the rows.
  const int rows_each = (kRows + parts - 1) / parts, last = min((part + 1) * rows_each, kRows);
  const auto added = [&](int row, int column) {
    const uint32_t address = shared_at(all + row * L::kPitch + column);
    float4 sum{};
    if (parts == 1) {
      sum = *reinterpret_cast<const float4*>(all + row * L::kPitch + column);
    } else {
      for (int rank = 0; rank < parts; ++rank) {
        const float4 v = sums_of(address, rank);
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
      }
    }
    return sum;
  };
  constexpr int kPackets = kOuts / 4;
  for (int i = thread; i < (last - part * rows_each) * kPackets; i += L::kThreads) {
    const int row = part * rows_each + i / kPackets, column = i % kPackets * 4;
    const int64_t to = first_row + row;
    const int out = static_cast<int>(first_out) + column;
    if (to >= p.rows || out >= p.out) continue;
    float y[4];
    if constexpr (kGated) {
      const int at = column / 8 * 16 + column % 8;
      const float4 gate = added(row, at), up = added(row, at + 8);
      y[0] = gate.x * logistic(gate.x) * up.x, y[1] = gate.y * logistic(gate.y) * up.y;
      y[2] = gate.z * logistic(gate.z) * up.z, y[3] = gate.w * logistic(gate.w) * up.w;
    } else {
      const float4 sum = added(row, column);
      y[0] = sum.x, y[1] = sum.y, y[2] = sum.z, y[3] = sum.w;
      if (p.residual) {
        float residual[4];
        unpack(
            load_packet(p.residual + to * p.residual_stride, out, static_cast<int>(p.out), product.packets),
            residual);
#pragma unroll
        for (int j = 0; j < 4; ++j) y[j] += residual[j];
      }
    }
    if (p.wide_y)
      store_packet(p.wide_y + to * p.y_stride, out, static_cast<int>(p.out), product.packets, y);
    else
      store_packet(p.y + to * p.y_stride, out, static_cast<int>(p.out), product.packets, y);
  }
  if (parts > 1) cluster_barrier();  // others may still read the sums here
}

template <int kRows, bool kGated>
void run(const Matvec<bf16>& p, Cuda device) {
  using L = Tile<kRows>;
  constexpr int64_t kOuts = kGated ? L::kColumns / 2 : L::kColumns;
  const int64_t row_tiles = (p.rows + kRows - 1) / kRows, tiles = row_tiles * ((p.out + kOuts - 1) / kOuts);
  const int64_t depths = (p.in + kDepth - 1) / kDepth, width = cuda_device().multiprocessors;
  // Steps of the blocks of a multiprocessor one after the other, and what adding the parts costs.
  const auto cost = [&](int64_t parts) {
    return (tiles * parts + width - 1) / width * ((depths + parts - 1) / parts) + parts;
  };
  Product product{p, 1, static_cast<int>(row_tiles)};
  for (int64_t parts = 2; parts <= std::min<int64_t>(kMostParts, depths); ++parts)
    if (cost(parts) < cost(product.parts)) product.parts = static_cast<int>(parts);
  product.packets = p.out % 4 == 0 && (!p.residual || packets_fit(p.residual, p.residual_stride)) &&
                    (p.wide_y ? packets_fit(p.wide_y, p.y_stride) : packets_fit(p.y, p.y_stride));
  allow_shared_memory(tiles_kernel<kRows, kGated>, L::kBytes, "matvec: tiles");
  launch_clusters("matvec: tiles", tiles_kernel<kRows, kGated>, static_cast<unsigned>(tiles * product.parts),
                  L::kThreads, static_cast<unsigned>(product.parts), L::kBytes, device, product);
}
template <int kRows>
void run_rows(const Matvec<bf16>& p, Cuda device) {
  p.gated ? run<kRows, true>(p, device) : run<kRows, false>(p, device);
}

}  // namespace

bool matvec_tiles_cover(const Matvec<bf16>& p) {
  return cuda_device().compute_major >= 9 && p.rows <= kMatvecTileRows && !p.norm;
}

void matvec_tiles(const Matvec<bf16>& p, Cuda device) {
  if (p.rows <= 16) return run_rows<16>(p, device);
  if (p.rows <= 32) return run_rows<32>(p, device);
  if (p.rows <= 64) return run_rows<64>(p, device);
  run_rows<128>(p, device);
}

}  // namespace signet::kernels
