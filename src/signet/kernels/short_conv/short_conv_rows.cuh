// What the kernels of the short convolution are made of. A lane owns four channels of a run of time steps and
// keeps the window of the last inputs in registers; a warp owns 128 neighbouring channels, so that the heads
// of UnitHeads lie within it. Kernels shorter than the compiled K have zero weights in front: K is 4 where
// packets fit the rows, and then rows come two groups ahead by asynchronous copies; it is 16 elsewhere.
#pragma once

#include <cstdint>

#include "signet/kernels/activation/activation_device.cuh"
#include "signet/kernels/short_conv/short_conv.h"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels::short_conv {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
// Steps of a run: the longest of which there are enough. Long ones repeat less of what lies before them;
// short ones are more, and the rows of a table are counted on their tokens.
constexpr int64_t kLongestRun = 128, kLongRun = 64, kShortRun = 20;
constexpr int64_t kManyRuns = 4096;  // times blocks of channels: enough to fill the GPU with long ones
constexpr int64_t kRunHeads = 512;   // steps of a run times heads of a warp, at most

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
  bool aligned, packed_taps;  // packed_taps: the four taps of a channel are one packet
  float eps;
  const int32_t* offsets;

  template <class T>
  Work(const ShortConvInputs<T>& p, bool fit) : batch(p.batch), time(p.time), offsets(p.offsets) {
    channels = static_cast<int>(p.channels), kernel = static_cast<int>(p.kernel);
    channel_blocks = (channels + 127) / 128;
    const auto many = [&](int64_t run) {
      return p.table.count == 0 && batch * (time / run) * channel_blocks >= kManyRuns;
    };
    const int64_t heads = p.unit.heads > 0 ? 128 / p.unit.width : 1;  // of a warp
    const int64_t longest = many(kLongestRun) && kLongestRun * heads <= kRunHeads ? kLongestRun
                            : many(kLongRun)                                      ? kLongRun
                                                                                  : kShortRun;
    runs = (time + longest - 1) / longest;
    steps = runs > 0 ? (time + runs - 1) / runs : 0;
    aligned = fit && channels % 4 == 0;
    packed_taps = aligned && kernel == 4 && packets_fit(p.weight, 4);
    eps = static_cast<float>(p.unit.eps);
  }
  __host__ __device__ int64_t items() const { return batch * runs; }
  __device__ int channel_block() const { return static_cast<int>(blockIdx.x) % channel_blocks; }
  __device__ int item_block() const { return static_cast<int>(blockIdx.x) / channel_blocks; }
  __device__ int first() const { return (channel_block() * 32 + static_cast<int>(threadIdx.x)) * 4; }
};

// One of the runs: steps [begin, begin + steps) of sequence b, whose rows start at first_row; none where the
// sequence is shorter.
struct Run {
  int64_t b, first_row;
  int begin, steps, length;  // length: of the sequence
  __device__ Run(const Work& w, int64_t item) : b(item / w.runs) {
    begin = static_cast<int>((item - b * w.runs) * w.steps);
    first_row = w.offsets ? w.offsets[b] : b * w.time;
    length = static_cast<int>(w.offsets ? w.offsets[b + 1] - first_row : w.time);
    steps = max(0, min(static_cast<int>(w.steps), length - begin));
  }
  __device__ int64_t row() const { return first_row + begin; }
};

// Where the rows of a block's channels begin, as if all channels lay there, and how far apart they are.
template <class T>
struct BlockRows {
  T* rows;
  int stride;
  __device__ BlockRows(T* all, int64_t all_stride, const ChannelTail<T>& tail, const Work& w) {
    const bool apart = tail.rows && w.channel_block() * 128 >= tail.first;
    rows = apart ? tail.rows - tail.first : all;
    stride = static_cast<int>(apart ? tail.stride : all_stride);
  }
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
__device__ inline void store_row(T* row, const Work& w, bool there, int first, const float (&v)[4]) {
  if constexpr (kAligned)
    store_if(there && first < w.channels, row + first, pack<T>(v));
  else if (there)
    store_packet(row, first, w.channels, w.aligned, v);
}

// The next rows of a lane's four channels, kAhead at a time. K = 4: each thread copies its packets two groups
// ahead into slots of shared memory that it alone uses. Otherwise they are loaded when asked for.
template <class T, int K>
class IncomingRows {
 public:
  static constexpr int kGroup = kAhead<K> * kThreads;  // slots of a group of rows
  static constexpr int kSharedBytes = K == 4 ? kGroups * kGroup * static_cast<int>(sizeof(Packet<T>)) : 0;

