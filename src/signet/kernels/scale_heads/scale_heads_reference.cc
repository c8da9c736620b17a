#include "signet/kernels/scale_heads/scale_heads.h"

namespace signet::kernels {

void scale_heads_forward_reference(const ScaleHeadsForward<double>& p) {
  const ScaleHeadsShape& s = p.shape;
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const double factor = p.s[r * s.s_stride + h];
      double* y = p.y + r * s.y_stride + h * s.y_width();
      for (int64_t c = 0; c < s.width; ++c) y[c] = factor * p.x[r * s.x_stride + h * s.width + c];
      for (int64_t c = s.width; c < s.y_width(); ++c) y[c] = c == s.width ? factor : 0;
    }
  }
}

void scale_heads_backward_reference(const ScaleHeadsBackward<double>& p) {
  const ScaleHeadsShape& s = p.shape;
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const double* dy = p.dy + r * s.y_stride + h * s.y_width();
      double ds = s.append ? dy[s.width] : 0;
      for (int64_t c = 0; c < s.width; ++c) {
        const int64_t at = r * s.x_stride + h * s.width + c;
        ds += dy[c] * p.x[at];
        p.dx[at] = (p.accumulate_dx ? p.dx[at] : 0) + p.s[r * s.s_stride + h] * dy[c];
      }
      p.ds[r * s.s_stride + h] = ds;
    }
  }
}

}  // namespace signet::kernels
