#ifdef SIGNET_WITH_CUDA

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/device_values.h"
#include "signet/kernels/gated_rnn/gated_rnn_cases.h"

namespace signet::bench {
namespace {

using kernels::GatedRnnCell;
using kernels::GatedRnnShape;

template <class T>
struct GatedRnnOnGpu {
  DeviceValues<T> x, dy, y, dx;
  DeviceValues<float> recurrent, bias, d_recurrent, dbias, saved, workspace;
  kernels::GatedRnnForward<T> forward;
  kernels::GatedRnnBackward<T> backward;

  GatedRnnOnGpu(const Device& device, const GatedRnnShape& s) {
    const int64_t units = s.rows() * s.units(), matrix = 4 * s.units() * s.width;
    const auto zeros = [&](int64_t n) {
      return DeviceValues<float>(device, Values<float>(static_cast<size_t>(n)));
    };
    x = {device, random_values(1, 4 * units)}, dy = {device, random_values(4, units)};
    recurrent = {device, random_values(2, matrix, 1 / std::sqrt(static_cast<double>(s.width)))};
    bias = {device, random_values(3, 4 * s.units())};
    y = {device, units}, dx = {device, 4 * units};
    d_recurrent = zeros(matrix), dbias = zeros(4 * s.units());
    saved = {device, kernels::gated_rnn_saved_size(s, Cuda{})};
    workspace = {device, std::max<int64_t>(1, kernels::gated_rnn_workspace_size(s, Cuda{}))};
    const kernels::GatedRnnInputs<T> in{s, recurrent.get(), nullptr, workspace.get()};
    forward = {in, x.get(), bias.get(), y.get(), nullptr, {s, saved.get()}};
    backward = {in, {s, saved.get()}, dy.get(), nullptr, dx.get(), d_recurrent.get(), dbias.get()};
  }
  GatedRnnOnGpu(const GatedRnnOnGpu&) = delete;
};

// Of 16 sequences.
template <class T>
double error(const Device& device, GatedRnnShape s) {
  s.batch = std::min<int64_t>(s.batch, 16);
  GatedRnnOnGpu<T> fast(device, s);
  kernels::gated_rnn_forward(fast.forward, Cuda{device.stream});
  kernels::gated_rnn_backward(fast.backward, Cuda{device.stream});
  const auto x = fast.x.exact(), recurrent = fast.recurrent.exact(), bias = fast.bias.exact(),
             dy = fast.dy.exact();
  Values<double> y(dy.size()), dx(x.size()), d_recurrent(recurrent.size()), dbias(bias.size()),
      saved(static_cast<size_t>(kernels::gated_rnn_saved_size(s, Cpu{}))),
      workspace(static_cast<size_t>(kernels::gated_rnn_workspace_size(s, Cpu{})));
  const kernels::GatedRnnInputs<double> in{s, recurrent.data(), nullptr, workspace.data()};
  kernels::gated_rnn_forward_reference({in, x.data(), bias.data(), y.data(), nullptr, {s, saved.data()}});
  kernels::gated_rnn_backward_reference(
      {in, {s, saved.data()}, dy.data(), nullptr, dx.data(), d_recurrent.data(), dbias.data()});
  return std::max({relative_error(fast.y.exact(), y), relative_error(fast.dx.exact(), dx),
                   relative_error(fast.d_recurrent.exact(), d_recurrent),
                   relative_error(fast.dbias.exact(), dbias)});
}

template <class T>
Case gated_rnn(const Device& device, const kernels::GatedRnnCase& c, bool both) {
  const GatedRnnShape s = c.shape();
  const int64_t width = c.width;
  return {fmt::format("{} {}x{}x{}x{} {} {}", c.cell == GatedRnnCell::kSlstm ? "sLSTM" : "LSTM", c.batch,
                      c.time, c.heads, width, both ? "fwd+bwd" : "fwd", storage_name<T>()),
          [=] {
            const auto fast = later<GatedRnnOnGpu<T>>(device, s);
            const auto units = static_cast<double>(s.rows() * s.units());
            Workload w;
            // The recurrent products: forward one, backward two.
            w.flops = units * 8 * static_cast<double>(width) * (both ? 3 : 1);
            w.math = std::is_same_v<T, bf16> ? Math::kBf16 : Math::kFp32;
            w.bytes = static_cast<double>(sizeof(T)) * units * (5 + (both ? 5 : 0));
            w.error = [=] { return error<T>(device, s); };
            w.tolerance = std::is_same_v<T, bf16> ? 1e-2 : 1e-5;
            w.run = [=] {
              kernels::gated_rnn_forward(fast->forward, Cuda{device.stream});
              if (both) kernels::gated_rnn_backward(fast->backward, Cuda{device.stream});
            };
            return w;
          }};
}

}  // namespace

std::vector<Case> gated_rnn_cuda_cases(const Device& device) {
  std::vector<Case> cases;
  for (const bool both : {false, true})
    for (const auto& each : kernels::kGatedRnnCases) {
      cases.push_back(gated_rnn<float>(device, each, both));
      cases.push_back(gated_rnn<bf16>(device, each, both));
    }
  return cases;
}

}  // namespace signet::bench

#endif
