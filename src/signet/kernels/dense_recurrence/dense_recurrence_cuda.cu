// A block owns one head of one sequence and walks the tokens with A_t and the state (backward: and the
// state's gradient) in shared memory, rows padded to an odd number of floats. A thread computes 2 x 2
// elements of a product. The state's largest magnitude, which says s_t, is found on the way.
#include "signet/kernels/dense_recurrence/dense_recurrence.h"
#include "signet/kernels/dense_recurrence/state_factor.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/packet.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

struct Matrix {
  float* data;
  int n;
  __device__ int row() const { return n | 1; }
  __device__ float& at(int i, int j) const { return data[i * row() + j]; }
};

// |x| where that is more. NaN is passed over, as on the CPU.
__device__ float larger(float largest, float x) { return fmaxf(largest, fabsf(x)); }

// The largest magnitude in the block: every warp leaves that of its threads, and behind a barrier all threads
// find it. Magnitudes are ordered as their bits are.
struct Largest {
  float* warps;  // [kWarps]
  __device__ static float of_warp(float x) {
    return __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(x)));
  }
  __device__ void leave(float x) const {
    x = of_warp(x);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  }
  __device__ float find() const { return of_warp(warps[threadIdx.x % kWarps]); }
};

// A matrix without gaps (zero when null), plus the identity when wanted. Returns the largest magnitude that
// this thread wrote.
template <class T>
__device__ float read(const T* from, bool identity, const Matrix& to) {
  float largest = 0.0f;
  for (int e = threadIdx.x; e < to.n * to.n; e += blockDim.x) {
    const int i = e / to.n, j = e % to.n;
    const float x = (from ? to_float(from[e]) : 0.0f) + (identity && i == j ? 1.0f : 0.0f);
    to.at(i, j) = x;
    largest = larger(largest, x);
  }
  return largest;
}
__device__ void scale(const Matrix& matrix, float by) {
  for (int e = threadIdx.x; e < matrix.n * matrix.n; e += blockDim.x)
    matrix.at(e / matrix.n, e % matrix.n) *= by;
}

// Calls write(i, j, sum_k a(i, k) b(k, j)) for all elements.
template <class A, class B, class Write>
__device__ void multiply(int n, A a, B b, Write write) {
  const int half = (n + 1) / 2;  // rows i and i + half, columns j and j + half
  for (int e = threadIdx.x; e < half * half; e += blockDim.x) {
    const int i0 = e / half, j0 = e % half, i1 = min(i0 + half, n - 1), j1 = min(j0 + half, n - 1);
    float sums[2][2] = {};
#pragma unroll 4
    for (int k = 0; k < n; ++k) {
      const float a0 = a(i0, k), a1 = a(i1, k), b0 = b(k, j0), b1 = b(k, j1);
      sums[0][0] = fmaf(a0, b0, sums[0][0]);
      sums[0][1] = fmaf(a0, b1, sums[0][1]);
      sums[1][0] = fmaf(a1, b0, sums[1][0]);
      sums[1][1] = fmaf(a1, b1, sums[1][1]);
    }
    write(i0, j0, sums[0][0]);
    if (j0 + half < n) write(i0, j1, sums[0][1]);
    if (i0 + half < n) write(i1, j0, sums[1][0]);
    if (i0 + half < n && j0 + half < n) write(i1, j1, sums[1][1]);
  }
}

