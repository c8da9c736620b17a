#include <algorithm>
#include <cmath>

#include "signet/kernels/softmax/softmax.h"

namespace signet::kernels {

void softmax_forward_reference(const SoftmaxForward<double>& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const double* x = p.x + r * p.x_stride;
    double* y = p.y + r * p.y_stride;
    const double largest = *std::max_element(x, x + p.width);
    double total = 0;
    for (int64_t i = 0; i < p.width; ++i) total += std::exp(x[i] - largest);
    for (int64_t i = 0; i < p.width; ++i) y[i] = std::exp(x[i] - largest) / total;
  }
}

void softmax_backward_reference(const SoftmaxBackward<double>& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const double *y = p.y + r * p.y_stride, *dy = p.dy + r * p.dy_stride;
    double along = 0;
    for (int64_t i = 0; i < p.width; ++i) along += y[i] * dy[i];
    for (int64_t i = 0; i < p.width; ++i) p.dx[r * p.dx_stride + i] = y[i] * (dy[i] - along);
  }
}

}  // namespace signet::kernels
