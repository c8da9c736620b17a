#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/random.h"
#include "signet/kernels/delta_rule/delta_rule_cases.h"

namespace signet::bench {
namespace {

using kernels::DeltaRuleAlgorithm;
using kernels::DeltaRuleShape;

template <class T>
struct DeltaRule {
  Values<T> q, k, v, beta, gate, d_o, o, dq, dk, dv, dbeta, dgate, saved, workspace;
  kernels::DeltaRuleForward<T> forward;
  kernels::DeltaRuleBackward<T> backward;

  DeltaRule(const DeltaRuleShape& s, DeltaRuleAlgorithm algorithm) {
    const int64_t tokens = s.batch * s.time * s.heads, steps = tokens * s.factors;
    auto fill = [](uint64_t seed, int64_t n) {
      const auto values = random_values(seed, n);
      return Values<T>(values.begin(), values.end());
    };
    q = fill(1, tokens * s.dk), k = fill(2, steps * s.dk), v = fill(3, steps * s.dv),
    d_o = fill(4, tokens * s.dv);
    beta = fill(5, steps);
    for (auto& each : beta) each += 1;
    gate = fill(6, tokens * s.gate_channels);
    for (auto& each : gate) each = T(0.9) + T(0.1) * each;
    dgate.resize(gate.size());
    for (int64_t i = 0; i < steps; ++i) {
      T square = 0;
      for (int64_t j = 0; j < s.dk; ++j) square += k[i * s.dk + j] * k[i * s.dk + j];
      for (int64_t j = 0; j < s.dk; ++j) k[i * s.dk + j] /= std::sqrt(square);
    }
    o.resize(d_o.size()), dq.resize(q.size()), dk.resize(k.size()), dv.resize(v.size()),
        dbeta.resize(beta.size());
    saved.resize(static_cast<size_t>(kernels::delta_rule_saved_size<T>(s, algorithm, Cpu{})));
    workspace.resize(static_cast<size_t>(kernels::delta_rule_workspace_size<T>(s, algorithm, Cpu{})));
    kernels::DeltaRuleInputs<T> in{s, q.data(), k.data(), v.data(), beta.data(), gate.data()};
    in.algorithm = algorithm, in.workspace = workspace.data();
    forward = {in, o.data(), nullptr, saved.data()};
    backward = {in,        saved.data(), d_o.data(),   nullptr,     dq.data(),
                dk.data(), dv.data(),    dbeta.data(), dgate.data()};
  }
  DeltaRule(const DeltaRule&) = delete;
};

double error(DeltaRuleShape shape, DeltaRuleAlgorithm algorithm) {
  shape.batch = 1;
  shape.time = std::min<int64_t>(shape.time, shape.dk > 128 ? 20 : 70);
  shape.heads = 1;
  DeltaRule<float> fast(shape, algorithm);
  DeltaRule<double> exact(shape, algorithm);
  kernels::delta_rule_forward(fast.forward, Cpu{});
  kernels::delta_rule_backward(fast.backward, Cpu{});
  kernels::delta_rule_forward_reference(exact.forward);
  kernels::delta_rule_backward_reference(exact.backward);
  return std::max({relative_error(fast.o, exact.o), relative_error(fast.dq, exact.dq),
                   relative_error(fast.dk, exact.dk), relative_error(fast.dv, exact.dv),
                   relative_error(fast.dbeta, exact.dbeta),
                   shape.gated() ? relative_error(fast.dgate, exact.dgate) : 0.0});
}

Case delta_rule(const kernels::DeltaRuleCase& c, Passes passes,
                DeltaRuleAlgorithm algorithm = DeltaRuleAlgorithm::kAuto) {
  DeltaRuleShape shape = c.shape();
  cut_for_cpu(shape.batch, shape.time, shape.heads);
  const int64_t batch = shape.batch, time = shape.time, heads = shape.heads, width = c.width,
                factors = c.factors, gate_channels = c.gate_channels;
  const char* names[] = {"", " recurrent", " chunked"};
  const char* gate = gate_channels == 0 ? "" : gate_channels == 1 ? " gate per head" : " gate per channel";
  return {fmt::format("B{} T{} H{} d{}{}{} {} fp32{}", batch, time, heads, width,
                      factors > 1 ? fmt::format(" n_h{}", factors) : "", gate,
                      passes == Passes::kBoth ? "fwd+bwd" : "fwd", names[static_cast<int>(algorithm)]),
          [=] {
            const auto fast = later<DeltaRule<float>>(shape, algorithm);
            const double tokens = static_cast<double>(batch * time * heads),
                         state = static_cast<double>(width * width);
            const double n_h = static_cast<double>(factors), row = 4.0 * static_cast<double>(width);
            Workload w;
            // Per factor k^T S and the update; per token q^T S. Backward: dq, dS += q do^T; de, dk (two), dS.
            w.flops = tokens * state * (4 * n_h + 2 + (passes == Passes::kBoth ? 8 * n_h + 4 : 0));
            // q, o; k, v per factor. Backward: q, do, dq; k, v, dk, dv.
            w.bytes = tokens * row * (2 + 2 * n_h + (passes == Passes::kBoth ? 3 + 4 * n_h : 0));
            w.error = [shape, algorithm] { return error(shape, algorithm); };
            w.tolerance = 2e-5;
            w.run = [fast, passes] {
              kernels::delta_rule_forward(fast->forward, Cpu{});
              if (passes == Passes::kBoth) kernels::delta_rule_backward(fast->backward, Cpu{});
            };
            return w;
          }};
}

}  // namespace

std::vector<Case> delta_rule_cases() {
  using enum DeltaRuleAlgorithm;
  std::vector<Case> cases;
  for (const auto& each : kernels::kDeltaRuleCases) {
    cases.push_back(delta_rule(each, Passes::kForward));
    cases.push_back(delta_rule(each, Passes::kBoth));
    if (each.gate_channels > 1) continue;  // the recurrence alone
    for (const auto algorithm : {kRecurrent, kChunked})
      cases.push_back(delta_rule(each, Passes::kBoth, algorithm));
  }
  return without_repetitions(std::move(cases));
}

}  // namespace signet::bench
