#include "signet/kernels/activation/activation.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/packet.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256;

// Accurate for every x: both branches of the sum stay away from overflow and cancellation.
__device__ inline float logistic(float x) {
  const float e = expf(-fabsf(x)), r = 1.0f / (1.0f + e);
  return x < 0.0f ? e * r : r;
}

// Rows of `width` elements with one stride per array; when every array is contiguous they are one long row.
// `fit`: packets_fit for every array.
struct Grid {
  int64_t rows, width, packets;  // packets: per row
  bool aligned;

  template <class... Strides>
  Grid(int64_t rows_, int64_t width_, bool fit, Strides... strides) : rows(rows_), width(width_) {
    if (((strides == width) && ...) && rows * width < (int64_t{1} << 31))
      width *= rows, rows = rows > 0 ? 1 : 0;
    aligned = fit && width % 4 == 0;
    packets = (width + 3) / 4;
  }
  int64_t blocks() const { return (rows * packets + kThreads - 1) / kThreads; }
};

// body(row, first element) once per packet.
template <class Body>
__global__ void packets_kernel(Grid grid, Body body) {
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (e >= grid.rows * grid.packets) return;
  const int64_t row = grid.rows == 1 ? 0 : e / grid.packets;
  body(row, static_cast<int>(e - row * grid.packets) * 4, static_cast<int>(grid.width), grid.aligned);
}
template <class Body>
void for_each_packet(const Grid& grid, Body body, Cuda device, const char* name) {
  if (grid.blocks() == 0) return;
  packets_kernel<<<static_cast<unsigned>(grid.blocks()), kThreads, 0, stream_of(device)>>>(grid, body);
  check_launch(name);
}

template <ActivationKind kKind, class T>
struct Forward {
  ActivationForward<T> p;
  __device__ void operator()(int64_t row, int first, int width, bool aligned) const {
    const float scale = p.scale, shift = p.shift;
    float v[4];
    unpack(load_packet(p.x + row * p.x_stride, first, width, aligned), v);
#pragma unroll
    for (float& x : v) {
      if constexpr (kKind == ActivationKind::kSilu) x *= logistic(x);
      if constexpr (kKind == ActivationKind::kSigmoid) x = scale * logistic(x + shift);
      if constexpr (kKind == ActivationKind::kHard) {
        const float y = fmaf(0.25f, x + shift, 0.5f);
        x = scale * (y < 0.0f ? 0.0f : y > 1.0f ? 1.0f : y);  // NaN stays NaN
      }
      if constexpr (kKind == ActivationKind::kSoftplus) x = (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
    }
    store_packet(p.y + row * p.y_stride, first, width, aligned, v);
  }
};

template <ActivationKind kKind, class T>
struct Backward {
  ActivationBackward<T> p;
  __device__ void operator()(int64_t row, int first, int width, bool aligned) const {
    const float scale = p.scale, shift = p.shift;
    float x[4], d[4];
    unpack(load_packet(p.x + row * p.x_stride, first, width, aligned), x);
    unpack(load_packet(p.dy + row * p.dy_stride, first, width, aligned), d);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kKind == ActivationKind::kSigmoid || kKind == ActivationKind::kHard) x[i] += shift;
      const float s = kKind == ActivationKind::kHard ? 0.0f : logistic(x[i]);
      if constexpr (kKind == ActivationKind::kSilu) d[i] *= s * fmaf(x[i], 1.0f - s, 1.0f);
      if constexpr (kKind == ActivationKind::kSigmoid) d[i] *= scale * s * (1.0f - s);
      if constexpr (kKind == ActivationKind::kHard) {
        const bool closed = (x[i] >= 2.0f && d[i] < 0.0f) || (x[i] <= -2.0f && d[i] > 0.0f);
        d[i] *= closed ? 0.0f : 0.25f * scale;
      }
      if constexpr (kKind == ActivationKind::kSoftplus) d[i] *= s;
    }
    store_packet(p.dx + row * p.dx_stride, first, width, aligned, d);
  }
};

template <class T>
struct SwigluUp {
  SwigluForward<T> p;
  __device__ void operator()(int64_t row, int first, int width, bool aligned) const {
    float gate[4], up[4];
    unpack(load_packet(p.gate + row * p.x_stride, first, width, aligned), gate);
    unpack(load_packet(p.up + row * p.x_stride, first, width, aligned), up);
#pragma unroll
    for (int i = 0; i < 4; ++i) up[i] *= gate[i] * logistic(gate[i]);
    store_packet(p.y + row * p.y_stride, first, width, aligned, up);
  }
};

