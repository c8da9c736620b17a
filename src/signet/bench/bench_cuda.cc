// Times and ceilings on the GPU, by CUDA events.
#ifdef SIGNET_WITH_CUDA

#include <algorithm>
#include <chrono>

#include "signet/bench/bench.h"
#include "signet/bench/random.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/gemm.h"

namespace signet::bench {
namespace {

class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    check_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
    check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
  }
  Stopwatch(const Stopwatch&) = delete;
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  double seconds(const std::function<void()>& run) {
    check_cuda(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    run();
    check_cuda(cudaEventRecord(end_, stream_), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end_), "a timed run");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

template <class T>
double product_rate(GemmMath math, double seconds, const Device& device) {
  constexpr int64_t kSize = 4096;
  const auto values = random_values(1, kSize * kSize);
  const std::vector<T> typed(values.begin(), values.end());  // zeros would run faster than real data
  const auto bytes = kSize * kSize * static_cast<int64_t>(sizeof(T));
  const DeviceBuffer a(device.kind, bytes), b(device.kind, bytes), c(device.kind, bytes);
  copy_to_device(device, a.data(), typed.data(), bytes);
  copy_to_device(device, b.data(), typed.data(), bytes);
  Gemm<T> p{kSize, kSize, kSize, a.as<T>(), kSize, false, b.as<T>(), kSize, false, c.as<T>(), kSize};
  p.math = math;
  const Timing timing = measure([&] { gemm(p, Cuda{device.stream}); }, seconds, device);
  return 2.0 * kSize * kSize * kSize / timing.median;
}

}  // namespace

Timing measure_cuda(const std::function<void()>& run, double seconds, const Device& device) {
  Stopwatch watch(stream_of(Cuda{device.stream}));
  for (int i = 0; i < 3; ++i) watch.seconds(run);
  std::vector<double> times;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  do {
    times.push_back(watch.seconds(run));
  } while (std::chrono::steady_clock::now() < end || times.size() < 5);
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2], static_cast<int64_t>(times.size())};
}

double measure_cuda_rate(Math math, double seconds, const Device& device) {
  if (math == Math::kBf16) return product_rate<bf16>(GemmMath::kFp32, seconds, device);
  return product_rate<float>(math == Math::kTf32 ? GemmMath::kTf32 : GemmMath::kFp32, seconds, device);
}

Ceilings measure_cuda_ceilings(double seconds, const Device& device) {
  const int64_t bytes = int64_t{1} << 30;
  Ceilings ceilings;
  {
    const DeviceBuffer from(device.kind, bytes), to(device.kind, bytes);
    fill_zero(device, from.data(), bytes);
    const Timing copy = measure(
        [&] {
          check_cuda(cudaMemcpyAsync(to.data(), from.data(), static_cast<size_t>(bytes),
                                     cudaMemcpyDeviceToDevice, stream_of(Cuda{device.stream})),
                     "copy");
        },
        seconds, device);
    ceilings.bytes_per_second = 2.0 * static_cast<double>(bytes) / copy.median;
  }
  ceilings.flops_per_second = measure_cuda_rate(Math::kFp32, seconds, device);
  ceilings.tf32_per_second = measure_cuda_rate(Math::kTf32, seconds, device);
  ceilings.bf16_per_second = measure_cuda_rate(Math::kBf16, seconds, device);
  return ceilings;
}

}  // namespace signet::bench

#endif
