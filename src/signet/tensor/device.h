// Where tensors live and operators run. A build without CUDA knows only the CPU; asking for the GPU then
// fails with a clear word.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "signet/base/isa.h"
#include "signet/tensor/tensor.h"

namespace signet {

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  void* stream = nullptr;  // a cudaStream_t on the GPU
  bool dry = false;        // nothing runs and no memory is touched: a pass only shows what it would need

  bool cuda() const { return kind == DeviceKind::kCuda; }
};

// That this build has no CUDA backend, kUsage.
[[noreturn]] void fail_without_cuda();

// Calls f(Cpu{}) or f(Cuda{stream}).
template <class F>
void on_device(const Device& device, F&& f) {
#ifdef SIGNET_WITH_CUDA
  if (device.cuda()) return f(Cuda{device.stream});
#else
  if (device.cuda()) fail_without_cuda();
#endif
  f(Cpu{});
}

// Owns what a Device names: on the GPU a stream and the workspace that matrix products have on it. Copies
// share it, and it ends with the last of them.
class OpenDevice {
 public:
  OpenDevice() = default;  // the CPU
  explicit OpenDevice(std::shared_ptr<void> stream)
      : device_{DeviceKind::kCuda, stream.get()}, stream_(std::move(stream)) {}
  operator const Device&() const& { return device_; }
  operator const Device&() && = delete;  // the stream would be gone
  bool cuda() const { return device_.cuda(); }

 private:
  Device device_;
  std::shared_ptr<void> stream_;
};

// "cpu", "cuda" or "cuda:N", the N-th of those that CUDA_VISIBLE_DEVICES leaves; "cuda" is the first. Throws
// kUsage for other names, without CUDA in the build, and without a usable GPU, saying why. A process has one
// GPU: once one is open, another number is refused.
OpenDevice open_device(const std::string& name);
// Throws kUsage for other names, whatever this build and machine have.
void check_device_name(const std::string& name);

// The GPU that open_device("cuda") gives, in words; throws like it.
std::string device_description();

// Memory of a device, 64-byte aligned (256 on the GPU). Throws kResource that says how much is needed and
// free.
void* allocate_memory(DeviceKind kind, int64_t bytes);
void free_memory(DeviceKind kind, void* p, int64_t bytes);
// The GPU memory of this process, workspaces of matrix products included; what CUDA takes for itself is not.
struct GpuMemory {
  int64_t requests = 0;        // how often the GPU was asked
  int64_t held = 0, peak = 0;  // bytes: now, and the most since forget_gpu_peak()
};
GpuMemory gpu_memory();
void forget_gpu_peak();
// Bytes that are free on the GPU now, for all processes.
int64_t free_gpu_memory();

// Copies between host memory and the memory of `device`, and fills; in stream order on the GPU. copy_to_host
// waits until the bytes are there. Nothing on a dry device.
void copy_to_device(const Device& device, void* to, const void* from, int64_t bytes);
void copy_to_host(const Device& device, void* to, const void* from, int64_t bytes);
void copy_within(const Device& device, void* to, const void* from, int64_t bytes);
void fill_zero(const Device& device, void* to, int64_t bytes);
void synchronize(const Device& device);

// Owned memory of a device.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceKind kind, int64_t bytes)
      : kind_(kind), bytes_(bytes), data_(bytes ? allocate_memory(kind, bytes) : nullptr) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_) free_memory(kind_, data_, bytes_);
  }
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  DeviceKind kind_ = DeviceKind::kCpu;
  int64_t bytes_ = 0;
  void* data_ = nullptr;
};

}  // namespace signet
