// A block has two warpgroups of 64 rows, a warp 16 of them. The matrices go by in slices of 64 hidden
// columns, two in shared memory, which both groups read; wgmma takes n and dy from shared memory, and what a
// slice yields (h, and its gradients) goes from accumulator to factor without leaving the registers.
//
// Shared matrices are panels of 64 columns: rows of 128 bytes whose 16-byte pieces are exchanged, piece ^ row
// % 8 (wgmma's 128-byte swizzle). A panel is read as a factor with k along the row or across rows.
//
// Registers: lane = 4 g + t of a warp has, of a result of 16 x 8, row g, columns 2t and 2t + 1, then row g +
// 8; a factor of 16 x 16 is two such results side by side, packed.
#include <algorithm>

#include "signet/kernels/activation/activation_device.cuh"
#include "signet/kernels/mlp/mlp.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/packet.cuh"

namespace signet::kernels {
namespace {

constexpr int kWidth = 128, kSlice = 64, kWarps = 8, kThreads = 32 * kWarps, kRows = 16 * kWarps;
constexpr int kSteps = kWidth / 16, kTiles = kWidth / 8;
constexpr int kPanel = 64 * 128;  // bytes of 64 rows of a panel
constexpr int kGateAt = 0, kUpAt = 2 * kPanel, kDownAt = 4 * kPanel, kStageBytes = 6 * kPanel;
constexpr int kOperandBytes = 2 * 2 * kPanel;  // n or dy of the block: two groups of two panels
constexpr int kStagingRow = 3 * 2 * kSlice + 16, kStagingBytes = kWarps * 16 * kStagingRow;
constexpr int kForwardBytes = 1024 + 2 * kStageBytes + kOperandBytes + kStagingBytes;
constexpr int kBackwardBytes = kForwardBytes + kOperandBytes;

__device__ inline uint32_t pack_pair(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}
__device__ inline float2 unpack_pair(uint32_t word) {
  return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}
__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ inline void as_factor(uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = pack_pair(left[0], left[1]), a[1] = pack_pair(left[2], left[3]);
  a[2] = pack_pair(right[0], right[1]), a[3] = pack_pair(right[2], right[3]);
}
// Sum over the four lanes that share a row.
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Where a piece of 8 elements of a panel lies, in bytes.
__device__ inline int piece_at(int row, int piece) { return row * 128 + ((piece ^ (row & 7)) << 4); }
// Elements 2t, 2t + 1 of a row of n or dy of a group, `column` even.
__device__ inline uint32_t& operand_word(char* group, int row, int column) {
  return *reinterpret_cast<uint32_t*>(group + column / 64 * kPanel + piece_at(row, column % 64 / 8) +
                                      column % 8 * 2);
}

// A 64 x 16 or 16 x 64 part of a panel: groups of 8 rows are 1024 bytes apart.
__device__ inline uint64_t part(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | uint64_t{64} << 16 | uint64_t{64} << 32 |
         uint64_t{1} << 62;
}
#define SIGNET_SUMS(c)                                                                                     \
  "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), \
      "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]),            \
      "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]),            \
      "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), "+f"(c[6][0]),            \
      "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]),            \
      "+f"(c[7][3])
#define SIGNET_SUM_NAMES                                                            \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21," \
  "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
using Sums = float[8][4];  // 16 rows of this warp, 64 columns

// c += a b: a 64 x 16 in shared memory, b 16 x 64 there, stored by columns or, kAcross, by rows.
template <bool kAcross>
__device__ inline void multiply(Sums& c, uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SIGNET_SUM_NAMES
      "%32, %33, p, 1, 1, 0, %34;\n}\n"
      : SIGNET_SUMS(c)
      : "l"(a), "l"(b), "n"(kAcross ? 1 : 0));
#endif
}
// The same with the warp's 16 rows of a in registers.
template <bool kAcross>
__device__ inline void multiply(Sums& c, const uint32_t (&a)[4], uint64_t b) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SIGNET_SUM_NAMES
      "{%32,%33,%34,%35}, %36, p, 1, 1, %37;\n}\n"
      : SIGNET_SUMS(c)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAcross ? 1 : 0));
#endif
}
#undef SIGNET_SUMS
#undef SIGNET_SUM_NAMES