  // `count` rows from `row` on.
  __device__ IncomingRows(char* shared, const T* row, int64_t stride, int count, int first, const Work& w)
      : from_(row + first), stride_(static_cast<int>(stride)), first_(first), work_(w) {
    left_ = first < w.channels ? count : 0;
    slots_ = reinterpret_cast<Packet<T>*>(shared) + threadIdx.y * 32 + threadIdx.x;
  }
  // For each of the first groups, in order; close_copy_group() after each.
  __device__ void start(int group) {
    if constexpr (K == 4) fetch(slots_ + group * kGroup);
  }
  // Row k of the current group.
  __device__ void load(int k, float (&v)[4]) const {
    if constexpr (K == 4)
      unpack(slots_[current_ + k * kThreads], v);
    else
      unpack(load_row<false>(from_ - first_ + k * stride_, work_, k < left_, first_), v);
  }
  // The next group takes the place of the current one, whose slots are filled again; close_copy_group()
  // afterwards.
  __device__ void next() {
    if constexpr (K == 4) {
      fetch(slots_ + current_);
      current_ ^= kGroup;
    } else {
      advance();
    }
  }

 private:
  __device__ void advance() { from_ += kAhead<K> * stride_, left_ -= kAhead<K>; }
  __device__ void fetch(Packet<T>* slots) {
    if (left_ >= kAhead<K>) {
#pragma unroll
      for (int k = 0; k < kAhead<K>; ++k) copy_packet_async(slots + k * kThreads, from_ + k * stride_, true);
    } else {
#pragma unroll
      for (int k = 0; k < kAhead<K>; ++k)
        copy_packet_async(slots + k * kThreads, k < left_ ? from_ + k * stride_ : from_, k < left_);
    }
    advance();
  }

  const T* from_;
  Packet<T>* slots_;
  int stride_, left_, first_, current_ = 0;
  const Work& work_;
};

// The same rows out of a table, four channels of a lane. The block has its 128 channels of the table in
// shared memory, with a row of zeros behind the last for what lies outside the sequence, and every warp the
// tokens of its run from K - 1 = 3 steps before it on.
class TableRows {
 public:
  static constexpr int kBefore = 3;
  static __host__ __device__ int shared_bytes(const TokenTable& table) {
    return (static_cast<int>(table.count) + 1) * 128 * static_cast<int>(sizeof(float)) +
           kThreads * static_cast<int>(sizeof(int));
  }
  // By all threads of the block; __syncthreads() afterwards.
  __device__ static void fill(char* shared, const TokenTable& table, int stride, const Work& w) {
    const int count = static_cast<int>(table.count);
    for (int i = threadIdx.y * 32 + threadIdx.x; i < (count + 1) * 32; i += kThreads) {
      const int row = i / 32, channel = w.channel_block() * 128 + i % 32 * 4;
      const bool there = row < count && channel < w.channels;
      reinterpret_cast<float4*>(shared)[i] =
          there ? *reinterpret_cast<const float4*>(table.rows + row * stride + channel)
                : make_float4(0, 0, 0, 0);
    }
  }
  __device__ TableRows(char* shared, const TokenTable& table, const Run& run)
      : rows_(reinterpret_cast<const Packet<float>*>(shared) + threadIdx.x) {
    const int count = static_cast<int>(table.count);
    tokens_ = reinterpret_cast<int*>(shared + (count + 1) * 512) + threadIdx.y * 32;
    const int t = run.begin - kBefore + static_cast<int>(threadIdx.x);
    __syncwarp();
    tokens_[threadIdx.x] = t >= 0 && t < run.length ? table.tokens[run.first_row + t] : count;
    __syncwarp();
  }
  __device__ int token(int step) const { return tokens_[step + kBefore]; }  // of the run
  // Of step k of the current group; k may be negative in the first.
  __device__ void load(int k, float (&v)[4]) const { unpack(rows_[token(step_ + k) * 32], v); }
  __device__ void start(int) {}
  __device__ void next() { step_ += kAhead<4>; }

