// A problem for the gated recurrence and its solution by any of its versions; shared by the CPU and GPU
// tests.
#pragma once

#include "signet/kernels/gated_rnn/gated_rnn.h"
#include "support/check.h"

namespace signet::test {

using kernels::GatedRnnCell;
using kernels::GatedRnnShape;

struct GatedRnnProblem {
  GatedRnnShape shape;
  // bias, initial and d_final may be empty: absent.
  std::vector<double> x, recurrent, bias, initial, dy, d_final;

  GatedRnnProblem(const GatedRnnShape& s, uint64_t seed, bool stateful, double scale = 1.0) : shape(s) {
    const GatedRnnShape full = kernels::with_strides(s);
    Rng rng(seed, 5);
    x = random_values(rng, s.rows() * full.x_stride, scale);
    // Larger ones make the network chaotic: rounding would grow from step to step.
    recurrent = random_values(rng, 4 * s.units() * s.width, 1 / std::sqrt(static_cast<double>(s.width)));
    dy = random_values(rng, s.rows() * full.y_stride);
    if (!stateful) return;
    bias = random_values(rng, 4 * s.units());
    const int64_t states = s.batch * s.state_planes() * s.units();
    initial = random_values(rng, states, 0.5);
    d_final = random_values(rng, states);
    if (s.cell != GatedRnnCell::kSlstm) return;
    for (int64_t i = 0; i < states; ++i) {  // n is a sum of weights; m is no direction of its own
      const int64_t plane = i / s.units() % 4, unit = i % s.units();
      if (plane == 2) initial[i] = unit == 0 ? 0.0 : 1 + std::abs(initial[i]);
      if (plane == 3) d_final[i] = 0;
    }
  }
};

template <class T>
struct GatedRnnResult {
  std::vector<T> y, final_state, dx, d_recurrent, dbias, d_initial;
};

inline constexpr double kGatedRnnAdded = 0.25;  // what d_recurrent and dbias hold before

template <class T, class F, class B>
GatedRnnResult<T> run_gated_rnn(const GatedRnnProblem& problem, int64_t workspace_size, F forward,
                                B backward) {
  const GatedRnnShape s = kernels::with_strides(problem.shape);
  const auto x = cast<T>(problem.x), recurrent = cast<T>(problem.recurrent), bias = cast<T>(problem.bias),
             initial = cast<T>(problem.initial), dy = cast<T>(problem.dy), d_final = cast<T>(problem.d_final);
  const int64_t states = s.batch * s.state_planes() * s.units();
  GuardedScratch<T> saved(kernels::gated_rnn_saved_size(s, Cpu{})), workspace(workspace_size);
  GatedRnnResult<T> r{poisoned<T>(s.rows() * s.y_stride),
                      poisoned<T>(states),
                      poisoned<T>(s.rows() * s.x_stride),
                      std::vector<T>(recurrent.size(), T(kGatedRnnAdded)),
                      std::vector<T>(bias.size(), T(kGatedRnnAdded)),
                      poisoned<T>(states)};
  kernels::GatedRnnForward<T> f;
  f.shape = problem.shape, f.x = x.data(), f.recurrent = recurrent.data(), f.bias = or_null(bias);
  f.initial_state = or_null(initial), f.y = r.y.data(), f.final_state = r.final_state.data();
  f.saved = {s, saved.data()}, f.workspace = workspace.data();
  forward(f);
  workspace.poison();
  kernels::GatedRnnBackward<T> b{f, f.saved, dy.data(), or_null(d_final), r.dx.data()};
  b.d_recurrent = r.d_recurrent.data(), b.dbias = bias.empty() ? nullptr : r.dbias.data();
  b.d_initial_state = r.d_initial.data();
  backward(b);
  r.y = without_gaps(r.y, s.units(), s.y_stride);
  r.dx = without_gaps(r.dx, 4 * s.units(), s.x_stride);
  return r;
}

inline GatedRnnResult<double> gated_rnn_reference(const GatedRnnProblem& problem) {
  return run_gated_rnn<double>(problem, 0, kernels::gated_rnn_forward_reference,
                               kernels::gated_rnn_backward_reference);
}

inline GatedRnnShape gated_rnn_shape(GatedRnnCell cell, int64_t batch, int64_t time, int64_t heads,
                                     int64_t width, int64_t gap = 0) {
  GatedRnnShape s;
  s.cell = cell, s.batch = batch, s.time = time, s.heads = heads, s.width = width;
  if (gap) s.x_stride = 4 * s.units() + gap, s.y_stride = s.units() + gap + 1;
  return s;
}

inline constexpr GatedRnnCell kGatedRnnCells[] = {GatedRnnCell::kSlstm, GatedRnnCell::kLstm};

}  // namespace signet::test
