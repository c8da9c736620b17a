// What every CUDA source needs: errors as signet::Error, and the facts about the current GPU that launch
// decisions use. Only for files that are compiled when SIGNET_WITH_CUDA is set.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "signet/base/error.h"
#include "signet/base/isa.h"

namespace signet {

// `what` names the call or kernel. Out of memory becomes ErrorCode::kResource, everything else kFailure.
void check_cuda(cudaError_t status, const char* what);

// To be called right after a launch; an execution error shows at the next synchronisation.
inline void check_launch(const char* kernel) { check_cuda(cudaGetLastError(), kernel); }

inline cudaStream_t stream_of(Cuda device) { return static_cast<cudaStream_t>(device.stream); }

// The current GPU: a process may use several.
inline int current_gpu() {
  int index = 0;
  check_cuda(cudaGetDevice(&index), "cudaGetDevice");
  return index;
}
// One value for each GPU, made when it is first asked for while that GPU is the current one.
template <class T>
class PerGpu {
 public:
  template <class Make>
  T& get(Make make) {
    const int index = current_gpu();
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(index);
    return found != values_.end() ? found->second : values_.emplace(index, make()).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<int, T> values_;
};

struct CudaDevice {
  std::string name;
  int index = 0;
  int multiprocessors = 0;
  int compute_major = 0, compute_minor = 0;
  // Runs the code for Hopper (sm_90a). All others, newer ones too, run what is compiled for compute
  // capability 8.0, and have at least kLeastSharedBytes.
  bool hopper = false;
  int shared_per_block = 0;  // bytes one block may have after allow_shared_memory
  int shared_per_multiprocessor = 0;
  int64_t l2_bytes = 0;
};

inline constexpr int kLeastSharedBytes = 99 * 1024;  // of compute capability 8.6 and 12.0

// The current device, each read once; throws when there is none (cuda_unavailable says why).
const CudaDevice& cuda_device();
// While it lives, decisions are those for another GPU: tests look at them.
class PretendedDevice {
 public:
  explicit PretendedDevice(const CudaDevice& device);
  PretendedDevice(const PretendedDevice&) = delete;
  PretendedDevice& operator=(const PretendedDevice&) = delete;
  ~PretendedDevice();
};

// Empty when the kernels run on that GPU, else why they do not.
std::string too_old(const CudaDevice& device);
// Empty when kernels can run here, else why not: no driver, no GPU, or one older than compute capability 8.0.
std::string cuda_unavailable();

// Whether a block can have so much shared memory on this GPU.
inline bool fits_shared_memory(size_t bytes) {
  return bytes <= static_cast<size_t>(cuda_device().shared_per_block);
}
// Raises the dynamic shared memory limit of a kernel; needed above 48 KiB, of which up to 8 KiB may be
// memory that the kernel declares.
template <class Kernel>
void allow_shared_memory(Kernel* kernel, int64_t bytes, const char* name) {
  if (bytes <= 40 * 1024) return;
  const int limit = cuda_device().shared_per_block;
  if (bytes > limit)
    fail(ErrorCode::kResource, "{} needs {} bytes of shared memory per block; this GPU has {}", name, bytes,
         limit);
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
             name);
}

}  // namespace signet
