// Softmax of rows: y_i = exp(x_i - max x) / sum_j exp(x_j - max x). x, y [rows, width] with strides. Backward
// needs y alone, dx = y (dy - y . dy), and overwrites dx.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"

namespace signet::kernels {

template <class T>
struct SoftmaxForward {
  int64_t rows = 0, width = 0;
  const T* x = nullptr;
  int64_t x_stride = 0;
  T* y = nullptr;
  int64_t y_stride = 0;
};

template <class T>
struct SoftmaxBackward {
  int64_t rows = 0, width = 0;
  const T* y = nullptr;
  int64_t y_stride = 0;
  const T* dy = nullptr;
  int64_t dy_stride = 0;
  T* dx = nullptr;
  int64_t dx_stride = 0;
};

template <class T>
void softmax_forward(const SoftmaxForward<T>& p, Cpu);
template <class T>
void softmax_backward(const SoftmaxBackward<T>& p, Cpu);

// On the GPU: float and bf16.
template <class T>
void softmax_forward(const SoftmaxForward<T>& p, Cuda);
template <class T>
void softmax_backward(const SoftmaxBackward<T>& p, Cuda);

void softmax_forward_reference(const SoftmaxForward<double>& p);
void softmax_backward_reference(const SoftmaxBackward<double>& p);

}  // namespace signet::kernels