// Products lie between begin and end; their registers stay untouched in between.
__device__ inline void begin_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#endif
}
__device__ inline void close_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
#endif
}
__device__ inline void wait_for_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
#endif
}
__device__ inline void keep_in_place(Sums& c) {
#pragma unroll
  for (int n = 0; n < 8; ++n)
    asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
}
// What this thread has written to shared memory is seen by wgmma after the next barrier.
__device__ inline void show_to_products() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
#endif
}

// The rows of a warp, and where its block keeps things.
struct Place {
  int warp, lane, g, t;
  int64_t first;
  int live;                 // rows that are there
  char *stages, *operands;  // operands: of this warpgroup
  char* staging;            // of this warp, 16 rows of kStagingRow bytes
  int row;                  // of the group, the warp's first
  __device__ Place(char* shared, int64_t rows) {
    warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    g = lane / 4, t = lane % 4;
    first = int64_t{blockIdx.x} * kRows + warp * 16;
    live = static_cast<int>(max(int64_t{0}, min(int64_t{16}, rows - first)));
    stages = shared + (1024 - shared_address(shared) % 1024) % 1024;
    operands = stages + 2 * kStageBytes + warp / 4 * 2 * kPanel;
    staging = stages + 2 * kStageBytes + kOperandBytes + warp * 16 * kStagingRow;
    row = warp % 4 * 16;
  }
  __device__ uint32_t& word(int r, int column) const {
    return *reinterpret_cast<uint32_t*>(staging + r * kStagingRow + 2 * column);
  }
  // The warp's rows of a matrix of kWidth columns, zeros below the last; body(row, piece, its 16 bytes).
  template <class Body>
  __device__ void load_rows(const bf16* from, int64_t stride, Body body) const {
#pragma unroll
    for (int i = lane; i < 16 * (kWidth / 8); i += 32) {
      const int r = i / (kWidth / 8), piece = i % (kWidth / 8);
      body(r, piece,
           r < live ? *reinterpret_cast<const uint4*>(from + (first + r) * stride + 8 * piece)
                    : make_uint4(0, 0, 0, 0));
    }
  }
  __device__ void load_staging(const bf16* from, int64_t stride) const {
    load_rows(from, stride, [&](int r, int piece, uint4 bits) {
      *reinterpret_cast<uint4*>(staging + r * kStagingRow + 16 * piece) = bits;
    });
  }
  // kColumns columns of the staging rows from `column` on, to rows of a matrix that begin at `to`.
  template <int kColumns>
  __device__ void store_staging(int column, bf16* to, int64_t stride) const {
#pragma unroll
    for (int i = lane; i < 16 * (kColumns / 8); i += 32) {
      const int r = i / (kColumns / 8), piece = i % (kColumns / 8);
      if (r < live)
        *reinterpret_cast<uint4*>(to + r * stride + 8 * piece) =
            *reinterpret_cast<const uint4*>(staging + r * kStagingRow + 2 * column + 16 * piece);
    }
  }
};

// x from the staging rows; n as an operand of the group. Returns rstd of rows g and g + 8.
__device__ inline float2 normalise(const Place& at, char* operand, const float* norm, float eps) {
  float2 x[kTiles][2];
  float total[2] = {};
#pragma unroll
  for (int c = 0; c < kTiles; ++c) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      x[c][half] = unpack_pair(at.word(at.g + 8 * half, 8 * c + 2 * at.t));
      total[half] = fmaf(x[c][half].x, x[c][half].x, fmaf(x[c][half].y, x[c][half].y, total[half]));
    }
  }
  const float2 rstd = make_float2(rsqrtf(row_sum(total[0]) * (1.0f / kWidth) + eps),
                                  rsqrtf(row_sum(total[1]) * (1.0f / kWidth) + eps));
#pragma unroll
  for (int c = 0; c < kTiles; ++c) {
    const float2 w = *reinterpret_cast<const float2*>(norm + 8 * c + 2 * at.t);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float r = half == 0 ? rstd.x : rstd.y;
      operand_word(operand, at.row + at.g + 8 * half, 8 * c + 2 * at.t) =
          pack_pair(x[c][half].x * r * w.x, x[c][half].y * r * w.y);
    }
  }
  return rstd;
}

// Copies one slice of the matrices: 64 rows of gate and of up, 64 columns of down.
template <class P>
__device__ inline void fetch_slice(const P& p, char* stage, int slice) {
  const auto copy = [&](int to, const bf16* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(stage + to)), "l"(from)
                 : "memory");
  };
