// Decays between the tokens of a chunk, one gate per head, as factors in the place of a table: tokens are in
// groups of 8, and with r in an earlier group than t
//   D(r,t) = after_r (whole groups between) until_t
#pragma once

#include "signet/kernels/gated_linear/gated_linear_chunks.cuh"

namespace signet::kernels::gated_linear {

// after_r: the gates of r's group behind r; until_t: those of t's group up to t; whole: all of a group.
struct GroupDecays {
  static constexpr int kGroups = kChunk / 8;
  alignas(16) float after[kChunk], until[kChunk], whole[kGroups];

  // Lane l has tokens 2l and 2l + 1, four lanes a group.
  __device__ void fill(const float* gates, int lane) {
    const float2 g = *reinterpret_cast<const float2*>(gates + 2 * lane);
    const int place = lane % 4;
    float up = g.x * g.y, down = up;  // of this lane's and those before it, and behind it, in the group
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
      const float before = __shfl_up_sync(kFullWarp, up, step),
                  behind = __shfl_down_sync(kFullWarp, down, step);
      if (place >= step) up *= before;
      if (place + step < 4) down *= behind;
    }
    const float before = __shfl_up_sync(kFullWarp, up, 1), behind = __shfl_down_sync(kFullWarp, down, 1);
    const float begin = place > 0 ? before : 1.f, end = place < 3 ? behind : 1.f;
    __syncwarp();  // everybody has read those before
    *reinterpret_cast<float2*>(until + 2 * lane) = make_float2(begin * g.x, up);
    *reinterpret_cast<float2*>(after + 2 * lane) = make_float2(g.y * end, end);
    if (place == 3) whole[lane / 4] = up;
    __syncwarp();
  }
};

// D(r,t) for r = 2 (lane % 4) and the next and t = lane / 4 of one group.
__device__ inline float2 decays_within(const float* gates, int lane) {
  const int t = lane / 4, r = lane % 4 * 2;
  float g[8], near = 1.f, far = 1.f;
  *reinterpret_cast<float4*>(g) = *reinterpret_cast<const float4*>(gates);
  *reinterpret_cast<float4*>(g + 4) = *reinterpret_cast<const float4*>(gates + 4);
#pragma unroll
  for (int u = 1; u < 8; ++u) {
    const float gate = u <= t ? g[u] : 1.f;
    if (u > r) near *= gate;
    if (u > r + 1) far *= gate;
  }
  return make_float2(r <= t ? near : 0.f, r + 1 <= t ? far : 0.f);
}

}  // namespace signet::kernels::gated_linear
