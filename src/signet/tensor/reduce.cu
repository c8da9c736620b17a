#include "signet/tensor/reduce.cuh"

#include "signet/tensor/cuda_check.h"

namespace signet {
namespace {

// 32 columns per block; thread row y sums every 32nd row, then the 32 sums are added in order.
__global__ void column_sum_kernel(const float* rows, int64_t count, int64_t columns, int64_t stride,
                                  float* out) {
  __shared__ float part[32][33];
  const int64_t column = int64_t{blockIdx.x} * 32 + threadIdx.x;
  float total = 0.0f;
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = threadIdx.y; row < count; row += 32) total += rows[row * stride + column];
  }
  part[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  total = 0.0f;
#pragma unroll
  for (int row = 0; row < 32; ++row) total += part[row][threadIdx.x];
  out[column] += total;
}

}  // namespace

void add_column_sums(const float* rows, int64_t count, int64_t columns, int64_t stride, float* out,
                     Cuda device) {
  if (count == 0 || columns == 0) return;
  column_sum_kernel<<<static_cast<unsigned>((columns + 31) / 32), dim3(32, 32), 0, stream_of(device)>>>(
      rows, count, columns, stride, out);
  check_launch("add_column_sums");
}

}  // namespace signet