#pragma unroll
  for (int i = threadIdx.x; i < 2 * kSlice * (kWidth / 8); i += kThreads) {
    const int row = i / (kWidth / 8), piece = i % (kWidth / 8), which = row / kSlice, j = row % kSlice;
    copy(which * kUpAt + piece / 8 * kPanel + piece_at(j, piece % 8),
         p.gate_up + (which * p.hidden + slice * kSlice + j) * kWidth + 8 * piece);
  }
#pragma unroll
  for (int i = threadIdx.x; i < kWidth * (kSlice / 8); i += kThreads) {
    const int row = i / (kSlice / 8), piece = i % (kSlice / 8);
    copy(kDownAt + piece_at(row, piece), p.down + row * p.hidden + slice * kSlice + 8 * piece);
  }
}

// body(slice, its address in shared memory) for every slice, the next one on its way.
template <class P, class Body>
__device__ inline void for_each_slice(const P& p, char* stages, Body body) {
  const int slices = static_cast<int>(p.hidden) / kSlice;
  for (int slice = 0; slice < slices; ++slice) {
    wait_for_copies<0>();
    show_to_products();
    __syncthreads();  // the slice is there for all, and nobody reads the one before any more
    if (slice + 1 < slices) fetch_slice(p, stages + (slice + 1) % 2 * kStageBytes, slice + 1);
    close_copy_group();
    body(slice, shared_address(stages + slice % 2 * kStageBytes));
  }
}

__device__ inline void clear(Sums& c) {
#pragma unroll
  for (auto& tile : c) {
#pragma unroll
    for (float& each : tile) each = 0.0f;
  }
}

// gate += n Wg^T and up += n Wu^T of a slice, for the group's operand n.
__device__ inline void project(Sums& gate, Sums& up, uint32_t n, uint32_t slice) {
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const uint32_t k = s / 4 * kPanel + s % 4 * 32;
    multiply<false>(gate, part(n + k), part(slice + kGateAt + k));
    multiply<false>(up, part(n + k), part(slice + kUpAt + k));
  }
}

__global__ void __launch_bounds__(kThreads, 1) forward_kernel(MlpForward p) {
  begin_kernel();
  extern __shared__ char shared[];
  const Place at(shared, p.rows);
  fetch_slice(p, at.stages, 0), close_copy_group();
  at.load_staging(p.x, p.x_stride);
  __syncwarp();
  normalise(at, at.operands, p.norm, p.eps);
  const uint32_t n = shared_address(at.operands);
  Sums y[2];
  clear(y[0]), clear(y[1]);
  for_each_slice(p, at.stages, [&](int, uint32_t slice) {
    Sums gate, up;
    clear(gate), clear(up);
    keep_in_place(gate), keep_in_place(up);
    begin_products();
    project(gate, up, n, slice);
    close_products(), wait_for_products();
    keep_in_place(gate), keep_in_place(up);
    uint32_t h[4][4];
#pragma unroll
    for (int c = 0; c < 8; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) up[c][i] *= gate[c][i] * logistic(gate[c][i]);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) as_factor(h[k], up[2 * k], up[2 * k + 1]);
    keep_in_place(y[0]), keep_in_place(y[1]);
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      multiply<false>(y[0], h[k], part(slice + kDownAt + 32 * k));
      multiply<false>(y[1], h[k], part(slice + kDownAt + kPanel + 32 * k));
    }
    close_products(), wait_for_products();
    keep_in_place(y[0]), keep_in_place(y[1]);
  });
#pragma unroll
  for (int c = 0; c < kTiles; ++c) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t& word = at.word(at.g + 8 * half, 8 * c + 2 * at.t);
      const float2 x = unpack_pair(word);
      word = pack_pair(x.x + y[c / 8][c % 8][2 * half], x.y + y[c / 8][c % 8][2 * half + 1]);
    }
  }
  __syncwarp();
  at.store_staging<kWidth>(0, p.y + at.first * p.y_stride, p.y_stride);
}

