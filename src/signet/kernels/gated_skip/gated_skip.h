// What a gated block does with what it read from its state:
//
//   y = (x + weight * skip) * silu(z)
//
// x, skip, z, y [rows, width] with row strides; weight [weights], each for width / weights neighbouring
// columns (one per head or one per column). skip and weight are null together: y = x silu(z). Backward
// overwrites dx, dskip and dz, and adds to dweight.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

struct GatedSkipShape {
  int64_t rows = 0, width = 0, weights = 0;
  int64_t x_stride = 0, skip_stride = 0, z_stride = 0, y_stride = 0;
};

// What both passes are given.
template <class T>
struct GatedSkipInputs {
  GatedSkipShape shape;
  const T* x = nullptr;
  const T* skip = nullptr;
  const Accumulator<T>* weight = nullptr;
  const T* z = nullptr;
};

template <class T>
struct GatedSkipForward : GatedSkipInputs<T> {
  T* y = nullptr;
};

template <class T>
struct GatedSkipBackward : GatedSkipInputs<T> {
  const T* dy = nullptr;  // strides of the gradients are those of the inputs
  T* dx = nullptr;
  T* dskip = nullptr;
  Accumulator<T>* dweight = nullptr;
  T* dz = nullptr;
  Accumulator<T>* workspace = nullptr;  // GPU only: [gated_skip_workspace_size]
};

template <class T>
void gated_skip_forward(const GatedSkipForward<T>& p, Cpu);
template <class T>
void gated_skip_backward(const GatedSkipBackward<T>& p, Cpu);

// On the GPU: float and bf16.
int64_t gated_skip_workspace_size(const GatedSkipShape& shape, Cuda);
template <class T>
void gated_skip_forward(const GatedSkipForward<T>& p, Cuda);
template <class T>
void gated_skip_backward(const GatedSkipBackward<T>& p, Cuda);

void gated_skip_forward_reference(const GatedSkipForward<double>& p);
void gated_skip_backward_reference(const GatedSkipBackward<double>& p);

}  // namespace signet::kernels
