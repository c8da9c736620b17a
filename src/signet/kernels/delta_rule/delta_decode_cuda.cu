#include "signet/kernels/activation/activation_device.cuh"
#include "signet/kernels/delta_rule/delta_decode.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch_clusters.cuh"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kMaxTaps = 4;

__device__ inline void cluster_barrier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// A head of one sequence belongs to a cluster of D / kColumns blocks, each with kColumns columns of the
// state: thread (r, c) has rows r, r + kRowThreads, .. of columns 4 c .. 4 c + 3 in registers.
template <int D, int kColumns>
struct Layout {
  static constexpr int kSlices = D / kColumns, kColumnThreads = kColumns / 4;
  static constexpr int kThreads = D * kColumns / 16 < 64    ? 64
                                  : D * kColumns / 16 > 256 ? 256
                                                            : D* kColumns / 16;
  static constexpr int kWarps = kThreads / 32, kRowThreads = kThreads / kColumnThreads,
                       kRows = D / kRowThreads;
  static_assert(kRowThreads * kColumnThreads == kThreads && kRows * kRowThreads == D && kColumnThreads <= 32);
};

// The convolution of one channel with its SiLU; `history` is that of this sequence.
template <class T>
__device__ float convolved(const DeltaDecode<T>& p, const T* input, const float* weight, const T* history,
                           int64_t channels, int64_t channel) {
  const int taps = static_cast<int>(p.taps);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kMaxTaps - 1; ++i)
    if (i < taps - 1) sum = fmaf(weight[channel * taps + i], to_float(history[i * channels + channel]), sum);
  sum = fmaf(weight[channel * taps + taps - 1], to_float(input[channel]), sum);
  return sum * logistic(sum);
}
// The last inputs without the oldest and with the new one.
template <class T>
__device__ void move_on(const DeltaDecode<T>& p, const T* input, T* history, int64_t channels,
                        int64_t channel) {
  const int taps = static_cast<int>(p.taps);
  T kept[kMaxTaps];
#pragma unroll
  for (int i = 0; i < kMaxTaps - 2; ++i)
    if (i < taps - 2) kept[i] = history[(i + 1) * channels + channel];
#pragma unroll
  for (int i = 0; i < kMaxTaps - 2; ++i)
    if (i < taps - 2) history[i * channels + channel] = kept[i];
  if (taps > 1) history[(taps - 2) * channels + channel] = input[channel];
}

