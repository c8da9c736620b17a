#include "signet/kernels/activation/activation_device.cuh"
#include "signet/kernels/delta_rule/delta_rule.h"
#include "signet/kernels/l2_norm/l2_norm.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/reduce.cuh"
#include "signet/tensor/row_packets.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256;

// The (token, head) of a team of kTeam lanes; `live` is 0 beyond the last one, whose lanes stay for the sums.
// A token has `heads` heads to normalise, then silu_heads, then the gates, each of which its head computes.
template <int kTeam>
struct Head {
  int64_t token;
  int head, offset, live, member, gate;  // gate: its column, where gated
  bool unit, gated;
  template <class P>
  __device__ explicit Head(const P& p) {
    const unsigned index = blockIdx.x * (kThreads / kTeam) + threadIdx.x / kTeam;
    const auto heads = static_cast<unsigned>(p.heads + p.silu_heads);
    token = index / heads;
    head = static_cast<int>(index % heads);
    offset = head * static_cast<int>(p.width);
    live = token < p.tokens ? static_cast<int>(p.width) : 0;
    unit = head < p.heads;
    member = threadIdx.x % kTeam;
    gate = head - static_cast<int>(p.gate.first_head);
    gated = live && member == 0 && gate >= 0 && gate < p.gate.columns;
  }
  template <class P>
  __device__ int64_t gate_offset(const P& p) const {
    return (p.heads + p.silu_heads) * p.width + gate;
  }
};

// The square of the length of a key y as it is stored, in bf16; 1 where gates do not want it.
template <int kTeam, int kPackets>
__device__ inline float key_square(const GateColumns& gate, const float (&y)[kPackets][4]) {
  if (!gate.unit_keys) return 1.0f;
  float square = 0.0f;
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
    float stored[4];
    unpack(pack<bf16>(y[k]), stored);
#pragma unroll
    for (float v : stored) square = fmaf(v, v, square);
  }
  return lane_sum<kTeam>(square);
}

template <class T, int kTeam, int kPackets>
__global__ void forward_kernel(L2NormForward<T> p, RowAlignment aligned) {
  begin_kernel();
  const Head<kTeam> at(p);
  const T* from = p.x + at.token * p.x_stride;
  T* to = p.y + at.token * p.y_stride + at.offset;
  const float opening = at.gated ? to_float(from[at.gate_offset(p)]) : 0.0f;
  float x[kPackets][4], square = 0.0f;
  Packet<T> packets[kPackets];
  load_packets<kTeam>(from + at.offset, at.member, at.live, aligned, packets);
  unpack(packets, x);
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
#pragma unroll
    for (float v : x[k]) square = fmaf(v, v, square);
  }
  const float r = inverse_root(lane_sum<kTeam>(square) + p.eps);
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
#pragma unroll
    for (float& v : x[k]) v *= at.unit ? r : logistic(v);
  }
  store_packets<kTeam>(to, at.member, at.live, aligned, x);
  if (at.member == 0 && at.live && at.unit) p.inverse[at.token * p.heads + at.head] = r;
  const float factor = unit_key_factor(key_square<kTeam>(p.gate, x));
  if (at.gated) {
    const int64_t column = at.token * p.gate.columns + at.gate;
    p.gate.y[column] = factor * activate(p.gate.kind, opening, GateForm(p.gate));
    if (p.gate.unit_keys) p.gate.factor[column] = factor;
  }
}

