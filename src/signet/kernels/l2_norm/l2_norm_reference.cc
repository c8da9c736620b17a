#include "signet/kernels/l2_norm/l2_norm.h"

#include <cmath>

namespace signet::kernels {

void l2_norm_forward_reference(const L2NormForward<double>& p) {
  for (int64_t t = 0; t < p.tokens; ++t) {
    for (int64_t h = 0; h < p.heads; ++h) {
      const double* x = p.x + t * p.x_stride + h * p.width;
      double square = p.eps;
      for (int64_t i = 0; i < p.width; ++i) square += x[i] * x[i];
      const double inverse = 1 / std::sqrt(square);
      for (int64_t i = 0; i < p.width; ++i) p.y[t * p.y_stride + h * p.width + i] = x[i] * inverse;
      p.inverse[t * p.heads + h] = inverse;
    }
  }
}

void l2_norm_backward_reference(const L2NormBackward<double>& p) {
  for (int64_t t = 0; t < p.tokens; ++t) {
    for (int64_t h = 0; h < p.heads; ++h) {
      const double* y = p.y + t * p.y_stride + h * p.width;
      const double* dy = p.dy + t * p.dy_stride + h * p.width;
      double along = 0;
      for (int64_t i = 0; i < p.width; ++i) along += y[i] * dy[i];
      for (int64_t i = 0; i < p.width; ++i)
        p.dx[t * p.dx_stride + h * p.width + i] = p.inverse[t * p.heads + h] * (dy[i] - y[i] * along);
    }
  }
}

}  // namespace signet::kernels
