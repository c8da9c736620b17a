#include "signet/kernels/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <cmath>

namespace signet::kernels {

void cross_entropy_reference(const CrossEntropy<double>& p) {
  *p.loss_sum = 0;
  for (int64_t r = 0; r < p.rows; ++r) {
    const double* x = p.logits + r * p.stride;
    const double* best = std::max_element(x, x + p.classes);
    double total = 0;
    for (int64_t j = 0; j < p.classes; ++j) total += std::exp(p.logit_scale * (x[j] - *best));
    const bool numbers = std::none_of(x, x + p.classes, [](double logit) { return std::isnan(logit); });
    if (p.predictions) p.predictions[r] = numbers ? static_cast<int32_t>(best - x) : -1;
    const int32_t target = p.targets[r];
    const double log_sum = p.logit_scale * *best + std::log(total);
    if (target >= 0) *p.loss_sum += std::log(total) + p.z_loss * log_sum * log_sum;
    for (int64_t j = 0; j < p.classes; ++j) {
      const double y = (j == target ? 1 - p.smoothing : 0.0) + p.smoothing / static_cast<double>(p.classes);
      if (target >= 0) *p.loss_sum += y * p.logit_scale * (*best - x[j]);
      if (!p.dlogits) continue;
      const double probability = std::exp(p.logit_scale * (x[j] - *best)) / total;
      p.dlogits[r * p.dlogits_stride + j] =
          target < 0 ? 0.0
                     : p.gradient_scale * p.logit_scale * ((1 + 2 * p.z_loss * log_sum) * probability - y);
    }
  }
}

}  // namespace signet::kernels
