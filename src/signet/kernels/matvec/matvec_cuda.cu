#include "signet/kernels/activation/activation_device.cuh"
#include "signet/kernels/matvec/matvec.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kPiece = 8;             // bf16 values of a lane's 16 bytes
constexpr int kStride = 32 * kPiece;  // columns of a warp's load

enum class NormOf { kNothing, kRow, kGroups };

// 16 bytes that no kernel writes meanwhile and that nobody reads again. Volatile, so that it stays ahead of
// the wait.
__device__ inline uint4 load_once(const bf16* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
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

// A warp makes kOut neighbouring outputs of every row (gated: one, of a row of Wg and one of Wu). Of its rows
// of W kDepth loads are under way at once; the first of them before the kernel ahead has ended.
template <int kRows, int kOut, NormOf kNorm, bool kGated>
__global__ void __launch_bounds__(32 * kWarps) matvec_kernel(Matvec<bf16> p) {
  static_assert(!kGated || kOut == 2);
  constexpr int kDepth = 8 / kOut;
  const int lane = static_cast<int>(threadIdx.x % 32), in = static_cast<int>(p.in);
  const int64_t job = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int64_t first = kGated ? job : job * kOut;
  const bool live = first < p.out;
  const bf16* rows[kOut];
#pragma unroll
  for (int o = 0; o < kOut; ++o) {
    const int64_t row = kGated ? first + o * p.out : min(first + o, p.out - 1);
    rows[o] = p.weight + (live ? row : 0) * p.in;
  }
  float sums[kOut][kRows] = {}, squares[kRows] = {};
  bool begun = false;
  for (int base = 0; base < in; base += kDepth * kStride) {
    uint4 weights[kOut][kDepth];
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const int column = base + d * kStride + lane * kPiece;
#pragma unroll
      for (int o = 0; o < kOut; ++o)
        weights[o][d] = live && column < in ? load_once(rows[o] + column) : uint4{0, 0, 0, 0};
    }
    if (!begun) begin_kernel();
    begun = true;
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      if (base + d * kStride >= in) break;  // of the whole warp
      const int column = base + d * kStride + lane * kPiece;
      const bool inside = column < in;
      float gain[kPiece];
      if constexpr (kNorm != NormOf::kNothing) {
        const float4* from =
            reinterpret_cast<const float4*>(p.norm + (kNorm == NormOf::kRow ? column : column % p.group));
        const float4 low = inside ? __ldg(from) : float4{}, high = inside ? __ldg(from + 1) : float4{};
        gain[0] = low.x, gain[1] = low.y, gain[2] = low.z, gain[3] = low.w;
        gain[4] = high.x, gain[5] = high.y, gain[6] = high.z, gain[7] = high.w;
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const bool there = inside && r < p.rows;
        const uint4 packed =
            there ? *reinterpret_cast<const uint4*>(p.x + r * p.x_stride + column) : uint4{0, 0, 0, 0};
        float x[kPiece];
        widen(packed, x);
        if constexpr (kNorm != NormOf::kNothing) {
          float square = 0.0f;
#pragma unroll
          for (float v : x) square = fmaf(v, v, square);
          float scale = 1.0f;
          if constexpr (kNorm == NormOf::kRow) {
            squares[r] += square;
          } else {
            const float mean =
                group_sum(square, static_cast<int>(p.group) / kPiece) / static_cast<float>(p.group);
            scale = inverse_root(mean + p.eps);
          }
#pragma unroll
          for (int i = 0; i < kPiece; ++i) x[i] *= gain[i] * scale;
        }
#pragma unroll
        for (int o = 0; o < kOut; ++o) {
          float w[kPiece];
          widen(weights[o][d], w);
#pragma unroll
          for (int i = 0; i < kPiece; ++i) sums[o][r] = fmaf(x[i], w[i], sums[o][r]);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float scale = kNorm == NormOf::kRow
                            ? inverse_root(lane_sum<32>(squares[r]) / static_cast<float>(in) + p.eps)
                            : 1.0f;
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
        if (p.residual) y[o] += to_float(p.residual[r * p.residual_stride + column]);
        if (p.wide_y)
          p.wide_y[r * p.y_stride + column] = y[o];
        else
          p.y[r * p.y_stride + column] = from_float<bf16>(y[o]);
      }
    }
  }
}

template <int kRows, int kOut, NormOf kNorm, bool kGated>
void run(const Matvec<bf16>& p, Cuda device) {
  const int64_t jobs = kGated ? p.out : (p.out + kOut - 1) / kOut;
  launch("matvec", matvec_kernel<kRows, kOut, kNorm, kGated>,
         static_cast<unsigned>((jobs + kWarps - 1) / kWarps), 32 * kWarps, 0, device, p);
}
template <int kRows, NormOf kNorm>
void run_out(const Matvec<bf16>& p, Cuda device) {
  if (p.gated) return run<kRows, 2, kNorm, true>(p, device);
  // Two outputs a warp share what x costs; one each where there would be too few warps.
  if (p.out >= 2048) return run<kRows, 2, kNorm, false>(p, device);
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
