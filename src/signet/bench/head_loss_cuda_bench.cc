// The last matrix of a model with its loss, on the GPU.
#ifdef SIGNET_WITH_CUDA

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/device_values.h"
#include "signet/kernels/head_loss/head_loss.h"
#include "signet/kernels/head_loss/head_loss_cases.h"

namespace signet::bench {
namespace {

template <class T>
struct HeadLossOnGpu {
  DeviceValues<T> x, weight, dx;
  DeviceValues<float> dweight, workspace;
  DeviceValues<double> losses, loss;
  DeviceBuffer targets;
  kernels::HeadLoss<T> call;

  HeadLossOnGpu(const Device& device, int64_t rows, int64_t width, int64_t classes)
      : x(device, random_values(1, rows * width)),
        weight(device, random_values(2, padded(classes) * width, 2 / std::sqrt(static_cast<float>(width)))),
        dx(device, rows * width),
        dweight(device, Values<float>(static_cast<size_t>(padded(classes) * width))),
        losses(device, rows),
        loss(device, 1),
        targets(device.kind, rows * int64_t{sizeof(int32_t)}) {
    const auto picks = target_rows(rows, classes);
    copy_to_device(device, targets.data(), picks.data(), targets.bytes());
    synchronize(device);
    auto& p = call;
    p.rows = rows, p.width = width, p.classes = classes, p.x = x.get(), p.x_stride = width;
    p.weight = weight.get(), p.weight_stride = width, p.targets = targets.template as<int32_t>();
    p.gradient_scale = 1.0f / static_cast<float>(rows), p.dx = dx.get(), p.dx_stride = width;
    p.dweight = dweight.get(), p.dweight_stride = width, p.loss_sum = loss.get(), p.losses = losses.get();
    p.math = GemmMath::kTf32, p.padded = padded(classes);
    workspace = {device, kernels::head_loss_workspace_size(p, Cuda{})};
    p.workspace = workspace.get();
  }
  HeadLossOnGpu(const HeadLossOnGpu&) = delete;
  // Products are fast for multiples of 8 rows, and parameters have room behind them.
  static int64_t padded(int64_t classes) { return (classes + 7) / 8 * 8; }
  static std::vector<int32_t> target_rows(int64_t rows, int64_t classes) {
    std::vector<int32_t> picks(static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) picks[r] = static_cast<int32_t>(r * 7919 % classes);
    return picks;
  }
};

// Of at most 24 tokens and 64 columns.
template <class T>
double head_loss_error(const Device& device, int64_t rows, int64_t width, int64_t classes) {
  rows = std::min<int64_t>(rows, 24), width = std::min<int64_t>(width, 64);
  HeadLossOnGpu<T> fast(device, rows, width, classes);
  kernels::head_loss(fast.call, Cuda{device.stream});
  const auto x = fast.x.exact(), weight = fast.weight.exact();
  Values<double> dx(x.size()), dweight(weight.size());  // zero behind the last class
  const auto targets = HeadLossOnGpu<T>::target_rows(rows, classes);
  double loss = 0;
  kernels::HeadLoss<double> p;
  p.rows = rows, p.width = width, p.classes = classes, p.x = x.data(), p.x_stride = width;
  p.weight = weight.data(), p.weight_stride = width, p.targets = targets.data();
  p.gradient_scale = 1.0 / static_cast<double>(rows), p.dx = dx.data(), p.dx_stride = width;
  p.dweight = dweight.data(), p.dweight_stride = width, p.loss_sum = &loss;
  kernels::head_loss_reference(p);
  double got = 0;
  copy_to_host(device, &got, fast.loss.get(), sizeof got);
  return std::max({std::abs(got - loss) / loss, relative_error(fast.dx.exact(), dx),
                   relative_error(fast.dweight.exact(), dweight)});
}

template <class T>
Case head_loss(const Device& device, const kernels::HeadLossCase& c) {
  return {fmt::format("{}x{}x{} {}", c.rows, c.width, c.classes, storage_name<T>()), [=] {
            const auto fast = later<HeadLossOnGpu<T>>(device, c.rows, c.width, c.classes);
            Workload w;
            const auto rows = static_cast<double>(c.rows), matrix = static_cast<double>(c.classes * c.width);
            w.flops = 6 * rows * matrix;
            w.math = std::is_same_v<T, bf16> ? Math::kBf16 : Math::kTf32;
            // x, dx and both matrices, of which the gradient is read and written
            w.bytes = static_cast<double>(sizeof(T)) * (2 * rows * static_cast<double>(c.width) + matrix) +
                      8 * matrix;
            w.error = [=] { return head_loss_error<T>(device, c.rows, c.width, c.classes); };
            w.tolerance = std::is_same_v<T, bf16> ? 4e-3 : 1e-3;
            w.run = [=] { kernels::head_loss(fast->call, Cuda{device.stream}); };
            return w;
          }};
}

}  // namespace

std::vector<Case> head_loss_cuda_cases(const Device& device) {
  std::vector<Case> cases;
  for (const auto& each : kernels::kHeadLossCases) cases.push_back(head_loss<bf16>(device, each));
  cases.push_back(head_loss<float>(device, {"340M in tf32", 16384, 1024, 32000}));
  return cases;
}

}  // namespace signet::bench

#endif
