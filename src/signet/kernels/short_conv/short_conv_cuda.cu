// A thread owns four channels of a run of kSteps time steps and keeps the window of the last inputs (and, in
// backward, of the last dz) in registers. Kernels shorter than the compiled K have zero weights in front.
#include <algorithm>

#include "signet/kernels/short_conv/short_conv.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 128, kSteps = 32;

__device__ inline float logistic(float x) {
  const float e = expf(-fabsf(x)), r = 1.0f / (1.0f + e);
  return x < 0.0f ? e * r : r;
}

// Which channels and which runs [of `runs` per batch row] a thread works on.
struct Work {
  int64_t batch, time, runs, packets;  // packets of channels
  int channels, kernel;
  bool aligned;

  template <class P>
  Work(const P& p, bool fit) : batch(p.batch), time(p.time) {
    channels = static_cast<int>(p.channels), kernel = static_cast<int>(p.kernel);
    runs = (p.time + kSteps - 1) / kSteps, packets = (p.channels + 3) / 4;
    aligned = fit && channels % 4 == 0;
  }
  __host__ __device__ int64_t items() const { return batch * runs; }
};

// The input at time t, which may lie before the sequence, of channels [first, first + 4).
template <class P>
__device__ inline void load_input(const P& p, const Work& w, int64_t b, int64_t t, int first, float (&x)[4]) {
  if (t >= 0) {
    unpack(load_packet(p.x + (b * w.time + t) * p.x_stride, first, w.channels, w.aligned), x);
    return;
  }
  const int64_t row = b * (w.kernel - 1) + w.kernel - 1 + t;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    x[i] = p.initial && t > -w.kernel && first + i < w.channels
               ? to_float(p.initial[row * w.channels + first + i])
               : 0.0f;
}

template <int K, class P>
__device__ inline void load_weights(const P& p, const Work& w, int first, float (&weight)[K][4],
                                    float (&bias)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool live = first + i < w.channels;
    bias[i] = p.bias && live ? p.bias[first + i] : 0.0f;
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const int tap = j - (K - w.kernel);
      weight[j][i] = live && tap >= 0 ? p.weight[int64_t{first + i} * w.kernel + tap] : 0.0f;
    }
  }
}

template <int K>
__device__ inline void shift(float (&window)[K][4]) {
#pragma unroll
  for (int j = 0; j + 1 < K; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) window[j][i] = window[j + 1][i];
  }
}

template <int K>
__device__ inline float convolve(const float (&window)[K][4], const float (&weight)[K][4], float bias,
                                 int i) {
  float z = bias;
#pragma unroll
  for (int j = 0; j < K; ++j) z = fmaf(weight[j][i], window[j][i], z);
  return z;
}

template <class T, int K>
__global__ void __launch_bounds__(kThreads) forward_kernel(ShortConvForward<T> p, Work w) {
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x, item = e / w.packets;
  if (item >= w.items()) return;
  const int first = static_cast<int>(e - item * w.packets) * 4;
  const int64_t b = item / w.runs, begin = (item - b * w.runs) * kSteps, end = min(begin + kSteps, w.time);
  float weight[K][4], bias[4], window[K][4];
  load_weights<K>(p, w, first, weight, bias);
#pragma unroll
  for (int j = 1; j < K; ++j) load_input(p, w, b, begin - K + j, first, window[j]);
#pragma unroll 4
  for (int64_t t = begin; t < end; ++t) {
    shift<K>(window);
    load_input(p, w, b, t, first, window[K - 1]);
    float y[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      y[i] = convolve<K>(window, weight, bias[i], i);
      if (p.silu) y[i] *= logistic(y[i]);
    }
    store_packet(p.y + (b * w.time + t) * p.y_stride, first, w.channels, w.aligned, y);
  }
}

// The last kernel - 1 inputs, one thread per element.
template <class T>
__global__ void final_kernel(ShortConvForward<T> p) {
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x, taps = p.kernel - 1;
  if (e >= p.batch * taps * p.channels) return;
  const int64_t c = e % p.channels, j = e / p.channels % taps, b = e / (p.channels * taps);
  const int64_t t = p.time - taps + j;
  p.final[e] = t >= 0      ? p.x[(b * p.time + t) * p.x_stride + c]
               : p.initial ? p.initial[(b * taps + taps + t) * p.channels + c]
                           : from_float<T>(0.0f);
}

