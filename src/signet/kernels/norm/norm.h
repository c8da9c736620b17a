// RMS and layer normalisation over the last dimension.
//   rms:    y = x * r * weight,            r = 1 / sqrt(mean(x^2) + eps)
//   layer:  y = (x - mean) * r * weight,   r = 1 / sqrt(var(x) + eps)      (no bias)
// x, y [rows, width] with row strides; weight [width]. A per-head norm is the same call with rows = tokens *
// heads. Backward overwrites dx, or adds to it when accumulate_dx is set, and always adds to dweight. `rstd`
// (and `mean`) [rows] are saved by forward for backward. Sums along a row, parameters and statistics are in
// Accumulator<T>: fp32 for bf16 storage.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"
#include "signet/tensor/reduce.h"

namespace signet::kernels {

enum class NormKind { kRms, kLayer };

// What both passes are given.
template <class T>
struct NormInputs {
  NormKind kind = NormKind::kRms;
  int64_t rows = 0, width = 0;
  const T* x = nullptr;
  int64_t x_stride = 0;
  const Accumulator<T>* weight = nullptr;
};

template <class T>
struct NormForward : NormInputs<T> {
  T* y = nullptr;
  int64_t y_stride = 0;
  Accumulator<T>* rstd = nullptr;
  Accumulator<T>* mean = nullptr;  // layer only
  Accumulator<T> eps = Accumulator<T>(1e-6);
};

template <class T>
struct NormBackward : NormInputs<T> {
  const Accumulator<T>* rstd = nullptr;
  const Accumulator<T>* mean = nullptr;
  const T* dy = nullptr;
  int64_t dy_stride = 0;
  T* dx = nullptr;
  int64_t dx_stride = 0;
  bool accumulate_dx = false;
  Accumulator<T>* dweight = nullptr;
  Accumulator<T>* workspace = nullptr;  // GPU only: [norm_workspace_size]
  ColumnSums* later = nullptr;          // GPU only: takes the last sums over rows (null: done at once)
  T* y = nullptr;  // GPU only: receives what forward made (null: not wanted), in the rows of dy; may be dy
};

template <class T>
void norm_forward(const NormForward<T>& p, Cpu);
template <class T>
void norm_backward(const NormBackward<T>& p, Cpu);

// On the GPU: float and bf16, width up to 32768.
int64_t norm_workspace_size(int64_t rows, int64_t width, Cuda);
template <class T>
void norm_forward(const NormForward<T>& p, Cuda);
template <class T>
void norm_backward(const NormBackward<T>& p, Cuda);

void norm_forward_reference(const NormForward<double>& p);
void norm_backward_reference(const NormBackward<double>& p);

}  // namespace signet::kernels
