// A lane owns four channels of a run of time steps and keeps the window of the last inputs (and, in backward,
// of the last dz) in registers; a warp owns 128 neighbouring channels, so that the heads of UnitHeads lie
// within it. Kernels shorter than the compiled K have zero weights in front: K is 4 where packets fit the
// rows, and then rows come two groups ahead by asynchronous copies; it is 16 elsewhere.
#include <algorithm>

#include "signet/kernels/activation/activation_device.cuh"
#include "signet/kernels/delta_rule/delta_rule.h"
#include "signet/kernels/short_conv/short_conv.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int64_t kLongestRun = 20;

// Steps whose inputs are loaded together. With as many as there are taps a window is a ring: slot(k, j) is
// where tap j of step k lies, and nothing moves. The wide window moves instead.
template <int K>
constexpr int kAhead = K == 4 ? 4 : 1;
constexpr int kGroups = 2;  // of rows that are under way
template <int K>
constexpr int slot(int k, int j) {
  return K == 4 ? (k + j) % K : j;
}

// Runs of `steps` time steps, `runs` per batch row. A block has 128 channels, and a warp of it one run;
// blocks of the same runs are neighbours.
struct Work {
  int64_t batch, time, runs, steps;
  int channels, kernel, channel_blocks;
  bool aligned;

  template <class P>
  Work(const P& p, bool fit) : batch(p.batch), time(p.time) {
    channels = static_cast<int>(p.channels), kernel = static_cast<int>(p.kernel);
    runs = (time + kLongestRun - 1) / kLongestRun;
    steps = runs > 0 ? (time + runs - 1) / runs : 0;
    channel_blocks = (channels + 127) / 128;
    aligned = fit && channels % 4 == 0;
  }
  __host__ __device__ int64_t items() const { return batch * runs; }
  __device__ int channel_block() const { return static_cast<int>(blockIdx.x) % channel_blocks; }
  __device__ int item_block() const { return static_cast<int>(blockIdx.x) / channel_blocks; }
  __device__ int first() const { return (channel_block() * 32 + static_cast<int>(threadIdx.x)) * 4; }
};

// Channels [first, first + 4) of a row that is there. kAligned: without the code for rows that packets do not
// fit.
template <bool kAligned, class T>
__device__ inline Packet<T> load_row(const T* row, const Work& w, bool there, int first) {
  const int live = there ? w.channels : 0;
  if constexpr (kAligned)
    return first < live ? *reinterpret_cast<const Packet<T>*>(row + first) : Packet<T>{};
  else
    return load_packet(row, first, live, w.aligned);
}
template <bool kAligned, class T>
__device__ inline void store_row(T* row, const Work& w, int first, const float (&v)[4]) {
  if constexpr (kAligned) {
    if (first < w.channels) *reinterpret_cast<Packet<T>*>(row + first) = pack<T>(v);
  } else {
    store_packet(row, first, w.channels, w.aligned, v);
  }
}

// The next rows of a lane's four channels, kAhead at a time. K = 4: each thread copies its packets two groups
// ahead into slots of shared memory that it alone uses. Otherwise they are loaded when asked for.
template <class T, int K>
class IncomingRows {
 public:
  static constexpr int kSlots = kGroups * kAhead<K>;
  static constexpr int kSharedBytes = K == 4 ? kSlots * kThreads * static_cast<int>(sizeof(Packet<T>)) : 0;

