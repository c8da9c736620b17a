#include "signet/kernels/l2_norm/l2_norm.h"

#include <cmath>
#include <utility>

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {

// Heads narrower than a vector have their width as a constant: masked loads cost more than what they load.
inline constexpr int kNarrowHead = 8;
template <class F>
bool with_narrow_width(int64_t width, F&& f) {
  return [&]<int... I>(std::integer_sequence<int, I...>) {
    return ((width == I + 1 && (f(std::integral_constant<int, I + 1>{}), true)) || ...);
  }
  (std::make_integer_sequence<int, kNarrowHead>{});
}
// Halves added to halves, as sum() of a vector whose other lanes are 0.
template <class T>
T narrow_sum(const T (&x)[kNarrowHead]) {
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

template <class T>
void l2_norm_forward(const L2NormForward<T>& p) {
  const auto each = [&](const auto& head) {
    for (int64_t t = 0; t < p.tokens; ++t)
      for (int64_t h = 0; h < p.heads; ++h)
        p.inverse[t * p.heads + h] =
            head(p.x + t * p.x_stride + h * p.width, p.y + t * p.y_stride + h * p.width);
  };
  const bool narrow = with_narrow_width(p.width, [&](auto width) {
    constexpr int W = decltype(width)::value;
    each([&](const T* x, T* y) {
      T squares[kNarrowHead] = {};
      for (int i = 0; i < W; ++i) squares[i] = x[i] * x[i];
      const T inverse = T(1) / std::sqrt(narrow_sum(squares) + p.eps);
      for (int i = 0; i < W; ++i) y[i] = x[i] * inverse;
      return inverse;
    });
  });
  if (narrow) return;
  each([&](const T* x, T* y) {
    Vec<T> squares{};
    vector_loop<T>(p.width, [&](int64_t i, auto n) {
      const Vec<T> v = load(x + i, n);
      squares += v * v;
    });
    const T inverse = T(1) / std::sqrt(sum<T>(squares) + p.eps);
    vector_loop<T>(p.width, [&](int64_t i, auto n) { store(y + i, load(x + i, n) * inverse, n); });
    return inverse;
  });
}

template <class T>
void l2_norm_backward(const L2NormBackward<T>& p) {
  const auto each = [&](const auto& head) {
    for (int64_t t = 0; t < p.tokens; ++t)
      for (int64_t h = 0; h < p.heads; ++h)
        head(p.y + t * p.y_stride + h * p.width, p.dy + t * p.dy_stride + h * p.width,
             p.dx + t * p.dx_stride + h * p.width, p.inverse[t * p.heads + h]);
  };
  const bool narrow = with_narrow_width(p.width, [&](auto width) {
    constexpr int W = decltype(width)::value;
    each([](const T* y, const T* dy, T* dx, T inverse) {
      T products[kNarrowHead] = {};
      for (int i = 0; i < W; ++i) products[i] = y[i] * dy[i];
      const T along = narrow_sum(products);
      T out[kNarrowHead];
      for (int i = 0; i < W; ++i) out[i] = (dy[i] - y[i] * along) * inverse;
      for (int i = 0; i < W; ++i) dx[i] = out[i];
    });
  });
  if (narrow) return;
  each([&](const T* y, const T* dy, T* dx, T inverse) {
    Vec<T> products{};
    vector_loop<T>(p.width, [&](int64_t i, auto n) { products += load(y + i, n) * load(dy + i, n); });
    const T along = sum<T>(products);
    vector_loop<T>(p.width, [&](int64_t i, auto n) {
      store(dx + i, (load(dy + i, n) - load(y + i, n) * along) * inverse, n);
    });
  });
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(l2_norm_forward, L2NormForward)
SIGNET_ISA_DISPATCH(l2_norm_backward, L2NormBackward)
