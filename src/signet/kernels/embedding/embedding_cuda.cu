#include <algorithm>

#include "signet/kernels/embedding/embedding.h"
#include "signet/kernels/embedding/sorted_scatter.cuh"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 128, kWarps = 8;
constexpr int kRowsPerWarp = 4;  // whose loads are in flight together

// A warp gathers kRowsPerWarp rows, its lanes going round their packets.
template <class T>
__global__ void __launch_bounds__(32 * kWarps) gather_kernel(Gather<T> p, bool aligned) {
  begin_kernel();
  const int64_t first_row = (int64_t{blockIdx.x} * kWarps + threadIdx.y) * kRowsPerWarp;
  const int width = static_cast<int>(p.width), lane = static_cast<int>(threadIdx.x);
  const float* from[kRowsPerWarp];
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r)
    from[r] = p.table + (first_row + r < p.rows ? p.index[first_row + r] : 0) * p.table_stride;
  for (int first = lane * 4; first < width; first += 128) {
    Packet<float> packets[kRowsPerWarp];
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) packets[r] = load_packet(from[r], first, width, aligned);
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      if (first_row + r >= p.rows) break;
      float v[4];
      unpack(packets[r], v);
      store_packet(p.y + (first_row + r) * p.y_stride, first, width, aligned, v);
    }
  }
}

// For small tables: every warp adds up all of one for up to 128 columns of its share of the rows, in shared
// memory [kWarps][table_rows][columns]; the warps' sums are then added in order into sums [blocks x,
// table_rows, width].
template <class T>
__global__ void __launch_bounds__(32 * kWarps)
    small_scatter_kernel(ScatterAdd<T> p, int columns, int64_t rows_per_warp, bool aligned) {
  begin_kernel();
  extern __shared__ float tables[];
  constexpr int kAhead = 8;
  const int lane = static_cast<int>(threadIdx.x), width = static_cast<int>(p.width),
            entries = static_cast<int>(p.table_rows), first = static_cast<int>(blockIdx.y) * 128 + lane * 4;
  const bool live = lane * 4 < columns;
  float* mine = tables + threadIdx.y * entries * columns + lane * 4;
  for (int e = 0; live && e < entries; ++e)
    *reinterpret_cast<float4*>(mine + e * columns) = make_float4(0, 0, 0, 0);
  const int64_t begin = (int64_t{blockIdx.x} * kWarps + threadIdx.y) * rows_per_warp,
                end = min(begin + rows_per_warp, p.rows);
  for (int64_t base = begin; live && base < end; base += kAhead) {
    Packet<T> packets[kAhead];
    int entry[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const bool there = base + k < end;
      packets[k] = load_packet(p.dy + (base + k) * p.dy_stride, first, there ? width : 0, aligned);
      entry[k] = there ? p.index[base + k] : 0;
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      float v[4];
      unpack(packets[k], v);
      float4& total = *reinterpret_cast<float4*>(mine + entry[k] * columns);
      total = make_float4(total.x + v[0], total.y + v[1], total.z + v[2], total.w + v[3]);
    }
  }
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.y) * 32 + lane;
  for (int i = thread; i < entries * columns; i += 32 * kWarps) {
    const int column = static_cast<int>(blockIdx.y) * 128 + i % columns;
    if (column >= width) continue;
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += tables[w * entries * columns + i];
    p.workspace[(int64_t{blockIdx.x} * entries + i / columns) * p.width + column] = total;
  }
}

// Block (entry, range of rows, kThreads packets of the width): finds the rows of its range that name its
// entry, kThreads at a time, and adds them up in order. With one range it adds to the table itself, else it
// writes sums [ranges, table_rows, width].
template <class T>
__global__ void scatter_kernel(ScatterAdd<T> p, int64_t rows_per_range, bool aligned) {
  begin_kernel();
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
  begin_kernel();
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x, size = entries * width;
  if (e >= size) return;
  float total = 0.0f;
#pragma unroll 8
  for (int64_t range = 0; range < ranges; ++range) total += sums[range * size + e];
  dtable[e / width * stride + e % width] += total;
}

// Columns of a table in one block of small_scatter_kernel, and its shared memory.
int64_t small_columns(int64_t width) { return std::min<int64_t>(128, (width + 3) / 4 * 4); }
int64_t small_bytes(int64_t table_rows, int64_t width) {
  return kWarps * table_rows * small_columns(width) * int64_t{sizeof(float)};
}
bool small_table(int64_t table_rows, int64_t width) { return small_bytes(table_rows, width) <= 48 * 1024; }

