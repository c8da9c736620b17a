// A team of lanes for every head of a row, a packet of its columns in each lane.
#include "signet/kernels/scale_heads/scale_heads.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256;

template <int kLanes>
struct Place {
  int64_t row;
  int head, lane;
  bool there;  // all lanes stay for the sums
  __device__ explicit Place(const ScaleHeadsShape& s) {
    const unsigned item = (blockIdx.x * kThreads + threadIdx.x) / kLanes,
                   heads = static_cast<unsigned>(s.heads);
    row = item / heads, head = static_cast<int>(item % heads);
    lane = static_cast<int>(threadIdx.x) % kLanes, there = row < s.rows;
  }
};

template <class T, int kLanes>
__global__ void __launch_bounds__(kThreads) forward_kernel(ScaleHeadsForward<T> p, bool aligned) {
  begin_kernel();
  const ScaleHeadsShape& s = p.shape;
  const Place<kLanes> at(s);
  if (!at.there) return;
  const int width = static_cast<int>(s.width), wide = static_cast<int>(s.y_width());
  const float factor = p.s[at.row * s.s_stride + at.head];
  const T* const x = p.x + at.row * s.x_stride + at.head * s.width;
  T* const y = p.y + at.row * s.y_stride + at.head * s.y_width();
  for (int first = at.lane * 4; first < wide; first += kLanes * 4) {
    float v[4];
    unpack(load_packet(x, first, width, aligned), v);  // zero behind the head
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = first + i == width ? factor : factor * v[i];
    store_packet(y, first, wide, aligned, v);
  }
}

template <class T, int kLanes>
__global__ void __launch_bounds__(kThreads) backward_kernel(ScaleHeadsBackward<T> p, bool aligned) {
  begin_kernel();
  const ScaleHeadsShape& s = p.shape;
  const Place<kLanes> at(s);
  const int width = at.there ? static_cast<int>(s.width) : 0;
  const int64_t gate = at.row * s.s_stride + at.head, column = at.row * s.x_stride + at.head * s.width;
  const float factor = at.there ? p.s[gate] : 0.0f;
  const T* const dy = p.dy + at.row * s.y_stride + at.head * s.y_width();
  float along = 0.0f;
  for (int first = at.lane * 4; first < width; first += kLanes * 4) {
    float x[4], d[4], dx[4] = {};
    unpack(load_packet(p.x + column, first, width, aligned), x);
    unpack(load_packet(dy, first, width, aligned), d);
    if (p.accumulate_dx) unpack(load_packet(p.dx + column, first, width, aligned), dx);
#pragma unroll
    for (int i = 0; i < 4; ++i) along = fmaf(d[i], x[i], along), dx[i] = fmaf(factor, d[i], dx[i]);
    store_packet(p.dx + column, first, width, aligned, dx);
  }
  along = lane_sum<kLanes>(along);
  if (at.lane == 0 && at.there) p.ds[gate] = along + (s.append ? to_float(dy[width]) : 0.0f);
}

template <class T>
bool aligned_heads(const ScaleHeadsShape& s, const T* x, const T* y) {
  return s.width % 4 == 0 && s.append % 4 == 0 && packets_fit(x, s.x_stride) && packets_fit(y, s.y_stride);
}

template <class P>
void run(const char* name, void (*narrow)(P, bool), void (*wide)(P, bool), const P& p, bool aligned,
         Cuda device) {
  const ScaleHeadsShape& s = p.shape;
  const int64_t lanes = s.y_width() <= 64 ? 16 : 32,
                blocks = (s.rows * s.heads * lanes + kThreads - 1) / kThreads;
  if (blocks == 0 || s.y_width() == 0) return;
  if (blocks >= (int64_t{1} << 32) / kThreads)
    fail(ErrorCode::kUsage, "{}: {} rows of {} heads are too many for one call", name, s.rows, s.heads);
  launch(name, lanes == 16 ? narrow : wide, static_cast<unsigned>(blocks), kThreads, 0, device, p, aligned);
}

}  // namespace

template <class T>
void scale_heads_forward(const ScaleHeadsForward<T>& p, Cuda device) {
  run("scale_heads_forward", forward_kernel<T, 16>, forward_kernel<T, 32>, p,
      aligned_heads<T>(p.shape, p.x, p.y), device);
}

template <class T>
void scale_heads_backward(const ScaleHeadsBackward<T>& p, Cuda device) {
  run("scale_heads_backward", backward_kernel<T, 16>, backward_kernel<T, 32>, p,
      aligned_heads<T>(p.shape, p.x, p.dy) && packets_fit(p.dx, p.shape.x_stride), device);
}

template void scale_heads_forward(const ScaleHeadsForward<float>&, Cuda);
template void scale_heads_forward(const ScaleHeadsForward<bf16>&, Cuda);
template void scale_heads_backward(const ScaleHeadsBackward<float>&, Cuda);
template void scale_heads_backward(const ScaleHeadsBackward<bf16>&, Cuda);

}  // namespace signet::kernels
