#include "signet/kernels/block_linear/block_linear.h"
#include "signet/kernels/row_chunks.cuh"

namespace signet::kernels {
namespace {

template <class T>
struct Forward {
  BlockLinearForward<T> p;
  __device__ void operator()(int64_t r, int64_t i) const {
    const BlockLinearShape& s = p.shape;
    const T* x = p.x + r * s.x_stride + i / s.size * s.size;
    float total = 0.0f;
    for (int64_t j = 0; j < s.size; ++j) total = fmaf(p.w[i * s.size + j], to_float(x[j]), total);
    p.y[r * s.y_stride + i] = from_float<T>(total);
  }
};

template <class T>
struct InputGradient {
  BlockLinearBackward<T> p;
  __device__ void operator()(int64_t r, int64_t column) const {
    const BlockLinearShape& s = p.shape;
    const int64_t first = column / s.size * s.size, j = column - first;
    const T* dy = p.dy + r * s.y_stride + first;
    T& dx = p.dx[r * s.x_stride + column];
    float total = p.accumulate_dx ? to_float(dx) : 0.0f;
    for (int64_t i = 0; i < s.size; ++i) total = fmaf(p.w[(first + i) * s.size + j], to_float(dy[i]), total);
    dx = from_float<T>(total);
  }
};

// One column per weight.
template <class T>
struct WeightGradient {
  BlockLinearBackward<T> p;
  __device__ void operator()(int64_t first, int64_t end, int64_t weight, int64_t chunk) const {
    const BlockLinearShape& s = p.shape;
    const int64_t i = weight / s.size, j = i / s.size * s.size + weight % s.size;
    float sum = 0.0f;
#pragma unroll 8
    for (int64_t r = first; r < end; ++r)
      sum = fmaf(to_float(p.dy[r * s.y_stride + i]), to_float(p.x[r * s.x_stride + j]), sum);
    p.workspace[chunk * s.width() * s.size + weight] = sum;
  }
};

// Blocks of four columns, a packet each: a thread owns one of them for some rows and keeps its matrix and the
// sums of its gradient in registers.
constexpr int kPacket = 4;

struct SmallMatrix {
  float w[kPacket][kPacket];
  __device__ explicit SmallMatrix(const float* from) {
#pragma unroll
    for (int i = 0; i < kPacket; ++i) unpack(reinterpret_cast<const Packet<float>*>(from)[i], w[i]);
  }
};

template <class T>
struct PacketForward {
  BlockLinearForward<T> p;
  __device__ void operator()(int64_t r, int64_t block) const {
    const BlockLinearShape& s = p.shape;
    const SmallMatrix m(p.w + block * kPacket * kPacket);
    float x[kPacket], y[kPacket] = {};
    unpack(*reinterpret_cast<const Packet<T>*>(p.x + r * s.x_stride + block * kPacket), x);
#pragma unroll
    for (int i = 0; i < kPacket; ++i) {
#pragma unroll
      for (int j = 0; j < kPacket; ++j) y[i] = fmaf(m.w[i][j], x[j], y[i]);
    }
    *reinterpret_cast<Packet<T>*>(p.y + r * s.y_stride + block * kPacket) = pack<T>(y);
  }
};

template <class T>
struct PacketBackward {
  BlockLinearBackward<T> p;
  __device__ void operator()(int64_t first, int64_t end, int64_t block,
                             float (&dw)[kPacket * kPacket]) const {
    const BlockLinearShape& s = p.shape;
    const SmallMatrix m(p.w + block * kPacket * kPacket);
#pragma unroll 4
    for (int64_t r = first; r < end; ++r) {
      float x[kPacket], dy[kPacket], dx[kPacket] = {};
      unpack(*reinterpret_cast<const Packet<T>*>(p.x + r * s.x_stride + block * kPacket), x);
      unpack(*reinterpret_cast<const Packet<T>*>(p.dy + r * s.y_stride + block * kPacket), dy);
      auto* to = reinterpret_cast<Packet<T>*>(p.dx + r * s.x_stride + block * kPacket);
      if (p.accumulate_dx) unpack(*to, dx);
#pragma unroll
      for (int i = 0; i < kPacket; ++i) {
#pragma unroll
        for (int j = 0; j < kPacket; ++j) {
          dx[j] = fmaf(m.w[i][j], dy[i], dx[j]);
          dw[i * kPacket + j] = fmaf(dy[i], x[j], dw[i * kPacket + j]);
        }
      }
      *to = pack<T>(dx);
    }
  }
};

bool packets_cover(const BlockLinearShape& s, const float* w) {
  return s.size == kPacket && packets_fit(w, kPacket);
}

}  // namespace

int64_t block_linear_workspace_size(const BlockLinearShape& shape, Cuda) {
  return row_chunks(shape.rows) * shape.width() * shape.size;
}

template <class T>
void block_linear_forward(const BlockLinearForward<T>& p, Cuda device) {
  const BlockLinearShape& s = p.shape;
  if (packets_cover(s, p.w) && packets_fit(p.x, s.x_stride) && packets_fit(p.y, s.y_stride))
    return for_elements(s.rows, s.blocks, PacketForward<T>{p}, device, "block_linear_forward");
  for_elements(s.rows, s.width(), Forward<T>{p}, device, "block_linear_forward");
}

template <class T>
void block_linear_backward(const BlockLinearBackward<T>& p, Cuda device) {
  const BlockLinearShape& s = p.shape;
  const int64_t weights = s.width() * s.size;
  if (packets_cover(s, p.w) && packets_fit(p.x, s.x_stride) && packets_fit(p.dx, s.x_stride) &&
      packets_fit(p.dy, s.y_stride)) {
    for_chunk_sums<kPacket * kPacket>(s.rows, s.blocks, PacketBackward<T>{p}, p.workspace, device,
                                      "block_linear_backward");
  } else {
    for_elements(s.rows, s.width(), InputGradient<T>{p}, device, "block_linear_backward");
    for_row_chunks(s.rows, weights, WeightGradient<T>{p}, device, "block_linear_backward");
  }
  add_column_sums(p.workspace, row_chunks(s.rows), weights, weights, p.dw, device);
}

template void block_linear_forward(const BlockLinearForward<float>&, Cuda);
template void block_linear_forward(const BlockLinearForward<bf16>&, Cuda);
template void block_linear_backward(const BlockLinearBackward<float>&, Cuda);
template void block_linear_backward(const BlockLinearBackward<bf16>&, Cuda);

}  // namespace signet::kernels