template <class T>
struct SwigluDown {
  SwigluBackward<T> p;
  __device__ void operator()(int64_t row, int first, int width, bool aligned) const {
    float gate[4], up[4], dy[4], dgate[4], dup[4];
    unpack(load_packet(p.gate + row * p.x_stride, first, width, aligned), gate);
    unpack(load_packet(p.up + row * p.x_stride, first, width, aligned), up);
    unpack(load_packet(p.dy + row * p.dy_stride, first, width, aligned), dy);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float s = logistic(gate[i]);
      dgate[i] = dy[i] * up[i] * s * fmaf(gate[i], 1.0f - s, 1.0f);
      dup[i] = dy[i] * gate[i] * s;
    }
    store_packet(p.dgate + row * p.dx_stride, first, width, aligned, dgate);
    store_packet(p.dup + row * p.dx_stride, first, width, aligned, dup);
  }
};

}  // namespace

template <class T>
void activation_forward(const ActivationForward<T>& p, Cuda device) {
  const Grid grid(p.rows, p.width, packets_fit(p.x, p.x_stride) && packets_fit(p.y, p.y_stride), p.x_stride,
                  p.y_stride);
  const auto run = [&]<ActivationKind kKind>() {
    for_each_packet(grid, Forward<kKind, T>{p}, device, "activation_forward");
  };
  switch (p.kind) {
    case ActivationKind::kSilu:
      return run.template operator()<ActivationKind::kSilu>();
    case ActivationKind::kSigmoid:
      return run.template operator()<ActivationKind::kSigmoid>();
    case ActivationKind::kHard:
      return run.template operator()<ActivationKind::kHard>();
    case ActivationKind::kSoftplus:
      return run.template operator()<ActivationKind::kSoftplus>();
  }
}

template <class T>
void activation_backward(const ActivationBackward<T>& p, Cuda device) {
  const Grid grid(
      p.rows, p.width,
      packets_fit(p.x, p.x_stride) && packets_fit(p.dy, p.dy_stride) && packets_fit(p.dx, p.dx_stride),
      p.x_stride, p.dy_stride, p.dx_stride);
  const auto run = [&]<ActivationKind kKind>() {
    for_each_packet(grid, Backward<kKind, T>{p}, device, "activation_backward");
  };
  switch (p.kind) {
    case ActivationKind::kSilu:
      return run.template operator()<ActivationKind::kSilu>();
    case ActivationKind::kSigmoid:
      return run.template operator()<ActivationKind::kSigmoid>();
    case ActivationKind::kHard:
      return run.template operator()<ActivationKind::kHard>();
    case ActivationKind::kSoftplus:
      return run.template operator()<ActivationKind::kSoftplus>();
  }
}

template <class T>
void swiglu_forward(const SwigluForward<T>& p, Cuda device) {
  const bool fit =
      packets_fit(p.gate, p.x_stride) && packets_fit(p.up, p.x_stride) && packets_fit(p.y, p.y_stride);
  for_each_packet(Grid(p.rows, p.width, fit, p.x_stride, p.y_stride), SwigluUp<T>{p}, device,
                  "swiglu_forward");
}

template <class T>
void swiglu_backward(const SwigluBackward<T>& p, Cuda device) {
  const bool fit = packets_fit(p.gate, p.x_stride) && packets_fit(p.up, p.x_stride) &&
                   packets_fit(p.dy, p.dy_stride) && packets_fit(p.dgate, p.dx_stride) &&
                   packets_fit(p.dup, p.dx_stride);
  for_each_packet(Grid(p.rows, p.width, fit, p.x_stride, p.dy_stride, p.dx_stride), SwigluDown<T>{p}, device,
                  "swiglu_backward");
}

#define SIGNET_INSTANTIATE(T)                                            \
  template void activation_forward(const ActivationForward<T>&, Cuda);   \
  template void activation_backward(const ActivationBackward<T>&, Cuda); \
  template void swiglu_forward(const SwigluForward<T>&, Cuda);           \
  template void swiglu_backward(const SwigluBackward<T>&, Cuda);
SIGNET_INSTANTIATE(float)
SIGNET_INSTANTIATE(bf16)
#undef SIGNET_INSTANTIATE

}  // namespace signet::kernels