  // `count` rows from `row` on.
  __device__ IncomingRows(char* shared, const T* row, int64_t stride, int count, int first, const Work& w)
      : from_(row + first), stride_(static_cast<int>(stride)), first_(first), work_(w) {
    left_ = first < w.channels ? count : 0;
    slots_ = reinterpret_cast<Packet<T>*>(shared) + threadIdx.y * 32 + threadIdx.x;
  }
  // Starts the copies of the next group that has not been asked for; close_copy_group() afterwards.
  __device__ void fetch() {
    if constexpr (K == 4) {
#pragma unroll
      for (int k = 0; k < kAhead<K>; ++k)
        copy_packet_async(slots_ + (fetching_ + k) * kThreads, k < left_ ? from_ + k * stride_ : from_,
                          k < left_);
      fetching_ ^= kAhead<K>;
      from_ += kAhead<K> * stride_, left_ -= kAhead<K>;
    }
  }
  // Row k of the current group.
  __device__ Packet<T> row(int k) const {
    if constexpr (K == 4) return slots_[(current_ + k) * kThreads];
    return load_row<false>(from_ - first_ + k * stride_, work_, k < left_, first_);
  }
  __device__ void next() {
    if constexpr (K == 4)
      current_ ^= kAhead<K>;
    else
      from_ += kAhead<K> * stride_, left_ -= kAhead<K>;
  }

 private:
  const T* from_;
  Packet<T>* slots_;
  int stride_, left_, first_, fetching_ = 0, current_ = 0;
  const Work& work_;
};

// The K - 1 inputs before time `begin`, which may lie before the sequence, as taps 0 .. K - 2 of its window
// (one further where the window moves before a step).
template <int K, class P>
__device__ inline void load_history(const P& p, const Work& w, int64_t b, int64_t begin, int first,
                                    float (&window)[K][4]) {
#pragma unroll
  for (int j = 0; j + 1 < K; ++j) {
    float(&tap)[4] = window[K == 4 ? j : j + 1];
    const int64_t t = begin - K + 1 + j, row = b * (w.kernel - 1) + w.kernel - 1 + t;
#pragma unroll
    for (float& each : tap) each = 0.0f;
    if (t >= 0)
      unpack(load_row<K == 4>(p.x + (b * w.time + t) * p.x_stride, w, true, first), tap);
    else if (p.initial && t > -w.kernel)
      unpack(load_row<K == 4>(p.initial + row * w.channels, w, true, first), tap);
  }
}

template <int K, bool kBias, class P>
__device__ inline void load_weights(const P& p, const Work& w, int first, float (&weight)[K][4],
                                    float (&bias)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool live = first + i < w.channels;
    bias[i] = kBias && p.bias && live ? p.bias[first + i] : 0.0f;
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const int tap = j - (K - w.kernel);
      weight[j][i] = live && tap >= 0 ? p.weight[int64_t{first + i} * w.kernel + tap] : 0.0f;
    }
  }
}

// Makes room for the newest entry where the window is not a ring.
template <int K>
__device__ inline void shift(float (&window)[K][4]) {
  if constexpr (K != 4) {
#pragma unroll
    for (int j = 0; j + 1 < K; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) window[j][i] = window[j + 1][i];
    }
  }
}

template <int K>
__device__ inline float convolve(const float (&window)[K][4], const float (&weight)[K][4], float bias, int k,
                                 int i) {
  float z = bias;
#pragma unroll
  for (int j = 0; j < K; ++j) z = fmaf(weight[j][i], window[slot<K>(k, j)][i], z);
  return z;
}

// The lanes of a head of `unit.width` channels are a team; every lane of the warp takes part in its sums,
// without a branch. kLanes = 0: as many as the width says.
template <int kLanes>
struct Team {
  int lanes, head;
  bool normalised;
  __device__ Team(const UnitHeads& unit, int first) {
    lanes = kLanes > 0 ? kLanes : static_cast<int>(unit.width) / 4;
    head = first / (lanes * 4);
    normalised = head < static_cast<int>(unit.heads);
  }
  __device__ float sum(float x) const {
    if constexpr (kLanes > 0) return lane_sum<kLanes>(x);
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, x, mask);
      x += mask < lanes ? other : 0.0f;
    }
    return x;
  }
};

// The gates of a warp's heads, computed after its run, many at a time. With unit_keys each is multiplied by a
// factor that its head leaves in shared memory; a key of the delta rule is stored in bf16.
class WarpGates {
 public:
  static constexpr int kHeads = 8;  // that a warp has at most
  using Factors = float[kLongestRun][kHeads];