template <class T, int kTeam, int kPackets>
__global__ void backward_kernel(L2NormBackward<T> p, RowAlignment aligned) {
  begin_kernel();
  const Head<kTeam> at(p);
  const T* from = at.unit ? p.y + at.token * p.y_stride + at.offset : p.x + at.token * p.x_stride + at.offset;
  T* to = p.dx + at.token * p.dx_stride;
  const float opening = at.gated ? to_float(p.x[at.token * p.x_stride + at.gate_offset(p)]) : 0.0f,
              d_opening = at.gated ? p.gate.dy[at.token * p.gate.columns + at.gate] : 0.0f,
              factor =
                  at.gated && p.gate.unit_keys ? p.gate.factor[at.token * p.gate.columns + at.gate] : 1.0f,
              r = at.live && at.unit ? p.inverse[at.token * p.heads + at.head] : 0.0f;
  float y[kPackets][4], d[kPackets][4], along = 0.0f;  // y: x where SiLU is
  Packet<T> y_packets[kPackets], d_packets[kPackets];
  load_packets<kTeam>(from, at.member, at.live, aligned, y_packets);
  load_packets<kTeam>(p.dy + at.token * p.dy_stride + at.offset, at.member, at.live, aligned, d_packets);
  unpack(y_packets, y), unpack(d_packets, d);
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
#pragma unroll
    for (int j = 0; j < 4; ++j) along = fmaf(y[k][j], d[k][j], along);
  }
  along = lane_sum<kTeam>(along);
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      d[k][j] = at.unit ? r * (d[k][j] - y[k][j] * along)
                        : activate_gradient(ActivationKind::kSilu, y[k][j], d[k][j], GateForm(p.gate));
  }
  store_packets<kTeam>(to + at.offset, at.member, at.live, aligned, d);
  if (at.gated)
    to[at.gate_offset(p)] =
        from_float<T>(activate_gradient(p.gate.kind, opening, factor * d_opening, GateForm(p.gate)));
}

// The gates must belong to normalised heads.
template <class P>
void check_gates(const P& p) {
  if (p.gate.columns > 0 && p.gate.first_head + p.gate.columns > p.heads)
    fail(ErrorCode::kUsage, "{} gates from head {} on do not fit {} normalised heads", p.gate.columns,
         p.gate.first_head, p.heads);
  if (p.gate.columns > 0 && p.gate.unit_keys && !p.gate.factor)
    fail(ErrorCode::kUsage, "gates that fold the lengths of keys need room for these");
}

template <class T, class Run>
void choose_team(int64_t width, Run run) {
  constexpr int kPair = kNeighbours<T>;
  if (width <= 16) return run.template operator()<4, 1>();
  if (width <= 32) return run.template operator()<8 / kPair, kPair>();
  if (width <= 64) return run.template operator()<16 / kPair, kPair>();
  if (width <= 128) return run.template operator()<32 / kPair, kPair>();
  if (width <= 256) return run.template operator()<32, 2>();
  if (width <= 1024) return run.template operator()<32, 8>();
  fail(ErrorCode::kUsage, "L2 normalisation on the GPU takes heads of at most 1024 elements; got {}", width);
}

template <int kTeam>
unsigned blocks_for(int64_t heads) {
  const int64_t blocks = (heads * kTeam + kThreads - 1) / kThreads;
  if (blocks * kThreads / kTeam >= int64_t{1} << 32)  // a team's index
    fail(ErrorCode::kUsage, "L2 normalisation of {} heads: too many for one call", heads);
  return static_cast<unsigned>(blocks);
}

}  // namespace

template <class T>
void l2_norm_forward(const L2NormForward<T>& p, Cuda device) {
  if (p.tokens == 0 || p.heads == 0 || p.width == 0) return;
  check_gates(p);
  const int64_t teams = p.tokens * (p.heads + p.silu_heads);
  const RowAlignment aligned = rows_fit(p.width, p.x, p.x_stride, p.y, p.y_stride);
  choose_team<T>(p.width, [&]<int kTeam, int kPackets>() {
    launch("l2_norm_forward", forward_kernel<T, kTeam, kPackets>, blocks_for<kTeam>(teams), kThreads, 0,
           device, p, aligned);
  });
}

template <class T>
void l2_norm_backward(const L2NormBackward<T>& p, Cuda device) {
  if (p.tokens == 0 || p.heads == 0 || p.width == 0) return;
  check_gates(p);
  const int64_t teams = p.tokens * (p.heads + p.silu_heads);
  const RowAlignment aligned =
      rows_fit(p.width, p.y, p.y_stride, p.dy, p.dy_stride, p.dx, p.dx_stride, p.x, p.x_stride);
  choose_team<T>(p.width, [&]<int kTeam, int kPackets>() {
    launch("l2_norm_backward", backward_kernel<T, kTeam, kPackets>, blocks_for<kTeam>(teams), kThreads, 0,
           device, p, aligned);
  });
}

template void l2_norm_forward(const L2NormForward<float>&, Cuda);
template void l2_norm_forward(const L2NormForward<bf16>&, Cuda);
template void l2_norm_backward(const L2NormBackward<float>&, Cuda);
template void l2_norm_backward(const L2NormBackward<bf16>&, Cuda);

}  // namespace signet::kernels
