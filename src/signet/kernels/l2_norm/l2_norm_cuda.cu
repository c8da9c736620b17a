#include "signet/kernels/l2_norm/l2_norm.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256;

// The (token, head) of a team of kTeam lanes; `live` is 0 beyond the last one, whose lanes stay for the sums.
template <int kTeam>
struct Head {
  int64_t index, token;
  int offset, live, member;
  __device__ Head(int64_t tokens, int64_t heads, int64_t width) {
    index = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kTeam;
    token = index / heads;
    offset = static_cast<int>((index - token * heads) * width);
    live = index < tokens * heads ? static_cast<int>(width) : 0;
    member = threadIdx.x % kTeam;
  }
};

template <class T, int kTeam, int kPackets>
__global__ void forward_kernel(L2NormForward<T> p, bool aligned) {
  const Head<kTeam> at(p.tokens, p.heads, p.width);
  float x[kPackets][4], square = 0.0f;
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
    unpack(
        load_packet(p.x + at.token * p.x_stride + at.offset, (at.member + k * kTeam) * 4, at.live, aligned),
        x[k]);
#pragma unroll
    for (float v : x[k]) square = fmaf(v, v, square);
  }
  const float r = rsqrtf(lane_sum<kTeam>(square) + p.eps);
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
#pragma unroll
    for (float& v : x[k]) v *= r;
    store_packet(p.y + at.token * p.y_stride + at.offset, (at.member + k * kTeam) * 4, at.live, aligned,
                 x[k]);
  }
  if (at.member == 0 && at.live) p.inverse[at.index] = r;
}

template <class T, int kTeam, int kPackets>
__global__ void backward_kernel(L2NormBackward<T> p, bool aligned) {
  const Head<kTeam> at(p.tokens, p.heads, p.width);
  float y[kPackets][4], d[kPackets][4], along = 0.0f;
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
    const int first = (at.member + k * kTeam) * 4;
    unpack(load_packet(p.y + at.token * p.y_stride + at.offset, first, at.live, aligned), y[k]);
    unpack(load_packet(p.dy + at.token * p.dy_stride + at.offset, first, at.live, aligned), d[k]);
#pragma unroll
    for (int j = 0; j < 4; ++j) along = fmaf(y[k][j], d[k][j], along);
  }
  along = lane_sum<kTeam>(along);
  const float r = at.live ? p.inverse[at.index] : 0.0f;
#pragma unroll
  for (int k = 0; k < kPackets; ++k) {
#pragma unroll
    for (int j = 0; j < 4; ++j) d[k][j] = r * (d[k][j] - y[k][j] * along);
    store_packet(p.dx + at.token * p.dx_stride + at.offset, (at.member + k * kTeam) * 4, at.live, aligned,
                 d[k]);
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
  const bool aligned = p.width % 4 == 0 && packets_fit(p.x, p.x_stride) && packets_fit(p.y, p.y_stride);
  choose_team(p.width, [&]<int kTeam, int kPackets>() {
    forward_kernel<T, kTeam, kPackets>
        <<<blocks_for<kTeam>(p.tokens * p.heads), kThreads, 0, stream_of(device)>>>(p, aligned);
  });
  check_launch("l2_norm_forward");
}

template <class T>
void l2_norm_backward(const L2NormBackward<T>& p, Cuda device) {
  if (p.tokens == 0 || p.heads == 0 || p.width == 0) return;
  const bool aligned = p.width % 4 == 0 && packets_fit(p.y, p.y_stride) && packets_fit(p.dy, p.dy_stride) &&
                       packets_fit(p.dx, p.dx_stride);
  choose_team(p.width, [&]<int kTeam, int kPackets>() {
    backward_kernel<T, kTeam, kPackets>
        <<<blocks_for<kTeam>(p.tokens * p.heads), kThreads, 0, stream_of(device)>>>(p, aligned);
  });
  check_launch("l2_norm_backward");
}

template void l2_norm_forward(const L2NormForward<float>&, Cuda);
template void l2_norm_forward(const L2NormForward<bf16>&, Cuda);
template void l2_norm_backward(const L2NormBackward<float>&, Cuda);
template void l2_norm_backward(const L2NormBackward<bf16>&, Cuda);

}  // namespace signet::kernels