__global__ void __launch_bounds__(kThreads, 1) backward_kernel(MlpBackward p) {
  begin_kernel();
  extern __shared__ char shared[];
  const Place at(shared, p.rows);
  fetch_slice(p, at.stages, 0), close_copy_group();
  char* const dy_operand =
      at.stages + 2 * kStageBytes + kOperandBytes + kStagingBytes + at.warp / 4 * 2 * kPanel;
  at.load_staging(p.x, p.x_stride);
  at.load_rows(p.dy, p.dy_stride, [&](int r, int piece, uint4 bits) {
    *reinterpret_cast<uint4*>(dy_operand + piece / 8 * kPanel + piece_at(at.row + r, piece % 8)) = bits;
  });
  __syncwarp();
  const float2 rstd = normalise(at, at.operands, p.norm, p.eps);
  __syncwarp();
#pragma unroll
  for (int i = at.lane; i < 16 * (kWidth / 8); i += 32) {
    const int r = i / (kWidth / 8), piece = i % (kWidth / 8);
    if (r < at.live)
      *reinterpret_cast<uint4*>(p.normed + (at.first + r) * kWidth + 8 * piece) =
          *reinterpret_cast<const uint4*>(at.operands + piece / 8 * kPanel + piece_at(at.row + r, piece % 8));
  }
  const uint32_t n = shared_address(at.operands), dy = shared_address(dy_operand);
  Sums dn[2];
  clear(dn[0]), clear(dn[1]);
  for_each_slice(p, at.stages, [&](int index, uint32_t slice) {
    Sums gate, up, dh;
    clear(gate), clear(up), clear(dh);
    keep_in_place(gate), keep_in_place(up), keep_in_place(dh);
    begin_products();
    project(gate, up, n, slice);
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
      multiply<true>(dh, part(dy + s / 4 * kPanel + s % 4 * 32), part(slice + kDownAt + 16 * 128 * s));
    close_products(), wait_for_products();
    keep_in_place(gate), keep_in_place(up), keep_in_place(dh);
    uint32_t h[4][4], dgate[4][4], dup[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float inner[2][4];
#pragma unroll
      for (int c = 2 * k; c < 2 * k + 2; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float x = gate[c][i], s = logistic(x), silu = x * s, d = dh[c][i];
          inner[c % 2][i] = silu * up[c][i];
          gate[c][i] = d * up[c][i] * fmaf(-silu, s, s + silu);
          up[c][i] = d * silu;
        }
      }
      as_factor(h[k], inner[0], inner[1]);
      as_factor(dgate[k], gate[2 * k], gate[2 * k + 1]);
      as_factor(dup[k], up[2 * k], up[2 * k + 1]);
    }
    keep_in_place(dn[0]), keep_in_place(dn[1]);
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t rows = slice + 16 * 128 * k;
      multiply<true>(dn[0], dgate[k], part(rows + kGateAt));
      multiply<true>(dn[1], dgate[k], part(rows + kGateAt + kPanel));
      multiply<true>(dn[0], dup[k], part(rows + kUpAt));
      multiply<true>(dn[1], dup[k], part(rows + kUpAt + kPanel));
    }
    close_products();
    __syncwarp();  // the staging rows have been read
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = at.g + i % 2 * 8, column = 16 * k + i / 2 * 8 + 2 * at.t;
        at.word(row, column) = h[k][i];
        at.word(row, kSlice + column) = dgate[k][i];
        at.word(row, 2 * kSlice + column) = dup[k][i];
      }
    }
    __syncwarp();
    const int64_t column = int64_t{index} * kSlice;
    bf16* const dgates = p.dgate_up + at.first * 2 * p.hidden + column;
    at.store_staging<kSlice>(0, p.inner + at.first * p.hidden + column, p.hidden);
    at.store_staging<kSlice>(kSlice, dgates, 2 * p.hidden);
    at.store_staging<kSlice>(2 * kSlice, dgates + p.hidden, 2 * p.hidden);
    wait_for_products();
    keep_in_place(dn[0]), keep_in_place(dn[1]);
  });
  // With xhat = x rstd and d = dn norm: dx = dy + rstd (d - xhat mean(d xhat)), dnorm = sum dn xhat.
  __syncwarp();
  at.load_staging(p.x, p.x_stride);
  __syncwarp();
  float along[2] = {}, dnorm[kTiles][2];
#pragma unroll
  for (int c = 0; c < kTiles; ++c) {
    float(&d)[4] = dn[c / 8][c % 8];
    const float2 w = *reinterpret_cast<const float2*>(p.norm + 8 * c + 2 * at.t);
    const float2 x0 = unpack_pair(at.word(at.g, 8 * c + 2 * at.t)),
                 x1 = unpack_pair(at.word(at.g + 8, 8 * c + 2 * at.t));
    dnorm[c][0] = fmaf(d[0], x0.x * rstd.x, d[2] * x1.x * rstd.y);
    dnorm[c][1] = fmaf(d[1], x0.y * rstd.x, d[3] * x1.y * rstd.y);
    d[0] *= w.x, d[1] *= w.y, d[2] *= w.x, d[3] *= w.y;
    along[0] = fmaf(d[0], x0.x, fmaf(d[1], x0.y, along[0]));
    along[1] = fmaf(d[2], x1.x, fmaf(d[3], x1.y, along[1]));
  }
  along[0] = row_sum(along[0]) * (1.0f / kWidth) * rstd.x * rstd.x;
  along[1] = row_sum(along[1]) * (1.0f / kWidth) * rstd.y * rstd.y;
