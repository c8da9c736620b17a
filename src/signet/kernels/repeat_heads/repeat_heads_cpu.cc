#include "signet/kernels/repeat_heads/repeat_heads.h"

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void repeat_heads_forward(const RepeatHeadsForward<T>& p) {
  const RepeatHeadsShape& s = p.shape;
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t h = 0; h < s.heads; ++h)
      __builtin_memcpy(p.y + r * s.y_stride + h * s.width,
                       p.x + r * s.x_stride + h * s.groups / s.heads * s.width,
                       sizeof(T) * static_cast<size_t>(s.width));
}

template <class T>
void repeat_heads_backward(const RepeatHeadsBackward<T>& p) {
  const RepeatHeadsShape& s = p.shape;
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t group = 0; group < s.groups; ++group) {
      T* dx = p.dx + r * s.x_stride + group * s.width;
      const T* dy = p.dy + r * s.y_stride;
      vector_loop<T>(s.width, [&](int64_t i, auto n) {
        Vec<T> total{};
        if (p.accumulate_dx) total = load(dx + i, n);
        for (int64_t h = s.first_head(group); h < s.first_head(group + 1); ++h)
          total += load(dy + h * s.width + i, n);
        store(dx + i, total, n);
      });
    }
  }
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(repeat_heads_forward, RepeatHeadsForward)
SIGNET_ISA_DISPATCH(repeat_heads_backward, RepeatHeadsBackward)
