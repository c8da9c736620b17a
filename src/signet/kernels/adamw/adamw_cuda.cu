#include <algorithm>
#include <cmath>

#include "signet/kernels/adamw/adamw.h"
#include "signet/kernels/adamw/moments.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256;

struct Scalars {
  float gradient_scale, beta1, rest1, beta2, rest2, keep, rate, inverse_second, eps;
};

// What depends on lr, step and gradient_scale, in double as on the CPU.
__host__ __device__ Scalars scalars(double lr, double step, double gradient_scale, double beta1, double beta2,
                                    double eps, double weight_decay) {
  return {static_cast<float>(gradient_scale),
          static_cast<float>(beta1),
          static_cast<float>(1 - beta1),
          static_cast<float>(beta2),
          static_cast<float>(1 - beta2),
          static_cast<float>(1 - lr * weight_decay),
          static_cast<float>(lr / (1 - pow(beta1, step))),
          static_cast<float>(1 / sqrt(1 - pow(beta2, step))),
          static_cast<float>(eps)};
}

// The moments of four neighbours, in bf16 or as they are.
template <bool kNarrow>
__device__ inline void load_moments(const AdamW<float>& p, int64_t base, int left, bool aligned,
                                    float (&m)[4], float (&v)[4]) {
  if constexpr (kNarrow) {
    unpack(load_packet(p.narrow_m + base, 0, left, aligned), m);
    unpack(load_packet(p.narrow_v + base, 0, left, aligned), v);
  } else {
    unpack(load_packet(p.m + base, 0, left, aligned), m);
    unpack(load_packet(p.v + base, 0, left, aligned), v);
  }
}
template <bool kNarrow>
__device__ inline void store_moments(const AdamW<float>& p, int64_t base, int left, bool aligned,
                                     float (&m)[4], float (&v)[4]) {
  if constexpr (kNarrow) {
    // Four neighbours share the bits of a block; of a shard that begins within one they have those of two.
    const double step = p.schedule ? p.schedule[1] : static_cast<double>(p.step);
    const int within = static_cast<int>((p.place + base) % 4);
    const PhiloxBlock first = moment_bits(p.key, p.place + base, step);
    PhiloxBlock second = first;
    if (within != 0) second = moment_bits(p.key, p.place + base + 4, step);
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // exact in bf16 from here on
      uint32_t word = first.words[i];
      if (within != 0) {
#pragma unroll
        for (int k = 0; k < 4; ++k)
          if ((within + i) % 4 == k) word = within + i < 4 ? first.words[k] : second.words[k];
      }
      m[i] = __uint_as_float(uint32_t{round_at_random(m[i], word)} << 16);
      v[i] = __uint_as_float(uint32_t{round_at_random(v[i], word >> 16)} << 16);
    }
    store_packet(p.narrow_m + base, 0, left, aligned, m);
    store_packet(p.narrow_v + base, 0, left, aligned, v);
  } else {
    store_packet(p.m + base, 0, left, aligned, m);
    store_packet(p.v + base, 0, left, aligned, v);
  }
}

// Blocks stay for several rounds: the schedule's powers take longer than a round.
template <bool kNarrow>
__global__ void __launch_bounds__(kThreads) adamw_kernel(AdamW<float> p, Scalars given, bool aligned) {
  begin_kernel();
  __shared__ Scalars computed;
  if (p.stop && *p.stop) return;
  if (p.schedule) {
    if (threadIdx.x == 0)
      computed =
          scalars(p.schedule[0], p.schedule[1], p.schedule[2], p.beta1, p.beta2, p.eps, p.weight_decay);
    __syncthreads();
  }
  const Scalars s = p.schedule ? computed : given;
  for (int64_t base = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4; base < p.size;
       base += int64_t{gridDim.x} * kThreads * 4) {
    const int left = static_cast<int>(min(p.size - base, int64_t{4}));
    float w[4], g[4], m[4], v[4];
    unpack(load_packet(p.weights + base, 0, left, aligned && left == 4), w);
    unpack(load_packet(p.gradient + base, 0, left, aligned && left == 4), g);
    load_moments<kNarrow>(p, base, left, aligned && left == 4, m, v);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      g[i] *= s.gradient_scale;
      m[i] = fmaf(s.beta1, m[i], s.rest1 * g[i]);
      v[i] = fmaf(s.beta2, v[i], s.rest2 * g[i] * g[i]);
      w[i] = s.keep * w[i] - s.rate * m[i] / fmaf(sqrtf(v[i]), s.inverse_second, s.eps);
    }
    store_packet(p.weights + base, 0, left, aligned && left == 4, w);
    if (p.narrow) store_packet(p.narrow + base, 0, left, aligned && left == 4, w);
    store_moments<kNarrow>(p, base, left, aligned && left == 4, m, v);
  }
}

