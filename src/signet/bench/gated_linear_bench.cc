#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/random.h"
#include "signet/kernels/gated_linear/gated_linear_cases.h"

namespace signet::bench {
namespace {

using kernels::GatedLinearAlgorithm;
using kernels::GatedLinearShape;

// Gates of either sign, or their magnitudes.
enum class Gates { kSigned, kPositive };

template <class T>
struct GatedLinear {
  Values<T> q, k, v, gate, d_o, o, dq, dk, dv, dgate, saved, workspace;
  kernels::GatedLinearForward<T> forward;
  kernels::GatedLinearBackward<T> backward;

  GatedLinear(const GatedLinearShape& s, Gates gates, GatedLinearAlgorithm algorithm) {
    const int64_t tokens = s.batch * s.time, rows = tokens * s.heads, keys = tokens * s.key_width();
    auto fill = [](uint64_t seed, int64_t n) {
      const auto values = random_values(seed, n);
      return Values<T>(values.begin(), values.end());
    };
    q = fill(1, keys), k = fill(2, keys), v = fill(3, rows * s.dv), d_o = fill(4, rows * s.dv);
    gate = fill(5, tokens * s.gates());
    for (auto& g : gate) {  // [0.8, 1] in magnitude
      const T magnitude = T(1) - T(0.2) * std::abs(g);
      g = gates == Gates::kSigned && g < T(0) ? -magnitude : magnitude;
    }
    o.resize(v.size()), dq.resize(q.size()), dk.resize(k.size()), dv.resize(v.size()),
        dgate.resize(gate.size());
    saved.resize(
        static_cast<size_t>(kernels::gated_linear_saved_size<T>(s, GatedLinearAlgorithm::kAuto, Cpu{})));
    workspace.resize(
        static_cast<size_t>(kernels::gated_linear_workspace_size<T>(s, GatedLinearAlgorithm::kAuto, Cpu{})));
    kernels::GatedLinearInputs<T> in{s, q.data(), k.data(), v.data(), gate.data()};
    in.algorithm = algorithm, in.workspace = workspace.data();
    forward = {in, o.data(), nullptr, saved.data()};
    backward = {in, saved.data(), d_o.data(), nullptr, dq.data(), dk.data(), dv.data(), dgate.data()};
  }
  GatedLinear(const GatedLinear&) = delete;
};

double error(GatedLinearShape shape, Gates gates, GatedLinearAlgorithm algorithm) {
  shape.batch = 1;
  shape.time = std::min<int64_t>(shape.time, shape.dk > 128 ? 20 : 70);
  shape.heads = 1;
  GatedLinear<float> fast(shape, gates, algorithm);
  GatedLinear<double> exact(shape, gates, algorithm);
  kernels::gated_linear_forward(fast.forward, Cpu{});
  kernels::gated_linear_backward(fast.backward, Cpu{});
  kernels::gated_linear_forward_reference(exact.forward);
  kernels::gated_linear_backward_reference(exact.backward);
  return std::max({relative_error(fast.o, exact.o), relative_error(fast.dq, exact.dq),
                   relative_error(fast.dk, exact.dk), relative_error(fast.dv, exact.dv),
                   relative_error(fast.dgate, exact.dgate)});
}

Case gated_linear(const kernels::GatedLinearCase& c, Passes passes, Gates gates = Gates::kSigned,
                  GatedLinearAlgorithm algorithm = GatedLinearAlgorithm::kAuto) {
  GatedLinearShape shape = c.shape();
  cut_for_cpu(shape.batch, shape.time, shape.heads);
  const char* names[] = {"", " recurrent", " chunked"};
  return {fmt::format("B{} T{} H{} {}x{} {}{} {} fp32{}{}", shape.batch, shape.time, shape.heads, shape.dk,
                      shape.dv, shape.channel_gates ? "per channel" : "per head",
                      shape.groups > 0 ? ", shared q and k" : "", passes == Passes::kBoth ? "fwd+bwd" : "fwd",
                      gates == Gates::kPositive ? " positive" : "", names[static_cast<int>(algorithm)]),
          [=] {
            const auto fast = later<GatedLinear<float>>(shape, gates, algorithm);
            const auto tokens = static_cast<double>(shape.batch * shape.time),
                       rows = tokens * static_cast<double>(shape.heads), dk = static_cast<double>(shape.dk),
                       dv = static_cast<double>(shape.dv), gate = shape.channel_gates ? dk : 1.0,
                       keys = tokens * static_cast<double>(shape.key_width());
            const bool both = passes == Passes::kBoth;
            Workload w;
            // S <- g S + k v^T and q^T S. Backward: S again; dS likewise; dq, dk, dv, dg.
            w.flops = rows * dk * dv * (both ? 5 + 14 : 5);
            // q, k, v, gate, o. Backward: those, d_o for o, and their gradients.
            w.bytes = 4 * (keys * (both ? 6 : 2) + rows * (dv * (both ? 5 : 2) + gate * (both ? 3 : 1)));
            w.error = [=] { return error(shape, gates, algorithm); };
            w.tolerance = 1e-5;
            w.run = [fast, both] {
              kernels::gated_linear_forward(fast->forward, Cpu{});
              if (both) kernels::gated_linear_backward(fast->backward, Cpu{});
            };
            return w;
          }};
}

}  // namespace

std::vector<Case> gated_linear_cases() {
  using enum GatedLinearAlgorithm;
  std::vector<Case> cases;
  for (const auto& each : kernels::kGatedLinearCases) {
    cases.push_back(gated_linear(each, Passes::kForward));
    cases.push_back(gated_linear(each, Passes::kBoth));
    if (!each.tasks) continue;
    cases.push_back(gated_linear(each, Passes::kBoth, Gates::kPositive));
    for (const auto algorithm : {kRecurrent, kChunked})
      cases.push_back(gated_linear(each, Passes::kBoth, Gates::kSigned, algorithm));
  }
  return without_repetitions(std::move(cases));
}

}  // namespace signet::bench
