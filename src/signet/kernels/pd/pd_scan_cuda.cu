// A block owns one head of one sequence. Per token a warp makes a column of P after the other, its lanes over
// the targets; then a thread per target sums over the sources in order.
#include <algorithm>

#include "signet/kernels/pd/pd_scan.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;

__device__ float gate_of(const PdScanShape& s, float raw) {
  return s.range == EigenvalueRange::kSigned ? tanhf(raw) : 1.0f / (1.0f + expf(-raw));
}

// The largest element and the first place where it stands; every lane gets both.
struct Largest {
  float value;
  int index;
};
template <class T>
__device__ Largest largest_of(const T* row, int n) {
  Largest best{-INFINITY, n - 1};
  bool none = true;
  for (int i = threadIdx.x % 32; i < n; i += 32) {
    const float x = to_float(row[i]);
    if (none || x > best.value) best = {x, i};
    none = false;
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const float value = __shfl_xor_sync(0xffffffffu, best.value, mask);
    const int index = __shfl_xor_sync(0xffffffffu, best.index, mask);
    if (value > best.value || (value == best.value && index < best.index)) best = {value, index};
  }
  return best;
}

// A column of the softmax in shared memory.
template <class T>
__device__ void softmax_column(const T* choice, int n, float largest, float* column) {
  const int lane = threadIdx.x % 32;
  float total = 0.0f;
  for (int i = lane; i < n; i += 32) total += column[i] = expf(to_float(choice[i]) - largest);
  const float inverse = 1.0f / lane_sum<32>(total);
  for (int i = lane; i < n; i += 32) column[i] *= inverse;
}

struct Place {
  int64_t item, b, head;
  int n;
  __device__ explicit Place(const PdScanShape& s)
      : item(blockIdx.x), b(item / s.heads), head(item % s.heads), n(static_cast<int>(s.width)) {}
};

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(PdScanForward<T> p) {
  extern __shared__ float shared[];
  const PdScanShape s = p.shape;
  const Place at(s);
  const int n = at.n, lane = threadIdx.x % 32;
  float *h = shared, *u = h + n, *columns = u + n;  // columns [n, n]: source, target
  for (int j = threadIdx.x; j < n; j += kThreads)
    h[j] = p.initial_state ? p.initial_state[at.item * n + j] : 0.0f;
  __syncthreads();
  for (int64_t t = 0; t < s.time; ++t) {
    const int64_t row = at.b * s.time + t;
    for (int j = threadIdx.x / 32; j < n; j += kWarps) {
      const T* choice = p.choice + row * s.choice_stride + (at.head * n + j) * n;
      const Largest best = largest_of(choice, n);
      if (s.hard) {
        for (int i = lane; i < n; i += 32) columns[j * n + i] = i == best.index ? 1.0f : 0.0f;
      } else {
        softmax_column(choice, n, best.value, columns + j * n);
      }
      if (lane == 0) u[j] = gate_of(s, to_float(p.gate[row * s.gate_stride + at.head * n + j])) * h[j];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += kThreads) {
      float total = to_float(p.b[row * s.b_stride + at.head * n + i]);
      for (int j = 0; j < n; ++j) total = fmaf(columns[j * n + i], u[j], total);
      h[i] = total;
      p.h[(row * s.heads + at.head) * n + i] = from_float<T>(total);
    }
    __syncthreads();
  }
  for (int j = threadIdx.x; j < n && p.final_state; j += kThreads) p.final_state[at.item * n + j] = h[j];
}

template <class T>
__global__ void __launch_bounds__(kThreads) backward_kernel(PdScanBackward<T> p) {
  extern __shared__ float shared[];
  const PdScanShape s = p.shape;
  const Place at(s);
  const int n = at.n, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float *g = shared, *next = g + n, *column = next + n + warp * n;
  for (int j = threadIdx.x; j < n; j += kThreads)
    next[j] = p.d_final_state ? p.d_final_state[at.item * n + j] : 0.0f;
  __syncthreads();
  for (int64_t t = s.time - 1; t >= 0; --t) {
    const int64_t row = at.b * s.time + t, h_at = (row * s.heads + at.head) * n;
    for (int i = threadIdx.x; i < n; i += kThreads) {
      g[i] = next[i] + to_float(p.d_h[h_at + i]);
      p.db[row * s.b_stride + at.head * n + i] = from_float<T>(g[i]);
    }
    __syncthreads();
    for (int j = warp; j < n; j += kWarps) {
      const int64_t choice_at = row * s.choice_stride + (at.head * n + j) * n;
      const Largest best = largest_of(p.choice + choice_at, n);
      softmax_column(p.choice + choice_at, n, best.value, column);
      float mean = 0.0f;
      for (int i = lane; i < n; i += 32) mean = fmaf(column[i], g[i], mean);
      mean = lane_sum<32>(mean);
      const float d = gate_of(s, to_float(p.gate[row * s.gate_stride + at.head * n + j]));
      float before = 0.0f;
      if (t > 0)
        before = to_float(p.h[h_at - s.heads * n + j]);
      else if (p.initial_state)
        before = p.initial_state[at.item * n + j];
      for (int i = lane; i < n; i += 32)
        p.d_choice[choice_at + i] = from_float<T>(d * before * column[i] * (g[i] - mean));
      if (lane == 0) {
        const float du = s.hard ? g[best.index] : mean;
        const float slope = s.range == EigenvalueRange::kSigned ? 1.0f - d * d : d * (1.0f - d);
        p.d_gate[row * s.gate_stride + at.head * n + j] = from_float<T>(du * before * slope);
        next[j] = du * d;
      }
    }
    __syncthreads();
  }
  for (int j = threadIdx.x; j < n && p.d_initial_state; j += kThreads)
    p.d_initial_state[at.item * n + j] = next[j];
}

template <class Params>
void launch(void (*kernel)(Params), Params p, int64_t floats, const char* name, Cuda device) {
  p.shape = with_strides(p.shape);
  const PdScanShape& s = p.shape;
  if (s.batch * s.heads * s.width == 0) return;
  const int64_t bytes = floats * int64_t{sizeof(float)};
  if (bytes > cuda_device().shared_per_block)
    fail(ErrorCode::kUsage, "{}: a state of {} does not fit this GPU's shared memory", name, s.width);
  allow_shared_memory(kernel, bytes, name);
  kernel<<<static_cast<unsigned>(s.batch * s.heads), kThreads, bytes, stream_of(device)>>>(p);
  check_launch(name);
}

}  // namespace

int64_t pd_scan_workspace_size(const PdScanShape&, Cuda) { return 0; }

template <class T>
void pd_scan_forward(const PdScanForward<T>& p, Cuda device) {
  launch(forward_kernel<T>, p, p.shape.width * (p.shape.width + 2), "pd_scan_forward", device);
}

template <class T>
void pd_scan_backward(const PdScanBackward<T>& p, Cuda device) {
  launch(backward_kernel<T>, p, p.shape.width * (2 + kWarps), "pd_scan_backward", device);
}

template void pd_scan_forward(const PdScanForward<float>&, Cuda);
template void pd_scan_forward(const PdScanForward<bf16>&, Cuda);
template void pd_scan_backward(const PdScanBackward<float>&, Cuda);
template void pd_scan_backward(const PdScanBackward<bf16>&, Cuda);

}  // namespace signet::kernels