  template <class T>
  __device__ WarpGates(const GateColumns& gate, const T& team, int channel_block, Factors& factors)
      : gate_(gate), factors_(factors) {
    const int heads = 32 / team.lanes, first_gated = static_cast<int>(gate.first_head);
    first_head_ = channel_block * heads;
    begin_ = max(first_head_, first_gated);
    count_ = min(first_head_ + heads, first_gated + static_cast<int>(gate.columns)) - begin_;
    begin_ -= first_head_;
    place_ = threadIdx.x % team.lanes == 0 ? threadIdx.x / team.lanes : -1;
    folds_ = gate.unit_keys && count_ > 0;  // the same for all lanes
  }
  // The key of one step.
  template <class T>
  __device__ void fold(const T& team, int step, const float (&key)[4]) const {
    if (!folds_) return;
    float stored[4], square = 0.0f;
    unpack(pack<bf16>(key), stored);
#pragma unroll
    for (float each : stored) square = fmaf(each, each, square);
    square = team.sum(square);
    if (place_ >= 0) factors_[step][place_] = square;
  }
  // body(step, column, factor) for the gates of `steps` steps.
  template <class Body>
  __device__ void for_each(int steps, Body body) const {
    if (count_ <= 0) return;
    __syncwarp();
    for (int i = static_cast<int>(threadIdx.x); i < steps * count_; i += 32) {
      const int step = i / count_, at = begin_ + i % count_;
      body(step, first_head_ + at - static_cast<int>(gate_.first_head),
           folds_ ? unit_key_factor(factors_[step][at]) : 1.0f);
    }
    __syncwarp();
  }

 private:
  const GateColumns& gate_;
  Factors& factors_;
  int first_head_, begin_, count_, place_;
  bool folds_;
};

template <class T, int K, bool kUnit, int kLanes = 0>
__global__ void __launch_bounds__(kThreads, K == 4 ? 3 : 1) forward_kernel(ShortConvForward<T> p, Work w) {
  begin_kernel();
  extern __shared__ __align__(16) char shared[];
  __shared__ WarpGates::Factors factors[kUnit ? kWarps : 1];
  const int64_t item = int64_t{w.item_block()} * kWarps + threadIdx.y;
  if (item >= w.items()) return;
  const int first = w.first();
  const int64_t b = item / w.runs, begin = (item - b * w.runs) * w.steps, row = b * w.time + begin;
  const int steps = static_cast<int>(min(w.steps, w.time - begin));
  IncomingRows<T, K> x(shared, p.x + row * p.x_stride, p.x_stride, steps, first, w);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) x.fetch(), close_copy_group();
  const Team<kLanes> team(kUnit ? p.unit : UnitHeads{0, 128, 0}, first);
  const WarpGates gates(p.gate, team, w.channel_block(), factors[kUnit ? threadIdx.y : 0]);
  T* y = p.y + row * p.y_stride;
  const int y_stride = static_cast<int>(p.y_stride);
  const float eps = static_cast<float>(p.unit.eps);
  float weight[K][4], bias[4], window[K][4];
  load_weights<K, !kUnit>(p, w, first, weight, bias);
  load_history<K>(p, w, b, begin, first, window);
  for (int done = 0; done < steps; done += kAhead<K>) {
    wait_for_copies<kGroups - 1>();
#pragma unroll
    for (int k = 0; k < kAhead<K>; ++k) {
      shift<K>(window);
      unpack(x.row(k), window[slot<K>(k, K - 1)]);
      float v[4], square = 0.0f;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[i] = convolve<K>(window, weight, bias[i], k, i);
        if (kUnit || p.silu) v[i] *= logistic(v[i]);
        square = fmaf(v[i], v[i], square);
      }
      if constexpr (kUnit) {
        const float r = inverse_root(team.sum(square) + eps), scale = team.normalised ? r : 1.0f;
#pragma unroll
        for (float& each : v) each *= scale;
        gates.fold(team, done + k, v);
      }
      if (done + k < steps) store_row<K == 4>(y + k * y_stride, w, first, v);
    }
    x.next(), x.fetch(), close_copy_group();
    y += kAhead<K> * y_stride;
  }
  if constexpr (kUnit) {
    const T* from = p.x + row * p.x_stride + w.channels;
    float* to = p.gate.y + row * p.gate.columns;
    gates.for_each(steps, [&](int step, int column, float factor) {
      const float opening = to_float(from[step * p.x_stride + column]);
      to[step * p.gate.columns + column] =
          factor * activate(p.gate.kind, opening, p.gate.scale, p.gate.shift);
    });
  }
}

