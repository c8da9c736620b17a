#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/random.h"
#include "signet/kernels/selective_scan/selective_scan_cases.h"

namespace signet::bench {
namespace {

using kernels::SelectiveScanShape;

template <class T>
struct Scan {
  Values<T> u, raw, a_log, b, c, d, z, bias, dy, y, du, draw, da_log, db, dc, dd, dz, dbias, saved, workspace;
  kernels::SelectiveScanForward<T> forward;
  kernels::SelectiveScanBackward<T> backward;

  explicit Scan(const SelectiveScanShape& s) {
    const int64_t rows = s.batch * s.time;
    auto fill = [](uint64_t seed, int64_t n, double scale = 1) {
      const auto values = random_values(seed, n, scale);
      return Values<T>(values.begin(), values.end());
    };
    u = fill(1, rows * s.channels), raw = fill(2, rows * s.channels, 3), z = fill(3, rows * s.channels);
    b = fill(4, rows * s.states), c = fill(5, rows * s.states), d = fill(6, s.channels),
    bias = fill(7, s.channels);
    dy = fill(8, rows * s.channels);
    a_log.resize(static_cast<size_t>(s.channels * s.states));
    for (size_t i = 0; i < a_log.size(); ++i)
      a_log[i] = static_cast<T>(std::log(1.0 + static_cast<double>(static_cast<int64_t>(i) % s.states)));
    y.resize(u.size()), du.resize(u.size()), draw.resize(u.size()), dz.resize(u.size());
    db.resize(b.size()), dc.resize(c.size()), da_log.resize(a_log.size()), dd.resize(d.size());
    dbias.resize(bias.size());
    saved.resize(static_cast<size_t>(kernels::selective_scan_saved_size(s, Cpu{})));
    workspace.resize(static_cast<size_t>(kernels::selective_scan_workspace_size(s, Cpu{})));
    kernels::SelectiveScanInputs<T> in{s,        u.data(), raw.data(), a_log.data(), b.data(),
                                       c.data(), d.data(), z.data(),   bias.data()};
    in.workspace = workspace.data();
    forward = {in, y.data(), nullptr, saved.data()};
    backward = {in,        saved.data(), dy.data(), nullptr,   du.data(),   draw.data(), da_log.data(),
                db.data(), dc.data(),    dd.data(), dz.data(), dbias.data()};
  }
  Scan(const Scan&) = delete;
};

double error(SelectiveScanShape shape) {
  shape.batch = 1;
  shape.time = std::min<int64_t>(shape.time, 40);
  Scan<float> fast(shape);
  Scan<double> exact(shape);
  kernels::selective_scan_forward(fast.forward, Cpu{});
  kernels::selective_scan_backward(fast.backward, Cpu{});
  kernels::selective_scan_forward_reference(exact.forward);
  kernels::selective_scan_backward_reference(exact.backward);
  return std::max({relative_error(fast.y, exact.y), relative_error(fast.du, exact.du),
                   relative_error(fast.draw, exact.draw), relative_error(fast.da_log, exact.da_log),
                   relative_error(fast.db, exact.db), relative_error(fast.dc, exact.dc),
                   relative_error(fast.dz, exact.dz)});
}

Case selective_scan(const kernels::SelectiveScanCase& c, bool backward) {
  SelectiveScanShape shape = c.shape();
  int64_t none = 1;
  cut_for_cpu(shape.batch, shape.time, none);
  const int64_t batch = shape.batch, time = shape.time, channels = shape.channels, states = shape.states;
  const EigenvalueRange range = shape.range;
  return {fmt::format("B{} T{} C{} N{} {} {} fp32", batch, time, channels, states,
                      range == EigenvalueRange::kSigned ? "[-1,1]" : "[0,1]", backward ? "fwd+bwd" : "fwd"),
          [=] {
            const auto fast = later<Scan<float>>(shape);
            const double elements = static_cast<double>(batch * time * channels),
                         n = static_cast<double>(states);
            Workload w;
            // Per state: delta A, its exponential as 16, a, h (3), y (2). Backward runs the states again and
            // adds g, dC, dB, dA, ddelta, du, w and the carried g.
            w.flops = elements * n * (23 + (backward ? 21 + 17 : 0));
            w.bytes = 4 * elements * (4 + (backward ? 7 : 0)) * (1 + n / static_cast<double>(channels));
            w.error = [shape] { return error(shape); };
            w.tolerance = 1e-5;
            w.run = [fast, backward] {
              kernels::selective_scan_forward(fast->forward, Cpu{});
              if (backward) kernels::selective_scan_backward(fast->backward, Cpu{});
            };
            return w;
          }};
}

}  // namespace

std::vector<Case> selective_scan_cases() {
  std::vector<Case> cases;
  for (const auto& each : kernels::kSelectiveScanCases)
    for (const bool backward : {false, true}) cases.push_back(selective_scan(each, backward));
  return without_repetitions(std::move(cases));
}

}  // namespace signet::bench
