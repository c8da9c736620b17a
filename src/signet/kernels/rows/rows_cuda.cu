#include "signet/kernels/rows/rows.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/packet.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) rows_kernel(CopyRows<T> p, int64_t packets, bool aligned) {
  begin_kernel();
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x, row = e / packets;
  if (row >= p.rows) return;
  const int first = static_cast<int>(e - row * packets) * 4, width = static_cast<int>(p.width);
  const T* x = p.x + (p.x_index ? p.x_index[row] : row) * p.x_stride;
  T* y = p.y + (p.y_index ? p.y_index[row] : row) * p.y_stride;
  float v[4] = {};
  if (p.x) unpack(load_packet(x, first, width, aligned), v);
  if (p.add) {
    float before[4];
    unpack(load_packet(y, first, width, aligned), before);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] += before[i];
  }
  store_packet(y, first, width, aligned, v);
}

}  // namespace

template <class T>
void copy_rows(const CopyRows<T>& p, Cuda device) {
  const int64_t packets = (p.width + 3) / 4, threads = p.rows * packets;
  if (threads == 0) return;
  const bool aligned = p.width % 4 == 0 && packets_fit(p.x, p.x_stride) && packets_fit(p.y, p.y_stride);
  launch("copy_rows", rows_kernel<T>, static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0,
         device, p, packets, aligned);
}

template void copy_rows(const CopyRows<float>&, Cuda);
template void copy_rows(const CopyRows<bf16>&, Cuda);

}  // namespace signet::kernels
