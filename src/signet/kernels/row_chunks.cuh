// Row-wise GPU kernels that also sum over rows: one thread per column walks kRowChunk rows and leaves its sum
// in partial[chunk, columns]; a second kernel adds them up in a fixed order.
#pragma once

#include "signet/tensor/cuda_check.h"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {

inline constexpr int kRowChunk = 32, kColumnThreads = 64, kElementThreads = 256;

inline int64_t row_chunks(int64_t rows) { return (rows + kRowChunk - 1) / kRowChunk; }

// body(first row, end row, column, chunk) for every chunk of rows and every column.
template <class Body>
__global__ void __launch_bounds__(kColumnThreads) row_chunk_kernel(int64_t rows, int64_t columns, Body body) {
  const int64_t column = int64_t{blockIdx.y} * kColumnThreads + threadIdx.x, chunk = blockIdx.x;
  if (column >= columns) return;
  const int64_t first = chunk * kRowChunk, end = first + kRowChunk;
  body(first, end < rows ? end : rows, column, chunk);
}
template <class Body>
void for_row_chunks(int64_t rows, int64_t columns, Body body, Cuda device, const char* name) {
  if (rows == 0 || columns == 0) return;
  const dim3 grid(static_cast<unsigned>(row_chunks(rows)),
                  static_cast<unsigned>((columns + kColumnThreads - 1) / kColumnThreads));
  row_chunk_kernel<<<grid, kColumnThreads, 0, stream_of(device)>>>(rows, columns, body);
  check_launch(name);
}

// body(row, column) for every element.
template <class Body>
__global__ void __launch_bounds__(kElementThreads) element_kernel(int64_t rows, int64_t columns, Body body) {
  const int64_t i = int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  if (i < rows * columns) body(i / columns, i % columns);
}
template <class Body>
void for_elements(int64_t rows, int64_t columns, Body body, Cuda device, const char* name) {
  if (rows == 0 || columns == 0) return;
  const int64_t blocks = (rows * columns + kElementThreads - 1) / kElementThreads;
  element_kernel<<<static_cast<unsigned>(blocks), kElementThreads, 0, stream_of(device)>>>(rows, columns,
                                                                                           body);
  check_launch(name);
}

// body(row, column, lane) by a warp for every element.
template <class Body>
__global__ void __launch_bounds__(kElementThreads) warp_kernel(int64_t rows, int64_t columns, Body body) {
  const int64_t i = (int64_t{blockIdx.x} * kElementThreads + threadIdx.x) / 32;
  if (i < rows * columns) body(i / columns, i % columns, static_cast<int>(threadIdx.x % 32));
}
template <class Body>
void for_warps(int64_t rows, int64_t columns, Body body, Cuda device, const char* name) {
  if (rows == 0 || columns == 0) return;
  const int64_t blocks = (rows * columns * 32 + kElementThreads - 1) / kElementThreads;
  warp_kernel<<<static_cast<unsigned>(blocks), kElementThreads, 0, stream_of(device)>>>(rows, columns, body);
  check_launch(name);
}

// out[g] += sum over all rows and the columns of group g of partial [count, columns]; a block per group.
__global__ static void __launch_bounds__(256)
    group_sum_kernel(const float* partial, int64_t count, int64_t columns, int64_t width, float* out) {
  __shared__ float warps[8];
  float total = 0.0f;
  for (int64_t i = threadIdx.x; i < count * width; i += 256)
    total += partial[i / width * columns + blockIdx.x * width + i % width];
  total = lane_sum<32>(total);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x != 0) return;
  total = 0.0f;
#pragma unroll
  for (float each : warps) total += each;
  out[blockIdx.x] += total;
}
inline void add_group_sums(const float* partial, int64_t count, int64_t columns, int64_t groups, float* out,
                           Cuda device) {
  if (count == 0 || groups == 0) return;
  if (groups == columns) return add_column_sums(partial, count, columns, columns, out, device);
  group_sum_kernel<<<static_cast<unsigned>(groups), 256, 0, stream_of(device)>>>(partial, count, columns,
                                                                                 columns / groups, out);
  check_launch("add_group_sums");
}

// Accurate for every x: both branches of the sum stay away from overflow and cancellation.
__device__ inline float logistic(float x) {
  const float e = expf(-fabsf(x)), r = 1.0f / (1.0f + e);
  return x < 0.0f ? e * r : r;
}
__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

}  // namespace signet::kernels
