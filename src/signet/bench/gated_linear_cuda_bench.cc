#ifdef SIGNET_WITH_CUDA

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/device_values.h"
#include "signet/kernels/gated_linear/gated_linear_cases.h"

namespace signet::bench {
namespace {

using kernels::GatedLinearAlgorithm;
using kernels::GatedLinearShape;

// Gates of either sign and 0.8 to 1 in magnitude.
template <class T>
struct GatedLinearOnGpu {
  DeviceValues<T> q, k, v, d_o, o, dq, dk, dv;
  DeviceValues<float> gate, dgate, saved, workspace;
  kernels::GatedLinearForward<T> forward;
  kernels::GatedLinearBackward<T> backward;

  GatedLinearOnGpu(const Device& device, const GatedLinearShape& s) {
    const int64_t tokens = s.batch * s.time, rows = tokens * s.heads, keys = tokens * s.key_width();
    auto gates = random_values(5, tokens * s.gates());
    for (float& g : gates) g = g < 0 ? -1 - 0.2f * g : 1 - 0.2f * g;
    q = {device, random_values(1, keys)}, k = {device, random_values(2, keys)};
    v = {device, random_values(3, rows * s.dv)}, d_o = {device, random_values(4, rows * s.dv)};
    gate = {device, gates};
    o = {device, rows * s.dv}, dq = {device, keys}, dk = {device, keys};
    dv = {device, rows * s.dv}, dgate = {device, tokens * s.gates()};
    constexpr auto kAuto = GatedLinearAlgorithm::kAuto;
    saved = {device, std::max<int64_t>(1, kernels::gated_linear_saved_size<T>(s, kAuto, Cuda{}))};
    workspace = {device, std::max<int64_t>(1, kernels::gated_linear_workspace_size<T>(s, kAuto, Cuda{}))};
    kernels::GatedLinearInputs<T> in{s, q.get(), k.get(), v.get(), gate.get()};
    in.workspace = workspace.get();
    forward = {in, o.get(), nullptr, saved.get()};
    backward = {in, saved.get(), d_o.get(), nullptr, dq.get(), dk.get(), dv.get(), dgate.get()};
  }
  GatedLinearOnGpu(const GatedLinearOnGpu&) = delete;
};

// Of two sequences of at most 200 tokens and two heads.
template <class T>
double error(const Device& device, GatedLinearShape s) {
  s.batch = std::min<int64_t>(s.batch, 2), s.time = std::min<int64_t>(s.time, 200);
  s.heads = std::min<int64_t>(s.heads, 2);
  if (s.dk * s.dv > 128 * 128) s.batch = s.heads = 1, s.time = std::min<int64_t>(s.time, 100);
  GatedLinearOnGpu<T> fast(device, s);
  kernels::gated_linear_forward(fast.forward, Cuda{device.stream});
  kernels::gated_linear_backward(fast.backward, Cuda{device.stream});
  const auto q = fast.q.exact(), k = fast.k.exact(), v = fast.v.exact(), gate = fast.gate.exact(),
             d_o = fast.d_o.exact();
  Values<double> o(v.size()), dq(q.size()), dk(k.size()), dv(v.size()), dgate(gate.size());
  const kernels::GatedLinearInputs<double> in{s, q.data(), k.data(), v.data(), gate.data()};
  kernels::gated_linear_forward_reference({in, o.data()});
  kernels::gated_linear_backward_reference(
      {in, nullptr, d_o.data(), nullptr, dq.data(), dk.data(), dv.data(), dgate.data()});
  return std::max({relative_error(fast.o.exact(), o), relative_error(fast.dq.exact(), dq),
                   relative_error(fast.dk.exact(), dk), relative_error(fast.dv.exact(), dv),
                   relative_error(fast.dgate.exact(), dgate)});
}

template <class T>
Case gated_linear(const Device& device, const kernels::GatedLinearCase& c, bool both) {
  const GatedLinearShape s = c.shape();
  return {fmt::format("{}x{}x{} {}x{} per {}{} {} {}", s.batch, s.time, s.heads, s.dk, s.dv,
                      s.channel_gates ? "channel" : "head", s.groups > 0 ? ", shared q and k" : "",
                      both ? "fwd+bwd" : "fwd", storage_name<T>()),
          [=] {
            const auto fast = later<GatedLinearOnGpu<T>>(device, s);
            const auto tokens = static_cast<double>(s.batch * s.time),
                       rows = tokens * static_cast<double>(s.heads), dk = static_cast<double>(s.dk),
                       dv = static_cast<double>(s.dv), gate = s.channel_gates ? dk : 1.0,
                       keys = tokens * static_cast<double>(s.key_width());
            Workload w;
            // S <- g S + k v^T and q^T S. Backward: S again; dS likewise; dq, dk, dv, dg.
            w.flops = rows * dk * dv * (both ? 5 + 14 : 5);
            w.math = std::is_same_v<T, bf16> ? Math::kBf16 : Math::kFp32;
            // q, k, v, o and the gate. Backward: those with d_o for o, and their gradients.
            w.bytes = static_cast<double>(sizeof(T)) * (keys * (both ? 6 : 2) + rows * dv * (both ? 5 : 2)) +
                      rows * 4 * gate * (both ? 3 : 1);
            w.error = [=] { return error<T>(device, s); };
            w.tolerance = std::is_same_v<T, bf16> ? 1e-2 : 1e-5;
            w.run = [=] {
              kernels::gated_linear_forward(fast->forward, Cuda{device.stream});
              if (both) kernels::gated_linear_backward(fast->backward, Cuda{device.stream});
            };
            return w;
          }};
}

}  // namespace

std::vector<Case> gated_linear_cuda_cases(const Device& device) {
  std::vector<Case> cases;
  for (const bool both : {false, true})
    for (const auto& each : kernels::kGatedLinearCases) {
      cases.push_back(gated_linear<bf16>(device, each, both));
      if (each.tasks) cases.push_back(gated_linear<float>(device, each, both));
    }
  return cases;
}

}  // namespace signet::bench

#endif
