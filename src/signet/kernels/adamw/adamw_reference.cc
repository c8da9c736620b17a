#include "signet/kernels/adamw/adamw.h"

#include <cmath>

namespace signet::kernels {

void adamw_reference(const AdamW<double>& p) {
  const double step = static_cast<double>(p.step);
  for (int64_t i = 0; i < p.size; ++i) {
    const double g = p.gradient_scale * p.gradient[i];
    p.m[i] = p.beta1 * p.m[i] + (1 - p.beta1) * g;
    p.v[i] = p.beta2 * p.v[i] + (1 - p.beta2) * g * g;
    const double m_hat = p.m[i] / (1 - std::pow(p.beta1, step)),
                 v_hat = p.v[i] / (1 - std::pow(p.beta2, step));
    p.weights[i] -= p.lr * (p.weight_decay * p.weights[i] + m_hat / (std::sqrt(v_hat) + p.eps));
  }
}

}  // namespace signet::kernels
