#include "signet/kernels/l2_norm/l2_norm.h"

#include <cmath>

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void l2_norm_forward(const L2NormForward<T>& p) {
  for (int64_t t = 0; t < p.tokens; ++t) {
    for (int64_t h = 0; h < p.heads; ++h) {
      const T* x = p.x + t * p.x_stride + h * p.width;
      T* y = p.y + t * p.y_stride + h * p.width;
      Vec<T> squares{};
      vector_loop<T>(p.width, [&](int64_t i, auto n) {
        const Vec<T> v = load(x + i, n);
        squares += v * v;
      });
      const T inverse = T(1) / std::sqrt(sum<T>(squares) + p.eps);
      vector_loop<T>(p.width, [&](int64_t i, auto n) { store(y + i, load(x + i, n) * inverse, n); });
      p.inverse[t * p.heads + h] = inverse;
    }
  }
}

template <class T>
void l2_norm_backward(const L2NormBackward<T>& p) {
  for (int64_t t = 0; t < p.tokens; ++t) {
    for (int64_t h = 0; h < p.heads; ++h) {
      const T* y = p.y + t * p.y_stride + h * p.width;
      const T* dy = p.dy + t * p.dy_stride + h * p.width;
      T* dx = p.dx + t * p.dx_stride + h * p.width;
      Vec<T> products{};
      vector_loop<T>(p.width, [&](int64_t i, auto n) { products += load(y + i, n) * load(dy + i, n); });
      const T along = sum<T>(products), inverse = p.inverse[t * p.heads + h];
      vector_loop<T>(p.width, [&](int64_t i, auto n) {
        store(dx + i, (load(dy + i, n) - load(y + i, n) * along) * inverse, n);
      });
    }
  }
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(l2_norm_forward, L2NormForward)
SIGNET_ISA_DISPATCH(l2_norm_backward, L2NormBackward)