// dz_t = dy_t silu'(z_t); dx_t = sum_j w_j dz_{t+K-1-j}; dw_j = sum_t dz_t x_{t-K+1+j}; dbias = sum_t dz_t.
// A thread computes K - 1 steps of dz beyond its run, for dx alone. `sums` [rows, channels (kernel + 1)].
template <class T, int K>
__global__ void __launch_bounds__(kThreads) backward_kernel(ShortConvBackward<T> p, Work w, int64_t rows) {
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x, sum_row = e / w.packets;
  if (sum_row >= rows) return;
  const int first = static_cast<int>(e - sum_row * w.packets) * 4;
  float weight[K][4], bias[4], dweight[K][4] = {}, dbias[4] = {};
  load_weights<K>(p, w, first, weight, bias);
  for (int64_t item = sum_row; item < w.items(); item += rows) {
    const int64_t b = item / w.runs, begin = (item - b * w.runs) * kSteps, end = min(begin + kSteps, w.time);
    float window[K][4], dz[K][4] = {};  // dz[j] is that of time t - K + 1 + j
#pragma unroll
    for (int j = 1; j < K; ++j) load_input(p, w, b, begin - K + j, first, window[j]);
#pragma unroll 2
    for (int64_t t = begin; t < end + K - 1; ++t) {
      shift<K>(window);
      shift<K>(dz);
#pragma unroll
      for (int i = 0; i < 4; ++i) dz[K - 1][i] = 0.0f;
      if (t < w.time) {
        load_input(p, w, b, t, first, window[K - 1]);
        unpack(load_packet(p.dy + (b * w.time + t) * p.dy_stride, first, w.channels, w.aligned), dz[K - 1]);
        if (p.silu) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float z = convolve<K>(window, weight, bias[i], i), s = logistic(z);
            dz[K - 1][i] *= s * fmaf(z, 1.0f - s, 1.0f);
          }
        }
      }
      if (t < end) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          dbias[i] += dz[K - 1][i];
#pragma unroll
          for (int j = 0; j < K; ++j) dweight[j][i] = fmaf(dz[K - 1][i], window[j][i], dweight[j][i]);
        }
      }
      if (t - K + 1 >= begin) {
        float dx[4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int j = 0; j < K; ++j) dx[i] = fmaf(weight[K - 1 - j][i], dz[j][i], dx[i]);
        }
        store_packet(p.dx + (b * w.time + t - K + 1) * p.dx_stride, first, w.channels, w.aligned, dx);
      }
    }
  }
  float* sums = p.workspace + sum_row * w.channels * (w.kernel + 1);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + i >= w.channels) break;
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const int tap = j - (K - w.kernel);
      if (tap >= 0) sums[(first + i) * w.kernel + tap] = dweight[j][i];
    }
    sums[w.channels * w.kernel + first + i] = dbias[i];
  }
}

// Rows of partial sums: enough threads to fill the GPU a few times.
int64_t sum_rows(const Work& w) {
  const int64_t wanted =
      16 * int64_t{cuda_device().multiprocessors} * kThreads / std::max<int64_t>(1, w.packets);
  return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, w.items()));
}

template <class P>
void check_kernel(const P& p) {
  if (p.kernel < 1 || p.kernel > kMaxConvolution)
    fail(ErrorCode::kUsage, "short convolution of {} taps: 1 to {} are supported", p.kernel, kMaxConvolution);
}

unsigned blocks_for(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

}  // namespace

int64_t short_conv_workspace_size(int64_t batch, int64_t time, int64_t channels, int64_t kernel, Cuda) {
  ShortConvForward<float> p;
  p.batch = batch, p.time = time, p.channels = channels, p.kernel = kernel;
  return sum_rows(Work(p, false)) * channels * (kernel + 1);
}

template <class T>
void short_conv_forward(const ShortConvForward<T>& p, Cuda device) {
  check_kernel(p);
  const Work w(p, packets_fit(p.x, p.x_stride) && packets_fit(p.y, p.y_stride));
  const int64_t threads = w.items() * w.packets;
  if (threads > 0) {
    const auto kernel = p.kernel <= 4 ? forward_kernel<T, 4> : forward_kernel<T, 16>;
    kernel<<<blocks_for(threads), kThreads, 0, stream_of(device)>>>(p, w);
    check_launch("short_conv_forward");
  }
  const int64_t kept = p.batch * (p.kernel - 1) * p.channels;
  if (p.final && kept > 0) {
    final_kernel<<<blocks_for(kept), kThreads, 0, stream_of(device)>>>(p);
    check_launch("short_conv_forward: last inputs");
  }
}

template <class T>
void short_conv_backward(const ShortConvBackward<T>& p, Cuda device) {
  check_kernel(p);
  const Work w(
      p, packets_fit(p.x, p.x_stride) && packets_fit(p.dy, p.dy_stride) && packets_fit(p.dx, p.dx_stride));
  if (w.items() * w.packets == 0) return;
  const int64_t rows = sum_rows(w);
  const auto kernel = p.kernel <= 4 ? backward_kernel<T, 4> : backward_kernel<T, 16>;
  kernel<<<blocks_for(rows * w.packets), kThreads, 0, stream_of(device)>>>(p, w, rows);
  check_launch("short_conv_backward");
  const int64_t columns = p.channels * (p.kernel + 1), taps = p.channels * p.kernel;
  add_column_sums(p.workspace, rows, taps, columns, p.dweight, device);
  if (p.dbias) add_column_sums(p.workspace + taps, rows, p.channels, columns, p.dbias, device);
}

template void short_conv_forward(const ShortConvForward<float>&, Cuda);
template void short_conv_forward(const ShortConvForward<bf16>&, Cuda);
template void short_conv_backward(const ShortConvBackward<float>&, Cuda);
template void short_conv_backward(const ShortConvBackward<bf16>&, Cuda);

}  // namespace signet::kernels
