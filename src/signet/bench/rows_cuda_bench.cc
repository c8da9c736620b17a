// What runs between the products and the recurrences of a language model, row by row: on the GPU in bf16.
#ifdef SIGNET_WITH_CUDA

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/device_values.h"
#include "signet/kernels/activation/activation.h"
#include "signet/kernels/activation/swiglu_cases.h"
#include "signet/kernels/embedding/embedding.h"
#include "signet/kernels/embedding/embedding_cases.h"
#include "signet/kernels/mlp/glu_product.h"
#include "signet/kernels/short_conv/short_conv.h"
#include "signet/kernels/short_conv/short_conv_cases.h"
#include "signet/tensor/gemm.h"

namespace signet::bench {
namespace {

// Both passes of SwiGLU on [rows, 2 width].
struct SwigluOnGpu {
  DeviceValues<bf16> x, dy, y, dx;
  kernels::SwigluForward<bf16> forward;
  kernels::SwigluBackward<bf16> backward;

  SwigluOnGpu(const Device& device, int64_t rows, int64_t width)
      : x(device, random_values(1, 2 * rows * width, 3)),
        dy(device, random_values(2, rows * width)),
        y(device, rows * width),
        dx(device, 2 * rows * width) {
    const kernels::SwigluInputs<bf16> in{rows, width, x.get(), x.get() + width, 2 * width};
    forward = {in, y.get(), width};
    backward = {in, dy.get(), width, dx.get(), dx.get() + width, 2 * width};
  }
  void run(const Device& device) {
    kernels::swiglu_forward(forward, Cuda{device.stream});
    kernels::swiglu_backward(backward, Cuda{device.stream});
  }
};

double swiglu_error(const Device& device, int64_t width) {
  constexpr int64_t kRows = 50;
  SwigluOnGpu fast(device, kRows, width);
  fast.run(device);
  const auto x = fast.x.exact(), dy = fast.dy.exact();
  Values<double> y(dy.size()), dx(x.size());
  const kernels::SwigluInputs<double> in{kRows, width, x.data(), x.data() + width, 2 * width};
  kernels::swiglu_forward_reference({in, y.data(), width});
  kernels::swiglu_backward_reference({in, dy.data(), width, dx.data(), dx.data() + width, 2 * width});
  return std::max(relative_error(fast.y.exact(), y), relative_error(fast.dx.exact(), dx));
}

Case swiglu(const Device& device, int64_t rows, int64_t width) {
  return {fmt::format("swiglu {}x{} fwd+bwd bf16", rows, width), [=] {
            const auto fast = later<SwigluOnGpu>(device, rows, width);
            Workload w;
            w.bytes = 2.0 * 8 * static_cast<double>(rows * width);  // x, y; x, dy, dx
            w.error = [=] { return swiglu_error(device, width); };
            w.tolerance = 1e-2;
            w.run = [=] { fast->run(device); };
            return w;
          }};
}

// The products of a SwiGLU layer with its passes at their ends, both passes, on rows of `layer` columns.
struct GluProductOnGpu {
  DeviceValues<bf16> n, dy, gate_up_weight, down, gate_up, h, dgate_up;
  kernels::GluProductForward forward;
  kernels::GluProductBackward backward;

