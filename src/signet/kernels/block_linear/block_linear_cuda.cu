#include "signet/kernels/block_linear/block_linear.h"
#include "signet/kernels/row_chunks.cuh"

namespace signet::kernels {
namespace {

template <class T>
struct Forward {
  BlockLinearForward<T> p;
  __device__ void operator()(int64_t r, int64_t i) const {
    const BlockLinearShape& s = p.shape;
    const T* x = p.x + r * s.x_stride + i / s.size * s.size;
    float total = 0.0f;
    for (int64_t j = 0; j < s.size; ++j) total = fmaf(p.w[i * s.size + j], to_float(x[j]), total);
    p.y[r * s.y_stride + i] = from_float<T>(total);
  }
};

template <class T>
struct InputGradient {
  BlockLinearBackward<T> p;
  __device__ void operator()(int64_t r, int64_t column) const {
    const BlockLinearShape& s = p.shape;
    const int64_t first = column / s.size * s.size, j = column - first;
    const T* dy = p.dy + r * s.y_stride + first;
    T& dx = p.dx[r * s.x_stride + column];
    float total = p.accumulate_dx ? to_float(dx) : 0.0f;
    for (int64_t i = 0; i < s.size; ++i) total = fmaf(p.w[(first + i) * s.size + j], to_float(dy[i]), total);
    dx = from_float<T>(total);
  }
};

// One column per weight.
template <class T>
struct WeightGradient {
  BlockLinearBackward<T> p;
  __device__ void operator()(int64_t first, int64_t end, int64_t weight, int64_t chunk) const {
    const BlockLinearShape& s = p.shape;
    const int64_t i = weight / s.size, j = i / s.size * s.size + weight % s.size;
    float sum = 0.0f;
#pragma unroll 8
    for (int64_t r = first; r < end; ++r)
      sum = fmaf(to_float(p.dy[r * s.y_stride + i]), to_float(p.x[r * s.x_stride + j]), sum);
    p.workspace[chunk * s.width() * s.size + weight] = sum;
  }
};

}  // namespace

int64_t block_linear_workspace_size(const BlockLinearShape& shape, Cuda) {
  return row_chunks(shape.rows) * shape.width() * shape.size;
}

template <class T>
void block_linear_forward(const BlockLinearForward<T>& p, Cuda device) {
  for_elements(p.shape.rows, p.shape.width(), Forward<T>{p}, device, "block_linear_forward");
}

template <class T>
void block_linear_backward(const BlockLinearBackward<T>& p, Cuda device) {
  const int64_t weights = p.shape.width() * p.shape.size;
  for_elements(p.shape.rows, p.shape.width(), InputGradient<T>{p}, device, "block_linear_backward");
  for_row_chunks(p.shape.rows, weights, WeightGradient<T>{p}, device, "block_linear_backward");
  add_column_sums(p.workspace, row_chunks(p.shape.rows), weights, weights, p.dw, device);
}

template void block_linear_forward(const BlockLinearForward<float>&, Cuda);
template void block_linear_forward(const BlockLinearForward<bf16>&, Cuda);
template void block_linear_backward(const BlockLinearBackward<float>&, Cuda);
template void block_linear_backward(const BlockLinearBackward<bf16>&, Cuda);

}  // namespace signet::kernels
