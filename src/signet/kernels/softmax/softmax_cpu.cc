#include "signet/kernels/softmax/softmax.h"

#include "signet/base/isa_target.h"

#include "signet/base/simd.h"
#include "signet/kernels/softmax/softmax_row.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void softmax_forward(const SoftmaxForward<T>& p) {
  for (int64_t r = 0; r < p.rows; ++r) softmax_row(p.x + r * p.x_stride, p.width, p.y + r * p.y_stride);
}

template <class T>
void softmax_backward(const SoftmaxBackward<T>& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const T *y = p.y + r * p.y_stride, *dy = p.dy + r * p.dy_stride;
    const T along = row_dot(y, dy, p.width);
    vector_loop<T>(p.width, [&](int64_t i, auto n) {
      store(p.dx + r * p.dx_stride + i, load(y + i, n) * (load(dy + i, n) - along), n);
    });
  }
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(softmax_forward, SoftmaxForward)
SIGNET_ISA_DISPATCH(softmax_backward, SoftmaxBackward)
