#include "signet/kernels/gated_skip/gated_skip.h"
#include "signet/kernels/row_chunks.cuh"

namespace signet::kernels {
namespace {

// Packets of kWide neighbouring columns: 4, or 1 where addresses do not allow it.
template <int kWide, class T>
__device__ void load_columns(const T* from, float (&v)[kWide]) {
  if constexpr (kWide == 4)
    unpack(*reinterpret_cast<const Packet<T>*>(from), v);
  else
    v[0] = to_float(*from);
}
template <int kWide, class T>
__device__ void store_columns(T* to, const float (&v)[kWide]) {
  if constexpr (kWide == 4)
    *reinterpret_cast<Packet<T>*>(to) = pack<T>(v);
  else
    *to = from_float<T>(v[0]);
}
// The weights of columns from c on, each for `group` columns; group 0: none.
template <int kWide>
__device__ void load_weights(const float* weight, unsigned group, int64_t c, float (&v)[kWide]) {
#pragma unroll
  for (int i = 0; i < kWide; ++i) {
    const auto column = static_cast<unsigned>(c) + i;
    v[i] = group == 0 ? 0.0f : weight[group == 1 ? column : column / group];
  }
}
unsigned group_of(const GatedSkipShape& s) {
  return s.weights > 0 ? static_cast<unsigned>(s.width / s.weights) : 0;
}

template <int kWide, class T>
struct Forward {
  GatedSkipForward<T> p;
  unsigned group;
  __device__ void operator()(int64_t r, int64_t packet) const {
    const GatedSkipShape& s = p.shape;
    const int64_t c = packet * kWide;
    float weight[kWide], x[kWide], z[kWide], skip[kWide] = {};
    load_weights(p.weight, group, c, weight);
    load_columns(p.x + r * s.x_stride + c, x);
    load_columns(p.z + r * s.z_stride + c, z);
    if (p.skip) load_columns(p.skip + r * s.skip_stride + c, skip);
#pragma unroll
    for (int i = 0; i < kWide; ++i) x[i] = fmaf(weight[i], skip[i], x[i]) * z[i] * logistic(z[i]);
    store_columns(p.y + r * s.y_stride + c, x);
  }
};

template <int kWide, class T>
struct Backward {
  GatedSkipBackward<T> p;
  unsigned group;
  __device__ void operator()(int64_t first, int64_t end, int64_t packet, float (&sum)[kWide]) const {
    const GatedSkipShape& s = p.shape;
    const int64_t c = packet * kWide;
    float weight[kWide];
    load_weights(p.weight, group, c, weight);
#pragma unroll 2
    for (int64_t r = first; r < end; ++r) {
      float x[kWide], z[kWide], dy[kWide], skip[kWide] = {}, dskip[kWide];
      load_columns(p.x + r * s.x_stride + c, x);
      load_columns(p.z + r * s.z_stride + c, z);
      load_columns(p.dy + r * s.y_stride + c, dy);
      if (p.skip) load_columns(p.skip + r * s.skip_stride + c, skip);
#pragma unroll
      for (int i = 0; i < kWide; ++i) {
        const float open = logistic(z[i]), dx = dy[i] * z[i] * open, read = fmaf(weight[i], skip[i], x[i]);
        sum[i] = fmaf(dx, skip[i], sum[i]);
        dskip[i] = dx * weight[i];
        x[i] = dx;
        z[i] = dy[i] * read * open * fmaf(z[i], 1.0f - open, 1.0f);
      }
      store_columns(p.dx + r * s.x_stride + c, x);
      store_columns(p.dz + r * s.z_stride + c, z);
      if (p.skip) store_columns(p.dskip + r * s.skip_stride + c, dskip);
    }
  }
};

}  // namespace

int64_t gated_skip_workspace_size(const GatedSkipShape& shape, Cuda) {
  return row_chunks(shape.rows) * shape.width;
}

template <class T>
void gated_skip_forward(const GatedSkipForward<T>& p, Cuda device) {
  const GatedSkipShape& s = p.shape;
  if (s.width % 4 == 0 && packets_fit(p.x, s.x_stride) && packets_fit(p.z, s.z_stride) &&
      packets_fit(p.y, s.y_stride) && (!p.skip || packets_fit(p.skip, s.skip_stride)))
    for_elements(s.rows, s.width / 4, Forward<4, T>{p, group_of(s)}, device, "gated_skip_forward");
  else
    for_elements(s.rows, s.width, Forward<1, T>{p, group_of(s)}, device, "gated_skip_forward");
}

template <class T>
void gated_skip_backward(const GatedSkipBackward<T>& p, Cuda device) {
  const GatedSkipShape& s = p.shape;
  if (s.width % 4 == 0 && packets_fit(p.x, s.x_stride) && packets_fit(p.z, s.z_stride) &&
      packets_fit(p.dy, s.y_stride) && packets_fit(p.dx, s.x_stride) && packets_fit(p.dz, s.z_stride) &&
      (!p.skip || (packets_fit(p.skip, s.skip_stride) && packets_fit(p.dskip, s.skip_stride))))
    for_chunk_sums<4>(s.rows, s.width / 4, Backward<4, T>{p, group_of(s)}, p.workspace, device,
                      "gated_skip_backward");
  else
    for_chunk_sums<1>(s.rows, s.width, Backward<1, T>{p, group_of(s)}, p.workspace, device,
                      "gated_skip_backward");
  if (p.skip) add_group_sums(p.workspace, row_chunks(s.rows), s.width, s.weights, p.dweight, device);
}

template void gated_skip_forward(const GatedSkipForward<float>&, Cuda);
template void gated_skip_forward(const GatedSkipForward<bf16>&, Cuda);
template void gated_skip_backward(const GatedSkipBackward<float>&, Cuda);
template void gated_skip_backward(const GatedSkipBackward<bf16>&, Cuda);

}  // namespace signet::kernels
