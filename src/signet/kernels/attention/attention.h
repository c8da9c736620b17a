// Causal softmax attention with rotary positions, in blocks with a running maximum: no [time, keys] matrix is
// ever in memory. Per head of `width` units, with query t standing at position p = keys - time + t:
//
//   o_t = sum over j <= p of softmax_j(scale R_p q_t . R_j k_j) v_j
//
// R_p turns the pair (i, i + width/2) by the angle p base^(-2i/width) (Su et al., 2021, arXiv 2104.09864);
// base 0 means no rotation, else the width is even. In training keys = time; a decoding step has time new
// queries and all keys so far, which lie in a cache of `capacity` rows per sequence. Layouts: q, o
// [B,time,heads,width], k, v [B,capacity,heads,width], strides in elements from token to token; lse
// [B,heads,time] is the logarithm of each softmax's denominator, kept for backward. Forward overwrites o and
// lse (null: not wanted); backward overwrites dq, and dk and dv of the first `keys` rows. Sums run in a fixed
// order.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

struct AttentionShape {
  int64_t batch = 0, time = 0, heads = 0, width = 0;
  int64_t keys = 0;                                                // 0 means time
  int64_t capacity = 0;                                            // 0 means keys
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0;  // 0 means contiguous
  double scale = 1, rotary_base = 0;
  // GPU only, keys = time: the rows of sequence b are [offsets[b], offsets[b + 1]) instead, at most `time`.
  const int32_t* offsets = nullptr;
};

inline AttentionShape with_strides(AttentionShape s) {
  if (s.keys == 0) s.keys = s.time;
  if (s.capacity == 0) s.capacity = s.keys;
  for (int64_t* stride : {&s.q_stride, &s.k_stride, &s.v_stride, &s.o_stride})
    if (*stride == 0) *stride = s.heads * s.width;
  return s;
}

// What both passes are given.
template <class T>
struct AttentionInputs {
  AttentionShape shape;
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  Accumulator<T>* workspace = nullptr;  // [attention_workspace_size] scratch
};

template <class T>
struct AttentionForward : AttentionInputs<T> {
  T* o = nullptr;
  Accumulator<T>* lse = nullptr;
};

template <class T>
struct AttentionBackward : AttentionInputs<T> {
  const T* o = nullptr;  // what forward wrote, like lse
  const Accumulator<T>* lse = nullptr;
  const T* d_o = nullptr;  // strides of the gradients are those of the values
  T* dq = nullptr;
  T* dk = nullptr;
  T* dv = nullptr;
};

int64_t attention_workspace_size(const AttentionShape& shape, Cpu);
int64_t attention_workspace_size(const AttentionShape& shape, Cuda);

template <class T>
void attention_forward(const AttentionForward<T>& p, Cpu);
template <class T>
void attention_backward(const AttentionBackward<T>& p, Cpu);

// On the GPU: float and bf16, width up to 128. On tensor cores run bf16 sequences of at most 64 tokens in
// heads of 16, 32 or 64 units, a whole head of a sequence at a time (attention_short_cuda.cu), and those of
// any length in heads of 64 or 128 units (attention_long_cuda.cu).
template <class T>
void attention_forward(const AttentionForward<T>& p, Cuda);
template <class T>
void attention_backward(const AttentionBackward<T>& p, Cuda);

void attention_forward_reference(const AttentionForward<double>& p);
void attention_backward_reference(const AttentionBackward<double>& p);

}  // namespace signet::kernels
