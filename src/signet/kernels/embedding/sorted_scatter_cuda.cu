#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "signet/kernels/embedding/sorted_scatter.cuh"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/packet.cuh"

namespace signet::kernels::sorted_scatter {
namespace {

constexpr int kThreads = 128, kRange = 32;  // rows of a range

int64_t range_count(int64_t rows) { return (rows + kRange - 1) / kRange; }
int key_bits(int64_t table_rows) { return std::bit_width(static_cast<uint64_t>(table_rows)); }

size_t sort(void* scratch, size_t bytes, const int32_t* index, int32_t* keys, const int32_t* numbers,
            int32_t* places, int64_t rows, int64_t table_rows, cudaStream_t stream) {
  check_cuda(cub::DeviceRadixSort::SortPairs(scratch, bytes, index, keys, numbers, places, rows, 0,
                                             key_bits(table_rows), stream),
             "scatter_add: sort");
  return bytes;
}

// The workspace, every part at a multiple of 256 bytes: the sums of the parts of runs that began before a
// range and of those that go on behind it, [2, ranges, width]; the sorted entries, the rows they belong to,
// and the numbers of the rows; what the sort needs.
struct Parts {
  float* sums;
  int32_t *keys, *places, *numbers;
  void* scratch;
  size_t scratch_bytes;
  int64_t bytes = 0;

  Parts(float* workspace, int64_t rows, int64_t width, int64_t table_rows) {
    const auto take = [&](int64_t size) {
      char* const at = reinterpret_cast<char*>(workspace) + bytes;
      bytes += (size + 255) / 256 * 256;
      return at;
    };
    const int64_t column = rows * int64_t{sizeof(int32_t)};
    sums = reinterpret_cast<float*>(take(2 * range_count(rows) * width * int64_t{sizeof(float)}));
    keys = reinterpret_cast<int32_t*>(take(column));
    places = reinterpret_cast<int32_t*>(take(column));
    numbers = reinterpret_cast<int32_t*>(take(column));
    scratch_bytes = sort(nullptr, 0, keys, keys, keys, keys, rows, table_rows, nullptr);
    scratch = take(static_cast<int64_t>(scratch_bytes));
  }
};

__global__ void __launch_bounds__(kThreads) number_kernel(int32_t* numbers, int64_t rows) {
  begin_kernel();
  const int64_t r = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (r < rows) numbers[r] = static_cast<int32_t>(r);
}

__device__ inline void add_to(float* out, int first, int width, const float (&v)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (first + j < width) out[first + j] += v[j];
}
__device__ inline void put(float* out, int first, int width, const float (&v)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (first + j < width) out[first + j] = v[j];
}

// Block (range, kThreads packets of the width).
template <class T>
__global__ void __launch_bounds__(kThreads)
    range_kernel(ScatterAdd<T> p, const int32_t* keys, const int32_t* places, float* sums, bool aligned) {
  begin_kernel();
  constexpr int kAhead = 8;
  __shared__ int key[kRange + 2], place[kRange];  // key[i + 1] is that of the range's row i
  const int64_t begin = int64_t{blockIdx.x} * kRange;
  const int count = static_cast<int>(min(int64_t{kRange}, p.rows - begin)), width = static_cast<int>(p.width),
            first = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * 4;
  if (threadIdx.x < kRange + 2) {
    const int64_t at = begin + threadIdx.x - 1;
    key[threadIdx.x] = at >= 0 && at < p.rows ? keys[at] : -1;
    if (threadIdx.x < count) place[threadIdx.x] = places[begin + threadIdx.x];
  }
  __syncthreads();
  if (first >= width) return;
  float* const before = sums + blockIdx.x * p.width;
  float* const behind = sums + (int64_t{gridDim.x} + blockIdx.x) * p.width;
  float total[4] = {};
  bool began = key[0] == key[1];  // before this range
  for (int base = 0; base < count; base += kAhead) {
    Packet<T> packets[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (base + i < count)
        packets[i] = load_packet(p.dy + int64_t{place[base + i]} * p.dy_stride, first, width, aligned);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int row = base + i;
      if (row >= count) break;
      float v[4];
      unpack(packets[i], v);
#pragma unroll
      for (int j = 0; j < 4; ++j) total[j] += v[j];
      const bool last = row + 1 == count;
      if (!last && key[row + 2] == key[row + 1]) continue;
      if (began)
        put(before, first, width, total);
      else if (last && key[row + 2] == key[row + 1])
        put(behind, first, width, total);
      else
        add_to(p.dtable + key[row + 1] * p.table_stride, first, width, total);
      began = false;
#pragma unroll
      for (int j = 0; j < 4; ++j) total[j] = 0.0f;
    }
  }
}

// Block (range, packets): the run that begins in this range and goes on behind it, if there is one.
template <class T>
__global__ void __launch_bounds__(kThreads)
    crossing_kernel(ScatterAdd<T> p, const int32_t* keys, const float* sums) {
  begin_kernel();
  const int64_t ranges = gridDim.x, begin = int64_t{blockIdx.x} * kRange, end = begin + kRange;
  if (end >= p.rows) return;
  const int entry = keys[end];
  if (keys[end - 1] != entry || (begin > 0 && keys[begin - 1] == entry)) return;
  const int width = static_cast<int>(p.width),
            first = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * 4;
  float total[4] = {};
  const auto add = [&](const float* from) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (first + j < width) total[j] += from[first + j];
  };
  add(sums + (ranges + blockIdx.x) * p.width);
  for (int64_t range = blockIdx.x + 1; range < ranges && keys[range * kRange] == entry; ++range)
    add(sums + range * p.width);
  add_to(p.dtable + entry * p.table_stride, first, width, total);
}

}  // namespace

bool pays(int64_t rows, int64_t table_rows) { return table_rows > 256 && rows * table_rows > 1 << 21; }

int64_t workspace_size(int64_t rows, int64_t width, int64_t table_rows) {
  return Parts(nullptr, rows, width, table_rows).bytes / int64_t{sizeof(float)};
}

template <class T>
void run(const ScatterAdd<T>& p, Cuda device) {
  const Parts parts(p.workspace, p.rows, p.width, p.table_rows);
  launch("scatter_add: rows", number_kernel, static_cast<unsigned>((p.rows + kThreads - 1) / kThreads),
         kThreads, 0, device, parts.numbers, p.rows);
  sort(parts.scratch, parts.scratch_bytes, p.index, parts.keys, parts.numbers, parts.places, p.rows,
       p.table_rows, stream_of(device));
  const dim3 grid(static_cast<unsigned>(range_count(p.rows)),
                  static_cast<unsigned>((p.width + 4 * kThreads - 1) / (4 * kThreads)));
  launch("scatter_add: ranges", range_kernel<T>, grid, kThreads, 0, device, p, parts.keys, parts.places,
         parts.sums, p.width % 4 == 0 && packets_fit(p.dy, p.dy_stride));
  launch("scatter_add: runs", crossing_kernel<T>, grid, kThreads, 0, device, p, parts.keys, parts.sums);
}

template void run(const ScatterAdd<float>&, Cuda);
template void run(const ScatterAdd<bf16>&, Cuda);

}  // namespace signet::kernels::sorted_scatter