  GluProductOnGpu(const Device& device, int64_t rows, int64_t layer, int64_t width)
      : n(device, random_values(1, rows * layer)),
        dy(device, random_values(2, rows * layer)),
        gate_up_weight(device,
                       random_values(3, 2 * width * layer, 2 / std::sqrt(static_cast<double>(layer)))),
        down(device, random_values(4, layer * width, 1 / std::sqrt(static_cast<double>(layer)))),
        gate_up(device, 2 * rows * width),
        h(device, rows * width),
        dgate_up(device, 2 * rows * width) {
    forward = {rows, layer, width, n.get(), layer, gate_up_weight.get(), gate_up.get(), h.get()};
    backward = {rows, layer, width, dy.get(), layer, down.get(), gate_up.get(), dgate_up.get()};
  }
  void run(const Device& device) {
    kernels::glu_product_forward(forward, Cuda{device.stream});
    kernels::glu_product_backward(backward, Cuda{device.stream});
  }
};

double glu_product_error(const Device& device, int64_t layer, int64_t width) {
  constexpr int64_t kRows = 20;
  GluProductOnGpu fast(device, kRows, layer, width);
  fast.run(device);
  const auto n = fast.n.exact(), dy = fast.dy.exact(), weight = fast.gate_up_weight.exact(),
             down = fast.down.exact();
  Values<double> z(static_cast<size_t>(2 * kRows * width)), h(static_cast<size_t>(kRows * width)),
      dh(h.size()), dz(z.size());
  Gemm<double> up;
  up.m = kRows, up.n = 2 * width, up.k = layer, up.a = n.data(), up.lda = layer;
  up.b = weight.data(), up.ldb = layer, up.transpose_b = true, up.c = z.data(), up.ldc = 2 * width;
  gemm(up, Cpu{});
  Gemm<double> back;
  back.m = kRows, back.n = width, back.k = layer, back.a = dy.data(), back.lda = layer;
  back.b = down.data(), back.ldb = width, back.c = dh.data(), back.ldc = width;
  gemm(back, Cpu{});
  const kernels::SwigluInputs<double> in{kRows, width, z.data(), z.data() + width, 2 * width};
  kernels::swiglu_forward_reference({in, h.data(), width});
  kernels::swiglu_backward_reference({in, dh.data(), width, dz.data(), dz.data() + width, 2 * width});
  return std::max({relative_error(fast.gate_up.exact(), z), relative_error(fast.h.exact(), h),
                   relative_error(fast.dgate_up.exact(), dz)});
}

Case glu_product(const Device& device, int64_t rows, int64_t layer, int64_t width) {
  return {fmt::format("swiglu product {}x{}x{} fwd+bwd bf16", rows, layer, width), [=] {
            const auto fast = later<GluProductOnGpu>(device, rows, layer, width);
            const auto elements = static_cast<double>(rows * width);
            Workload w;
            w.flops = 6.0 * elements * static_cast<double>(layer), w.math = Math::kBf16;
            // n, the matrices and gate, up, h; dy, a matrix, gate, up and their gradients
            w.bytes = 2.0 * (static_cast<double>(2 * rows * layer + 3 * layer * width) + 7 * elements);
            w.error = [=] { return glu_product_error(device, layer, width); };
            w.tolerance = 1e-2;
            w.run = [=] { fast->run(device); };
            return w;
          }};
}

// Both passes of a convolution of four taps with SiLU.
constexpr int64_t kTaps = kernels::ShortConvCase::kTaps;
struct ConvOnGpu {
  DeviceValues<bf16> x, dy, y, dx;
  DeviceValues<float> weight, dweight, workspace;
  kernels::ShortConvForward<bf16> forward;
  kernels::ShortConvBackward<bf16> backward;

  ConvOnGpu(const Device& device, int64_t batch, int64_t time, int64_t channels)
      : x(device, random_values(1, batch * time * channels)),
        dy(device, random_values(2, batch * time * channels)),
        y(device, batch * time * channels),
        dx(device, batch * time * channels),
        weight(device, random_values(3, channels * kTaps)),
        dweight(device, Values<float>(static_cast<size_t>(channels * kTaps))),
        workspace(device, std::max<int64_t>(
                              1, kernels::short_conv_workspace_size(batch, time, channels, kTaps, Cuda{}))) {
    const kernels::ShortConvInputs<bf16> in{batch, time,    channels, kTaps,
                                            true,  x.get(), channels, weight.get()};
    forward = {in, y.get(), channels};
    backward = {in, dy.get(), channels, dx.get(), channels, dweight.get(), nullptr, workspace.get()};
  }
  void run(const Device& device) {
    kernels::short_conv_forward(forward, Cuda{device.stream});
    kernels::short_conv_backward(backward, Cuda{device.stream});
  }
};

double conv_error(const Device& device, int64_t channels) {
  constexpr int64_t kTime = 100;
  ConvOnGpu fast(device, 1, kTime, channels);
  fast.run(device);
  const auto x = fast.x.exact(), dy = fast.dy.exact(), weight = fast.weight.exact();
  Values<double> y(x.size()), dx(x.size()), dweight(weight.size());
  const kernels::ShortConvInputs<double> in{1,    kTime,    channels, kTaps,
                                            true, x.data(), channels, weight.data()};
  kernels::short_conv_forward_reference({in, y.data(), channels});
  kernels::short_conv_backward_reference({in, dy.data(), channels, dx.data(), channels, dweight.data()});
  return std::max({relative_error(fast.y.exact(), y), relative_error(fast.dx.exact(), dx),
                   relative_error(fast.dweight.exact(), dweight)});
}

Case conv(const Device& device, int64_t batch, int64_t time, int64_t channels) {
  return {fmt::format("conv {}x{}x{} fwd+bwd bf16", batch, time, channels), [=] {
            const auto fast = later<ConvOnGpu>(device, batch, time, channels);
            Workload w;
            w.bytes = 2.0 * 5 * static_cast<double>(batch * time * channels);  // x, y; x, dy, dx
            w.error = [=] { return conv_error(device, channels); };
            w.tolerance = 1e-2;
            w.run = [=] { fast->run(device); };
            return w;
          }};
}

// The gradient of an embedding. Words are as frequent as 1 / rank, like those of a text.
struct ScatterOnGpu {
  std::vector<int32_t> words;
  DeviceValues<bf16> dy;
  DeviceValues<float> table, workspace;
  DeviceBuffer index;
  kernels::ScatterAdd<bf16> call;

