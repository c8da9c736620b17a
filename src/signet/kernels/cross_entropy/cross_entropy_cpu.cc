#include <cmath>

#include "signet/kernels/cross_entropy/cross_entropy.h"

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void cross_entropy(const CrossEntropy<T>& p) {
  double loss = 0;
  for (int64_t r = 0; r < p.rows; ++r) {
    const T* x = p.logits + r * p.stride;
    int64_t best = 0;
    bool numbers = true;
    for (int64_t j = 0; j < p.classes; ++j) {
      if (x[j] > x[best]) best = j;
      numbers &= x[j] == x[j];
    }
    if (p.predictions) p.predictions[r] = numbers ? static_cast<int32_t>(best) : -1;
    const int32_t target = p.targets[r];
    T* d = p.dlogits ? p.dlogits + r * p.dlogits_stride : nullptr;
    if (target < 0) {
      for (int64_t j = 0; d && j < p.classes; ++j) d[j] = T(0);
      continue;
    }
    const T largest = x[best];
    const T rest = p.smoothing / static_cast<T>(p.classes);  // y of the other classes
    T below = (1 - p.smoothing) * (largest - x[target]);     // sum of y (largest - x)
    if (rest != T(0))
      for (int64_t j = 0; j < p.classes; ++j) below += rest * (largest - x[j]);
    T total = 0;
    vector_loop<T>(p.classes, [&](int64_t j, auto n) {
      Vec<T> e = exp<T>(p.logit_scale * (load(x + j, n) - largest));
      if constexpr (!std::is_same_v<decltype(n), Full>) e = load_n(reinterpret_cast<const T*>(&e), n);
      total += sum<T>(e);
      if (d) store(d + j, e, n);
    });
    const double log_total = std::log(static_cast<double>(total)),
                 log_sum = static_cast<double>(p.logit_scale * largest) + log_total;
    loss += static_cast<double>(p.logit_scale * below) + log_total;
    if (p.z_loss != T(0)) loss += static_cast<double>(p.z_loss) * log_sum * log_sum;
    if (d) {
      const T scale = p.gradient_scale * p.logit_scale,
              factor = scale * (1 + 2 * p.z_loss * static_cast<T>(log_sum)) / total;
      for (int64_t j = 0; j < p.classes; ++j) d[j] = d[j] * factor - scale * rest;
      d[target] -= scale * (1 - p.smoothing);
    }
  }
  *p.loss_sum = loss;
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(cross_entropy, CrossEntropy)
