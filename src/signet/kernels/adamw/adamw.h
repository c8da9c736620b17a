// AdamW with decoupled weight decay (Loshchilov and Hutter, 2019), one fused pass over a range of the flat
// buffers:
//   g <- gradient_scale * grad
//   m <- beta1 m + (1 - beta1) g,   v <- beta2 v + (1 - beta2) g^2
//   w <- w - lr weight_decay w - lr (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps)
// gradient_scale carries global-norm clipping, so that clipping costs no pass of its own. `square_sum` is the
// pass that finds the norm: the sum of squares in double, in a fixed order (the norm's square; NaN or Inf if
// any element is).
#pragma once

#include <cstdint>

#include "signet/base/isa.h"

namespace signet::kernels {

template <class T>
struct AdamW {
  int64_t size = 0;
  T* weights = nullptr;
  const T* gradient = nullptr;
  T* m = nullptr;
  T* v = nullptr;
  double gradient_scale = 1;
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  int64_t step = 1;  // 1 for the first update
  // GPU only: lr, step and gradient_scale in device memory, read instead of the fields, so that a captured
  // training step can be replayed (null: use the fields).
  const double* schedule = nullptr;
};

template <class T>
struct SquareSum {
  int64_t size = 0;
  const T* x = nullptr;
  double* result = nullptr;
  double* workspace = nullptr;  // GPU only: [kSquareSumBlocks]
};

inline constexpr int kSquareSumBlocks = 512;

template <class T>
void adamw(const AdamW<T>& p, Cpu);
template <class T>
void square_sum(const SquareSum<T>& p, Cpu);

// On the GPU: float; result lies in device memory.
template <class T>
void adamw(const AdamW<T>& p, Cuda);
template <class T>
void square_sum(const SquareSum<T>& p, Cuda);
// scale = min(1, max_norm / sqrt(square_sum)), 1 when max_norm is 0: what gradient_scale carries.
void clip_scale(const double* square_sum, double max_norm, double* scale, Cuda);

void adamw_reference(const AdamW<double>& p);

}  // namespace signet::kernels