template <class T, int D, int kColumns>
__global__ void __launch_bounds__(Layout<D, kColumns>::kThreads) decode_kernel(DeltaDecode<T> p) {
  using L = Layout<D, kColumns>;
  extern __shared__ float shared[];
  const int factors = static_cast<int>(p.factors), heads = static_cast<int>(p.heads);
  float* const q = shared;                               // [D]
  float* const k = q + D;                                // [factors, D]
  float* const v = k + factors * D;                      // [factors, kColumns]
  float* const beta = v + factors * kColumns;            // [factors]
  float* const products = beta + (factors + 3) / 4 * 4;  // [kWarps, 2, kColumns]
  const int slice = static_cast<int>(blockIdx.x) % L::kSlices,
            h = static_cast<int>(blockIdx.x) / L::kSlices % heads;
  const int64_t b = blockIdx.x / L::kSlices / heads, inner = p.heads * D;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int column = static_cast<int>(threadIdx.x) % L::kColumnThreads * 4,
            row = static_cast<int>(threadIdx.x) / L::kColumnThreads;
  float* const state = p.state + (b * heads + h) * D * D + slice * kColumns;
  float4 s[L::kRows];
#pragma unroll
  for (int i = 0; i < L::kRows; ++i) {
    const float* from = state + (row + i * L::kRowThreads) * D + column;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(s[i].x), "=f"(s[i].y), "=f"(s[i].z), "=f"(s[i].w)
                 : "l"(from));
  }
  begin_kernel();
  const T* const x = p.x + b * p.x_stride;
  const int64_t history = (p.taps - 1) * inner;
  // A warp makes q, a key, or a value's columns.
  for (int job = warp; job < 1 + 2 * factors; job += L::kWarps) {
    if (job <= factors) {
      const int64_t first = job == 0 ? int64_t{h} * D : (int64_t{job - 1} * heads + h) * D;
      const int64_t channels = job == 0 ? inner : factors * inner;
      const T* const input = job == 0 ? x : x + p.k_at;
      const T* const kept = job == 0 ? p.q_history + b * history : p.k_history + b * history * factors;
      const float* const weight = p.weight + (job == 0 ? 0 : inner * p.taps);
      float made[D / 32], square = 0.0f;
#pragma unroll
      for (int i = 0; i < D / 32; ++i) {
        made[i] = convolved(p, input, weight, kept, channels, first + i * 32 + lane);
        square = fmaf(made[i], made[i], square);
      }
      const float inverse = inverse_root(lane_sum<32>(square) + p.eps);
      float* const to = job == 0 ? q : k + (job - 1) * D;
#pragma unroll
      for (int i = 0; i < D / 32; ++i) to[i * 32 + lane] = made[i] * inverse;
    } else {
      const int j = job - 1 - factors;
      const int64_t first = (int64_t{j} * heads + h) * D + slice * kColumns, channels = factors * inner;
      T* const kept = p.v_history + b * history * factors;
      for (int c = lane; c < kColumns; c += 32) {
        v[j * kColumns + c] =
            convolved(p, x + p.v_at, p.weight + (1 + factors) * inner * p.taps, kept, channels, first + c);
        move_on(p, x + p.v_at, kept, channels, first + c);  // of these columns this block is the only reader
      }
      if (lane == 0) {
        const GateForm form(p.gate);
        beta[j] = activate(p.gate.kind, to_float(x[p.beta_at + j * heads + h]), form);
      }
    }
  }
  if (p.decay_channels > 0) {
    const float* const decay = p.decay + b * p.decay_stride + h * p.decay_channels;
#pragma unroll
    for (int i = 0; i < L::kRows; ++i) {
      const float g = decay[p.decay_channels > 1 ? row + i * L::kRowThreads : 0];
      s[i].x *= g, s[i].y *= g, s[i].z *= g, s[i].w *= g;
    }
  }
  // The old inputs of q and k have been read by all blocks of the cluster when the first one overwrites them.
  if constexpr (L::kSlices > 1)
    cluster_barrier();
  else
    __syncthreads();
  if (slice == 0) {
    for (int c = static_cast<int>(threadIdx.x); c < D * (1 + factors); c += L::kThreads) {
      if (c < D)
        move_on(p, x, p.q_history + b * history, inner, int64_t{h} * D + c);
      else
        move_on(p, x + p.k_at, p.k_history + b * history * factors, factors * inner,
                (int64_t{c / D - 1} * heads + h) * D + c % D);
    }
  }
  for (int j = 0; j < factors; ++j) {
    const float* const key = k + j * D;
    // S^T k and, for the last factor, S^T q and k . q: then o = S'^T q = S^T q + (k . q) w.
    float4 u{}, read{};
    float overlap = 0.0f;
#pragma unroll
    for (int i = 0; i < L::kRows; ++i) {
      const float ki = key[row + i * L::kRowThreads], qi = q[row + i * L::kRowThreads];
      u.x = fmaf(ki, s[i].x, u.x), u.y = fmaf(ki, s[i].y, u.y), u.z = fmaf(ki, s[i].z, u.z),
      u.w = fmaf(ki, s[i].w, u.w);
      read.x = fmaf(qi, s[i].x, read.x), read.y = fmaf(qi, s[i].y, read.y);
      read.z = fmaf(qi, s[i].z, read.z), read.w = fmaf(qi, s[i].w, read.w);
    }
#pragma unroll
    for (int i = 0; i < D / 32; ++i) overlap = fmaf(key[i * 32 + lane], q[i * 32 + lane], overlap);
    overlap = lane_sum<32>(overlap);
#pragma unroll
    for (int mask = L::kColumnThreads; mask < 32; mask *= 2) {
      u.x += __shfl_xor_sync(0xffffffffu, u.x, mask), u.y += __shfl_xor_sync(0xffffffffu, u.y, mask);
      u.z += __shfl_xor_sync(0xffffffffu, u.z, mask), u.w += __shfl_xor_sync(0xffffffffu, u.w, mask);
      read.x += __shfl_xor_sync(0xffffffffu, read.x, mask),
          read.y += __shfl_xor_sync(0xffffffffu, read.y, mask);
      read.z += __shfl_xor_sync(0xffffffffu, read.z, mask),
          read.w += __shfl_xor_sync(0xffffffffu, read.w, mask);
    }
    if (lane < L::kColumnThreads) {
      *reinterpret_cast<float4*>(products + (warp * 2) * kColumns + column) = u;
      *reinterpret_cast<float4*>(products + (warp * 2 + 1) * kColumns + column) = read;
    }
    __syncthreads();
    u = read = float4{};
#pragma unroll
    for (int w = 0; w < L::kWarps; ++w) {
      const float4 du = *reinterpret_cast<const float4*>(products + (w * 2) * kColumns + column),
                   dr = *reinterpret_cast<const float4*>(products + (w * 2 + 1) * kColumns + column);
      u.x += du.x, u.y += du.y, u.z += du.z, u.w += du.w;
      read.x += dr.x, read.y += dr.y, read.z += dr.z, read.w += dr.w;
    }
    const float4 value = *reinterpret_cast<const float4*>(v + j * kColumns + column);
    const float strength = beta[j];
    const float4 w{strength * (value.x - u.x), strength * (value.y - u.y), strength * (value.z - u.z),
                   strength * (value.w - u.w)};
#pragma unroll
    for (int i = 0; i < L::kRows; ++i) {
      const float ki = key[row + i * L::kRowThreads];
      s[i].x = fmaf(ki, w.x, s[i].x), s[i].y = fmaf(ki, w.y, s[i].y);
      s[i].z = fmaf(ki, w.z, s[i].z), s[i].w = fmaf(ki, w.w, s[i].w);
    }
    if (j + 1 == factors && row == 0) {
      const float o[4] = {p.scale * fmaf(overlap, w.x, read.x), p.scale * fmaf(overlap, w.y, read.y),
                          p.scale * fmaf(overlap, w.z, read.z), p.scale * fmaf(overlap, w.w, read.w)};
      T* const to = p.o + b * p.o_stride + h * D + slice * kColumns + column;
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = from_float<T>(o[i]);
    }
    if (j + 1 < factors) __syncthreads();  // `products` is about to be written again
  }
