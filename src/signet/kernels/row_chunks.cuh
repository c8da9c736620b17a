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

// body(first row, end row, column, sums) for a quarter of every chunk of rows and every column; the sums of a
// chunk's quarters, added in their order, are partial[chunk, column, kSums].
inline constexpr int kChunkParts = 4;
template <int kSums, class Body>
__global__ void __launch_bounds__(kColumnThreads* kChunkParts)
    chunk_sum_kernel(int64_t rows, int64_t columns, Body body, float* partial) {
  __shared__ float parts[kChunkParts - 1][kSums][kColumnThreads];
  const int64_t column = int64_t{blockIdx.y} * kColumnThreads + threadIdx.x, chunk = blockIdx.x;
  const int part = threadIdx.y;
  constexpr int kRows = kRowChunk / kChunkParts;
  const int64_t first = chunk * kRowChunk + part * kRows;
  float sums[kSums] = {};
  if (column < columns && first < rows) body(first, min(first + kRows, rows), column, sums);
  if (part > 0) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) parts[part - 1][i][threadIdx.x] = sums[i];
  }
  __syncthreads();
  if (part > 0 || column >= columns) return;
#pragma unroll
  for (int other = 0; other < kChunkParts - 1; ++other) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] += parts[other][i][threadIdx.x];
  }
#pragma unroll
  for (int i = 0; i < kSums; ++i) partial[(chunk * columns + column) * kSums + i] = sums[i];
}
template <int kSums, class Body>
void for_chunk_sums(int64_t rows, int64_t columns, Body body, float* partial, Cuda device, const char* name) {
  if (rows == 0 || columns == 0) return;
  const dim3 grid(static_cast<unsigned>(row_chunks(rows)),
                  static_cast<unsigned>((columns + kColumnThreads - 1) / kColumnThreads));
  chunk_sum_kernel<kSums>
      <<<grid, dim3(kColumnThreads, kChunkParts), 0, stream_of(device)>>>(rows, columns, body, partial);
  check_launch(name);
}

// body(row, column) for every element.
template <class Body>
__global__ void __launch_bounds__(kElementThreads) element_kernel(int64_t rows, int64_t columns, Body body) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y,
                column = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (row < rows && column < columns) body(row, column);
}
template <class Body>
void for_elements(int64_t rows, int64_t columns, Body body, Cuda device, const char* name) {
  if (rows == 0 || columns == 0) return;
  unsigned wide = 1;
  while (wide < columns && wide < kColumnThreads) wide *= 2;
  const unsigned high = kElementThreads / wide;
  const dim3 grid(static_cast<unsigned>((rows + high - 1) / high),
                  static_cast<unsigned>((columns + wide - 1) / wide));
  element_kernel<<<grid, dim3(wide, high), 0, stream_of(device)>>>(rows, columns, body);
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
  const auto wide = static_cast<unsigned>(width), size = static_cast<unsigned>(count) * wide;
#pragma unroll 8
  for (unsigned i = threadIdx.x; i < size; i += 256)
    total += partial[i / wide * columns + blockIdx.x * width + i % wide];
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
