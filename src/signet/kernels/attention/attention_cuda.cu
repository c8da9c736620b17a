// kLanes threads share a row (a query, or a key in the pass for dk and dv) and keep 16 of its elements each
// in registers; a block of kRows rows walks over tiles of the other side in shared memory. Rows are turned to
// their positions when they are loaded, with cosines and sines of a table computed in fp64.
#include <algorithm>
#include <type_traits>

#include "signet/kernels/attention/attention_cuda.cuh"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kElements = 16;  // of a row per thread
constexpr int kRows = 32;      // per block
constexpr int kTile = 32;      // rows of the other side in shared memory

__global__ void angle_kernel(int64_t keys, int half, double base, float* angles) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= keys * half) return;
  const double angle = static_cast<double>(at / half) * pow(base, -static_cast<double>(at % half) / half);
  angles[at] = static_cast<float>(cos(angle));
  angles[keys * half + at] = static_cast<float>(sin(angle));
}

// Element i of a row that stands at a position, turned (direction 1) or turned back (-1). `row` is any array
// of `width` numbers.
struct Rotation {
  const float* angles;  // null: none
  int64_t keys;
  int width;
  template <class T>
  __device__ float element(const T* row, int i, int64_t position, float direction) const {
    if (!angles) return to_float(row[i]);
    const int half = width / 2, pair = i < half ? i : i - half;
    const float cosine = angles[position * half + pair],
                sine = direction * angles[(keys + position) * half + pair];
    const float other = to_float(row[i < half ? i + half : i - half]);
    return fmaf(to_float(row[i]), cosine, i < half ? -other * sine : other * sine);
  }
};

struct Place {
  int64_t b, head, first;  // first row of the block
  __device__ explicit Place(const AttentionShape& s)
      : b(blockIdx.x / s.heads), head(blockIdx.x % s.heads), first(int64_t{blockIdx.y} * kRows) {}
};

// A thread's 16 elements of a row; zero beyond the width or without a row.
template <int kD, class T>
__device__ void load_elements(const T* row, bool live, int lane, int64_t position, const Rotation& rotation,
                              float (&x)[kElements]) {
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const int at = lane * kElements + i;
    x[i] = live && at < rotation.width ? rotation.element(row, at, position, 1.0f) : 0.0f;
  }
}
// Rows [first, first + kTile) of an array as [kTile][kD] in shared memory, zero beyond `end`.
template <int kD, class T>
__device__ void load_tile(const T* from, int64_t stride, int64_t first, int64_t end, int64_t position,
                          const Rotation& rotation, float* tile) {
  for (int i = threadIdx.x; i < kTile * kD; i += blockDim.x) {
    const int r = i / kD, c = i % kD;
    tile[i] = first + r < end && c < rotation.width
                  ? rotation.element(from + (first + r) * stride, c, position + r, 1.0f)
                  : 0.0f;
  }
}
// The dot product of a thread's row with a row in shared memory; every lane of the row gets it.
template <int kD>
__device__ float row_dot(const float (&x)[kElements], const float* row, int lane) {
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kElements; ++i) total = fmaf(x[i], row[lane * kElements + i], total);
  return lane_sum<kD / kElements>(total);
}
template <int kD>
__device__ void add_row(float (&x)[kElements], float factor, const float* row, int lane) {
#pragma unroll
  for (int i = 0; i < kElements; ++i) x[i] = fmaf(factor, row[lane * kElements + i], x[i]);
}

