#include <algorithm>

#include "signet/kernels/embedding/embedding.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 128;

template <class T>
__global__ void gather_kernel(Gather<T> p, int64_t packets, bool aligned) {
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x, row = e / packets;
  if (row >= p.rows) return;
  const int first = static_cast<int>(e - row * packets) * 4, width = static_cast<int>(p.width);
  float v[4];
  unpack(load_packet(p.table + p.index[row] * p.table_stride, first, width, aligned), v);
  store_packet(p.y + row * p.y_stride, first, width, aligned, v);
}

// Block (entry, range of rows, kThreads packets of the width): finds the rows of its range that name its
// entry, kThreads at a time, and adds them up in order. With one range it adds to the table itself, else it
// writes sums [ranges, table_rows, width].
template <class T>
__global__ void scatter_kernel(ScatterAdd<T> p, int64_t rows_per_range, bool aligned) {
  __shared__ int found[kThreads], counts[kThreads / 32];
  const int64_t entry = blockIdx.x, begin = blockIdx.y * rows_per_range,
                end = min(begin + rows_per_range, p.rows);
  const int width = static_cast<int>(p.width),
            first = static_cast<int>(blockIdx.z * kThreads + threadIdx.x) * 4;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float total[4] = {};
  for (int64_t base = begin; base < end; base += kThreads) {
    const int64_t row = base + threadIdx.x;
    const bool match = row < end && p.index[row] == entry;
    const unsigned ballot = __ballot_sync(0xffffffffu, match);
    if (lane == 0) counts[warp] = __popc(ballot);
    __syncthreads();
    int before = 0, count = 0;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) before += counts[w];
      count += counts[w];
    }
    if (match) found[before + __popc(ballot & ((1u << lane) - 1))] = static_cast<int>(row - base);
    __syncthreads();
    if (first < width) {
#pragma unroll 4
      for (int i = 0; i < count; ++i) {
        float v[4];
        unpack(load_packet(p.dy + (base + found[i]) * p.dy_stride, first, width, aligned), v);
#pragma unroll
        for (int j = 0; j < 4; ++j) total[j] += v[j];
      }
    }
    __syncthreads();
  }
  float* out = gridDim.y == 1 ? p.dtable + entry * p.table_stride
                              : p.workspace + (blockIdx.y * p.table_rows + entry) * p.width;
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (first + j < width) out[first + j] = gridDim.y == 1 ? out[first + j] + total[j] : total[j];
}

// dtable[e] += sum over ranges; the table's rows may have gaps between them.
__global__ void range_sum_kernel(const float* sums, int64_t ranges, int64_t entries, int64_t width,
                                 float* dtable, int64_t stride) {
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x, size = entries * width;
  if (e >= size) return;
  float total = 0.0f;
#pragma unroll 8
  for (int64_t range = 0; range < ranges; ++range) total += sums[range * size + e];
  dtable[e / width * stride + e % width] += total;
}

// Small tables leave few blocks, so their rows are cut into ranges, up to 16 MiB of partial sums.
int64_t ranges_for(int64_t rows, int64_t width, int64_t table_rows) {
  const int64_t table = std::max<int64_t>(1, table_rows * width);
  const int64_t most = std::min((int64_t{1} << 22) / table, (rows + 255) / 256);
  const int64_t wanted = 16 * int64_t{cuda_device().multiprocessors} / std::max<int64_t>(1, table_rows);
  return std::max<int64_t>(1, std::min(most, wanted));
}

}  // namespace

int64_t scatter_add_workspace_size(int64_t rows, int64_t width, int64_t table_rows, Cuda) {
  const int64_t ranges = ranges_for(rows, width, table_rows);
  return ranges > 1 ? ranges * table_rows * width : 0;
}

template <class T>
void gather(const Gather<T>& p, Cuda device) {
  const int64_t packets = (p.width + 3) / 4, threads = p.rows * packets;
  if (threads == 0) return;
  const bool aligned =
      p.width % 4 == 0 && packets_fit(p.table, p.table_stride) && packets_fit(p.y, p.y_stride);
  gather_kernel<<<static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0,
                  stream_of(device)>>>(p, packets, aligned);
  check_launch("gather");
}

template <class T>
void scatter_add(const ScatterAdd<T>& p, Cuda device) {
  if (p.rows == 0 || p.width == 0 || p.table_rows == 0) return;
  const int64_t ranges = ranges_for(p.rows, p.width, p.table_rows);
  const unsigned columns = static_cast<unsigned>((p.width + 4 * kThreads - 1) / (4 * kThreads));
  const bool aligned = p.width % 4 == 0 && packets_fit(p.dy, p.dy_stride);
  scatter_kernel<<<dim3(static_cast<unsigned>(p.table_rows), static_cast<unsigned>(ranges), columns),
                   kThreads, 0, stream_of(device)>>>(p, (p.rows + ranges - 1) / ranges, aligned);
  check_launch("scatter_add");
  if (ranges == 1) return;
  const int64_t size = p.table_rows * p.width;
  range_sum_kernel<<<static_cast<unsigned>((size + kThreads - 1) / kThreads), kThreads, 0,
                     stream_of(device)>>>(p.workspace, ranges, p.table_rows, p.width, p.dtable,
                                          p.table_stride);
  check_launch("scatter_add: ranges");
}

template void gather(const Gather<float>&, Cuda);
template void gather(const Gather<bf16>&, Cuda);
template void scatter_add(const ScatterAdd<float>&, Cuda);
template void scatter_add(const ScatterAdd<bf16>&, Cuda);

}  // namespace signet::kernels
