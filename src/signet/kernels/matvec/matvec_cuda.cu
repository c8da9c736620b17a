#include "signet/kernels/activation/activation_device.cuh"
#include "signet/kernels/matvec/matvec.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kPiece = 8;             // bf16 values of a lane's 16 bytes
constexpr int kStride = 32 * kPiece;  // columns of a warp's load

enum class NormOf { kNothing, kRow, kGroups };

// 16 bytes that no kernel writes meanwhile and that nobody reads again, or zeros. Volatile, so that it stays
// ahead of the wait; without a branch, so that all loads of a thread are under way at once.
__device__ inline uint4 load_once(const bf16* p, bool there) {
  uint4 v;
  asm volatile(
      "{ .reg .pred p; setp.ne.u32 p, %5, 0; mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0;\n"
      "@p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
      : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
      : "l"(p), "r"(static_cast<int>(there)));
  return v;
}
__device__ inline void widen(const uint4& packed, float (&v)[kPiece]) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = __uint_as_float(words[i] << 16);
    v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

// Sum over `lanes` neighbours, a power of two.
__device__ inline float group_sum(float x, int lanes) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
  return x;
}

// A row of n in shared memory: the first four columns of every piece, behind them the last four of every
// piece, so that lanes with neighbouring pieces do not meet in a bank.
struct SharedRow {
  float4* at;
  int pieces;
  __device__ void get(int piece, float (&v)[kPiece]) const {
    const float4 low = at[piece], high = at[pieces + piece];
    v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
    v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
  }
  __device__ void set(int piece, const float (&v)[kPiece]) const {
    at[piece] = make_float4(v[0], v[1], v[2], v[3]);
    at[pieces + piece] = make_float4(v[4], v[5], v[6], v[7]);
  }
};

// Makes n of a row, but for the scale of a norm over the whole row, where the gains lie in `gains`, which may
// be the row itself. Returns this thread's part of the sum of squares.
template <NormOf kNorm>
__device__ inline float make_row(const Matvec<bf16>& p, const bf16* x, SharedRow gains, SharedRow row) {
  constexpr int kTogether = 3;
  float squares = 0.0f;
  for (int base = 0; base < row.pieces; base += kTogether * kThreads) {
    uint4 packed[kTogether];
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      const int piece = base + t * kThreads + static_cast<int>(threadIdx.x);
      packed[t] =
          x && piece < row.pieces ? *reinterpret_cast<const uint4*>(x + piece * kPiece) : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      if (base + t * kThreads >= row.pieces) break;  // of the whole block
      const int piece = base + t * kThreads + static_cast<int>(threadIdx.x);
      const bool inside = piece < row.pieces;
      float v[kPiece];
      widen(packed[t], v);
      if constexpr (kNorm != NormOf::kNothing) {
        float square = 0.0f, scale = 1.0f, gain[kPiece] = {};
#pragma unroll
        for (float each : v) square = fmaf(each, each, square);
        squares += square;
        if constexpr (kNorm == NormOf::kGroups) {
          const float sum = group_sum(square, static_cast<int>(p.group) / kPiece);
          scale = inverse_root(sum / static_cast<float>(p.group) + p.eps);
        }
        if (inside) gains.get(piece, gain);
#pragma unroll
        for (int i = 0; i < kPiece; ++i) v[i] *= gain[i] * scale;
      }
      if (inside) row.set(piece, v);
    }
  }
  return squares;
}

