#include "signet/tensor/reduce.h"

#include <algorithm>

#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"

namespace signet {
namespace {

constexpr int kMost = 48;  // sums in one launch: they travel as its arguments

struct Sums {
  ColumnSum sums[kMost];
  int end[kMost];  // the block after the last one of each sum
};

// 32 columns per block; thread row y sums every 32nd row, then the 32 sums are added in order.
__global__ void column_sum_kernel(Sums all) {
  begin_kernel();
  __shared__ float part[32][33];
  int which = 0;
  while (static_cast<int>(blockIdx.x) >= all.end[which]) ++which;
  const ColumnSum sum = all.sums[which];
  const int block = static_cast<int>(blockIdx.x) - (which > 0 ? all.end[which - 1] : 0);
  const int64_t column = int64_t{block} * 32 + threadIdx.x;
  float total = 0.0f;
  if (column < sum.columns) {
#pragma unroll 8
    for (int64_t row = threadIdx.y; row < sum.count; row += 32) total += sum.rows[row * sum.stride + column];
  }
  part[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || column >= sum.columns) return;
  total = 0.0f;
#pragma unroll
  for (int row = 0; row < 32; ++row) total += part[row][threadIdx.x];
  sum.out[column] += total;
}

bool overlap(const ColumnSum& a, const ColumnSum& b) {
  return a.out < b.out + b.columns && b.out < a.out + a.columns;
}

}  // namespace

void ColumnSums::run(Cuda device) {
  for (size_t first = 0; first < waiting_.size();) {
    Sums all;
    int count = 0;
    for (; first < waiting_.size() && count < kMost; ++first) {
      const ColumnSum& next = waiting_[first];
      if (next.count == 0 || next.columns == 0) continue;
      const auto taken = [&](const ColumnSum& sum) { return overlap(sum, next); };
      if (std::any_of(all.sums, all.sums + count, taken)) break;
      all.sums[count] = next;
      all.end[count] = (count > 0 ? all.end[count - 1] : 0) + static_cast<int>((next.columns + 31) / 32);
      ++count;
    }
    if (count == 0) continue;
    launch("sums over rows", column_sum_kernel, static_cast<unsigned>(all.end[count - 1]), dim3(32, 32), 0,
           device, all);
  }
  waiting_.clear();
}

void add_column_sum(const ColumnSum& sum, Cuda device) {
  ColumnSums one;
  one.add(sum);
  one.run(device);
}

}  // namespace signet
