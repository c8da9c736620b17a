// Every head of a row times a number of its own, which may follow in `append` more columns, the rest of them
// zero:
//
//   y[h] = s[h] x[h]        or        y[h] = (s[h] x[h], s[h], 0, ..)
//
// x [rows, heads, width], s [rows, heads], y [rows, heads, width + append], rows with strides. Mamba-2
// multiplies its input by the step size; mLSTM its values by the input gate, whose own column makes the
// normaliser. Backward overwrites ds, and dx unless accumulate_dx adds to it.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

struct ScaleHeadsShape {
  int64_t rows = 0, heads = 0, width = 0;
  int64_t append = 0;
  int64_t x_stride = 0, s_stride = 0, y_stride = 0;

  constexpr int64_t y_width() const { return width + append; }  // per head
};

template <class T>
struct ScaleHeadsForward {
  ScaleHeadsShape shape;
  const T* x = nullptr;
  const Accumulator<T>* s = nullptr;
  T* y = nullptr;
};

template <class T>
struct ScaleHeadsBackward {
  ScaleHeadsShape shape;
  const T* x = nullptr;
  const Accumulator<T>* s = nullptr;
  const T* dy = nullptr;  // strides of the gradients are those of the inputs
  T* dx = nullptr;
  bool accumulate_dx = false;
  Accumulator<T>* ds = nullptr;
};

template <class T>
void scale_heads_forward(const ScaleHeadsForward<T>& p, Cpu);
template <class T>
void scale_heads_backward(const ScaleHeadsBackward<T>& p, Cpu);

// On the GPU: float and bf16.
template <class T>
void scale_heads_forward(const ScaleHeadsForward<T>& p, Cuda);
template <class T>
void scale_heads_backward(const ScaleHeadsBackward<T>& p, Cuda);

void scale_heads_forward_reference(const ScaleHeadsForward<double>& p);
void scale_heads_backward_reference(const ScaleHeadsBackward<double>& p);

}  // namespace signet::kernels
