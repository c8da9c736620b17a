#include <vector>

#include "signet/kernels/cross_entropy/cross_entropy.h"
#include "signet/kernels/head_loss/head_loss.h"

namespace signet::kernels {

void head_loss_reference(const HeadLoss<double>& p) {
  std::vector<double> logits(static_cast<size_t>(p.classes)), gradient(logits.size());
  double total = 0;
  for (int64_t c = 0; p.dweight && !p.accumulate_dweight && c < p.classes; ++c)
    for (int64_t i = 0; i < p.width; ++i) p.dweight[c * p.dweight_stride + i] = 0;
  for (int64_t r = 0; r < p.rows; ++r) {
    const double* x = p.x + r * p.x_stride;
    for (int64_t c = 0; c < p.classes; ++c) {
      logits[c] = 0;
      for (int64_t i = 0; i < p.width; ++i) logits[c] += x[i] * p.weight[c * p.weight_stride + i];
    }
    double loss = 0;
    CrossEntropy<double> row;
    row.rows = 1, row.classes = p.classes, row.logits = logits.data(), row.stride = p.classes;
    row.targets = p.targets + r, row.gradient_scale = p.gradient_scale, row.logit_scale = p.logit_scale;
    row.smoothing = p.smoothing, row.z_loss = p.z_loss;
    row.dlogits = gradient.data(), row.dlogits_stride = p.classes;
    row.predictions = p.predictions ? p.predictions + r : nullptr, row.loss_sum = &loss;
    cross_entropy_reference(row);
    total += loss;
    double* const dx = p.dx ? p.dx + r * p.dx_stride : nullptr;
    for (int64_t i = 0; dx && !p.accumulate_dx && i < p.width; ++i) dx[i] = 0;
    for (int64_t c = 0; c < p.classes; ++c) {
      for (int64_t i = 0; i < p.width; ++i) {
        if (dx) dx[i] += gradient[c] * p.weight[c * p.weight_stride + i];
        if (p.dweight) p.dweight[c * p.dweight_stride + i] += gradient[c] * x[i];
      }
    }
  }
  *p.loss_sum = total;
}

}  // namespace signet::kernels