// Into how many ranges the rows are cut, each with a table of sums; up to 16 MiB of them.
int64_t ranges_for(int64_t rows, int64_t width, int64_t table_rows) {
  const int64_t table = std::max<int64_t>(1, table_rows * width);
  const int64_t processors = cuda_device().multiprocessors;
  int64_t most = (int64_t{1} << 22) / table, wanted = 16 * processors / std::max<int64_t>(1, table_rows);
  if (small_table(table_rows, width)) {
    most = std::min(most, (rows + 8 * kWarps - 1) / (8 * kWarps));
    wanted = 4 * processors * 128 / (width + 127);
  } else {
    most = std::min(most, (rows + 255) / 256);  // few blocks otherwise
  }
  return std::max<int64_t>(1, std::min(most, wanted));
}

// One thread per 8 columns.
__global__ void __launch_bounds__(kThreads) one_hot_kernel(OneHot p, unsigned pieces) {
  begin_kernel();
  const unsigned e = blockIdx.x * kThreads + threadIdx.x, row = e / pieces;
  if (row >= p.rows) return;
  const int at = p.index[row] - static_cast<int>(e - row * pieces) * 8;
  uint4 bits = make_uint4(0, 0, 0, 0);
  constexpr uint32_t kOne = 0x3f80;
  const uint32_t word = at % 2 == 0 ? kOne : kOne << 16;
  if (at >= 0 && at < 8) (at < 2 ? bits.x : at < 4 ? bits.y : at < 6 ? bits.z : bits.w) = word;
  reinterpret_cast<uint4*>(p.y)[e] = bits;
}

}  // namespace

bool scatters_fast(int64_t table_rows, int64_t width) {
  return small_table(table_rows, width) || table_rows > 256;
}

void one_hot(const OneHot& p, Cuda device) {
  if (p.width % 8 != 0) fail(ErrorCode::kUsage, "one-hot rows of {} columns: give a multiple of 8", p.width);
  const int64_t pieces = p.width / 8, threads = p.rows * pieces;
  if (threads == 0) return;
  if (threads > INT32_MAX) fail(ErrorCode::kUsage, "{} one-hot rows of {} columns", p.rows, p.width);
  launch("one_hot", one_hot_kernel, static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0,
         device, p, static_cast<unsigned>(pieces));
}

int64_t scatter_add_workspace_size(int64_t rows, int64_t width, int64_t table_rows, Cuda) {
  if (sorted_scatter::pays(rows, table_rows)) return sorted_scatter::workspace_size(rows, width, table_rows);
  const int64_t ranges = ranges_for(rows, width, table_rows);
  return ranges > 1 || small_table(table_rows, width) ? ranges * table_rows * width : 0;
}

template <class T>
void gather(const Gather<T>& p, Cuda device) {
  if (p.rows == 0 || p.width == 0) return;
  const bool aligned =
      p.width % 4 == 0 && packets_fit(p.table, p.table_stride) && packets_fit(p.y, p.y_stride);
  constexpr int64_t kPerBlock = kWarps * kRowsPerWarp;
  launch("gather", gather_kernel<T>, static_cast<unsigned>((p.rows + kPerBlock - 1) / kPerBlock),
         dim3(32, kWarps), 0, device, p, aligned);
}

template <class T>
void scatter_add(const ScatterAdd<T>& p, Cuda device) {
  if (p.rows == 0 || p.width == 0 || p.table_rows == 0) return;
  if (sorted_scatter::pays(p.rows, p.table_rows)) return sorted_scatter::run(p, device);
  const int64_t ranges = ranges_for(p.rows, p.width, p.table_rows), size = p.table_rows * p.width;
  const bool aligned = p.width % 4 == 0 && packets_fit(p.dy, p.dy_stride);
  if (small_table(p.table_rows, p.width)) {
    const int64_t warps = ranges * kWarps;
    launch("scatter_add", small_scatter_kernel<T>,
           dim3(static_cast<unsigned>(ranges), static_cast<unsigned>((p.width + 127) / 128)),
           dim3(32, kWarps), static_cast<size_t>(small_bytes(p.table_rows, p.width)), device, p,
           static_cast<int>(small_columns(p.width)), (p.rows + warps - 1) / warps, aligned);
  } else {
    const unsigned columns = static_cast<unsigned>((p.width + 4 * kThreads - 1) / (4 * kThreads));
    launch("scatter_add", scatter_kernel<T>,
           dim3(static_cast<unsigned>(p.table_rows), static_cast<unsigned>(ranges), columns), kThreads, 0,
           device, p, (p.rows + ranges - 1) / ranges, aligned);
    if (ranges == 1) return;
  }
  if (p.table_stride == p.width)
    return add_column_sum({p.workspace, ranges, size, size, p.dtable}, p.later, device);
  launch("scatter_add: ranges", range_sum_kernel, static_cast<unsigned>((size + kThreads - 1) / kThreads),
         kThreads, 0, device, p.workspace, ranges, p.table_rows, p.width, p.dtable, p.table_stride);
}

template void gather(const Gather<float>&, Cuda);
template void gather(const Gather<bf16>&, Cuda);
template void scatter_add(const ScatterAdd<float>&, Cuda);
template void scatter_add(const ScatterAdd<bf16>&, Cuda);

}  // namespace signet::kernels
