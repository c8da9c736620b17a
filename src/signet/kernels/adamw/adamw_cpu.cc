#include <cmath>

#include "signet/kernels/adamw/adamw.h"

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void adamw(const AdamW<T>& p) {
  if (p.stop && *p.stop) return;
  const double lr = p.schedule ? p.schedule[0] : p.lr;
  const double step = p.schedule ? p.schedule[1] : static_cast<double>(p.step);
  const double correction1 = 1 - std::pow(p.beta1, step), correction2 = 1 - std::pow(p.beta2, step);
  const T scale = static_cast<T>(p.schedule ? p.schedule[2] : p.gradient_scale),
          beta1 = static_cast<T>(p.beta1), beta2 = static_cast<T>(p.beta2);
  const T rest1 = static_cast<T>(1 - p.beta1), rest2 = static_cast<T>(1 - p.beta2),
          eps = static_cast<T>(p.eps);
  const T keep = static_cast<T>(1 - lr * p.weight_decay), rate = static_cast<T>(lr / correction1);
  const T inverse2 = static_cast<T>(1 / correction2);
  vector_loop<T>(p.size, [&](int64_t i, auto n) {
    const Vec<T> g = load(p.gradient + i, n) * scale;
    const Vec<T> m = load(p.m + i, n) * beta1 + g * rest1;
    const Vec<T> v = load(p.v + i, n) * beta2 + g * g * rest2;
    Vec<T> root = v * inverse2;
    for (int lane = 0; lane < kLanes<T>; ++lane) root[lane] = std::sqrt(root[lane]);
    store(p.m + i, m, n);
    store(p.v + i, v, n);
    store(p.weights + i, load(p.weights + i, n) * keep - m * rate / (root + eps), n);
  });
}

template <class T>
void square_sum(const SquareSum<T>& p) {
  constexpr int64_t kBlock = 1024;  // sums of a block in T lanes, over blocks in double
  double total = 0;
  for (int64_t begin = 0; begin < p.size; begin += kBlock) {
    const int64_t count = p.size - begin < kBlock ? p.size - begin : kBlock;
    Vec<T> squares{};
    vector_loop<T>(count, [&](int64_t i, auto n) {
      const Vec<T> x = load(p.x + begin + i, n);
      squares += x * x;
    });
    total += static_cast<double>(sum<T>(squares));
  }
  *p.result = total;
  p.guard.decide(total);
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(adamw, AdamW)
SIGNET_ISA_DISPATCH(square_sum, SquareSum)
