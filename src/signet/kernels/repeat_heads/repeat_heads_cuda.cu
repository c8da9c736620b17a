// A thread per packet of a group's columns.
#include "signet/kernels/repeat_heads/repeat_heads.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/packet.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256;

struct Place {
  int64_t row;
  int group, first;  // first column of the group
  __device__ explicit Place(const RepeatHeadsShape& s) {
    const int64_t packets = (s.width + 3) / 4, at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    row = at / (s.groups * packets);
    const int rest = static_cast<int>(at % (s.groups * packets));
    group = rest / static_cast<int>(packets), first = rest % static_cast<int>(packets) * 4;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(RepeatHeadsForward<T> p, bool aligned) {
  begin_kernel();
  const RepeatHeadsShape& s = p.shape;
  const Place at(s);
  if (at.row >= s.rows) return;
  const int width = static_cast<int>(s.width);
  float v[4];
  unpack(load_packet(p.x + at.row * s.x_stride + at.group * s.width, at.first, width, aligned), v);
  for (int64_t h = s.first_head(at.group); h < s.first_head(at.group + 1); ++h)
    store_packet(p.y + at.row * s.y_stride + h * s.width, at.first, width, aligned, v);
}

template <class T>
__global__ void __launch_bounds__(kThreads) backward_kernel(RepeatHeadsBackward<T> p, bool aligned) {
  begin_kernel();
  const RepeatHeadsShape& s = p.shape;
  const Place at(s);
  if (at.row >= s.rows) return;
  const int width = static_cast<int>(s.width);
  T* const dx = p.dx + at.row * s.x_stride + at.group * s.width;
  float total[4] = {};
  if (p.accumulate_dx) unpack(load_packet(dx, at.first, width, aligned), total);
#pragma unroll 8
  for (int64_t h = s.first_head(at.group); h < s.first_head(at.group + 1); ++h) {
    float v[4];
    unpack(load_packet(p.dy + at.row * s.y_stride + h * s.width, at.first, width, aligned), v);
#pragma unroll
    for (int j = 0; j < 4; ++j) total[j] += v[j];
  }
  store_packet(dx, at.first, width, aligned, total);
}

template <class T>
bool aligned_rows(const RepeatHeadsShape& s, const T* x, const T* y) {
  return s.width % 4 == 0 && packets_fit(x, s.x_stride) && packets_fit(y, s.y_stride);
}
unsigned blocks_for(const RepeatHeadsShape& s) {
  return static_cast<unsigned>((s.rows * s.groups * ((s.width + 3) / 4) + kThreads - 1) / kThreads);
}

}  // namespace

template <class T>
void repeat_heads_forward(const RepeatHeadsForward<T>& p, Cuda device) {
  if (p.shape.rows * p.shape.width == 0) return;
  launch("repeat_heads_forward", forward_kernel<T>, blocks_for(p.shape), kThreads, 0, device, p,
         aligned_rows(p.shape, p.x, static_cast<const T*>(p.y)));
}

template <class T>
void repeat_heads_backward(const RepeatHeadsBackward<T>& p, Cuda device) {
  if (p.shape.rows * p.shape.width == 0) return;
  launch("repeat_heads_backward", backward_kernel<T>, blocks_for(p.shape), kThreads, 0, device, p,
         aligned_rows(p.shape, static_cast<const T*>(p.dx), p.dy));
}

template void repeat_heads_forward(const RepeatHeadsForward<float>&, Cuda);
template void repeat_heads_forward(const RepeatHeadsForward<bf16>&, Cuda);
template void repeat_heads_backward(const RepeatHeadsBackward<float>&, Cuda);
template void repeat_heads_backward(const RepeatHeadsBackward<bf16>&, Cuda);

}  // namespace signet::kernels
