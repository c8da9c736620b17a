// Heads that share columns, each with a copy of its own: with `groups` groups of heads,
//   y[h] = x[h groups / heads]          dx[g] = sum over the heads h of group g of dy[h]
// x [rows, groups, width], y [rows, heads, width], rows with strides. Mamba-2's heads share B and C. Backward
// overwrites dx unless accumulate_dx adds to it; sums run over heads in order.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

struct RepeatHeadsShape {
  int64_t rows = 0, groups = 1, heads = 1, width = 0;
  int64_t x_stride = 0, y_stride = 0;

  // The first head of a group; that of `groups` is `heads`.
  constexpr int64_t first_head(int64_t group) const { return (group * heads + groups - 1) / groups; }
};

template <class T>
struct RepeatHeadsForward {
  RepeatHeadsShape shape;
  const T* x = nullptr;
  T* y = nullptr;
};

template <class T>
struct RepeatHeadsBackward {
  RepeatHeadsShape shape;
  const T* dy = nullptr;  // strides of the gradients are those of the values
  T* dx = nullptr;
  bool accumulate_dx = false;
};

template <class T>
void repeat_heads_forward(const RepeatHeadsForward<T>& p, Cpu);
template <class T>
void repeat_heads_backward(const RepeatHeadsBackward<T>& p, Cpu);

// On the GPU: float and bf16, summed in fp32.
template <class T>
void repeat_heads_forward(const RepeatHeadsForward<T>& p, Cuda);
template <class T>
void repeat_heads_backward(const RepeatHeadsBackward<T>& p, Cuda);

void repeat_heads_forward_reference(const RepeatHeadsForward<double>& p);
void repeat_heads_backward_reference(const RepeatHeadsBackward<double>& p);

}  // namespace signet::kernels
