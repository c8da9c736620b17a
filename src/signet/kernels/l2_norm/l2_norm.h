// Per-head L2 normalisation: y = x r, r = 1 / sqrt(sum x^2 + eps) over the `width` elements of each head.
// x, y [tokens, heads, width]; strides are elements from token to token. `inverse` [tokens, heads] holds r.
// Backward needs only y and r: dx = r (dy - y (y . dy)), and overwrites dx.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"
#include "signet/kernels/activation/activation.h"

namespace signet::kernels {

template <class T>
struct L2NormForward {
  int64_t tokens = 0, heads = 0, width = 0;
  const T* x = nullptr;
  int64_t x_stride = 0;
  T* y = nullptr;
  int64_t y_stride = 0;
  Accumulator<T>* inverse = nullptr;
  Accumulator<T> eps = Accumulator<T>(1e-6);
  // GPU only: behind the heads lie silu_heads more that get SiLU instead, and behind those the gates.
  int64_t silu_heads = 0;
  GateColumns gate = {};
};

template <class T>
struct L2NormBackward {
  int64_t tokens = 0, heads = 0, width = 0;
  const T* y = nullptr;
  int64_t y_stride = 0;
  const Accumulator<T>* inverse = nullptr;
  const T* dy = nullptr;
  int64_t dy_stride = 0;
  T* dx = nullptr;
  int64_t dx_stride = 0;
  // GPU only: as in forward; x is needed for these alone.
  int64_t silu_heads = 0;
  GateColumns gate = {};
  const T* x = nullptr;
  int64_t x_stride = 0;
};

template <class T>
void l2_norm_forward(const L2NormForward<T>& p, Cpu);
template <class T>
void l2_norm_backward(const L2NormBackward<T>& p, Cpu);

// On the GPU: float and bf16, width up to 1024.
template <class T>
void l2_norm_forward(const L2NormForward<T>& p, Cuda);
template <class T>
void l2_norm_backward(const L2NormBackward<T>& p, Cuda);

void l2_norm_forward_reference(const L2NormForward<double>& p);
void l2_norm_backward_reference(const L2NormBackward<double>& p);

}  // namespace signet::kernels