// A warp makes kOut neighbouring outputs of every row (gated: one, of a row of Wg and one of Wu). Of its rows
// of W eight loads are under way at all times, the first of them before the kernel ahead has ended; then the
// block makes n.
template <int kRows, int kOut, NormOf kNorm, bool kGated>
__global__ void __launch_bounds__(kThreads, kRows == 1 ? 3 : 2) matvec_kernel(Matvec<bf16> p) {
  static_assert(!kGated || kOut == 2);
  constexpr int kDepth = 8 / kOut;
  extern __shared__ __align__(16) float4 shared[];
  __shared__ float shared_squares[kRows][kWarps];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int in = static_cast<int>(p.in), pieces = in / kPiece;
  const int64_t job = static_cast<int64_t>(blockIdx.x) * kWarps + warp, first = kGated ? job : job * kOut;
  const bool live = first < p.out;
  const bf16* rows[kOut];
#pragma unroll
  for (int o = 0; o < kOut; ++o) {
    const int64_t row = kGated ? first + o * p.out : min(first + o, p.out - 1);
    rows[o] = p.weight + (live ? row : 0) * p.in;
  }
  uint4 weights[kOut][kDepth];
#pragma unroll
  for (int d = 0; d < kDepth; ++d) {
    const int column = d * kStride + lane * kPiece;
#pragma unroll
    for (int o = 0; o < kOut; ++o) weights[o][d] = load_once(rows[o] + column, live && column < in);
  }
  if constexpr (kNorm != NormOf::kNothing) {
    for (int piece = static_cast<int>(threadIdx.x); piece < pieces; piece += kThreads) {
      const int column = piece * kPiece;
      const auto* from =
          reinterpret_cast<const float4*>(p.norm + (kNorm == NormOf::kRow ? column : column % p.group));
      shared[piece] = __ldg(from), shared[pieces + piece] = __ldg(from + 1);
    }
  }
  begin_kernel();
  float added[kOut][kRows] = {};
  if (!kGated && p.residual) {
#pragma unroll
    for (int o = 0; o < kOut; ++o) {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (first + o < p.out && r < p.rows)
          added[o][r] = to_float(p.residual[r * p.residual_stride + first + o]);
    }
  }
#pragma unroll
  for (int r = kRows - 1; r >= 0; --r) {  // the first row replaces the gains
    const float squares = make_row<kNorm>(p, r < p.rows ? p.x + r * p.x_stride : nullptr, {shared, pieces},
                                          {shared + r * 2 * pieces, pieces});
    if constexpr (kNorm == NormOf::kRow) {
      const float sum = lane_sum<32>(squares);
      if (lane == 0) shared_squares[r][warp] = sum;
    }
  }
  __syncthreads();
  float sums[kOut][kRows] = {};
  for (int base = 0; base < in; base += kDepth * kStride) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const int column = base + d * kStride + lane * kPiece, next = column + kDepth * kStride;
      float w[kOut][kPiece];
#pragma unroll
      for (int o = 0; o < kOut; ++o) {
        widen(weights[o][d], w[o]);
        weights[o][d] = load_once(rows[o] + next, live && next < in);
      }
      const int piece = min(column / kPiece, pieces - 1);  // beyond the end weights are zero
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float n[kPiece];
        SharedRow{shared + r * 2 * pieces, pieces}.get(piece, n);
#pragma unroll
        for (int o = 0; o < kOut; ++o) {
#pragma unroll
          for (int i = 0; i < kPiece; ++i) sums[o][r] = fmaf(n[i], w[o][i], sums[o][r]);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float scale = 1.0f;
    if constexpr (kNorm == NormOf::kRow) {
      float square = 0.0f;
#pragma unroll
      for (float part : shared_squares[r]) square += part;
      scale = inverse_root(square / static_cast<float>(in) + p.eps);
    }
    float y[kOut];
#pragma unroll
    for (int o = 0; o < kOut; ++o) y[o] = lane_sum<32>(sums[o][r]) * scale;
    if (lane != 0 || !live || r >= p.rows) continue;
    if constexpr (kGated) {
      p.y[r * p.y_stride + first] = from_float<bf16>(y[0] * logistic(y[0]) * y[1]);
    } else {
#pragma unroll
      for (int o = 0; o < kOut; ++o) {
        const int64_t column = first + o;
        if (column >= p.out) continue;
        y[o] += added[o][r];
        if (p.wide_y)
          p.wide_y[r * p.y_stride + column] = y[o];
        else
          p.y[r * p.y_stride + column] = from_float<bf16>(y[o]);
      }
    }
  }
}

int64_t shared_bytes(const Matvec<bf16>& p) {
  return (p.rows > 2 ? 4 : p.rows) * p.in * int64_t{sizeof(float)};
}

// Beside it, of shared_squares.
constexpr int64_t kSquaresBytes = kMatvecRows * kWarps * int64_t{sizeof(float)};

template <int kRows, int kOut, NormOf kNorm, bool kGated>
void run(const Matvec<bf16>& p, Cuda device) {
  const int64_t jobs = kGated ? p.out : (p.out + kOut - 1) / kOut;
  const auto kernel = matvec_kernel<kRows, kOut, kNorm, kGated>;
  allow_shared_memory(kernel, shared_bytes(p), "matvec");
  launch("matvec", kernel, static_cast<unsigned>((jobs + kWarps - 1) / kWarps), kThreads,
         static_cast<size_t>(shared_bytes(p)), device, p);
}
template <int kRows, NormOf kNorm>
void run_out(const Matvec<bf16>& p, Cuda device) {
  if (p.gated) return run<kRows, 2, kNorm, true>(p, device);
  // Two outputs a warp share what n costs; one each where the loads under way would be too few.
  if (p.out >= (p.in <= 4 * kStride ? 2048 : 4096)) return run<kRows, 2, kNorm, false>(p, device);
  run<kRows, 1, kNorm, false>(p, device);
}
template <int kRows>
void run_norm(const Matvec<bf16>& p, Cuda device) {
  if (!p.norm) return run_out<kRows, NormOf::kNothing>(p, device);
  if (p.group == p.in) return run_out<kRows, NormOf::kRow>(p, device);
  run_out<kRows, NormOf::kGroups>(p, device);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

bool matvec_covers(const Matvec<bf16>& p) {
  const bool whole = p.group == p.in, part = p.group >= kPiece && p.group <= kStride &&
                                             (p.group & (p.group - 1)) == 0 && p.in % p.group == 0;
  return p.rows >= 1 && p.rows <= kMatvecRows && p.in >= kPiece && p.in % kPiece == 0 &&
         fits_shared_memory(static_cast<size_t>(shared_bytes(p) + kSquaresBytes)) &&
         p.x_stride % kPiece == 0 && aligned(p.x) && aligned(p.weight) &&
         (!p.norm || ((whole || part) && aligned(p.norm)));
}

void matvec(const Matvec<bf16>& p, Cuda device) {
  if (p.out == 0) return;
  if (p.rows == 1) return run_norm<1>(p, device);
  if (p.rows == 2) return run_norm<2>(p, device);
  run_norm<4>(p, device);
}

}  // namespace signet::kernels
