#include "signet/tensor/cuda_check.h"

#include <atomic>

namespace signet {

// Its bound on threads tells for which GPU the code was compiled that is loaded here.
constexpr int kHopperThreads = 64;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__global__ void __launch_bounds__(kHopperThreads) probe_kernel() {}
#else
__global__ void __launch_bounds__(kHopperThreads / 2) probe_kernel() {}
#endif

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears it: it is reported here, and is not the next launch's or the caller's
  if (status == cudaErrorMemoryAllocation) {
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    fail(ErrorCode::kResource, "{}: out of GPU memory ({} MiB free of {} MiB)", what, free >> 20,
         total >> 20);
  }
  fail(ErrorCode::kFailure, "{}: CUDA error {}: {}", what, cudaGetErrorName(status),
       cudaGetErrorString(status));
}

static CudaDevice read_device() {
  CudaDevice device;
  device.index = current_gpu();
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check_cuda(cudaDeviceGetAttribute(&value, which, device.index), "cudaDeviceGetAttribute");
    return value;
  };
  device.multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  device.compute_major = attribute(cudaDevAttrComputeCapabilityMajor);
  device.compute_minor = attribute(cudaDevAttrComputeCapabilityMinor);
  device.shared_per_block = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  device.shared_per_multiprocessor = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  device.l2_bytes = attribute(cudaDevAttrL2CacheSize);
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, device.index), "cudaGetDeviceProperties");
  device.name = properties.name;
  cudaFuncAttributes code;
  if (too_old(device).empty()) {
    check_cuda(cudaFuncGetAttributes(&code, probe_kernel), "cudaFuncGetAttributes");
    device.hopper = device.compute_major == 9 && code.maxThreadsPerBlock == kHopperThreads;
  }
  return device;
}

static std::atomic<const CudaDevice*> pretended = nullptr;

const CudaDevice& cuda_device() {
  if (const CudaDevice* other = pretended) return *other;
  static auto& devices = *new PerGpu<CudaDevice>;  // kernels may be launched while statics go
  return devices.get(read_device);
}

PretendedDevice::PretendedDevice(const CudaDevice& device) { pretended = &device; }
PretendedDevice::~PretendedDevice() { pretended = nullptr; }

std::string too_old(const CudaDevice& device) {
  if (device.compute_major >= 8) return "";
  return fmt::format("{} has compute capability {}.{}; 8.0 is the least", device.name, device.compute_major,
                     device.compute_minor);
}

std::string cuda_unavailable() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) cudaGetLastError();  // as check_cuda does
  if (status == cudaErrorInsufficientDriver) return "no CUDA driver, or one older than this build needs";
  if (status != cudaSuccess) return fmt::format("no usable GPU: {}", cudaGetErrorString(status));
  if (count == 0) return "no GPU";
  return too_old(cuda_device());
}

}  // namespace signet
