#include "signet/kernels/repeat_heads/repeat_heads.h"

namespace signet::kernels {

void repeat_heads_forward_reference(const RepeatHeadsForward<double>& p) {
  const RepeatHeadsShape& s = p.shape;
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t i = 0; i < s.width; ++i)
        p.y[r * s.y_stride + h * s.width + i] = p.x[r * s.x_stride + h * s.groups / s.heads * s.width + i];
}

void repeat_heads_backward_reference(const RepeatHeadsBackward<double>& p) {
  const RepeatHeadsShape& s = p.shape;
  for (int64_t r = 0; r < s.rows; ++r) {
    double* dx = p.dx + r * s.x_stride;
    for (int64_t i = 0; i < s.groups * s.width && !p.accumulate_dx; ++i) dx[i] = 0;
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t i = 0; i < s.width; ++i)
        dx[h * s.groups / s.heads * s.width + i] += p.dy[r * s.y_stride + h * s.width + i];
  }
}

}  // namespace signet::kernels
