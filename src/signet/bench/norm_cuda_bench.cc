#ifdef SIGNET_WITH_CUDA

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/device_values.h"
#include "signet/kernels/norm/norm_cases.h"

namespace signet::bench {
namespace {

using kernels::NormKind;

template <class T>
struct NormOnGpu {
  DeviceValues<T> x, dy, y, dx;
  DeviceValues<float> weight, rstd, mean, dweight, workspace;
  kernels::NormForward<T> forward;
  kernels::NormBackward<T> backward;

  NormOnGpu(const Device& device, NormKind kind, int64_t rows, int64_t width)
      : x(device, random_values(1, rows * width)),
        dy(device, random_values(3, rows * width)),
        y(device, rows * width),
        dx(device, rows * width),
        weight(device, random_values(2, width)),
        rstd(device, rows),
        mean(device, rows),
        dweight(device, Values<float>(static_cast<size_t>(width))),
        workspace(device, std::max<int64_t>(1, kernels::norm_workspace_size(rows, width, Cuda{}))) {
    const kernels::NormInputs<T> in{kind, rows, width, x.get(), width, weight.get()};
    forward = {in, y.get(), width, rstd.get(), mean.get()};
    backward = {in,       rstd.get(), mean.get(), dy.get(),      width,
                dx.get(), width,      false,      dweight.get(), workspace.get()};
  }
  NormOnGpu(const NormOnGpu&) = delete;
  void run(const Device& device) {
    kernels::norm_forward(forward, Cuda{device.stream});
    kernels::norm_backward(backward, Cuda{device.stream});
  }
};

template <class T>
double error(const Device& device, NormKind kind, int64_t rows, int64_t width) {
  rows = std::min<int64_t>(rows, 1000);
  NormOnGpu<T> fast(device, kind, rows, width);
  fast.run(device);
  const auto x = fast.x.exact(), dy = fast.dy.exact(), weight = fast.weight.exact();
  Values<double> y(x.size()), dx(x.size()), dweight(weight.size()), rstd(static_cast<size_t>(rows)),
      mean(rstd.size());
  const kernels::NormInputs<double> in{kind, rows, width, x.data(), width, weight.data()};
  kernels::norm_forward_reference({in, y.data(), width, rstd.data(), mean.data()});
  kernels::norm_backward_reference(
      {in, rstd.data(), mean.data(), dy.data(), width, dx.data(), width, false, dweight.data()});
  return std::max({relative_error(fast.y.exact(), y), relative_error(fast.dx.exact(), dx),
                   relative_error(fast.dweight.exact(), dweight)});
}

template <class T>
Case norm(const Device& device, NormKind kind, int64_t rows, int64_t width) {
  return {fmt::format("{} {}x{} fwd+bwd {}", kind == NormKind::kRms ? "rms" : "layer", rows, width,
                      storage_name<T>()),
          [=] {
            const auto fast = later<NormOnGpu<T>>(device, kind, rows, width);
            Workload w;
            const auto elements = static_cast<double>(rows * width);
            w.flops = 14 * elements;                                  // forward 5, backward 9
            w.bytes = static_cast<double>(sizeof(T)) * 5 * elements;  // x, y; x, dy, dx
            w.error = [=] { return error<T>(device, kind, rows, width); };
            w.tolerance = std::is_same_v<T, bf16> ? 1e-2 : 1e-5;
            w.run = [=] { fast->run(device); };
            return w;
          }};
}

}  // namespace

std::vector<Case> norm_cuda_cases(const Device& device) {
  std::vector<Case> cases;
  for (const auto& each : kernels::kNormCases) {
    cases.push_back(norm<bf16>(device, each.kind, each.rows, each.width));
    if (each.tasks) cases.push_back(norm<float>(device, each.kind, each.rows, each.width));
  }
  return cases;
}

}  // namespace signet::bench

#endif
