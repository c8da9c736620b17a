// Times on the GPU: medians over CUDA events, after three calls to warm up.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "signet/tensor/cuda_check.h"

namespace signet {

template <class Body>
double median_ms(Body&& body, int repeats = 30) {
  cudaEvent_t begin, end;
  check_cuda(cudaEventCreate(&begin), "event");
  check_cuda(cudaEventCreate(&end), "event");
  for (int i = 0; i < 3; ++i) body();
  std::vector<float> times;
  for (int i = 0; i < repeats; ++i) {
    check_cuda(cudaEventRecord(begin), "event");
    body();
    check_cuda(cudaEventRecord(end), "event");
    check_cuda(cudaEventSynchronize(end), "event");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "event");
    times.push_back(ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Bytes per second of a copy within the device's memory, read and written.
inline double copy_bandwidth() {
  const size_t bytes = size_t{1} << 30;
  void *a, *b;
  check_cuda(cudaMalloc(&a, bytes), "cudaMalloc");
  check_cuda(cudaMalloc(&b, bytes), "cudaMalloc");
  const double ms =
      median_ms([&] { check_cuda(cudaMemcpyAsync(a, b, bytes, cudaMemcpyDeviceToDevice), "copy"); }, 20);
  cudaFree(a);
  cudaFree(b);
  return 2.0 * static_cast<double>(bytes) / (ms * 1e-3);
}

}  // namespace signet