 private:
  const Packet<float>* rows_;
  int* tokens_;
  int step_ = 0;
};

// The K - 1 inputs before a run, which may lie before the sequence, as taps 0 .. K - 2 of its window (one
// further where the window moves before a step).
template <int K>
__device__ inline void load_history(const TableRows& x, float (&window)[K][4]) {
#pragma unroll
  for (int j = 0; j + 1 < K; ++j) x.load(j + 1 - K, window[j]);
}
template <int K, class P>
__device__ inline void load_history(const P& p, const Work& w, const Run& run, int first,
                                    float (&window)[K][4]) {
#pragma unroll
  for (int j = 0; j + 1 < K; ++j) {
    float(&tap)[4] = window[K == 4 ? j : j + 1];
    const int t = run.begin - K + 1 + j;
    const int64_t row = run.b * (w.kernel - 1) + w.kernel - 1 + t;
#pragma unroll
    for (float& each : tap) each = 0.0f;
    if (t >= 0)
      unpack(load_row<K == 4>(p.x + (run.first_row + t) * p.x_stride, w, true, first), tap);
    else if (p.initial && t > -w.kernel)
      unpack(load_row<K == 4>(p.initial + row * w.channels, w, true, first), tap);
  }
}

// SiLU of z from z' = -log2(e) z, which costs nothing where weights and bias carry the factor: with e = 2^z'
// and S = c / (1 + e), c = -1 / log2(e),
//   y = silu(z) = z' S        c silu'(z) = S + y (c - S)
// so that gradients dz' = c dz come out, of which dx = sum_j w'_j dz'_{t+K-1-j} and dw = -log2(e) sum dz' x.
constexpr float kCarried = -1.4426950408889634f;
struct Silu {
  float s;
  __device__ explicit Silu(float z) : s(reciprocal(fmaf(exp2_approx(z), kCarried, kCarried))) {}
  __device__ float value(float z) const { return z * s; }
  __device__ float slope(float y) const { return fmaf(y, 1.0f / kCarried - s, s); }
};

// Times `factor`.
template <int K, bool kBias, class P>
__device__ inline void load_weights(const P& p, const Work& w, int first, float factor, float (&weight)[K][4],
                                    float (&bias)[4]) {
  if (K == 4 && w.packed_taps) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float taps[4] = {};
      if (first < w.channels) unpack(reinterpret_cast<const Packet<float>*>(p.weight)[first + i], taps);
      bias[i] = kBias && p.bias && first < w.channels ? factor * p.bias[first + i] : 0.0f;
#pragma unroll
      for (int j = 0; j < 4; ++j) weight[j % K][i] = factor * taps[j];
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool live = first + i < w.channels;
    bias[i] = kBias && p.bias && live ? factor * p.bias[first + i] : 0.0f;
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const int tap = j - (K - w.kernel);
      weight[j][i] = live && tap >= 0 ? factor * p.weight[int64_t{first + i} * w.kernel + tap] : 0.0f;
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
  static constexpr bool kWarp = kLanes == 32;  // one head, so that all lanes are normalised or none
  int lanes, head;
  bool normalised;
  __device__ Team(const UnitHeads& unit, int first) {
    lanes = kLanes > 0 ? kLanes : static_cast<int>(unit.width) / 4;
    head = first / (lanes * 4);
    normalised = head < static_cast<int>(unit.heads);
  }
  __device__ float sum(float x) const {
    if constexpr (kLanes > 0) {
      return lane_sum<kLanes>(x);
    } else {
#pragma unroll
      for (int mask = 1; mask < 32; mask *= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, x, mask);
        x += mask < lanes ? other : 0.0f;
      }
      return x;
    }
  }
  // Of both at once. A whole warp sums one of them in either half.
  __device__ void sum(float& a, float& b) const {
    if constexpr (!kWarp) {
      a = sum(a), b = sum(b);
    } else {
      const bool low = threadIdx.x < 16;
      float mine = (low ? a : b) + __shfl_xor_sync(0xffffffffu, low ? b : a, 16);
      mine = lane_sum<16>(mine);
      const float other = __shfl_xor_sync(0xffffffffu, mine, 16);
      a = low ? mine : other, b = low ? other : mine;
    }
  }
};

// The gates of a warp's heads, computed after its run, many at a time.
class WarpGates {
 public:
  static constexpr int kHeads = 8;   // that a warp has at most
  using Squares = float[kRunHeads];  // step by step, those of the warp's heads

  template <class T>
  __device__ WarpGates(const GateColumns& gate, const T& team, int channel_block) {
    const int heads = 32 / team.lanes, first_gated = static_cast<int>(gate.first_head),
              first_head = channel_block * heads;
    begin_ = max(first_head, first_gated);
    count_ = min(first_head + heads, first_gated + static_cast<int>(gate.columns)) - begin_;
    column_ = begin_ - first_gated, begin_ -= first_head;
  }
  __device__ bool any() const { return count_ > 0; }  // the same for all lanes
  // body(step, column, the head's place in the warp) for the gates of `steps` steps.
  template <class Body>
  __device__ void for_each(int steps, Body body) const {
    if (!any()) return;
    const int shift = 32 - __clz(count_ - 1);
    for (int i = static_cast<int>(threadIdx.x); i < steps << shift; i += 32) {
      const int step = i >> shift, at = i & ((1 << shift) - 1);
      if (at < count_) body(step, column_ + at, begin_ + at);
    }
  }

 private:
  int begin_, count_, column_;
};

// The square of the length of a head as it is stored, in bf16.
template <class T>
__device__ inline float stored_square(const T& team, const float (&key)[4]) {
  float stored[4], square = 0.0f;
  unpack(pack<bf16>(key), stored);
#pragma unroll
  for (float each : stored) square = fmaf(each, each, square);
  return team.sum(square);
}

}  // namespace signet::kernels::short_conv
