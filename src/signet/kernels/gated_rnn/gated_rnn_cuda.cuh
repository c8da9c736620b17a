// What the GPU versions of the gated recurrences share: the kernels for any size (gated_rnn_cuda.cu) and
// those for bf16 on tensor cores (gated_rnn_mma_cuda.cu).
#pragma once

#include <type_traits>

#include "signet/kernels/gated_rnn/gated_rnn.h"
#include "signet/kernels/gated_rnn/gated_rnn_cells.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/packet.cuh"

namespace signet::kernels::gated_rnn {

// Where one plane of a head's state begins.
__host__ __device__ inline int64_t state_at(const GatedRnnShape& s, int64_t b, int plane, int head) {
  return ((b * s.state_planes() + plane) * s.heads + head) * s.width;
}

#ifdef __CUDACC__
// The rows of a sequence; none beyond the last one.
struct Span {
  int64_t first = 0;
  int length = 0;
  __device__ Span(const GatedRnnShape& s, int64_t b) {
    if (b >= s.batch) return;
    first = s.offsets ? s.offsets[b] : b * s.time;
    length = static_cast<int>(s.offsets ? s.offsets[b + 1] - first : s.time);
  }
};
// The longest of `count` sequences from b on.
__device__ inline int longest_of(const GatedRnnShape& s, int64_t b, int count) {
  if (!s.offsets) return static_cast<int>(s.time);
  int longest = 0;
  for (int i = 0; i < count; ++i) longest = max(longest, Span(s, b + i).length);
  return longest;
}
#endif

// The kernels on tensor cores. Sizes and strides alone decide, so that both passes agree; rows start at
// multiples of 16 bytes. Backward leaves the sums of the bias per block in bias_sums [blocks, 4 units] (null:
// not wanted).
bool mma_covers(const GatedRnnShape& s);
int64_t mma_blocks(const GatedRnnShape& s);
void mma_forward(const GatedRnnForward<bf16>& p, Cuda device);
void mma_backward(const GatedRnnBackward<bf16>& p, float* bias_sums, Cuda device);

}  // namespace signet::kernels::gated_rnn
