#include "signet/kernels/scale_heads/scale_heads.h"

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void scale_heads_forward(const ScaleHeadsForward<T>& p) {
  const ScaleHeadsShape& s = p.shape;
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const T factor = p.s[r * s.s_stride + h];
      const T* x = p.x + r * s.x_stride + h * s.width;
      T* y = p.y + r * s.y_stride + h * s.y_width();
      vector_loop<T>(s.width, [&](int64_t c, auto n) { store(y + c, factor * load(x + c, n), n); });
      for (int64_t c = s.width; c < s.y_width(); ++c) y[c] = c == s.width ? factor : T(0);
    }
  }
}

template <class T>
void scale_heads_backward(const ScaleHeadsBackward<T>& p) {
  const ScaleHeadsShape& s = p.shape;
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const T factor = p.s[r * s.s_stride + h];
      const T* x = p.x + r * s.x_stride + h * s.width;
      const T* dy = p.dy + r * s.y_stride + h * s.y_width();
      T* dx = p.dx + r * s.x_stride + h * s.width;
      Vec<T> along{};
      vector_loop<T>(s.width, [&](int64_t c, auto n) {
        const Vec<T> d = load(dy + c, n);
        along += d * load(x + c, n);
        store(dx + c, p.accumulate_dx ? load(dx + c, n) + factor * d : factor * d, n);
      });
      p.ds[r * s.s_stride + h] = sum<T>(along) + (s.append ? dy[s.width] : T(0));
    }
  }
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(scale_heads_forward, ScaleHeadsForward)
SIGNET_ISA_DISPATCH(scale_heads_backward, ScaleHeadsBackward)
