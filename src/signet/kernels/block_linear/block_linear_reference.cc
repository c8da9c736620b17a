#include "signet/kernels/block_linear/block_linear.h"

namespace signet::kernels {

void block_linear_forward_reference(const BlockLinearForward<double>& p) {
  const BlockLinearShape& s = p.shape;
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t i = 0; i < s.width(); ++i) {
      const double* x = p.x + r * s.x_stride + i / s.size * s.size;
      double total = 0;
      for (int64_t j = 0; j < s.size; ++j) total += p.w[i * s.size + j] * x[j];
      p.y[r * s.y_stride + i] = total;
    }
  }
}

void block_linear_backward_reference(const BlockLinearBackward<double>& p) {
  const BlockLinearShape& s = p.shape;
  for (int64_t r = 0; r < s.rows; ++r) {
    if (!p.accumulate_dx)
      for (int64_t i = 0; i < s.width(); ++i) p.dx[r * s.x_stride + i] = 0;
    for (int64_t i = 0; i < s.width(); ++i) {
      const int64_t first = r * s.x_stride + i / s.size * s.size;
      const double dy = p.dy[r * s.y_stride + i];
      for (int64_t j = 0; j < s.size; ++j) {
        p.dx[first + j] += p.w[i * s.size + j] * dy;
        p.dw[i * s.size + j] += p.x[first + j] * dy;
      }
    }
  }
}

}  // namespace signet::kernels