// The last kernel - 1 inputs, one thread per element.
template <class T>
__global__ void final_kernel(ShortConvForward<T> p) {
  begin_kernel();
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x, taps = p.kernel - 1;
  if (e >= p.batch * taps * p.channels) return;
  const int64_t c = e % p.channels, j = e / p.channels % taps, b = e / (p.channels * taps);
  const int64_t t = p.time - taps + j;
  p.final[e] = t >= 0      ? p.x[(b * p.time + t) * p.x_stride + c]
               : p.initial ? p.initial[(b * taps + taps + t) * p.channels + c]
                           : from_float<T>(0.0f);
}

// dz_t = dy_t silu'(z_t); dx_t = sum_j w_j dz_{t+K-1-j}; dw_j = sum_t dz_t x_{t-K+1+j}; dbias = sum_t dz_t.
// In a unit head with s = silu(z), y = r s and dy come first: ds = r (dy - y (y . dy)). A lane computes K - 1
// steps of dz beyond its run, for dx alone. Block x writes row x of `workspace`, [rows, channels (kernel +
// 1)].
template <class T, int K, bool kUnit, int kLanes = 0>
__global__ void __launch_bounds__(kThreads, K == 4 ? 2 : 1) backward_kernel(ShortConvBackward<T> p, Work w) {
  begin_kernel();
  extern __shared__ __align__(16) char shared[];
  __shared__ float part[kWarps][128];
  __shared__ WarpGates::Factors factors[kUnit ? kWarps : 1];
  const int64_t item_blocks = gridDim.x / w.channel_blocks;
  const int first = w.first();
  const Team<kLanes> team(kUnit ? p.unit : UnitHeads{0, 128, 0}, first);
  const WarpGates gates(p.gate, team, w.channel_block(), factors[kUnit ? threadIdx.y : 0]);
  const float eps = static_cast<float>(p.unit.eps);
  float weight[K][4], bias[4], dweight[K][4] = {}, dbias[4] = {};
  load_weights<K, !kUnit>(p, w, first, weight, bias);
  for (int64_t item = int64_t{w.item_block()} * kWarps + threadIdx.y; item < w.items();
       item += item_blocks * kWarps) {
    const int64_t b = item / w.runs, begin = (item - b * w.runs) * w.steps, row = b * w.time + begin;
    const int left = static_cast<int>(min(w.time - begin, w.steps + K - 1)),  // steps that are there
        steps = static_cast<int>(min(w.time - begin, w.steps));
    using Incoming = IncomingRows<T, K>;
    Incoming x(shared, p.x + row * p.x_stride, p.x_stride, left, first, w),
        dy(shared + Incoming::kSharedBytes, p.dy + row * p.dy_stride, p.dy_stride, left, first, w);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) x.fetch(), dy.fetch(), close_copy_group();
    T* dx = p.dx + (row - K + 1) * p.dx_stride;
    const int dx_stride = static_cast<int>(p.dx_stride);
    float window[K][4], dz[K][4] = {};
    load_history<K>(p, w, b, begin, first, window);
    for (int done = 0; done < steps + K - 1; done += kAhead<K>) {
      wait_for_copies<kGroups - 1>();
#pragma unroll
      for (int k = 0; k < kAhead<K>; ++k) {
        shift<K>(window);
        shift<K>(dz);
        unpack(x.row(k), window[slot<K>(k, K - 1)]);
        float(&d)[4] = dz[slot<K>(k, K - 1)];
        unpack(dy.row(k), d);  // zero beyond the sequence
        // With s the logistic function of z: y = z s, and silu'(z) = s (1 + z (1 - s)) = s + y - y s.
        float slope[4], y[4], square = 0.0f, along = 0.0f;
        if (kUnit || p.silu) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float z = convolve<K>(window, weight, bias[i], k, i), s = logistic(z);
            y[i] = z * s;
            slope[i] = fmaf(-y[i], s, s + y[i]);
            square = fmaf(y[i], y[i], square);
            along = fmaf(y[i], d[i], along);
          }
        }
        if constexpr (kUnit) {
          square = team.sum(square), along = team.sum(along);  // by all lanes
          const float r = team.normalised ? inverse_root(square + eps) : 1.0f;
          along = team.normalised ? -r * r * along : 0.0f;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            d[i] = r * fmaf(along, y[i], d[i]) * slope[i];
            y[i] *= r;
          }
          if (done + k < steps) gates.fold(team, done + k, y);
        } else if (p.silu) {
#pragma unroll
          for (int i = 0; i < 4; ++i) d[i] *= slope[i];
        }
        // Without a branch, so that the steps of a group overlap.
        const bool mine = done + k < steps, inside = done + k >= K - 1 && done + k < steps + K - 1;
        float sum[4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float own = mine ? d[i] : 0.0f;
          if constexpr (!kUnit) dbias[i] += own;
#pragma unroll
          for (int j = 0; j < K; ++j) {
            dweight[j][i] = fmaf(own, window[slot<K>(k, j)][i], dweight[j][i]);
            sum[i] = fmaf(weight[K - 1 - j][i], dz[slot<K>(k, j)][i], sum[i]);
          }
        }
        if (inside) store_row<K == 4>(dx + k * dx_stride, w, first, sum);
      }
      x.next(), dy.next();
      x.fetch(), dy.fetch(), close_copy_group();
      dx += kAhead<K> * dx_stride;
    }
    wait_for_copies<0>();  // the next item uses the same slots
    if constexpr (kUnit) {
      const T* from = p.x + row * p.x_stride + w.channels;
      T* to = p.dx + row * p.dx_stride + w.channels;
      const float* d_gate = p.gate.dy + row * p.gate.columns;
      gates.for_each(steps, [&](int step, int column, float factor) {
        const float opening = to_float(from[step * p.x_stride + column]),
                    d = factor * d_gate[step * p.gate.columns + column];
        to[step * p.dx_stride + column] =
            from_float<T>(activate_gradient(p.gate.kind, opening, d, p.gate.scale, p.gate.shift));
      });
    }
  }
  // Over the warps of the block, in order: the taps, then the bias.
  float* sums = p.workspace + int64_t{w.item_block()} * w.channels * (w.kernel + 1);
  const int thread = threadIdx.y * 32 + threadIdx.x, channel = w.channel_block() * 128 + thread;