#pragma unroll
  for (int c = 0; c < kTiles; ++c) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t& word = at.word(at.g + 8 * half, 8 * c + 2 * at.t);
      const float2 x = unpack_pair(word),
                   d = unpack_pair(operand_word(dy_operand, at.row + at.g + 8 * half, 8 * c + 2 * at.t));
      const float r = half == 0 ? rstd.x : rstd.y;
      const float* sums = &dn[c / 8][c % 8][2 * half];
      word = pack_pair(fmaf(r, sums[0] - x.x * along[half], d.x), fmaf(r, sums[1] - x.y * along[half], d.y));
    }
#pragma unroll
    for (float& each : dnorm[c]) {
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2) each += __shfl_xor_sync(0xffffffffu, each, mask);
    }
  }
  __syncwarp();
  at.store_staging<kWidth>(0, p.dx + at.first * p.dx_stride, p.dx_stride);
  __syncwarp();
#pragma unroll
  for (int c = 0; c < kTiles; ++c)
    if (at.g == 0)
      *reinterpret_cast<float2*>(at.staging + 4 * (8 * c + 2 * at.t)) = make_float2(dnorm[c][0], dnorm[c][1]);
  __syncthreads();
  const char* const all = at.staging - at.warp * 16 * kStagingRow;
  for (int column = threadIdx.x; column < kWidth; column += kThreads) {
    float total = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp)
      total += reinterpret_cast<const float*>(all + warp * 16 * kStagingRow)[column];
    p.workspace[int64_t{blockIdx.x} * kWidth + column] = total;
  }
}

int64_t blocks_for(int64_t rows) { return (rows + kRows - 1) / kRows; }

template <class P>
void check(const P& p, bool aligned) {
  if (!mlp_covers(p.width, p.hidden) || !aligned)
    fail(ErrorCode::kUsage, "no fused SwiGLU block of width {} and hidden width {} here", p.width, p.hidden);
}
bool fits(const void* pointer, int64_t stride) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && stride % 8 == 0;
}

template <class P>
void run(const char* name, void (*kernel)(P), int bytes, const P& p, Cuda device) {
  allow_shared_memory(kernel, bytes, name);
  launch(name, kernel, static_cast<unsigned>(blocks_for(p.rows)), kThreads, static_cast<size_t>(bytes),
         device, p);
}

}  // namespace

bool mlp_covers(int64_t width, int64_t hidden) {
  return width == kWidth && hidden > 0 && hidden % kSlice == 0 && hidden < (int64_t{1} << 24) &&
         cuda_device().compute_major == 9;
}

bool mlp_pays(int64_t rows) {
  constexpr int64_t kLeastRows = 4096;
  return rows >= kLeastRows && blocks_for(rows) <= cuda_device().multiprocessors;
}

int64_t mlp_workspace_size(int64_t rows, int64_t width, Cuda) { return blocks_for(rows) * width; }

void mlp_forward(const MlpForward& p, Cuda device) {
  check(p, fits(p.x, p.x_stride) && fits(p.y, p.y_stride) && fits(p.gate_up, 0) && fits(p.down, 0) &&
               fits(p.norm, 0));
  if (p.rows > 0) run("mlp_forward", forward_kernel, kForwardBytes, p, device);
}

void mlp_backward(const MlpBackward& p, Cuda device) {
  check(p, fits(p.x, p.x_stride) && fits(p.dy, p.dy_stride) && fits(p.dx, p.dx_stride) &&
               fits(p.gate_up, 0) && fits(p.down, 0) && fits(p.norm, 0) && fits(p.normed, 0) &&
               fits(p.inner, 0) && fits(p.dgate_up, 0));
  if (p.rows == 0) return;
  run("mlp_backward", backward_kernel, kBackwardBytes, p, device);
  add_column_sum({p.workspace, blocks_for(p.rows), p.width, p.width, p.dnorm}, p.later, device);
}

}  // namespace signet::kernels