template <int kD, class T>
__global__ void __launch_bounds__(kRows* kD / kElements)
    forward_kernel(AttentionForward<T> p, const float* angles) {
  constexpr int kLanes = kD / kElements;
  __shared__ float k[kTile * kD], v[kTile * kD];
  const AttentionShape s = p.shape;
  const Place at(s);
  const int lane = threadIdx.x % kLanes, width = static_cast<int>(s.width);
  const Rotation turn{angles, s.keys, width}, still{nullptr, s.keys, width};
  const attention::Span span(s, at.b);
  const int64_t t = at.first + threadIdx.x / kLanes, position = span.keys - span.time + t,
                row = span.first_query + t;
  const int64_t column = at.head * s.width;
  const bool live = t < span.time;
  float q[kElements], o[kElements] = {}, largest = -INFINITY, total = 0.0f;
  load_elements<kD>(p.q + row * s.q_stride + column, live, lane, position, turn, q);
  const float scale = static_cast<float>(s.scale);
  const int64_t end = min(span.keys, span.keys - span.time + at.first + kRows);
  for (int64_t j0 = 0; j0 < end; j0 += kTile) {
    __syncthreads();
    load_tile<kD>(p.k + span.first_key * s.k_stride + column, s.k_stride, j0, span.keys, j0, turn, k);
    load_tile<kD>(p.v + span.first_key * s.v_stride + column, s.v_stride, j0, span.keys, j0, still, v);
    __syncthreads();
    constexpr int kGroup = 8;  // keys whose scores share one new maximum
    for (int j = 0; j < kTile; j += kGroup) {
      float score[kGroup], now = largest;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        score[i] = scale * row_dot<kD>(q, k + (j + i) * kD, lane);
        if (j0 + j + i > position) score[i] = -INFINITY;
        now = fmaxf(now, score[i]);
      }
      if (now == -INFINITY) continue;  // the same for the lanes of a row; no lane waits for it
      const float shrink = expf(largest - now);
      largest = now;
      total *= shrink;
#pragma unroll
      for (float& x : o) x *= shrink;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const float weight = expf(score[i] - now);
        total += weight;
        add_row<kD>(o, weight, v + (j + i) * kD, lane);
      }
    }
  }
  if (!live) return;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const int c = lane * kElements + i;
    if (c < width) p.o[row * s.o_stride + column + c] = from_float<T>(o[i] / total);
  }
  if (p.lse && lane == 0) p.lse[(at.b * s.heads + at.head) * s.time + t] = largest + logf(total);
}

// The gradient of a turned row, turned back through shared memory and written.
template <int kD, class T>
__device__ void write_turned_back(const float (&x)[kElements], bool live, int64_t position,
                                  const Rotation& turn, float* rows, T* to) {
  constexpr int kLanes = kD / kElements;
  const int lane = threadIdx.x % kLanes;
  float* own = rows + threadIdx.x / kLanes * kD;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kElements; ++i) own[lane * kElements + i] = x[i];
  __syncthreads();
  if (!live) return;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const int c = lane * kElements + i;
    if (c < turn.width) to[c] = from_float<T>(turn.element(own, c, position, -1.0f));
  }
}

// dq, and delta [B,heads,time] = o . d_o for the other pass.
template <int kD, class T>
__global__ void __launch_bounds__(kRows* kD / kElements)
    query_gradient_kernel(AttentionBackward<T> p, const float* angles, float* deltas) {
  constexpr int kLanes = kD / kElements;
  __shared__ float k[kTile * kD], v[kTile * kD];
  const AttentionShape s = p.shape;
  const Place at(s);
  const int lane = threadIdx.x % kLanes, width = static_cast<int>(s.width);
  const Rotation turn{angles, s.keys, width}, still{nullptr, s.keys, width};
  const attention::Span span(s, at.b);
  const int64_t t = at.first + threadIdx.x / kLanes, position = span.keys - span.time + t,
                row = span.first_query + t;
  const int64_t column = at.head * s.width, statistic = (at.b * s.heads + at.head) * s.time + t;
  const bool live = t < span.time;
  float q[kElements], o[kElements], d_o[kElements], dq[kElements] = {}, delta = 0.0f;
  load_elements<kD>(p.q + row * s.q_stride + column, live, lane, position, turn, q);
  load_elements<kD>(p.o + row * s.o_stride + column, live, lane, 0, still, o);
  load_elements<kD>(p.d_o + row * s.o_stride + column, live, lane, 0, still, d_o);
#pragma unroll
  for (int i = 0; i < kElements; ++i) delta = fmaf(o[i], d_o[i], delta);
  delta = lane_sum<kLanes>(delta);
  const float lse = live ? p.lse[statistic] : 0.0f, scale = static_cast<float>(s.scale);
  if (live && lane == 0) deltas[statistic] = delta;
  const int64_t end = min(span.keys, span.keys - span.time + at.first + kRows);
  for (int64_t j0 = 0; j0 < end; j0 += kTile) {
    __syncthreads();
    load_tile<kD>(p.k + span.first_key * s.k_stride + column, s.k_stride, j0, span.keys, j0, turn, k);
    load_tile<kD>(p.v + span.first_key * s.v_stride + column, s.v_stride, j0, span.keys, j0, still, v);
    __syncthreads();
#pragma unroll 4
    for (int j = 0; j < kTile; ++j) {
      const float score = scale * row_dot<kD>(q, k + j * kD, lane),
                  along = row_dot<kD>(d_o, v + j * kD, lane);
      const float weight = j0 + j <= position && live ? expf(score - lse) : 0.0f;
      add_row<kD>(dq, scale * weight * (along - delta), k + j * kD, lane);
    }
  }
  write_turned_back<kD>(dq, live, position, turn, k, p.dq + row * s.q_stride + column);
}