  ScatterOnGpu(const Device& device, int64_t rows, int64_t width, int64_t entries)
      : words(static_cast<size_t>(rows)),
        dy(device, random_values(1, rows * width)),
        table(device, Values<float>(static_cast<size_t>(entries * width))),
        workspace(device,
                  std::max<int64_t>(1, kernels::scatter_add_workspace_size(rows, width, entries, Cuda{}))),
        index(device.kind, rows * int64_t{sizeof(int32_t)}) {
    Rng rng(5);
    for (auto& word : words)
      word = static_cast<int32_t>(std::pow(static_cast<double>(entries), rng.uniform())) %
             static_cast<int32_t>(entries);
    copy_to_device(device, index.data(), words.data(), index.bytes());
    synchronize(device);
    call = {rows, width, dy.get(), width, index.as<int32_t>(), table.get(), width};
    call.table_rows = entries, call.workspace = workspace.get();
  }
};

double scatter_error(const Device& device, int64_t width, int64_t entries) {
  constexpr int64_t kRows = 3000;
  ScatterOnGpu fast(device, kRows, width, entries);
  kernels::scatter_add(fast.call, Cuda{device.stream});
  const auto dy = fast.dy.exact();
  Values<double> table(static_cast<size_t>(entries * width));
  kernels::scatter_add_reference({kRows, width, dy.data(), width, fast.words.data(), table.data(), width});
  return relative_error(fast.table.exact(), table);
}

Case scatter(const Device& device, int64_t rows, int64_t width, int64_t entries) {
  return {fmt::format("embedding gradient {}x{} of {} bf16", rows, width, entries), [=] {
            const auto fast = later<ScatterOnGpu>(device, rows, width, entries);
            Workload w;
            // the rows, and the entries that occur read and written, which are at most so many
            w.bytes = static_cast<double>(width) *
                      (2.0 * static_cast<double>(rows) + 8.0 * static_cast<double>(std::min(rows, entries)));
            w.error = [=] { return scatter_error(device, width, entries); };
            w.tolerance = 1e-5;
            w.run = [=] { kernels::scatter_add(fast->call, Cuda{device.stream}); };
            return w;
          }};
}

}  // namespace

std::vector<Case> rows_cuda_cases(const Device& device) {
  std::vector<Case> cases;
  for (const auto& c : kernels::kSwigluCases) {
    cases.push_back(swiglu(device, c.rows, c.width));
    if (kernels::glu_product_covers(c.layer, c.width))
      cases.push_back(glu_product(device, c.rows, c.layer, c.width));
  }
  for (const auto& c : kernels::kShortConvCases) cases.push_back(conv(device, c.batch, c.time, c.channels));
  for (const auto& c : kernels::kEmbeddingCases) cases.push_back(scatter(device, c.rows, c.width, c.words));
  return cases;
}

}  // namespace signet::bench

#endif
