#include <cmath>

#include "signet/kernels/gated_skip/gated_skip.h"

namespace signet::kernels {

void gated_skip_forward_reference(const GatedSkipForward<double>& p) {
  const GatedSkipShape& s = p.shape;
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t c = 0; c < s.width; ++c) {
      const double z = p.z[r * s.z_stride + c];
      double x = p.x[r * s.x_stride + c];
      if (p.skip) x += p.weight[c * s.weights / s.width] * p.skip[r * s.skip_stride + c];
      p.y[r * s.y_stride + c] = x * z / (1 + std::exp(-z));
    }
  }
}

void gated_skip_backward_reference(const GatedSkipBackward<double>& p) {
  const GatedSkipShape& s = p.shape;
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t c = 0; c < s.width; ++c) {
      const double z = p.z[r * s.z_stride + c], sigmoid = 1 / (1 + std::exp(-z));
      const double dy = p.dy[r * s.y_stride + c], dx = dy * z * sigmoid;
      double x = p.x[r * s.x_stride + c];
      if (p.skip) {
        const int64_t w = c * s.weights / s.width;
        x += p.weight[w] * p.skip[r * s.skip_stride + c];
        p.dskip[r * s.skip_stride + c] = dx * p.weight[w];
        p.dweight[w] += dx * p.skip[r * s.skip_stride + c];
      }
      p.dx[r * s.x_stride + c] = dx;
      p.dz[r * s.z_stride + c] = dy * x * sigmoid * (1 + z * (1 - sigmoid));
    }
  }
}

}  // namespace signet::kernels