template <int kD, class T>
__global__ void __launch_bounds__(kRows* kD / kElements)
    key_gradient_kernel(AttentionBackward<T> p, const float* angles, const float* deltas) {
  constexpr int kLanes = kD / kElements;
  __shared__ float q[kTile * kD], d_o[kTile * kD], lse[kTile], delta[kTile];
  const AttentionShape s = p.shape;
  const Place at(s);
  const int lane = threadIdx.x % kLanes, width = static_cast<int>(s.width);
  const Rotation turn{angles, s.keys, width}, still{nullptr, s.keys, width};
  const attention::Span span(s, at.b);
  const int64_t j = at.first + threadIdx.x / kLanes, row = span.first_key + j, offset = span.keys - span.time;
  const int64_t column = at.head * s.width, statistics = (at.b * s.heads + at.head) * s.time;
  const bool live = j < span.keys;
  float k[kElements], v[kElements], dk[kElements] = {}, dv[kElements] = {};
  load_elements<kD>(p.k + row * s.k_stride + column, live, lane, j, turn, k);
  load_elements<kD>(p.v + row * s.v_stride + column, live, lane, 0, still, v);
  const float scale = static_cast<float>(s.scale);
  for (int64_t t0 = max(int64_t{0}, at.first - offset); t0 < span.time; t0 += kTile) {
    __syncthreads();
    load_tile<kD>(p.q + span.first_query * s.q_stride + column, s.q_stride, t0, span.time, offset + t0, turn,
                  q);
    load_tile<kD>(p.d_o + span.first_query * s.o_stride + column, s.o_stride, t0, span.time, t0, still, d_o);
    for (int i = threadIdx.x; i < kTile; i += blockDim.x) {
      lse[i] = t0 + i < span.time ? p.lse[statistics + t0 + i] : 0.0f;
      delta[i] = t0 + i < span.time ? deltas[statistics + t0 + i] : 0.0f;
    }
    __syncthreads();
#pragma unroll 4
    for (int i = 0; i < kTile; ++i) {
      const float score = scale * row_dot<kD>(k, q + i * kD, lane),
                  along = row_dot<kD>(v, d_o + i * kD, lane);
      const bool sees = t0 + i < span.time && j <= offset + t0 + i && live;
      const float weight = sees ? expf(score - lse[i]) : 0.0f;
      add_row<kD>(dv, weight, d_o + i * kD, lane);
      add_row<kD>(dk, scale * weight * (along - delta[i]), q + i * kD, lane);
    }
  }
  write_turned_back<kD>(dk, live, j, turn, q, p.dk + row * s.k_stride + column);
  if (!live) return;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const int c = lane * kElements + i;
    if (c < width) p.dv[row * s.v_stride + column + c] = from_float<T>(dv[i]);
  }
}

template <class Run>
void choose_width(int64_t width, Run run) {
  if (width <= 16) return run.template operator()<16>();
  if (width <= 32) return run.template operator()<32>();
  if (width <= 64) return run.template operator()<64>();
  if (width <= 128) return run.template operator()<128>();
  fail(ErrorCode::kUsage, "attention on the GPU takes heads of at most 128 units; got {}", width);
}

