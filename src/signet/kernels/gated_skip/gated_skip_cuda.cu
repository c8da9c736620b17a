#include "signet/kernels/gated_skip/gated_skip.h"
#include "signet/kernels/row_chunks.cuh"

namespace signet::kernels {
namespace {

template <class T>
struct Forward {
  GatedSkipForward<T> p;
  __device__ void operator()(int64_t r, int64_t c) const {
    const GatedSkipShape& s = p.shape;
    const float z = to_float(p.z[r * s.z_stride + c]);
    float x = to_float(p.x[r * s.x_stride + c]);
    if (p.skip) x = fmaf(p.weight[c * s.weights / s.width], to_float(p.skip[r * s.skip_stride + c]), x);
    p.y[r * s.y_stride + c] = from_float<T>(x * z * logistic(z));
  }
};

template <class T>
struct Backward {
  GatedSkipBackward<T> p;
  __device__ void operator()(int64_t first, int64_t end, int64_t c, int64_t chunk) const {
    const GatedSkipShape& s = p.shape;
    const float weight = p.skip ? p.weight[c * s.weights / s.width] : 0.0f;
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t r = first; r < end; ++r) {
      const float z = to_float(p.z[r * s.z_stride + c]), open = logistic(z);
      const float dy = to_float(p.dy[r * s.y_stride + c]), dx = dy * z * open;
      float x = to_float(p.x[r * s.x_stride + c]);
      if (p.skip) {
        const float skip = to_float(p.skip[r * s.skip_stride + c]);
        x = fmaf(weight, skip, x);
        sum = fmaf(dx, skip, sum);
        p.dskip[r * s.skip_stride + c] = from_float<T>(dx * weight);
      }
      p.dx[r * s.x_stride + c] = from_float<T>(dx);
      p.dz[r * s.z_stride + c] = from_float<T>(dy * x * open * fmaf(z, 1.0f - open, 1.0f));
    }
    if (p.skip) p.workspace[chunk * s.width + c] = sum;
  }
};

}  // namespace

int64_t gated_skip_workspace_size(const GatedSkipShape& shape, Cuda) {
  return row_chunks(shape.rows) * shape.width;
}

template <class T>
void gated_skip_forward(const GatedSkipForward<T>& p, Cuda device) {
  for_elements(p.shape.rows, p.shape.width, Forward<T>{p}, device, "gated_skip_forward");
}

template <class T>
void gated_skip_backward(const GatedSkipBackward<T>& p, Cuda device) {
  for_row_chunks(p.shape.rows, p.shape.width, Backward<T>{p}, device, "gated_skip_backward");
  if (p.skip)
    add_group_sums(p.workspace, row_chunks(p.shape.rows), p.shape.width, p.shape.weights, p.dweight, device);
}

template void gated_skip_forward(const GatedSkipForward<float>&, Cuda);
template void gated_skip_forward(const GatedSkipForward<bf16>&, Cuda);
template void gated_skip_backward(const GatedSkipBackward<float>&, Cuda);
template void gated_skip_backward(const GatedSkipBackward<bf16>&, Cuda);

}  // namespace signet::kernels
