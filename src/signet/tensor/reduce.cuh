// Sums on the GPU in a fixed order: over the lanes of a team inside a warp, and over the rows of a matrix of
// partial sums.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "signet/base/isa.h"

namespace signet {

// Sum over kLanes neighbouring lanes (a power of two up to 32); every lane gets it.
template <int kLanes, class T>
__device__ inline T lane_sum(T x) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
  return x;
}

// out[c] += sum_r rows[r stride + c], r < count, for all columns.
void add_column_sums(const float* rows, int64_t count, int64_t columns, int64_t stride, float* out,
                     Cuda device);

}  // namespace signet
