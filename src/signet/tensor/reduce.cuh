// Sums on the GPU in a fixed order over the lanes of a team inside a warp; over the rows of a matrix:
// reduce.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "signet/tensor/reduce.h"

namespace signet {

// Sum over kLanes neighbouring lanes (a power of two up to 32); every lane gets it.
template <int kLanes, class T>
__device__ inline T lane_sum(T x) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(0xffffffffu, x, mask);
  return x;
}

}  // namespace signet
