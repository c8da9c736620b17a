// A block-diagonal linear map: `blocks` square blocks of `size` columns, each with its own matrix.
//
//   y[block, i] = sum_j w[block, i, j] x[block, j]
//
// x, y [rows, blocks size] with row strides; w [blocks, size, size]. Backward overwrites dx, or adds to it
// when accumulate_dx is set, and adds to dw. Meant for small blocks (mLSTM's have 4 columns).
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

inline constexpr int64_t kMaxBlock = 64;  // size at most

struct BlockLinearShape {
  int64_t rows = 0, blocks = 0, size = 0;
  int64_t x_stride = 0, y_stride = 0;

  constexpr int64_t width() const { return blocks * size; }
};

template <class T>
struct BlockLinearForward {
  BlockLinearShape shape;
  const T* x = nullptr;
  const Accumulator<T>* w = nullptr;
  T* y = nullptr;
};

template <class T>
struct BlockLinearBackward {
  BlockLinearShape shape;
  const T* x = nullptr;
  const Accumulator<T>* w = nullptr;
  const T* dy = nullptr;  // strides of the gradients are those of the inputs
  T* dx = nullptr;
  bool accumulate_dx = false;
  Accumulator<T>* dw = nullptr;
  Accumulator<T>* workspace = nullptr;  // GPU only: [block_linear_workspace_size]
};

template <class T>
void block_linear_forward(const BlockLinearForward<T>& p, Cpu);
template <class T>
void block_linear_backward(const BlockLinearBackward<T>& p, Cpu);

// On the GPU: float and bf16.
int64_t block_linear_workspace_size(const BlockLinearShape& shape, Cuda);
template <class T>
void block_linear_forward(const BlockLinearForward<T>& p, Cuda);
template <class T>
void block_linear_backward(const BlockLinearBackward<T>& p, Cuda);

void block_linear_forward_reference(const BlockLinearForward<double>& p);
void block_linear_backward_reference(const BlockLinearBackward<double>& p);

}  // namespace signet::kernels
