#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/random.h"
#include "signet/kernels/gated_rnn/gated_rnn_cases.h"

namespace signet::bench {
namespace {

using kernels::GatedRnnCell;
using kernels::GatedRnnShape;

template <class T>
struct Recurrence {
  Values<T> x, recurrent, bias, dy, y, dx, d_recurrent, dbias, saved, workspace;
  kernels::GatedRnnForward<T> forward;
  kernels::GatedRnnBackward<T> backward;

  explicit Recurrence(const GatedRnnShape& s) {
    auto fill = [](uint64_t seed, int64_t n, double scale = 1) {
      const auto values = random_values(seed, n, scale);
      return Values<T>(values.begin(), values.end());
    };
    const int64_t units = s.units();
    x = fill(1, s.rows() * 4 * units), bias = fill(3, 4 * units), dy = fill(4, s.rows() * units);
    recurrent = fill(2, 4 * units * s.width, 1 / std::sqrt(static_cast<double>(s.width)));
    y.resize(dy.size()), dx.resize(x.size()), d_recurrent.resize(recurrent.size()), dbias.resize(bias.size());
    saved.resize(static_cast<size_t>(kernels::gated_rnn_saved_size(s, Cpu{})));
    workspace.resize(static_cast<size_t>(kernels::gated_rnn_workspace_size(s, Cpu{})));
    const kernels::GatedRnnInputs<T> in{s, recurrent.data(), nullptr, workspace.data()};
    forward = {in, x.data(), bias.data(), y.data(), nullptr, {s, saved.data()}};
    backward = {in, {s, saved.data()}, dy.data(), nullptr, dx.data(), d_recurrent.data(), dbias.data()};
  }
  Recurrence(const Recurrence&) = delete;
};

double error(GatedRnnShape shape) {
  shape.batch = 2;
  Recurrence<float> fast(shape);
  Recurrence<double> exact(shape);
  kernels::gated_rnn_forward(fast.forward, Cpu{});
  kernels::gated_rnn_backward(fast.backward, Cpu{});
  kernels::gated_rnn_forward_reference(exact.forward);
  kernels::gated_rnn_backward_reference(exact.backward);
  return std::max({relative_error(fast.y, exact.y), relative_error(fast.dx, exact.dx),
                   relative_error(fast.d_recurrent, exact.d_recurrent),
                   relative_error(fast.dbias, exact.dbias)});
}

Case gated_rnn(const kernels::GatedRnnCase& c, bool backward) {
  GatedRnnShape shape = c.shape();
  cut_for_cpu(shape.batch, shape.time, shape.heads);
  const GatedRnnCell cell = c.cell;
  const int64_t batch = shape.batch, time = shape.time, heads = shape.heads, width = shape.width;
  return {fmt::format("{} B{} T{} H{} D{} {} fp32", cell == GatedRnnCell::kSlstm ? "sLSTM" : "LSTM", batch,
                      time, heads, width, backward ? "fwd+bwd" : "fwd"),
          [=] {
            const auto fast = later<Recurrence<float>>(shape);
            const auto units = static_cast<double>(shape.rows() * shape.units());
            Workload w;
            // The recurrent products: forward one, backward two.
            w.flops = units * 8 * static_cast<double>(width) * (backward ? 3 : 1);
            w.bytes = 4 * units * (5 + (backward ? 5 : 0));
            w.error = [shape] { return error(shape); };
            w.tolerance = 1e-5;
            w.run = [fast, backward] {
              kernels::gated_rnn_forward(fast->forward, Cpu{});
              if (backward) kernels::gated_rnn_backward(fast->backward, Cpu{});
            };
            return w;
          }};
}

}  // namespace

std::vector<Case> gated_rnn_cases() {
  std::vector<Case> cases;
  for (const auto& each : kernels::kGatedRnnCases)
    for (const bool backward : {false, true}) cases.push_back(gated_rnn(each, backward));
  return without_repetitions(std::move(cases));
}

}  // namespace signet::bench
