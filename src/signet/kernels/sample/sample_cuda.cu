#include <cooperative_groups.h>

#include "signet/kernels/sample/sample.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch_clusters.cuh"
#include "signet/tensor/packet.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;

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

// The blocks of a row, a cluster of kSlices; every packet of four tokens belongs to one of their threads.
template <int kSlices>
struct Team {
  int slice = static_cast<int>(blockIdx.x) % kSlices;
  bool aligned = false;
  bool odd = false;  // of two buffers the one in use: a block may be a reduction ahead of another

  // All blocks have begun: from here on they may write to each other.
  __device__ void meet() const {
#if __CUDA_ARCH__ >= 900
    if constexpr (kSlices > 1) cooperative_groups::this_cluster().sync();
#endif
  }

  // Calls visit(packet, its four logits) for every packet of this thread; those beyond the end are -inf.
  template <class Visit>
  __device__ void each(const float* logits, int classes, Visit visit) const {
#pragma unroll 4
    for (int packet = slice * kThreads + static_cast<int>(threadIdx.x); packet * 4 < classes;
         packet += kSlices * kThreads) {
      float v[4];
      unpack(load_packet(logits, packet * 4, classes, aligned), v);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (packet * 4 + k >= classes) v[k] = -INFINITY;
      visit(packet, v);
    }
  }

  // Over the team; every thread gets it.
  template <class V, class Combine>
  __device__ V reduce(V x, Combine combine) {
    __shared__ V warps[kWarps];
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, mask));
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = warps[threadIdx.x % kWarps];
#pragma unroll
    for (int mask = kWarps / 2; mask > 0; mask /= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, mask));
#if __CUDA_ARCH__ >= 900
    if constexpr (kSlices > 1) {
      __shared__ V slices[2][kSlices];
      const auto cluster = cooperative_groups::this_cluster();
      if (threadIdx.x < kSlices) cluster.map_shared_rank(&slices[odd][0], threadIdx.x)[slice] = x;
      cluster.sync();
      x = slices[odd][0];
#pragma unroll
      for (int s = 1; s < kSlices; ++s) x = combine(x, slices[odd][s]);
      odd = !odd;
    }
#endif
    return x;
  }
  __device__ float sum(float x) {
    return reduce(x, [](float a, float b) { return a + b; });
  }
};

// The highest key of all at which weight(logits with keys at or above it) is at least `wanted`.
template <int kSlices, class Weight>
__device__ uint32_t bisect(Team<kSlices>& team, const float* logits, int classes, float wanted,
                           Weight weight) {
  uint32_t low = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const uint32_t key = low | 1u << bit;
    float sum = 0;
    team.each(logits, classes, [&](int packet, const float(&v)[4]) {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (packet * 4 + k < classes && ordered(v[k]) >= key) sum += weight(v[k]);
    });
    if (team.sum(sum) >= wanted) low = key;
  }
  return low;
}

template <int kSlices>
__global__ void __launch_bounds__(kThreads, 2) sample_kernel(Sample p, bool aligned) {
  Team<kSlices> team;
  team.aligned = aligned;
  team.meet();
  begin_kernel();
  const int row = static_cast<int>(blockIdx.x) / kSlices, classes = static_cast<int>(p.classes);
  const float* const logits = p.logits + row * p.stride;
  const int64_t position = p.positions[row];
  const auto larger = [](uint64_t a, uint64_t b) { return a > b ? a : b; };
  constexpr uint64_t kNan = ~uint64_t{0};  // above all numbers
  uint64_t best = 0;
  team.each(logits, classes, [&](int packet, const float(&v)[4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) best = larger(best, isnan(v[k]) ? kNan : candidate(v[k], packet * 4 + k));
  });
  best = team.reduce(best, larger);
  const float largest = unordered(static_cast<uint32_t>(best >> 32));
  const bool bad = !isfinite(largest);
  if (!bad && p.rule.temperature > 0) {
    const float inverse = 1.0f / p.rule.temperature;
    uint32_t least = 0;
    if (p.rule.top_k > 0 && p.rule.top_k < classes)
      least = bisect(team, logits, classes, static_cast<float>(p.rule.top_k), [](float) { return 1.0f; });
    if (p.rule.top_p < 1) {
      const auto weight = [&](float logit) {
        return ordered(logit) >= least ? expf((logit - largest) * inverse) : 0.0f;
      };
      float all = 0;
      team.each(logits, classes, [&](int, const float(&v)[4]) {
#pragma unroll
        for (float logit : v) all += weight(logit);
      });
      all = team.sum(all);
      least = max(least, bisect(team, logits, classes, p.rule.top_p * all, weight));
    }
    // A score that some token of this block has: only what may reach it is computed. The noise of u is
    // -log(-log u), and -log u >= 1 - u: a score above `reached` needs 1 - u < exp(plain - reached), where
    // `plain` is the score without noise.
    __shared__ volatile float reached;
    if (threadIdx.x == 0) reached = -INFINITY;
    __syncthreads();
    uint64_t drawn = 0;
    team.each(logits, classes, [&](int packet, const float(&v)[4]) {
      const PhiloxBlock words = sample_words(p.rule.seed, row, position, packet);
      const float bound = reached;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (ordered(v[k]) < least || isinf(v[k])) continue;
        const float plain = (v[k] - largest) * inverse;
        if (1.0f - noise_uniform<float>(words.words[k]) > 1.001f * __expf(plain - bound)) continue;
        const float score = plain + gumbel(words.words[k]);
        drawn = larger(drawn, candidate(score, packet * 4 + k));
        if (score > reached) reached = score;
      }
    });
    best = team.reduce(drawn, larger);
  }
  if (team.slice != 0 || threadIdx.x != 0) return;
  p.positions[row] = position + 1;
  p.tokens[row] = bad ? 0 : token_of(best);
  p.ids[row] = bad ? -1 : token_of(best);
}

}  // namespace

void sample(const Sample& p, Cuda device) {
  if (p.rows == 0) return;
  const bool aligned = p.classes % 4 == 0 && packets_fit(p.logits, p.stride);
  constexpr int kMost = 8;  // few rows are spread over more multiprocessors
  if (cuda_device().hopper && p.rows * kMost <= cuda_device().multiprocessors)
    return launch_clusters("sample", sample_kernel<kMost>, static_cast<unsigned>(p.rows * kMost), kThreads,
                           kMost, 0, device, p, aligned);
  launch("sample", sample_kernel<1>, static_cast<unsigned>(p.rows), kThreads, 0, device, p, aligned);
}

}  // namespace signet::kernels