// Sum of the block's values, in thread 0.
__device__ double block_sum(double x) {
  __shared__ double part[kThreads / 32];
  x = lane_sum<32>(x);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  double total = 0;
  for (double each : part) total += each;
  return total;
}

__global__ void __launch_bounds__(kThreads) square_kernel(const float* x, int64_t size, double* parts) {
  begin_kernel();
  double total = 0;
#pragma unroll 8
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size; i += int64_t{gridDim.x} * kThreads)
    total += static_cast<double>(x[i]) * x[i];
  total = block_sum(total);
  if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads)
    sum_kernel(const double* parts, int count, double* result, UpdateGuard guard) {
  begin_kernel();
  double total = 0;
  for (int i = threadIdx.x; i < count; i += kThreads) total += parts[i];
  total = block_sum(total);
  if (threadIdx.x != 0) return;
  *result = total;
  guard.decide(total);
}

__global__ void __launch_bounds__(kThreads) narrow_kernel(int64_t size, const float* weights, bf16* narrow) {
  begin_kernel();
  const int64_t base = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4;
  if (base >= size) return;
  const int left = static_cast<int>(min(size - base, int64_t{4}));
  float w[4];
  unpack(load_packet(weights + base, 0, left, left == 4), w);
  store_packet(narrow + base, 0, left, left == 4, w);
}

__global__ void decide_kernel(const double* square_sum, UpdateGuard guard) {
  begin_kernel();
  guard.decide(*square_sum);
}

}  // namespace

template <>
void adamw(const AdamW<float>& p, Cuda device) {
  if (p.size == 0) return;
  const bool aligned = packets_fit(p.weights, 4) && packets_fit(p.gradient, 4) && packets_fit(p.m, 4) &&
                       packets_fit(p.v, 4) && packets_fit(p.narrow_m, 4) && packets_fit(p.narrow_v, 4) &&
                       packets_fit(p.narrow, 4);
  const int64_t blocks =
      std::min((p.size + 4 * kThreads - 1) / (4 * kThreads), int64_t{16} * cuda_device().multiprocessors);
  launch(
      "adamw", p.narrow_m ? adamw_kernel<true> : adamw_kernel<false>, static_cast<unsigned>(blocks), kThreads,
      0, device, p,
      scalars(p.lr, static_cast<double>(p.step), p.gradient_scale, p.beta1, p.beta2, p.eps, p.weight_decay),
      aligned);
}

void square_sum(const SquareSum<float>* ranges, int count, Cuda device) {
  const SquareSum<float>& all = ranges[0];
  int parts = 0;
  for (int i = 0; i < count; ++i) {
    const int blocks = static_cast<int>(
        std::clamp<int64_t>((ranges[i].size + 4 * kThreads - 1) / (4 * kThreads), 1, kSquareSumBlocks));
    launch("square_sum", square_kernel, blocks, kThreads, 0, device, ranges[i].x, ranges[i].size,
           all.workspace + parts);
    parts += blocks;
  }
  launch("square_sum: parts", sum_kernel, 1, kThreads, 0, device, all.workspace, parts, all.result,
         all.guard);
}

template <>
void square_sum(const SquareSum<float>& p, Cuda device) {
  square_sum(&p, 1, device);
}

void narrow_weights(int64_t size, const float* weights, bf16* narrow, Cuda device) {
  if (size == 0) return;
  const int64_t blocks = (size + 4 * kThreads - 1) / (4 * kThreads);
  launch("narrow_weights", narrow_kernel, static_cast<unsigned>(blocks), kThreads, 0, device, size, weights,
         narrow);
}

void decide_update(const double* square_sum, const UpdateGuard& guard, Cuda device) {
  launch("decide_update", decide_kernel, 1, 1, 0, device, square_sum, guard);
}

}  // namespace signet::kernels