struct Place {
  int64_t item, b, head;
  __device__ explicit Place(const DenseRecurrenceShape& s)
      : item(blockIdx.x), b(item / s.heads), head(item % s.heads) {}
  __device__ int64_t a_at(const DenseRecurrenceShape& s, int64_t t) const {
    return (b * s.time + t) * s.token_stride() + head * s.matrix();
  }
  __device__ int64_t h_at(const DenseRecurrenceShape& s, int64_t t) const {
    return ((b * s.time + t) * s.heads + head) * s.matrix();
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(DenseRecurrenceForward<T> p) {
  extern __shared__ float shared[];
  const DenseRecurrenceShape s = p.shape;
  const Place at(s);
  const int n = static_cast<int>(s.n), size = n * (n | 1);
  Matrix a{shared, n}, h{shared + size, n}, next{shared + 2 * size, n};
  const Largest largest{shared + 3 * size};
  largest.leave(
      read(p.initial_state ? p.initial_state + at.item * s.matrix() : nullptr, !p.initial_state, h));
  __syncthreads();
  for (int64_t t = 0; t < s.time; ++t) {
    const float factor = state_factor(largest.find());
    read(p.a + at.a_at(s, t), s.plus_identity, a);
    if (factor != 1.0f) scale(h, factor);
    __syncthreads();
    T* out = p.h + at.h_at(s, t);
    float most = 0.0f;
    multiply(
        n, [&](int i, int k) { return a.at(i, k); }, [&](int k, int j) { return h.at(k, j); },
        [&](int i, int j, float v) {
          next.at(i, j) = v;
          const T stored = from_float<T>(v);
          out[i * n + j] = stored;
          most = larger(most, to_float(stored));
        });
    largest.leave(most);
    __syncthreads();
    const Matrix old = h;
    h = next;
    next = old;
  }
  if (!p.final_state) return;
  for (int e = threadIdx.x; e < n * n; e += blockDim.x)
    p.final_state[at.item * s.matrix() + e] = h.at(e / n, e % n);
}

template <class T>
__global__ void __launch_bounds__(kThreads) backward_kernel(DenseRecurrenceBackward<T> p) {
  extern __shared__ float shared[];
  const DenseRecurrenceShape s = p.shape;
  const Place at(s);
  const int n = static_cast<int>(s.n), size = n * (n | 1);
  Matrix other{shared, n}, d{shared + size, n}, next{shared + 2 * size, n};
  const Largest largest{shared + 3 * size};
  const int64_t state = at.item * s.matrix();
  read(p.d_final_state ? p.d_final_state + state : nullptr, false, d);
  __syncthreads();
  for (int64_t t = s.time - 1; t >= 0; --t) {
    const T* d_h = p.d_h + at.h_at(s, t);
    for (int e = threadIdx.x; e < n * n; e += blockDim.x) d.at(e / n, e % n) += to_float(d_h[e]);
    if (t > 0)
      largest.leave(read(p.h + at.h_at(s, t - 1), false, other));
    else
      largest.leave(read(p.initial_state ? p.initial_state + state : nullptr, !p.initial_state, other));
    __syncthreads();
    const float factor = state_factor(largest.find());
    if (factor != 1.0f) {  // by all threads or none
      scale(d, factor);
      __syncthreads();
    }
    T* da = p.da + at.a_at(s, t);
    multiply(
        n, [&](int i, int k) { return d.at(i, k); }, [&](int k, int j) { return other.at(j, k); },
        [&](int i, int j, float v) { da[i * n + j] = from_float<T>(v); });  // dA = s dH H_{t-1}^T
    __syncthreads();
    read(p.a + at.a_at(s, t), s.plus_identity, other);
    __syncthreads();
    multiply(
        n, [&](int i, int k) { return other.at(k, i); }, [&](int k, int j) { return d.at(k, j); },
        [&](int i, int j, float v) { next.at(i, j) = v; });  // dH_{t-1} = s A^T dH
    __syncthreads();
    const Matrix old = d;
    d = next;
    next = old;
  }
  if (!p.d_initial_state) return;
  for (int e = threadIdx.x; e < n * n; e += blockDim.x) p.d_initial_state[state + e] = d.at(e / n, e % n);
}

template <class Params>
void launch(void (*kernel)(Params), const Params& p, const char* name, Cuda device) {
  const DenseRecurrenceShape& s = p.shape;
  if (s.batch * s.heads * s.n == 0) return;
  const int64_t bytes = (3 * s.n * (s.n | 1) + kWarps) * int64_t{sizeof(float)};
  if (bytes > cuda_device().shared_per_block)
    fail(ErrorCode::kUsage, "{}: matrices of {} x {} do not fit this GPU's shared memory", name, s.n, s.n);
  allow_shared_memory(kernel, bytes, name);
  kernel<<<static_cast<unsigned>(s.batch * s.heads), kThreads, bytes, stream_of(device)>>>(p);
  check_launch(name);
}

}  // namespace

int64_t dense_recurrence_workspace_size(const DenseRecurrenceShape&, Cuda) { return 0; }

template <class T>
void dense_recurrence_forward(const DenseRecurrenceForward<T>& p, Cuda device) {
  launch(forward_kernel<T>, p, "dense_recurrence_forward", device);
}

template <class T>
void dense_recurrence_backward(const DenseRecurrenceBackward<T>& p, Cuda device) {
  launch(backward_kernel<T>, p, "dense_recurrence_backward", device);
}

template void dense_recurrence_forward(const DenseRecurrenceForward<float>&, Cuda);
template void dense_recurrence_forward(const DenseRecurrenceForward<bf16>&, Cuda);
template void dense_recurrence_backward(const DenseRecurrenceBackward<float>&, Cuda);
template void dense_recurrence_backward(const DenseRecurrenceBackward<bf16>&, Cuda);

}  // namespace signet::kernels
