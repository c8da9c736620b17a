#include "signet/kernels/row_chunks.cuh"
#include "signet/kernels/scale_heads/scale_heads.h"

namespace signet::kernels {
namespace {

template <class T>
struct Forward {
  ScaleHeadsForward<T> p;
  __device__ void operator()(int64_t r, int64_t column) const {
    const ScaleHeadsShape& s = p.shape;
    const int64_t h = column / s.y_width(), c = column % s.y_width();
    const float factor = p.s[r * s.s_stride + h];
    p.y[r * s.y_stride + column] =
        from_float<T>(c < s.width    ? factor * to_float(p.x[r * s.x_stride + h * s.width + c])
                      : c == s.width ? factor
                                     : 0.0f);
  }
};

template <class T>
struct Backward {
  ScaleHeadsBackward<T> p;
  __device__ void operator()(int64_t r, int64_t h, int lane) const {
    const ScaleHeadsShape& s = p.shape;
    const float factor = p.s[r * s.s_stride + h];
    const T* x = p.x + r * s.x_stride + h * s.width;
    const T* dy = p.dy + r * s.y_stride + h * s.y_width();
    T* dx = p.dx + r * s.x_stride + h * s.width;
    float along = 0.0f;
    for (int64_t c = lane; c < s.width; c += 32) {
      const float d = to_float(dy[c]);
      along = fmaf(d, to_float(x[c]), along);
      dx[c] = from_float<T>(p.accumulate_dx ? fmaf(factor, d, to_float(dx[c])) : factor * d);
    }
    along = lane_sum<32>(along);
    if (lane == 0) p.ds[r * s.s_stride + h] = along + (s.append ? to_float(dy[s.width]) : 0.0f);
  }
};

}  // namespace

template <class T>
void scale_heads_forward(const ScaleHeadsForward<T>& p, Cuda device) {
  for_elements(p.shape.rows, p.shape.heads * p.shape.y_width(), Forward<T>{p}, device, "scale_heads_forward");
}

template <class T>
void scale_heads_backward(const ScaleHeadsBackward<T>& p, Cuda device) {
  for_warps(p.shape.rows, p.shape.heads, Backward<T>{p}, device, "scale_heads_backward");
}

template void scale_heads_forward(const ScaleHeadsForward<float>&, Cuda);
template void scale_heads_forward(const ScaleHeadsForward<bf16>&, Cuda);
template void scale_heads_backward(const ScaleHeadsBackward<float>&, Cuda);
template void scale_heads_backward(const ScaleHeadsBackward<bf16>&, Cuda);

}  // namespace signet::kernels
