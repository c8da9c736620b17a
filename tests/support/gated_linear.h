// Inputs of the gated linear recurrence for tests on the CPU and on the GPU.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "signet/base/rng.h"
#include "signet/kernels/gated_linear/gated_linear.h"

namespace signet::test {

enum class Gates { kSigned, kPositive, kEndPoints, kZero, kOne, kMinusOne, kTiny, kNearOne };

struct GatedLinearProblem {
  kernels::GatedLinearShape shape;
  double scale = 1;
  std::vector<double> q, k, v, gate, initial, d_o, d_final;  // the states may be empty: absent
};

inline double draw_gate(Rng& rng, Gates gates) {
  switch (gates) {
    case Gates::kSigned:
      return rng.uniform(-1, 1);
    case Gates::kPositive:
      return rng.uniform(0, 1);
    case Gates::kEndPoints:
      return static_cast<double>(rng.below(3)) - 1;
    case Gates::kZero:
      return 0;
    case Gates::kOne:
      return 1;
    case Gates::kMinusOne:
      return -1;
    case Gates::kTiny:
      return (rng.below(2) ? 1 : -1) * std::exp(-rng.uniform(0, 40));
    case Gates::kNearOne:
      return (rng.below(2) ? 1 : -1) * (1 - std::exp(-rng.uniform(3, 12)));
  }
  return 0;
}

inline GatedLinearProblem gated_linear_problem(kernels::GatedLinearShape shape, Gates gates,
                                               bool states = true, uint64_t seed = 1) {
  Rng rng(seed, static_cast<uint64_t>(shape.time * 131 + shape.dk * 17 + shape.dv));
  const kernels::GatedLinearShape s = kernels::with_strides(shape);
  const int64_t rows = s.batch * s.time, state_size = s.batch * s.heads * s.dk * s.dv;
  constexpr size_t kPeriod = 1000003;  // large problems repeat their numbers: nothing within a head's reach
  auto fill = [&](int64_t n, auto draw) {
    std::vector<double> x(static_cast<size_t>(n));
    for (size_t i = 0; i < x.size(); ++i) x[i] = i < kPeriod ? draw() : x[i - kPeriod];
    return x;
  };
  auto normals = [&](int64_t n, double scale) { return fill(n, [&] { return scale * rng.normal(); }); };
  GatedLinearProblem p;
  p.shape = shape;
  p.scale = 0.7;
  p.q = normals(rows * s.q_stride, 1);
  p.k = normals(rows * s.k_stride, 1 / std::sqrt(static_cast<double>(s.dk)));
  p.v = normals(rows * s.v_stride, 1);
  p.d_o = normals(rows * s.o_stride, 1);
  // Rounded to fp32, so that a test in fp32 sees the same gates: near 1 the rounding would matter over time.
  p.gate = fill(rows * s.gate_stride, [&] { return static_cast<float>(draw_gate(rng, gates)); });
  if (states) {
    p.initial = normals(state_size, 1);
    p.d_final = normals(state_size, 1);
  }
  return p;
}

}  // namespace signet::test
