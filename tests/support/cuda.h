// Device memory for tests, and the word that skips a test where no GPU is.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "signet/tensor/cuda_check.h"

#define SIGNET_NEEDS_GPU() \
  if (const std::string why = signet::cuda_unavailable(); !why.empty()) GTEST_SKIP() << "needs a GPU: " << why

namespace signet::test {

// A vector of T on the device. Fresh memory is filled with 0xff bytes: NaN in every floating type.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(size_t n) : size_(n) {
    check_cuda(cudaMalloc(&data_, std::max<size_t>(1, n) * sizeof(T)), "cudaMalloc");
    check_cuda(cudaMemset(data_, 0xff, std::max<size_t>(1, n) * sizeof(T)), "cudaMemset");
  }
  explicit OnDevice(const std::vector<T>& values) : OnDevice(values.size()) {
    check_cuda(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  OnDevice(OnDevice&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr; }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }

  T* get() const { return static_cast<T*>(data_); }
  std::vector<T> values() const {
    std::vector<T> host(size_);
    check_cuda(cudaMemcpy(host.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host;
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace signet::test
