// Attention of bf16 sequences on tensor cores: short ones (attention_short_cuda.cu) and long ones
// (attention_long_cuda.cu).
#pragma once

#include "signet/kernels/attention/attention.h"

namespace signet::kernels::attention {

#ifdef __CUDACC__
// The rows of a sequence.
struct Span {
  int64_t first_query, first_key, time, keys;
  __device__ Span(const AttentionShape& s, int64_t b)
      : first_query(b * s.time), first_key(b * s.capacity), time(s.time), keys(s.keys) {
    if (!s.offsets) return;
    first_query = first_key = s.offsets[b];
    time = keys = s.offsets[b + 1] - s.offsets[b];
  }
};
#endif

// Both say whether they cover the problem, whose strides are filled in, and run it if so.
bool short_forward(const AttentionForward<bf16>& p, Cuda device);
bool short_backward(const AttentionBackward<bf16>& p, Cuda device);

// Long sequences, where long_covers. angles: cosines and sines, [keys, width / 2] each, or null; deltas
// [B, heads, time]; copies [long_copies_size] at a multiple of 16 bytes.
bool long_covers(const AttentionShape& shape);
int64_t long_copies_size(const AttentionShape& shape);  // in floats
void long_forward(const AttentionForward<bf16>& p, const float* angles, float* copies, Cuda device);
void long_backward(const AttentionBackward<bf16>& p, const float* angles, float* deltas, float* copies,
                   Cuda device);

}  // namespace signet::kernels::attention
