#include <algorithm>
#include <cmath>

#include "signet/kernels/activation/activation.h"

namespace signet::kernels {
namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// The gate of a gated linear unit, y, and its slope.
struct Gate {
  double y, slope;
};
Gate gate(GluGate kind, double x) {
  if (kind == GluGate::kSilu) {
    const double s = logistic(x);
    return {x * s, s * (1 + x * (1 - s))};
  }
  constexpr double kInverseRootOfTwoPi = 0.39894228040143267794;
  const double cdf = 0.5 * std::erfc(-x / std::sqrt(2.0));
  return {x * cdf, cdf + x * kInverseRootOfTwoPi * std::exp(-x * x / 2)};
}

}  // namespace

void activation_forward_reference(const ActivationForward<double>& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t i = 0; i < p.width; ++i) {
      const double x = p.x[r * p.x_stride + i];
      double y = 0;
      switch (p.kind) {
        case ActivationKind::kSilu:
          y = x * logistic(x);
          break;
        case ActivationKind::kSigmoid:
          y = p.scale * std::clamp((1 + 2 * p.margin) * logistic(x + p.shift) - p.margin, 0.0, 1.0);
          break;
        case ActivationKind::kHard:
          y = p.scale * std::clamp(0.5 + 0.25 * (x + p.shift), 0.0, 1.0);
          break;
        case ActivationKind::kSoftplus:
          y = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
          break;
      }
      p.y[r * p.y_stride + i] = y;
    }
  }
}

void activation_backward_reference(const ActivationBackward<double>& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t i = 0; i < p.width; ++i) {
      const double x = p.x[r * p.x_stride + i], dy = p.dy[r * p.dy_stride + i];
      const double moved = x + p.shift, s = logistic(p.kind == ActivationKind::kSigmoid ? moved : x);
      const double stretched = (1 + 2 * p.margin) * s - p.margin;
      const bool outward = (stretched >= 1 && dy < 0) || (stretched <= 0 && dy > 0);
      double slope = 0;
      switch (p.kind) {
        case ActivationKind::kSilu:
          slope = s * (1 + x * (1 - s));
          break;
        case ActivationKind::kSigmoid:
          slope = p.margin > 0 && outward ? 0.0 : p.scale * (1 + 2 * p.margin) * s * (1 - s);
          break;
        case ActivationKind::kHard:
          slope = (moved >= 2 && dy < 0) || (moved <= -2 && dy > 0) ? 0.0 : 0.25 * p.scale;
          break;
        case ActivationKind::kSoftplus:
          slope = s;
          break;
      }
      p.dx[r * p.dx_stride + i] = dy * slope;
    }
  }
}

void swiglu_forward_reference(const SwigluForward<double>& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t i = 0; i < p.width; ++i) {
      p.y[r * p.y_stride + i] = gate(p.kind, p.gate[r * p.x_stride + i]).y * p.up[r * p.x_stride + i];
    }
  }
}

void swiglu_backward_reference(const SwigluBackward<double>& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t i = 0; i < p.width; ++i) {
      const Gate g = gate(p.kind, p.gate[r * p.x_stride + i]);
      const double u = p.up[r * p.x_stride + i], dy = p.dy[r * p.dy_stride + i];
      p.dgate[r * p.dx_stride + i] = dy * u * g.slope;
      p.dup[r * p.dx_stride + i] = dy * g.y;
    }
  }
}

}  // namespace signet::kernels
