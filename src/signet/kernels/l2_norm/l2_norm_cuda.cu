#include "signet/kernels/activation/activation_device.cuh"
#include "signet/kernels/l2_norm/l2_norm.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256;

// The (token, head) of a team of kTeam lanes; `live` is 0 beyond the last one, whose lanes stay for the sums.
// A token has `heads` heads to normalise, then silu_heads, then one team for its gates.
template <int kTeam>
struct Head {
  int64_t token;
  int head, offset, live, member;
  bool unit, gates;
  template <class P>
  __device__ explicit Head(const P& p) {
    const int64_t index = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kTeam;
    const int heads = static_cast<int>(p.heads + p.silu_heads), teams = heads + (p.gate.columns > 0);
    token = index / teams;
    head = static_cast<int>(index - token * teams);
    offset = head * static_cast<int>(p.width);
    live = token < p.tokens ? static_cast<int>(p.width) : 0;
    unit = head < p.heads;
    gates = head == heads;
    member = threadIdx.x % kTeam;
  }
};

template <class T, int kTeam, int kPackets>
__global__ void forward_kernel(L2NormForward<T> p, bool aligned) {
  begin_kernel();
  const Head<kTeam> at(p);
  const T* from = p.x + at.token * p.x_stride + at.offset;
  T* to = p.y + at.token * p.y_stride + at.offset;
  const int live = at.gates ? 0 : at.live;
  float x[kPackets][4], square = 0.0f;
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
    unpack(load_packet(from, (at.member + k * kTeam) * 4, live, aligned), x[k]);
#pragma unroll
    for (float v : x[k]) square = fmaf(v, v, square);
  }
  const float r = inverse_root(lane_sum<kTeam>(square) + p.eps);
  if (at.gates) {
    for (int c = at.member; c < (at.live ? p.gate.columns : 0); c += kTeam)
      p.gate.y[at.token * p.gate.columns + c] =
          activate(p.gate.kind, to_float(from[c]), p.gate.scale, p.gate.shift);
    return;
  }
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
#pragma unroll
    for (float& v : x[k]) v *= at.unit ? r : logistic(v);
    store_packet(to, (at.member + k * kTeam) * 4, live, aligned, x[k]);
  }
  if (at.member == 0 && live && at.unit) p.inverse[at.token * p.heads + at.head] = r;
}

template <class T, int kTeam, int kPackets>
__global__ void backward_kernel(L2NormBackward<T> p, bool aligned) {
  begin_kernel();
  const Head<kTeam> at(p);
  const int live = at.gates ? 0 : at.live;
  const T* from = at.unit ? p.y + at.token * p.y_stride + at.offset : p.x + at.token * p.x_stride + at.offset;
  T* to = p.dx + at.token * p.dx_stride + at.offset;
  float y[kPackets][4], d[kPackets][4], along = 0.0f;  // y: x where SiLU is
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
    const int first = (at.member + k * kTeam) * 4;
    unpack(load_packet(from, first, live, aligned), y[k]);
    unpack(load_packet(p.dy + at.token * p.dy_stride + at.offset, first, live, aligned), d[k]);
#pragma unroll
    for (int j = 0; j < 4; ++j) along = fmaf(y[k][j], d[k][j], along);
  }
  along = lane_sum<kTeam>(along);
  if (at.gates) {
    for (int c = at.member; c < (at.live ? p.gate.columns : 0); c += kTeam)
      to[c] = from_float<T>(activate_gradient(p.gate.kind, to_float(from[c]),
                                              p.gate.dy[at.token * p.gate.columns + c], p.gate.scale,
                                              p.gate.shift));
    return;
  }
  const float r = live && at.unit ? p.inverse[at.token * p.heads + at.head] : 0.0f;
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      d[k][j] = at.unit ? r * (d[k][j] - y[k][j] * along)
                        : activate_gradient(ActivationKind::kSilu, y[k][j], d[k][j], 1.0f, 0.0f);
    store_packet(to, (at.member + k * kTeam) * 4, live, aligned, d[k]);
  }
}

template <class Run>
void choose_team(int64_t width, Run run) {
  if (width <= 16) return run.template operator()<4, 1>();
  if (width <= 32) return run.template operator()<8, 1>();
  if (width <= 64) return run.template operator()<16, 1>();
  if (width <= 128) return run.template operator()<32, 1>();
  if (width <= 256) return run.template operator()<32, 2>();
  if (width <= 1024) return run.template operator()<32, 8>();
  fail(ErrorCode::kUsage, "L2 normalisation on the GPU takes heads of at most 1024 elements; got {}", width);
}

template <int kTeam>
unsigned blocks_for(int64_t heads) {
  return static_cast<unsigned>((heads * kTeam + kThreads - 1) / kThreads);
}

}  // namespace

template <class T>
void l2_norm_forward(const L2NormForward<T>& p, Cuda device) {
  if (p.tokens == 0 || p.heads == 0 || p.width == 0) return;
  const int64_t teams = p.tokens * (p.heads + p.silu_heads + (p.gate.columns > 0));
  const bool aligned = p.width % 4 == 0 && packets_fit(p.x, p.x_stride) && packets_fit(p.y, p.y_stride);
  choose_team(p.width, [&]<int kTeam, int kPackets>() {
    launch("l2_norm_forward", forward_kernel<T, kTeam, kPackets>, blocks_for<kTeam>(teams), kThreads, 0,
           device, p, aligned);
  });
}

template <class T>
void l2_norm_backward(const L2NormBackward<T>& p, Cuda device) {
  if (p.tokens == 0 || p.heads == 0 || p.width == 0) return;
  const int64_t teams = p.tokens * (p.heads + p.silu_heads + (p.gate.columns > 0));
  const bool aligned = p.width % 4 == 0 && packets_fit(p.y, p.y_stride) && packets_fit(p.dy, p.dy_stride) &&
                       packets_fit(p.dx, p.dx_stride) && packets_fit(p.x, p.x_stride);
  choose_team(p.width, [&]<int kTeam, int kPackets>() {
    launch("l2_norm_backward", backward_kernel<T, kTeam, kPackets>, blocks_for<kTeam>(teams), kThreads, 0,
           device, p, aligned);
  });
}

template void l2_norm_forward(const L2NormForward<float>&, Cuda);
template void l2_norm_forward(const L2NormForward<bf16>&, Cuda);
template void l2_norm_backward(const L2NormBackward<float>&, Cuda);
template void l2_norm_backward(const L2NormBackward<bf16>&, Cuda);

}  // namespace signet::kernels
