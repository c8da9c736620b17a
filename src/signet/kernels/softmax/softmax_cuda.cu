// A warp per row, which it reads from the caches as often as it needs it.
#include <algorithm>

#include "signet/kernels/softmax/softmax.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256, kRowsPerBlock = kThreads / 32;

__device__ inline float lane_max(float x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, mask));
  return x;
}

template <class T>
__global__ void forward_kernel(SoftmaxForward<T> p) {
  const int lane = threadIdx.x % 32;
  const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / 32;
  if (row >= p.rows) return;
  const T* x = p.x + row * p.x_stride;
  T* y = p.y + row * p.y_stride;
  float largest = -INFINITY, total = 0.0f;
  for (int64_t i = lane; i < p.width; i += 32) largest = fmaxf(largest, to_float(x[i]));
  largest = lane_max(largest);
  for (int64_t i = lane; i < p.width; i += 32) total += expf(to_float(x[i]) - largest);
  const float inverse = 1.0f / lane_sum<32>(total);
  for (int64_t i = lane; i < p.width; i += 32) y[i] = from_float<T>(expf(to_float(x[i]) - largest) * inverse);
}

template <class T>
__global__ void backward_kernel(SoftmaxBackward<T> p) {
  const int lane = threadIdx.x % 32;
  const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / 32;
  if (row >= p.rows) return;
  const T *y = p.y + row * p.y_stride, *dy = p.dy + row * p.dy_stride;
  float along = 0.0f;
  for (int64_t i = lane; i < p.width; i += 32) along = fmaf(to_float(y[i]), to_float(dy[i]), along);
  along = lane_sum<32>(along);
  for (int64_t i = lane; i < p.width; i += 32)
    p.dx[row * p.dx_stride + i] = from_float<T>(to_float(y[i]) * (to_float(dy[i]) - along));
}

unsigned blocks_of(int64_t rows) { return static_cast<unsigned>((rows + kRowsPerBlock - 1) / kRowsPerBlock); }

}  // namespace

template <class T>
void softmax_forward(const SoftmaxForward<T>& p, Cuda device) {
  if (p.rows == 0 || p.width == 0) return;
  forward_kernel<<<blocks_of(p.rows), kThreads, 0, stream_of(device)>>>(p);
  check_launch("softmax_forward");
}

template <class T>
void softmax_backward(const SoftmaxBackward<T>& p, Cuda device) {
  if (p.rows == 0 || p.width == 0) return;
  backward_kernel<<<blocks_of(p.rows), kThreads, 0, stream_of(device)>>>(p);
  check_launch("softmax_backward");
}

template void softmax_forward(const SoftmaxForward<float>&, Cuda);
template void softmax_forward(const SoftmaxForward<bf16>&, Cuda);
template void softmax_backward(const SoftmaxBackward<float>&, Cuda);
template void softmax_backward(const SoftmaxBackward<bf16>&, Cuda);

}  // namespace signet::kernels
