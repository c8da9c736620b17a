#include "signet/kernels/decay_gate/decay_gate.h"
#include "signet/kernels/row_chunks.cuh"

namespace signet::kernels {
namespace {

// +-(x + bias)
template <class P>
__device__ float input(const P& p, int64_t r, int64_t c) {
  const float x = to_float(p.x[r * p.shape.x_stride + c]) + (p.bias ? p.bias[c] : 0.0f);
  return p.shape.kind == DecayKind::kStep ? x : -x;
}
template <class P>
__device__ float rate(const P& p, int64_t c) {
  return p.rate_log ? expf(p.rate_log[c]) : p.rate;
}
// margin - delta rate: log a where it is negative, else how far within the margin
__device__ inline float log_decay(const DecayGateShape& shape, float delta, float rate) {
  return fmaf(-delta, rate, static_cast<float>(shape.margin));
}
__device__ inline float decay(float log_a) { return expf(log_a > 0.0f ? 0.0f : log_a); }

template <class T>
struct Forward {
  DecayGateForward<T> p;
  __device__ void operator()(int64_t r, int64_t c) const {
    const float delta = softplus(input(p, r, c)), a = decay(log_decay(p.shape, delta, rate(p, c)));
    p.gate[r * p.shape.gate_stride + c] =
        p.shape.range == EigenvalueRange::kSigned ? fmaf(2.0f, a, -1.0f) : a;
    if (p.delta) p.delta[r * p.shape.gate_stride + c] = delta;
  }
};

template <class T>
struct Backward {
  DecayGateBackward<T> p;
  float* rate_sums;
  __device__ void operator()(int64_t first, int64_t end, int64_t c, int64_t chunk) const {
    const float slope = p.shape.range == EigenvalueRange::kSigned ? 2.0f : 1.0f, speed = rate(p, c);
    float bias_sum = 0.0f, rate_sum = 0.0f;
#pragma unroll 4
    for (int64_t r = first; r < end; ++r) {
      const int64_t at = r * p.shape.gate_stride + c;
      const float x = input(p, r, c), delta = softplus(x);
      const float log_a = log_decay(p.shape, delta, speed);
      float dlog = p.dgate[at] * slope * decay(log_a);
      if (log_a > 0.0f && dlog < 0.0f) dlog = 0.0f;
      float ddelta = -dlog * speed;
      if (p.ddelta) ddelta += p.ddelta[at];
      const float dx = (p.shape.kind == DecayKind::kStep ? ddelta : -ddelta) * logistic(x);
      p.dx[r * p.shape.x_stride + c] = from_float<T>(dx);
      bias_sum += dx;
      rate_sum -= dlog * delta * speed;
    }
    p.workspace[chunk * p.shape.width + c] = bias_sum;
    rate_sums[chunk * p.shape.width + c] = rate_sum;
  }
};

}  // namespace

int64_t decay_gate_workspace_size(const DecayGateShape& shape, Cuda) {
  return 2 * row_chunks(shape.rows) * shape.width;
}

template <class T>
void decay_gate_forward(const DecayGateForward<T>& p, Cuda device) {
  for_elements(p.shape.rows, p.shape.width, Forward<T>{p}, device, "decay_gate_forward");
}

template <class T>
void decay_gate_backward(const DecayGateBackward<T>& p, Cuda device) {
  const int64_t chunks = row_chunks(p.shape.rows), width = p.shape.width;
  float* rate_sums = p.workspace + chunks * width;
  for_row_chunks(p.shape.rows, width, Backward<T>{p, rate_sums}, device, "decay_gate_backward");
  if (p.dbias) add_column_sums(p.workspace, chunks, width, width, p.dbias, device);
  if (p.drate_log) add_column_sums(rate_sums, chunks, width, width, p.drate_log, device);
}

template void decay_gate_forward(const DecayGateForward<float>&, Cuda);
template void decay_gate_forward(const DecayGateForward<bf16>&, Cuda);
template void decay_gate_backward(const DecayGateBackward<float>&, Cuda);
template void decay_gate_backward(const DecayGateBackward<bf16>&, Cuda);

}  // namespace signet::kernels