// The workspace: the table of angles, delta, turned queries and keys; each at a multiple of 16 bytes.
int64_t padded4(int64_t n) { return (n + 3) / 4 * 4; }
int64_t angles_size(const AttentionShape& s) { return s.rotary_base > 0 ? padded4(s.keys * s.width) : 0; }
int64_t deltas_size(const AttentionShape& s) { return padded4(s.batch * s.heads * s.time); }
bool use_long(const AttentionShape& s, std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers)
    if (reinterpret_cast<uintptr_t>(pointer) % 16 != 0) return false;
  return attention::long_covers(s);
}

// Null without rotation.
const float* fill_angles(const AttentionShape& s, float* workspace, Cuda device) {
  if (s.rotary_base <= 0) return nullptr;
  const int64_t pairs = s.keys * (s.width / 2);
  angle_kernel<<<static_cast<unsigned>((pairs + 255) / 256), 256, 0, stream_of(device)>>>(
      s.keys, static_cast<int>(s.width / 2), s.rotary_base, workspace);
  check_launch("attention: angles");
  return workspace;
}

dim3 grid_of(const AttentionShape& s, int64_t rows) {
  return dim3(static_cast<unsigned>(s.batch * s.heads), static_cast<unsigned>((rows + kRows - 1) / kRows));
}

}  // namespace

int64_t attention_workspace_size(const AttentionShape& shape, Cuda) {
  const AttentionShape s = with_strides(shape);
  return angles_size(s) + deltas_size(s) + (attention::long_covers(s) ? attention::long_copies_size(s) : 0);
}

template <class T>
void attention_forward(const AttentionForward<T>& given, Cuda device) {
  AttentionForward<T> p = given;
  p.shape = with_strides(p.shape);
  const AttentionShape& s = p.shape;
  if (s.batch * s.heads * s.time * s.width == 0) return;
  if constexpr (std::is_same_v<T, bf16>)
    if (attention::short_forward(p, device)) return;
  const float* angles = fill_angles(s, p.workspace, device);
  if constexpr (std::is_same_v<T, bf16>)
    if (use_long(s, {p.q, p.k, p.v, p.o, p.workspace}))
      return attention::long_forward(p, angles, p.workspace + angles_size(s) + deltas_size(s), device);
  choose_width(s.width, [&]<int kD>() {
    forward_kernel<kD><<<grid_of(s, s.time), kRows * kD / kElements, 0, stream_of(device)>>>(p, angles);
  });
  check_launch("attention_forward");
}

template <class T>
void attention_backward(const AttentionBackward<T>& given, Cuda device) {
  AttentionBackward<T> p = given;
  p.shape = with_strides(p.shape);
  const AttentionShape& s = p.shape;
  if (s.batch * s.heads * s.keys * s.width == 0) return;
  if constexpr (std::is_same_v<T, bf16>)
    if (attention::short_backward(p, device)) return;
  const float* angles = fill_angles(s, p.workspace, device);
  float* deltas = p.workspace + angles_size(s);
  if constexpr (std::is_same_v<T, bf16>)
    if (s.time > 0 && use_long(s, {p.q, p.k, p.v, p.o, p.d_o, p.dq, p.dk, p.dv, p.workspace}))
      return attention::long_backward(p, angles, deltas, deltas + deltas_size(s), device);
  choose_width(s.width, [&]<int kD>() {
    constexpr int kThreads = kRows * kD / kElements;
    if (s.time > 0)
      query_gradient_kernel<kD><<<grid_of(s, s.time), kThreads, 0, stream_of(device)>>>(p, angles, deltas);
    key_gradient_kernel<kD><<<grid_of(s, s.keys), kThreads, 0, stream_of(device)>>>(p, angles, deltas);
  });
  check_launch("attention_backward");
}

template void attention_forward(const AttentionForward<float>&, Cuda);
template void attention_forward(const AttentionForward<bf16>&, Cuda);
template void attention_backward(const AttentionBackward<float>&, Cuda);
template void attention_backward(const AttentionBackward<bf16>&, Cuda);

}  // namespace signet::kernels
