#include <algorithm>

#include "signet/kernels/rows/rows.h"
#include "signet/tensor/cuda_check.h"

namespace signet::kernels {
namespace {

template <class T>
__global__ void add_rows(CopyRows<T> p) {
  const int64_t n = p.rows * p.width;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t r = i / p.width, c = i % p.width;
    p.y[r * p.y_stride + c] += p.x[r * p.x_stride + c];
  }
}

}  // namespace

template <class T>
void copy_rows(const CopyRows<T>& p, Cuda device) {
  if (p.rows == 0 || p.width == 0) return;
  if (!p.add) {
    check_cuda(cudaMemcpy2DAsync(p.y, p.y_stride * sizeof(T), p.x, p.x_stride * sizeof(T),
                                 p.width * sizeof(T), p.rows, cudaMemcpyDeviceToDevice, stream_of(device)),
               "copy_rows");
    return;
  }
  const int64_t blocks = std::min<int64_t>((p.rows * p.width + 255) / 256, 8 * cuda_device().multiprocessors);
  add_rows<<<static_cast<unsigned>(blocks), 256, 0, stream_of(device)>>>(p);
  check_launch("copy_rows");
}

template void copy_rows(const CopyRows<float>&, Cuda);

}  // namespace signet::kernels
