#include "signet/kernels/gated_skip/gated_skip.h"

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void gated_skip_forward(const GatedSkipForward<T>& p) {
  const GatedSkipShape& s = p.shape;
  // Columns that share a weight; all of them without one.
  const int64_t parts = p.skip ? s.weights : 1, width = parts ? s.width / parts : 0;
  for (int64_t r = 0; r < s.rows; ++r) {
    const T *x = p.x + r * s.x_stride, *z = p.z + r * s.z_stride;
    T* y = p.y + r * s.y_stride;
    if (p.skip && width == 1) {
      const T* skip = p.skip + r * s.skip_stride;
      vector_loop<T>(s.width, [&](int64_t c, auto n) {
        const Vec<T> gate = load(z + c, n);
        store(y + c, (load(x + c, n) + load(p.weight + c, n) * load(skip + c, n)) * gate * sigmoid<T>(gate),
              n);
      });
      continue;
    }
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t at = part * width;
      vector_loop<T>(width, [&](int64_t c, auto n) {
        const Vec<T> gate = load(z + at + c, n);
        Vec<T> sum = load(x + at + c, n);
        if (p.skip) sum += p.weight[part] * load(p.skip + r * s.skip_stride + at + c, n);
        store(y + at + c, sum * gate * sigmoid<T>(gate), n);
      });
    }
  }
}

template <class T>
void gated_skip_backward(const GatedSkipBackward<T>& p) {
  const GatedSkipShape& s = p.shape;
  const int64_t parts = p.skip ? s.weights : 1, width = parts ? s.width / parts : 0;
  for (int64_t r = 0; r < s.rows; ++r) {
    const T *x = p.x + r * s.x_stride, *z = p.z + r * s.z_stride, *dy = p.dy + r * s.y_stride;
    T *dx = p.dx + r * s.x_stride, *dz = p.dz + r * s.z_stride;
    // Gradients of columns at .. from x + weight skip; returns that of x.
    auto columns = [&](int64_t at, Vec<T> sum, auto n) __attribute__((always_inline)) {
      const Vec<T> gate = load(z + at, n), open = sigmoid<T>(gate), d = load(dy + at, n),
                   d_x = d * gate * open;
      store(dx + at, d_x, n);
      store(dz + at, d * sum * open * (T(1) + gate * (T(1) - open)), n);
      return d_x;
    };
    if (!p.skip) {
      vector_loop<T>(s.width, [&](int64_t c, auto n) { columns(c, load(x + c, n), n); });
      continue;
    }
    const T* skip = p.skip + r * s.skip_stride;
    T* dskip = p.dskip + r * s.skip_stride;
    if (width == 1) {
      vector_loop<T>(s.width, [&](int64_t c, auto n) {
        const Vec<T> weight = load(p.weight + c, n), from = load(skip + c, n);
        const Vec<T> d = columns(c, load(x + c, n) + weight * from, n);
        store(dskip + c, d * weight, n);
        store(p.dweight + c, load(p.dweight + c, n) + d * from, n);
      });
      continue;
    }
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t at = part * width;
      const T weight = p.weight[part];
      Vec<T> along{};
      vector_loop<T>(width, [&](int64_t c, auto n) {
        const Vec<T> from = load(skip + at + c, n);
        const Vec<T> d = columns(at + c, load(x + at + c, n) + weight * from, n);
        store(dskip + at + c, d * weight, n);
        along += d * from;
      });
      p.dweight[part] += sum<T>(along);
    }
  }
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(gated_skip_forward, GatedSkipForward)
SIGNET_ISA_DISPATCH(gated_skip_backward, GatedSkipBackward)
