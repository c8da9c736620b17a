#include "signet/kernels/sample/sample.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;

// Unsigned numbers in the order of the floats.
__device__ inline uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float unordered(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// A candidate: the higher score, and of equal ones the smaller token.
__device__ inline uint64_t candidate(float score, int token) {
  return uint64_t{ordered(score)} << 32 | (0xffffffffu - static_cast<uint32_t>(token));
}
__device__ inline int token_of(uint64_t candidate) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(candidate));
}

// Over the block; every thread gets it.
template <class V, class Combine>
__device__ V reduce(V x, Combine combine, V* shared) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, mask));
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[threadIdx.x % kWarps];
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, mask));
  return x;
}

// The highest key of all at which weight(logits with keys at or above it) is at least `wanted`.
template <class Weight>
__device__ uint32_t bisect(const float* logits, int classes, float wanted, float* shared, Weight weight) {
  uint32_t low = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const uint32_t key = low | 1u << bit;
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < classes; i += kThreads)
      if (ordered(logits[i]) >= key) sum += weight(logits[i]);
    if (reduce(
            sum, [](float a, float b) { return a + b; }, shared) >= wanted)
      low = key;
  }
  return low;
}

__global__ void __launch_bounds__(kThreads) sample_kernel(Sample p) {
  begin_kernel();
  __shared__ uint64_t shared_candidates[kWarps];
  __shared__ float shared_sums[kWarps];
  const int row = static_cast<int>(blockIdx.x), classes = static_cast<int>(p.classes);
  const float* const logits = p.logits + row * p.stride;
  const auto larger = [](uint64_t a, uint64_t b) { return a > b ? a : b; };
  bool nan = false;
  uint64_t best = 0;
  for (int i = static_cast<int>(threadIdx.x); i < classes; i += kThreads) {
    nan = nan || isnan(logits[i]);
    best = larger(best, candidate(logits[i], i));
  }
  best = reduce(best, larger, shared_candidates);
  nan = __syncthreads_or(nan);
  const float largest = unordered(static_cast<uint32_t>(best >> 32));
  const bool bad = nan || !isfinite(largest);
  const int64_t position = p.positions[row];
  if (!bad && p.rule.temperature > 0) {
    const float inverse = 1.0f / p.rule.temperature;
    uint32_t least = 0;
    if (p.rule.top_k > 0 && p.rule.top_k < classes)
      least =
          bisect(logits, classes, static_cast<float>(p.rule.top_k), shared_sums, [](float) { return 1.0f; });
    if (p.rule.top_p < 1) {
      const auto weight = [&](float logit) {
        return ordered(logit) >= least ? expf((logit - largest) * inverse) : 0.0f;
      };
      float all = 0;
      for (int i = static_cast<int>(threadIdx.x); i < classes; i += kThreads) all += weight(logits[i]);
      all = reduce(
          all, [](float a, float b) { return a + b; }, shared_sums);
      least = max(least, bisect(logits, classes, p.rule.top_p * all, shared_sums, weight));
    }
    uint64_t drawn = 0;
    for (int packet = static_cast<int>(threadIdx.x); packet * 4 < classes; packet += kThreads) {
      const PhiloxBlock words = sample_words(p.rule.seed, row, position, packet);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int i = packet * 4 + k;
        if (i >= classes || ordered(logits[i]) < least || isinf(logits[i])) continue;
        drawn = larger(drawn, candidate((logits[i] - largest) * inverse + gumbel(words.words[k]), i));
      }
    }
    best = reduce(drawn, larger, shared_candidates);
  }
  if (threadIdx.x != 0) return;
  p.positions[row] = position + 1;
  p.tokens[row] = bad ? 0 : token_of(best);
  p.ids[row] = bad ? -1 : token_of(best);
}

}  // namespace

void sample(const Sample& p, Cuda device) {
  if (p.rows == 0) return;
  launch("sample", sample_kernel, static_cast<unsigned>(p.rows), kThreads, 0, device, p);
}

}  // namespace signet::kernels
