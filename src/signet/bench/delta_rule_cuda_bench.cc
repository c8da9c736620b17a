#ifdef SIGNET_WITH_CUDA

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/device_values.h"
#include "signet/kernels/delta_rule/delta_rule_cases.h"

namespace signet::bench {
namespace {

using kernels::DeltaRuleAlgorithm;
using kernels::DeltaRuleShape;

// Unit keys, beta in [0, 2], gates in [0.8, 1].
template <class T>
struct OnGpu {
  DeviceValues<T> q, k, v, d_o, o, dq, dk, dv;
  DeviceValues<float> beta, dbeta, gate, dgate, saved, workspace;
  kernels::DeltaRuleForward<T> forward;
  kernels::DeltaRuleBackward<T> backward;

  OnGpu(const Device& device, const DeltaRuleShape& s) {
    const int64_t tokens = s.batch * s.time * s.heads, steps = tokens * s.factors;
    auto keys = random_values(2, steps * s.dk), betas = random_values(5, steps);
    for (auto& each : betas) each += 1;
    for (int64_t i = 0; i < steps; ++i) {
      float square = 0;
      for (int64_t j = 0; j < s.dk; ++j) square += keys[i * s.dk + j] * keys[i * s.dk + j];
      for (int64_t j = 0; j < s.dk; ++j) keys[i * s.dk + j] /= std::sqrt(square);
    }
    q = {device, random_values(1, tokens * s.dk)}, k = {device, keys},
    v = {device, random_values(3, steps * s.dv)};
    d_o = {device, random_values(4, tokens * s.dv)}, beta = {device, betas};
    o = {device, tokens * s.dv}, dq = {device, tokens * s.dk}, dk = {device, steps * s.dk};
    dv = {device, steps * s.dv}, dbeta = {device, steps};
    if (s.gated()) {
      const int64_t count = tokens * s.gate_channels;
      auto gates = random_values(6, count);
      for (auto& each : gates) each = 0.9f + 0.1f * each;
      gate = {device, gates}, dgate = {device, count};
    }
    const Cuda where{device.stream};
    const auto algorithm = DeltaRuleAlgorithm::kAuto;
    saved = {device, std::max<int64_t>(1, kernels::delta_rule_saved_size<T>(s, algorithm, where))};
    workspace = {device, std::max<int64_t>(1, kernels::delta_rule_workspace_size<T>(s, algorithm, where))};
    kernels::DeltaRuleInputs<T> in{s, q.get(), k.get(), v.get(), beta.get(), gate.get()};
    in.workspace = workspace.get();
    forward = {in, o.get(), nullptr, saved.get()};
    backward = {in, saved.get(), d_o.get(), nullptr, dq.get(), dk.get(), dv.get(), dbeta.get(), dgate.get()};
  }
  OnGpu(const OnGpu&) = delete;
};

// Of every output, on two sequences of at most 200 tokens: the same kernels as at full size.
template <class T>
double error(const Device& device, DeltaRuleShape s) {
  s.batch = std::min<int64_t>(s.batch, 2), s.time = std::min<int64_t>(s.time, 200);
  s.heads = std::min<int64_t>(s.heads, 2);
  OnGpu<T> fast(device, s);
  kernels::delta_rule_forward(fast.forward, Cuda{device.stream});
  kernels::delta_rule_backward(fast.backward, Cuda{device.stream});
  const auto q = fast.q.exact(), k = fast.k.exact(), v = fast.v.exact(), beta = fast.beta.exact(),
             d_o = fast.d_o.exact(), gate = fast.gate.exact();
  Values<double> o(d_o.size()), dq(q.size()), dk(k.size()), dv(v.size()), dbeta(beta.size()),
      dgate(gate.size());
  const kernels::DeltaRuleInputs<double> in{s, q.data(), k.data(), v.data(), beta.data(), gate.data()};
  kernels::delta_rule_forward_reference({in, o.data()});
  kernels::delta_rule_backward_reference(
      {in, nullptr, d_o.data(), nullptr, dq.data(), dk.data(), dv.data(), dbeta.data(), dgate.data()});
  return std::max({relative_error(fast.o.exact(), o), relative_error(fast.dq.exact(), dq),
                   relative_error(fast.dk.exact(), dk), relative_error(fast.dv.exact(), dv),
                   relative_error(fast.dbeta.exact(), dbeta),
                   s.gated() ? relative_error(fast.dgate.exact(), dgate) : 0.0});
}

template <class T>
Case delta_rule(const Device& device, const kernels::DeltaRuleCase& c, bool both) {
  const DeltaRuleShape shape = c.shape();
  const int64_t batch = c.batch, time = c.time, heads = c.heads, width = c.width, factors = c.factors;
  const char* gate = c.gate_channels == 0 ? "" : c.gate_channels == 1 ? " per head" : " per channel";
  return {fmt::format("{}x{}x{}x{}{}{} {} {}", batch, time, heads, width,
                      factors > 1 ? fmt::format(" n_h={}", factors) : "", gate, both ? "fwd+bwd" : "fwd",
                      storage_name<T>()),
          [=] {
            const auto fast = later<OnGpu<T>>(device, shape);
            const double tokens = static_cast<double>(batch * time * heads),
                         n_h = static_cast<double>(factors), row = static_cast<double>(width) * sizeof(T);
            Workload w;
            w.flops = tokens * static_cast<double>(width * width) * (4 * n_h + 2 + (both ? 8 * n_h + 4 : 0));
            w.math = std::is_same_v<T, bf16> ? Math::kBf16 : Math::kFp32;
            // q, o; k, v per factor. Backward: q, do, dq; k, v, dk, dv.
            w.bytes = tokens * row * (2 + 2 * n_h + (both ? 3 + 4 * n_h : 0));
            w.error = [=] { return error<T>(device, shape); };
            w.tolerance = std::is_same_v<T, bf16> ? 1e-2 : 1e-5;
            w.run = [=] {
              kernels::delta_rule_forward(fast->forward, Cuda{device.stream});
              if (both) kernels::delta_rule_backward(fast->backward, Cuda{device.stream});
            };
            return w;
          }};
}

}  // namespace

std::vector<Case> delta_rule_cuda_cases(const Device& device) {
  std::vector<Case> cases;
  for (const bool both : {false, true})
    for (const auto& each : kernels::kDeltaRuleCases) {
      cases.push_back(delta_rule<bf16>(device, each, both));
      if (each.tasks) cases.push_back(delta_rule<float>(device, each, both));
    }
  return cases;
}

}  // namespace signet::bench

#endif
