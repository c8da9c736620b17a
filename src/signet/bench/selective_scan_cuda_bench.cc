#ifdef SIGNET_WITH_CUDA

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/device_values.h"
#include "signet/kernels/selective_scan/selective_scan_cases.h"

namespace signet::bench {
namespace {

using kernels::SelectiveScanShape;

template <class T>
struct ScanOnGpu {
  DeviceValues<T> u, raw, b, c, z, dy, y, du, draw, db, dc, dz;
  DeviceValues<float> a_log, d, bias, da_log, dd, dbias, saved, workspace;
  kernels::SelectiveScanForward<T> forward;
  kernels::SelectiveScanBackward<T> backward;

  ScanOnGpu(const Device& device, const SelectiveScanShape& s) {
    const int64_t rows = s.batch * s.time, wide = rows * s.channels, narrow = rows * s.states;
    Values<float> logs(static_cast<size_t>(s.channels * s.states));
    for (size_t i = 0; i < logs.size(); ++i)
      logs[i] = static_cast<float>(std::log(1.0 + static_cast<double>(static_cast<int64_t>(i) % s.states)));
    u = {device, random_values(1, wide)}, raw = {device, random_values(2, wide, 3)};
    z = {device, random_values(3, wide)}, dy = {device, random_values(8, wide)};
    b = {device, random_values(4, narrow)}, c = {device, random_values(5, narrow)};
    d = {device, random_values(6, s.channels)}, bias = {device, random_values(7, s.channels)};
    a_log = {device, logs};
    y = {device, wide}, du = {device, wide}, draw = {device, wide}, dz = {device, wide};
    db = {device, narrow}, dc = {device, narrow};
    const auto zeros = [&](int64_t n) {
      return DeviceValues<float>(device, Values<float>(static_cast<size_t>(n)));
    };
    da_log = zeros(s.channels * s.states), dd = zeros(s.channels), dbias = zeros(s.channels);
    const Cuda where{device.stream};
    saved = {device, std::max<int64_t>(1, kernels::selective_scan_saved_size(s, where))};
    workspace = {device, std::max<int64_t>(1, kernels::selective_scan_workspace_size(s, where))};
    kernels::SelectiveScanInputs<T> in{s,       u.get(), raw.get(), a_log.get(), b.get(),
                                       c.get(), d.get(), z.get(),   bias.get()};
    in.workspace = workspace.get();
    forward = {in, y.get(), nullptr, saved.get()};
    backward = {in,           saved.get(), dy.get(), nullptr,  du.get(), draw.get(),
                da_log.get(), db.get(),    dc.get(), dd.get(), dz.get(), dbias.get()};
  }
  ScanOnGpu(const ScanOnGpu&) = delete;
};

// Of every output, on two sequences of at most 512 tokens and 64 channels.
template <class T>
double error(const Device& device, SelectiveScanShape s) {
  s.batch = std::min<int64_t>(s.batch, 2), s.time = std::min<int64_t>(s.time, 512);
  s.channels = std::min<int64_t>(s.channels, 64);
  ScanOnGpu<T> fast(device, s);
  kernels::selective_scan_forward(fast.forward, Cuda{device.stream});
  kernels::selective_scan_backward(fast.backward, Cuda{device.stream});
  const auto u = fast.u.exact(), raw = fast.raw.exact(), a_log = fast.a_log.exact(), b = fast.b.exact(),
             c = fast.c.exact(), d = fast.d.exact(), z = fast.z.exact(), bias = fast.bias.exact(),
             dy = fast.dy.exact();
  Values<double> y(u.size()), du(u.size()), draw(u.size()), dz(u.size()), db(b.size()), dc(c.size()),
      da_log(a_log.size()), dd(d.size()), dbias(bias.size());
  const kernels::SelectiveScanInputs<double> in{s,        u.data(), raw.data(), a_log.data(), b.data(),
                                                c.data(), d.data(), z.data(),   bias.data()};
  kernels::selective_scan_forward_reference({in, y.data()});
  kernels::selective_scan_backward_reference({in, nullptr, dy.data(), nullptr, du.data(), draw.data(),
                                              da_log.data(), db.data(), dc.data(), dd.data(), dz.data(),
                                              dbias.data()});
  return std::max({relative_error(fast.y.exact(), y), relative_error(fast.du.exact(), du),
                   relative_error(fast.draw.exact(), draw), relative_error(fast.da_log.exact(), da_log),
                   relative_error(fast.db.exact(), db), relative_error(fast.dc.exact(), dc),
                   relative_error(fast.dz.exact(), dz), relative_error(fast.dd.exact(), dd),
                   relative_error(fast.dbias.exact(), dbias)});
}

template <class T>
Case selective_scan(const Device& device, const kernels::SelectiveScanCase& c, bool both) {
  constexpr int64_t kStates = kernels::SelectiveScanCase::kStates;
  const SelectiveScanShape shape = c.shape();
  const int64_t batch = c.batch, time = c.time, channels = c.channels;
  const EigenvalueRange range = c.range;
  return {fmt::format("{}x{}x{}x{} {} {} {}", batch, time, channels, kStates,
                      range == EigenvalueRange::kSigned ? "[-1,1]" : "[0,1]", both ? "fwd+bwd" : "fwd",
                      storage_name<T>()),
          [=] {
            const auto fast = later<ScanOnGpu<T>>(device, shape);
            const double elements = static_cast<double>(batch * time * channels);
            Workload w;
            w.flops = elements * kStates * (23 + (both ? 21 + 17 : 0));
            w.bytes = static_cast<double>(sizeof(T)) * elements * (4 + (both ? 7 : 0)) *
                      (1 + static_cast<double>(kStates) / static_cast<double>(channels));
            w.error = [=] { return error<T>(device, shape); };
            w.tolerance = std::is_same_v<T, bf16> ? 1e-2 : 1e-5;
            w.run = [=] {
              kernels::selective_scan_forward(fast->forward, Cuda{device.stream});
              if (both) kernels::selective_scan_backward(fast->backward, Cuda{device.stream});
            };
            return w;
          }};
}

}  // namespace

std::vector<Case> selective_scan_cuda_cases(const Device& device) {
  std::vector<Case> cases;
  for (const bool both : {false, true})
    for (const auto& each : kernels::kSelectiveScanCases) {
      cases.push_back(selective_scan<bf16>(device, each, both));
      if (each.fp32) cases.push_back(selective_scan<float>(device, each, both));
    }
  return cases;
}

}  // namespace signet::bench

#endif
