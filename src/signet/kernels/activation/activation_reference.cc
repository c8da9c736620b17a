#include <algorithm>
#include <cmath>

#include "signet/kernels/activation/activation.h"

namespace signet::kernels {
namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

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
          y = p.scale * logistic(x + p.shift);
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
      double slope = 0;
      switch (p.kind) {
        case ActivationKind::kSilu:
          slope = s * (1 + x * (1 - s));
          break;
        case ActivationKind::kSigmoid:
          slope = p.scale * s * (1 - s);
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
      const double g = p.gate[r * p.x_stride + i];
      p.y[r * p.y_stride + i] = g * logistic(g) * p.up[r * p.x_stride + i];
    }
  }
}

void swiglu_backward_reference(const SwigluBackward<double>& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t i = 0; i < p.width; ++i) {
      const double g = p.gate[r * p.x_stride + i], u = p.up[r * p.x_stride + i],
                   dy = p.dy[r * p.dy_stride + i];
      const double s = logistic(g);
      p.dgate[r * p.dx_stride + i] = dy * u * s * (1 + g * (1 - s));
      p.dup[r * p.dx_stride + i] = dy * g * s;
    }
  }
}

}  // namespace signet::kernels
