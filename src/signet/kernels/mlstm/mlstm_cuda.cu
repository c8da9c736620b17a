#include "signet/kernels/mlstm/mlstm_ends.h"
#include "signet/kernels/row_chunks.cuh"

namespace signet::kernels {
namespace {

constexpr float kMaxRatio = static_cast<float>(kMaxLogRatio);

// The rows of a sequence.
struct Span {
  int64_t first, time;
  __device__ Span(const MlstmGatesShape& s, int64_t b)
      : first(s.offsets ? s.offsets[b] : b * s.time), time(s.offsets ? s.offsets[b + 1] - first : s.time) {}
};

// m by a scan over 32 tokens at a time: m -> max(m + a, b) composes to another of its kind.
template <class T>
struct Stabilise {
  MlstmStabilise<T> p;
  __device__ void operator()(int64_t b, int64_t h, int lane) const {
    const MlstmGatesShape& s = p.shape;
    const float bias = p.bias ? p.bias[h] : 0.0f;
    const Span span(s, b);
    float carried = p.initial_m ? p.initial_m[b * s.heads + h] : 0.0f;
    for (int64_t begin = 0; begin < span.time; begin += 32) {
      const bool live = begin + lane < span.time;
      const int64_t r = span.first + begin + lane;
      const float f = live ? p.f[r * s.f_stride + h] : 1.0f;
      const float i = live ? to_float(p.i[r * s.i_stride + h]) + bias : -INFINITY;
      float sum = logf(fabsf(f)), most = i;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const float sum_before = __shfl_up_sync(0xffffffffu, sum, distance),
                    most_before = __shfl_up_sync(0xffffffffu, most, distance);
        if (lane >= distance) {
          most = fmaxf(most_before + sum, most);
          sum += sum_before;
        }
      }
      const float m = fmaxf(carried + sum, most);
      float before = __shfl_up_sync(0xffffffffu, m, 1);
      if (lane == 0) before = carried;
      carried = __shfl_sync(0xffffffffu, m, 31);
      if (!live) continue;
      p.gate[r * s.gate_stride + h] = f * expf(fminf(before - m, kMaxRatio));
      p.input[r * s.input_stride + h] = expf(i - m);
      p.m[r * s.m_stride + h] = m;
    }
    if (p.final_m && lane == 0) p.final_m[b * s.heads + h] = carried;
  }
};

// A warp per sequence and head; its sum for the bias is row b of the workspace [batch, heads].
template <class T>
struct StabiliseBackward {
  MlstmStabiliseBackward<T> p;
  __device__ void operator()(int64_t b, int64_t h, int lane) const {
    const MlstmGatesShape& s = p.shape;
    const Span span(s, b);
    float sum = 0.0f;
    for (int64_t t = lane; t < span.time; t += 32) {
      const int64_t r = span.first + t;
      const float before = t > 0         ? p.m[(r - 1) * s.m_stride + h]
                           : p.initial_m ? p.initial_m[b * s.heads + h]
                                         : 0.0f;
      const float di = p.dinput[r * s.input_stride + h] * p.input[r * s.input_stride + h];
      p.df[r * s.f_stride + h] =
          forget_gradient(p.dgate[r * s.gate_stride + h], before, p.m[r * s.m_stride + h]);
      p.di[r * s.i_stride + h] = from_float<T>(di);
      sum += di;
    }
    sum = lane_sum<32>(sum);
    if (lane == 0) p.workspace[b * s.heads + h] = sum;
  }
};

template <class T>
struct Normalise {
  MlstmNormalise<T> p;
  __device__ void operator()(int64_t r, int64_t j, int lane) const {
    const MlstmReadShape& s = p.shape;
    const T* read = p.r_n + (r * s.heads + j) * s.r_n_width();
    const float inverse =
        1.0f / std::max(fabsf(to_float(read[s.width])), least_normaliser(p.m[r * s.m_stride + j]));
    for (int64_t c = lane; c < s.width; c += 32)
      p.h[(r * s.heads + j) * s.width + c] = from_float<T>(inverse * to_float(read[c]));
  }
};

template <class T>
struct NormaliseBackward {
  MlstmNormaliseBackward<T> p;
  __device__ void operator()(int64_t r, int64_t j, int lane) const {
    const MlstmReadShape& s = p.shape;
    const T* read = p.r_n + (r * s.heads + j) * s.r_n_width();
    const T* dh = p.dh + (r * s.heads + j) * s.width;
    T* d_read = p.dr_n + (r * s.heads + j) * s.r_n_width();
    const float n = to_float(read[s.width]), least = least_normaliser(p.m[r * s.m_stride + j]);
    const float inverse = 1.0f / std::max(fabsf(n), least);
    float along = 0.0f;
    for (int64_t c = lane; c < s.width; c += 32) {
      const float d = to_float(dh[c]);
      along = fmaf(d, to_float(read[c]), along);
      d_read[c] = from_float<T>(inverse * d);
    }
    along = lane_sum<32>(along);
    const float sign = n > least ? 1.0f : n < -least ? -1.0f : 0.0f;  // slope of the maximum
    for (int64_t c = s.width + lane; c < s.r_n_width(); c += 32)
      d_read[c] = from_float<T>(c == s.width ? -sign * along * inverse * inverse : 0.0f);
  }
};

}  // namespace

int64_t mlstm_stabilise_workspace_size(const MlstmGatesShape& shape, Cuda) {
  return shape.batch * shape.heads;
}

template <class T>
void mlstm_stabilise(const MlstmStabilise<T>& p, Cuda device) {
  for_warps(p.shape.batch, p.shape.heads, Stabilise<T>{p}, device, "mlstm_stabilise");
}
template <class T>
void mlstm_stabilise_backward(const MlstmStabiliseBackward<T>& p, Cuda device) {
  for_warps(p.shape.batch, p.shape.heads, StabiliseBackward<T>{p}, device, "mlstm_stabilise_backward");
  if (p.dbias) add_column_sums(p.workspace, p.shape.batch, p.shape.heads, p.shape.heads, p.dbias, device);
}
template <class T>
void mlstm_normalise(const MlstmNormalise<T>& p, Cuda device) {
  for_warps(p.shape.rows, p.shape.heads, Normalise<T>{p}, device, "mlstm_normalise");
}
template <class T>
void mlstm_normalise_backward(const MlstmNormaliseBackward<T>& p, Cuda device) {
  for_warps(p.shape.rows, p.shape.heads, NormaliseBackward<T>{p}, device, "mlstm_normalise_backward");
}

#define SIGNET_INSTANTIATE(T)                                                     \
  template void mlstm_stabilise(const MlstmStabilise<T>&, Cuda);                  \
  template void mlstm_stabilise_backward(const MlstmStabiliseBackward<T>&, Cuda); \
  template void mlstm_normalise(const MlstmNormalise<T>&, Cuda);                  \
  template void mlstm_normalise_backward(const MlstmNormaliseBackward<T>&, Cuda);
SIGNET_INSTANTIATE(float)
SIGNET_INSTANTIATE(bf16)
#undef SIGNET_INSTANTIATE

}  // namespace signet::kernels
