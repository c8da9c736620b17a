#include "signet/tensor/device.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "signet/base/error.h"
#include "signet/base/text.h"
#ifdef SIGNET_WITH_CUDA
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/gemm.h"
#endif

namespace signet {
namespace {

std::atomic<int64_t> gpu_requests = 0, gpu_bytes = 0, gpu_peak_bytes = 0;

#ifdef SIGNET_WITH_CUDA
// Every thread and library of the process must meet the same GPU, so the others are hidden before CUDA looks
// for any.
void choose_gpu(const std::string& name) {
  static std::mutex mutex;
  static std::string chosen;
  const std::lock_guard lock(mutex);
  const std::string number = name == "cuda" ? "0" : name.substr(5);
  if (chosen.empty() && number != "0") {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    std::string only = number;
    if (visible) {
      const auto names = split(visible, ',');
      const auto index = static_cast<size_t>(std::stoi(number));
      if (index >= names.size())
        fail(ErrorCode::kUsage, "--device {}: CUDA_VISIBLE_DEVICES={} leaves {}", name, printable(visible),
             names.size());
      only = names[index];
    }
    ::setenv("CUDA_VISIBLE_DEVICES", only.c_str(), 1);
  }
  if (!chosen.empty() && chosen != number)
    fail(ErrorCode::kUsage, "--device {}: this process is on cuda:{} already", name, chosen);
  chosen = number;
}
#endif

}  // namespace

void fail_without_cuda() {
  fail(ErrorCode::kUsage, "this build has no CUDA backend; build it with make CUDA=1");
}

void check_device_name(const std::string& name) {
  if (name == "cpu" || name == "cuda") return;
  const bool numbered = name.rfind("cuda:", 0) == 0 && name.size() > 5 && name.size() <= 8 &&
                        name.find_first_not_of("0123456789", 5) == name.npos;
  if (!numbered) fail(ErrorCode::kUsage, "--device {}: give cpu, cuda or cuda:N", printable(name));
}

OpenDevice open_device(const std::string& name) {
  check_device_name(name);
  if (name == "cpu") return {};
#ifdef SIGNET_WITH_CUDA
  choose_gpu(name);
  const std::string why = cuda_unavailable();
  if (!why.empty()) fail(ErrorCode::kUsage, "--device {}: {}", name, why);
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return OpenDevice(std::shared_ptr<void>(stream, [](void* owned) {
    const auto last = static_cast<cudaStream_t>(owned);
    cudaStreamSynchronize(last);
    free_gemm_workspace(Cuda{owned});
    cudaStreamDestroy(last);
  }));
#else
  fail_without_cuda();
#endif
}

std::string device_description() {
#ifdef SIGNET_WITH_CUDA
  const CudaDevice& device = cuda_device();
  int driver = 0, runtime = 0;
  check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  return fmt::format("{}, compute capability {}.{}, {} multiprocessors, driver for CUDA {}.{}, runtime {}.{}",
                     device.name, device.compute_major, device.compute_minor, device.multiprocessors,
                     driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
#else
  fail_without_cuda();
#endif
}

void* allocate_memory(DeviceKind kind, int64_t bytes) {
  if (kind == DeviceKind::kCpu) {
    constexpr int64_t kHugePage = int64_t{2} << 20;
    const int64_t alignment = bytes >= 4 * kHugePage ? kHugePage : 64;
    const int64_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void* p = std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(rounded));
    if (!p) fail(ErrorCode::kResource, "out of memory: {} MiB more are needed", bytes >> 20);
#ifdef __linux__
    // Weights that are read from end to end spend less time on finding their pages.
    if (alignment == kHugePage) madvise(p, static_cast<size_t>(rounded), MADV_HUGEPAGE);
#endif
    return p;
  }
#ifdef SIGNET_WITH_CUDA
  void* p = nullptr;
  ++gpu_requests;
  if (cudaMalloc(&p, static_cast<size_t>(bytes)) == cudaSuccess) {
    const int64_t held = gpu_bytes += bytes;
    for (int64_t peak = gpu_peak_bytes; peak < held && !gpu_peak_bytes.compare_exchange_weak(peak, held);) {
    }
    return p;
  }
  cudaGetLastError();  // clears it, as check_cuda does
  size_t free_bytes = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
  fail(ErrorCode::kResource,
       "out of GPU memory: {} MiB more are needed, {} of {} MiB are free; use a smaller batch", bytes >> 20,
       free_bytes >> 20, total >> 20);
#else
  fail_without_cuda();
#endif
}

GpuMemory gpu_memory() { return {gpu_requests, gpu_bytes, gpu_peak_bytes}; }
void forget_gpu_peak() { gpu_peak_bytes = gpu_bytes.load(); }

int64_t free_gpu_memory() {
#ifdef SIGNET_WITH_CUDA
  size_t free_bytes = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
  return static_cast<int64_t>(free_bytes);
#else
  fail_without_cuda();
#endif
}

void free_memory(DeviceKind kind, void* p, int64_t bytes) {
  if (kind == DeviceKind::kCpu) return std::free(p);
  gpu_bytes -= bytes;
#ifdef SIGNET_WITH_CUDA
  cudaFree(p);
#endif
}

namespace {

enum Direction { kToDevice, kToHost, kWithin };

void copy(const Device& device, void* to, const void* from, int64_t bytes, [[maybe_unused]] Direction way) {
  if (device.dry || bytes == 0) return;  // of nothing, either may be null
  if (!device.cuda()) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
#ifdef SIGNET_WITH_CUDA
  constexpr std::pair<cudaMemcpyKind, const char*> kWays[] = {
      {cudaMemcpyHostToDevice, "copy to the GPU"},
      {cudaMemcpyDeviceToHost, "copy from the GPU"},
      {cudaMemcpyDeviceToDevice, "copy on the GPU"},
  };
  check_cuda(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kWays[way].first, stream_of(Cuda{device.stream})),
      kWays[way].second);
#endif
}

}  // namespace

void copy_to_device(const Device& device, void* to, const void* from, int64_t bytes) {
  copy(device, to, from, bytes, kToDevice);
}
void copy_to_host(const Device& device, void* to, const void* from, int64_t bytes) {
  copy(device, to, from, bytes, kToHost);
  if (!device.dry) synchronize(device);
}
void copy_within(const Device& device, void* to, const void* from, int64_t bytes) {
  copy(device, to, from, bytes, kWithin);
}

void fill_zero(const Device& device, void* to, int64_t bytes) {
  if (device.dry || bytes == 0) return;
  if (!device.cuda()) {
    std::memset(to, 0, static_cast<size_t>(bytes));
    return;
  }
#ifdef SIGNET_WITH_CUDA
  check_cuda(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), stream_of(Cuda{device.stream})),
             "fill on the GPU");
#endif
}

void synchronize([[maybe_unused]] const Device& device) {
#ifdef SIGNET_WITH_CUDA
  if (device.cuda()) check_cuda(cudaStreamSynchronize(stream_of(Cuda{device.stream})), "a GPU kernel");
#endif
}

}  // namespace signet