#pragma unroll
  for (int j = 0; j <= K; ++j) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i) part[threadIdx.y][threadIdx.x * 4 + i] = j < K ? dweight[j % K][i] : dbias[i];
    __syncthreads();
    if (thread >= 128 || channel >= w.channels) continue;
    float total = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) total += part[warp][thread];
    const int tap = j - (K - w.kernel);
    if (j == K)
      sums[w.channels * w.kernel + channel] = total;
    else if (tap >= 0)
      sums[channel * w.kernel + tap] = total;
  }
}

// Rows of partial sums: enough warps to fill the GPU, few rows to add up.
int64_t sum_rows(const Work& w) {
  const int64_t most = std::max<int64_t>(1, 6 * int64_t{cuda_device().multiprocessors} / w.channel_blocks);
  return std::clamp<int64_t>((w.items() + kWarps - 1) / kWarps, 1, most);
}

template <class P>
void check_kernel(const P& p, bool aligned) {
  if (p.x_stride > (int64_t{1} << 24))
    fail(ErrorCode::kUsage, "short convolution: rows {} elements apart are too wide", p.x_stride);
  if (p.kernel < 1 || p.kernel > kMaxConvolution)
    fail(ErrorCode::kUsage, "short convolution of {} taps: 1 to {} are supported", p.kernel, kMaxConvolution);
  if (p.unit.heads > 0 && (!unit_heads_supported(p.kernel, p.unit.width) || !p.silu || !aligned))
    fail(ErrorCode::kUsage, "a convolution of {} taps cannot normalise heads of {} channels here", p.kernel,
         p.unit.width);
  if (p.unit.heads > 0 && p.bias) fail(ErrorCode::kUsage, "normalised heads take no bias");
  if (p.gate.columns > 0 && p.gate.first_head + p.gate.columns > p.unit.heads)
    fail(ErrorCode::kUsage, "{} gates from head {} on do not fit {} normalised heads", p.gate.columns,
         p.gate.first_head, p.unit.heads);
}

}  // namespace

