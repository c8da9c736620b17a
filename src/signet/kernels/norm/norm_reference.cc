#include <cmath>

#include "signet/kernels/norm/norm.h"

namespace signet::kernels {

void norm_forward_reference(const NormForward<double>& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const double* x = p.x + r * p.x_stride;
    double mean = 0, square = 0;
    for (int64_t i = 0; i < p.width; ++i) mean += x[i] / p.width;
    if (p.kind == NormKind::kRms) mean = 0;
    for (int64_t i = 0; i < p.width; ++i) square += (x[i] - mean) * (x[i] - mean) / p.width;
    const double rstd = 1 / std::sqrt(square + p.eps);
    for (int64_t i = 0; i < p.width; ++i) p.y[r * p.y_stride + i] = (x[i] - mean) * rstd * p.weight[i];
    p.rstd[r] = rstd;
    if (p.mean) p.mean[r] = mean;
  }
}

void norm_backward_reference(const NormBackward<double>& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const double* x = p.x + r * p.x_stride;
    const double* dy = p.dy + r * p.dy_stride;
    const double mean = p.kind == NormKind::kLayer ? p.mean[r] : 0, rstd = p.rstd[r];
    double along = 0, total = 0;  // mean of g * xhat and of g, g = dy * weight
    for (int64_t i = 0; i < p.width; ++i) {
      const double xhat = (x[i] - mean) * rstd, g = dy[i] * p.weight[i];
      along += g * xhat / p.width;
      total += g / p.width;
      p.dweight[i] += dy[i] * xhat;
    }
    if (p.kind == NormKind::kRms) total = 0;
    for (int64_t i = 0; i < p.width; ++i) {
      const double xhat = (x[i] - mean) * rstd;
      const double dx = rstd * (dy[i] * p.weight[i] - total - xhat * along);
      double& out = p.dx[r * p.dx_stride + i];
      out = p.accumulate_dx ? out + dx : dx;
    }
  }
}

}  // namespace signet::kernels