#pragma unroll
  for (int i = 0; i < L::kRows; ++i)
    *reinterpret_cast<float4*>(state + (row + i * L::kRowThreads) * D + column) = s[i];
}

template <class T, int D, int kColumns>
void run(const DeltaDecode<T>& p, Cuda device) {
  using L = Layout<D, kColumns>;
  const size_t bytes =
      sizeof(float) * static_cast<size_t>((1 + p.factors) * D + p.factors * kColumns +
                                          (p.factors + 3) / 4 * 4 + L::kWarps * 2 * kColumns);
  launch_clusters("delta_decode", decode_kernel<T, D, kColumns>,
                  static_cast<unsigned>(p.batch * p.heads * L::kSlices), L::kThreads, L::kSlices, bytes,
                  device, p);
}
// Few sequences are spread over as many multiprocessors as there are; of many, a block takes a whole state.
template <class T, int D>
void run_width(const DeltaDecode<T>& p, Cuda device) {
  if (p.batch * p.heads >= 2 * cuda_device().multiprocessors) return run<T, D, D>(p, device);
  run<T, D, D / 8 >= 16 ? D / 8 : 16>(p, device);
}

}  // namespace

bool delta_decode_covers(int64_t width, int64_t taps) {
  return cuda_device().compute_major >= 9 && taps >= 1 && taps <= kMaxTaps &&
         (width == 32 || width == 64 || width == 128);
}

template <class T>
void delta_decode(const DeltaDecode<T>& p, Cuda device) {
  if (p.batch == 0) return;
  if (p.width == 128) return run_width<T, 128>(p, device);
  if (p.width == 64) return run_width<T, 64>(p, device);
  run_width<T, 32>(p, device);
}

template void delta_decode(const DeltaDecode<float>&, Cuda);
template void delta_decode(const DeltaDecode<bf16>&, Cuda);

}  // namespace signet::kernels