int64_t short_conv_workspace_size(int64_t batch, int64_t time, int64_t channels, int64_t kernel, Cuda) {
  ShortConvForward<float> p;
  p.batch = batch, p.time = time, p.channels = channels, p.kernel = kernel;
  if (channels == 0) return 0;
  return sum_rows(Work(p, false)) * channels * (kernel + 1);
}

template <class T>
void short_conv_forward(const ShortConvForward<T>& p, Cuda device) {
  const Work w(p, packets_fit(p.x, p.x_stride) && packets_fit(p.y, p.y_stride) && packets_fit(p.initial, 4));
  check_kernel(p, w.aligned);
  if (w.items() > 0 && p.channels > 0) {
    const auto kernel = p.unit.heads > 0 && p.unit.width == 32 ? forward_kernel<T, 4, true, 8>
                        : p.unit.heads > 0                     ? forward_kernel<T, 4, true>
                        : p.kernel <= 4 && w.aligned           ? forward_kernel<T, 4, false>
                                                               : forward_kernel<T, 16, false>;
    const int64_t blocks = (w.items() + kWarps - 1) / kWarps * w.channel_blocks;
    launch("short_conv_forward", kernel, static_cast<unsigned>(blocks), dim3(32, kWarps),
           IncomingRows<T, 4>::kSharedBytes, device, p, w);
  }
  const int64_t kept = p.batch * (p.kernel - 1) * p.channels;
  if (p.final && kept > 0) {
    launch("short_conv_forward: last inputs", final_kernel<T>,
           static_cast<unsigned>((kept + kThreads - 1) / kThreads), kThreads, 0, device, p);
  }
}

template <class T>
void short_conv_backward(const ShortConvBackward<T>& p, Cuda device) {
  const Work w(p, packets_fit(p.x, p.x_stride) && packets_fit(p.dy, p.dy_stride) &&
                      packets_fit(p.dx, p.dx_stride) && packets_fit(p.initial, 4));
  check_kernel(p, w.aligned);
  if (w.items() == 0 || p.channels == 0) return;
  const int64_t rows = sum_rows(w);
  const auto kernel = p.unit.heads > 0 && p.unit.width == 32 ? backward_kernel<T, 4, true, 8>
                      : p.unit.heads > 0                     ? backward_kernel<T, 4, true>
                      : p.kernel <= 4 && w.aligned           ? backward_kernel<T, 4, false>
                                                             : backward_kernel<T, 16, false>;
  constexpr int kSharedBytes = 2 * IncomingRows<T, 4>::kSharedBytes;
  allow_shared_memory(kernel, kSharedBytes + 16384, "short_conv_backward");
  launch("short_conv_backward", kernel, static_cast<unsigned>(rows * w.channel_blocks), dim3(32, kWarps),
         kSharedBytes, device, p, w);
  const int64_t columns = p.channels * (p.kernel + 1), taps = p.channels * p.kernel;
  add_column_sum({p.workspace, rows, taps, columns, p.dweight}, p.later, device);
  if (p.dbias) add_column_sum({p.workspace + taps, rows, p.channels, columns, p.dbias}, p.later, device);
}

template void short_conv_forward(const ShortConvForward<float>&, Cuda);
template void short_conv_forward(const ShortConvForward<bf16>&, Cuda);
template void short_conv_backward(const ShortConvBackward<float>&, Cuda);
template void short_conv_backward(const ShortConvBackward<bf16>&, Cuda);

}  // namespace signet::kernels
