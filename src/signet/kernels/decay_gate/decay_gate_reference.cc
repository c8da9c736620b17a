#include <algorithm>
#include <cmath>

#include "signet/kernels/decay_gate/decay_gate.h"
#include "signet/kernels/reference_functions.h"

namespace signet::kernels {
namespace {

double input(const DecayGateInputs<double>& p, int64_t r, int64_t c) {
  const double x = p.x[r * p.shape.x_stride + c] + (p.bias ? p.bias[c] : 0);
  return p.shape.kind == DecayKind::kStep ? x : -x;
}
double rate(const DecayGateInputs<double>& p, int64_t c) {
  return p.rate_log ? std::exp(p.rate_log[c]) : p.rate;
}
// margin - delta rate: log a where it is negative, else how far within the margin
double log_decay(const DecayGateInputs<double>& p, double delta, int64_t c) {
  return p.shape.margin - delta * rate(p, c);
}

}  // namespace

void decay_gate_forward_reference(const DecayGateForward<double>& p) {
  for (int64_t r = 0; r < p.shape.rows; ++r) {
    for (int64_t c = 0; c < p.shape.width; ++c) {
      const double delta = softplus(input(p, r, c)), a = std::exp(std::min(log_decay(p, delta, c), 0.0));
      p.gate[r * p.shape.gate_stride + c] = p.shape.range == EigenvalueRange::kSigned ? 2 * a - 1 : a;
      if (p.delta) p.delta[r * p.shape.gate_stride + c] = delta;
    }
  }
}

void decay_gate_backward_reference(const DecayGateBackward<double>& p) {
  for (int64_t r = 0; r < p.shape.rows; ++r) {
    for (int64_t c = 0; c < p.shape.width; ++c) {
      const double x = input(p, r, c), delta = softplus(x), log_a = log_decay(p, delta, c);
      const double slope = p.shape.range == EigenvalueRange::kSigned ? 2 : 1;
      double dlog = p.dgate[r * p.shape.gate_stride + c] * slope * std::exp(std::min(log_a, 0.0));
      if (log_a > 0 && dlog < 0) dlog = 0;
      double ddelta = -dlog * rate(p, c);
      if (p.ddelta) ddelta += p.ddelta[r * p.shape.gate_stride + c];
      const double dx = ddelta / (1 + std::exp(-x)) * (p.shape.kind == DecayKind::kStep ? 1 : -1);
      p.dx[r * p.shape.x_stride + c] = dx;
      if (p.dbias) p.dbias[c] += dx;
      if (p.drate_log) p.drate_log[c] -= dlog * delta * rate(p, c);
    }
  }
}

}  // namespace signet::kernels
