#include "signet/kernels/activation/activation.h"
#include "signet/kernels/activation/activation_device.cuh"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/packet.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256;

// Rows of `width` elements with one stride per array; when every array is contiguous they are one long row.
// `fit`: packets_fit for every array.
struct Grid {
  int64_t rows, width, packets;  // packets: per row
  bool aligned, few;             // few: 32 bits are enough to count them

  template <class... Strides>
  Grid(int64_t rows_, int64_t width_, bool fit, Strides... strides) : rows(rows_), width(width_) {
    if (((strides == width) && ...) && rows * width < (int64_t{1} << 31))
      width *= rows, rows = rows > 0 ? 1 : 0;
    aligned = fit && width % 4 == 0;
    packets = (width + 3) / 4;
    few = rows * packets < (int64_t{1} << 31);
  }
  int64_t blocks() const { return (rows * packets + kThreads - 1) / kThreads; }
};

// body(row, first element) once per packet.
template <class Body>
__global__ void packets_kernel(Grid grid, Body body) {
  begin_kernel();
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (e >= grid.rows * grid.packets) return;
  const int64_t row = grid.rows == 1 ? 0
                      : grid.few     ? static_cast<unsigned>(e) / static_cast<unsigned>(grid.packets)
                                     : e / grid.packets;
  body(row, static_cast<int>(e - row * grid.packets) * 4, static_cast<int>(grid.width), grid.aligned);
}
template <class Body>
void for_each_packet(const Grid& grid, Body body, Cuda device, const char* name) {
  if (grid.blocks() == 0) return;
  launch(name, packets_kernel<Body>, static_cast<unsigned>(grid.blocks()), kThreads, 0, device, grid, body);
}

// Y is T, or float for wide_y.
template <ActivationKind kKind, class T, class Y>
struct Forward {
  ActivationForward<T> p;
  Y* y;
  __device__ void operator()(int64_t row, int first, int width, bool aligned) const {
    float v[4];
    unpack(load_packet(p.x + row * p.x_stride, first, width, aligned), v);
#pragma unroll
    for (float& x : v) x = activate(kKind, x, GateForm(p));
    store_packet(y + row * p.y_stride, first, width, aligned, v);
  }
};

template <ActivationKind kKind, class T, class Y>
struct Backward {
  ActivationBackward<T> p;
  const Y* dy;
  __device__ void operator()(int64_t row, int first, int width, bool aligned) const {
    float x[4], d[4];
    unpack(load_packet(p.x + row * p.x_stride, first, width, aligned), x);
    unpack(load_packet(dy + row * p.dy_stride, first, width, aligned), d);
#pragma unroll
    for (int i = 0; i < 4; ++i) d[i] = activate_gradient(kKind, x[i], d[i], GateForm(p));
    store_packet(p.dx + row * p.dx_stride, first, width, aligned, d);
  }
};

template <GluGate kKind, class T>
struct SwigluUp {
  SwigluForward<T> p;
  __device__ void operator()(int64_t row, int first, int width, bool aligned) const {
    float gate[4], up[4];
    unpack(load_packet(p.gate + row * p.x_stride, first, width, aligned), gate);
    unpack(load_packet(p.up + row * p.x_stride, first, width, aligned), up);
#pragma unroll
    for (int i = 0; i < 4; ++i) up[i] *= glu_gate(kKind, gate[i]).y;
    store_packet(p.y + row * p.y_stride, first, width, aligned, up);
  }
};

template <GluGate kKind, class T>
struct SwigluDown {
  SwigluBackward<T> p;
  __device__ void operator()(int64_t row, int first, int width, bool aligned) const {
    float gate[4], up[4], dy[4], dgate[4], dup[4];
    unpack(load_packet(p.gate + row * p.x_stride, first, width, aligned), gate);
    unpack(load_packet(p.up + row * p.x_stride, first, width, aligned), up);
    unpack(load_packet(p.dy + row * p.dy_stride, first, width, aligned), dy);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const GluValue g = glu_gate(kKind, gate[i]);
      dgate[i] = dy[i] * up[i] * g.slope;
      dup[i] = dy[i] * g.y;
      up[i] *= g.y;
    }
    if (p.y) store_packet(p.y + row * p.dy_stride, first, width, aligned, up);
    store_packet(p.dgate + row * p.dx_stride, first, width, aligned, dgate);
    store_packet(p.dup + row * p.dx_stride, first, width, aligned, dup);
  }
};

}  // namespace

namespace {

// run<kind>() for the kind.
template <class Run>
void choose_kind(ActivationKind kind, Run run) {
  switch (kind) {
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

template <class T, class Y>
void run_forward(const ActivationForward<T>& p, Y* y, Cuda device) {
  const Grid grid(p.rows, p.width, packets_fit(p.x, p.x_stride) && packets_fit(y, p.y_stride), p.x_stride,
                  p.y_stride);
  choose_kind(p.kind, [&]<ActivationKind kKind>() {
    for_each_packet(grid, Forward<kKind, T, Y>{p, y}, device, "activation_forward");
  });
}

template <class T, class Y>
void run_backward(const ActivationBackward<T>& p, const Y* dy, Cuda device) {
  const Grid grid(
      p.rows, p.width,
      packets_fit(p.x, p.x_stride) && packets_fit(dy, p.dy_stride) && packets_fit(p.dx, p.dx_stride),
      p.x_stride, p.dy_stride, p.dx_stride);
  choose_kind(p.kind, [&]<ActivationKind kKind>() {
    for_each_packet(grid, Backward<kKind, T, Y>{p, dy}, device, "activation_backward");
  });
}

}  // namespace

template <class T>
void activation_forward(const ActivationForward<T>& p, Cuda device) {
  if (p.wide_y) return run_forward(p, p.wide_y, device);
  run_forward(p, p.y, device);
}

template <class T>
void activation_backward(const ActivationBackward<T>& p, Cuda device) {
  if (p.wide_dy) return run_backward(p, p.wide_dy, device);
  run_backward(p, p.dy, device);
}

template <class T>
void swiglu_forward(const SwigluForward<T>& p, Cuda device) {
  const bool fit =
      packets_fit(p.gate, p.x_stride) && packets_fit(p.up, p.x_stride) && packets_fit(p.y, p.y_stride);
  const Grid grid(p.rows, p.width, fit, p.x_stride, p.y_stride);
  if (p.kind == GluGate::kGelu)
    return for_each_packet(grid, SwigluUp<GluGate::kGelu, T>{p}, device, "geglu_forward");
  for_each_packet(grid, SwigluUp<GluGate::kSilu, T>{p}, device, "swiglu_forward");
}

template <class T>
void swiglu_backward(const SwigluBackward<T>& p, Cuda device) {
  const bool fit = packets_fit(p.gate, p.x_stride) && packets_fit(p.up, p.x_stride) &&
                   packets_fit(p.dy, p.dy_stride) && packets_fit(p.dgate, p.dx_stride) &&
                   packets_fit(p.dup, p.dx_stride);
  const Grid grid(p.rows, p.width, fit, p.x_stride, p.dy_stride, p.dx_stride);
  if (p.kind == GluGate::kGelu)
    return for_each_packet(grid, SwigluDown<GluGate::kGelu, T>{p}, device, "geglu_backward");
  for_each_packet(grid, SwigluDown<GluGate::kSilu, T>{p}, device, "swiglu_backward");
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
