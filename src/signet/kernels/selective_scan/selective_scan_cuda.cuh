// What the forward and backward selective scan share on the GPU.
//
// A thread owns kStates = 4 states of C channels and walks through time with them in registers; `kLanes`
// neighbouring lanes hold all states of a channel. Time is cut into tiles of kTile steps. Per tile a block
// first turns raw and u into (delta, delta u) in shared memory, once per token and channel, then every thread
// sweeps over the steps. Steps beyond the end carry delta = 0 and dy = 0: they leave the state as it is.
//
// A scan with too few channels to fill the GPU is cut into segments of whole tiles: a first pass finds each
// segment's transition (product of a, state from zero), a second chains them, and the main kernel then runs
// all segments at once.
#pragma once

#include <cuda_runtime.h>

#include "signet/kernels/selective_scan/selective_scan.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/packet.cuh"

namespace signet::kernels::scan {

constexpr int kThreads = 128, kWarps = kThreads / 32, kTile = 16, kStates = 4;
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// Who owns what, for N padded to NP states and C channels per thread.
template <int NP, int C>
struct Map {
  static constexpr int kPadded = NP, kOwned = C;
  static constexpr int kLanes = NP / kStates;  // lanes that share a channel
  static constexpr int kGroups = 32 / kLanes;  // groups of C channels per warp
  static constexpr int kChannels = kWarps * kGroups * C;
  static constexpr int kPackets = kChannels / 4;  // of a row of the tile
  static constexpr int kRows = kThreads / kPackets;
  static constexpr int kPasses = (kTile + kRows - 1) / kRows;
  static constexpr int kQuads = kTile * NP / 4;  // packets of the [kTile, NP] tile of B or C
  static constexpr int quads(int arrays) {
    return (arrays * kQuads + kThreads - 1) / kThreads;
  }  // per thread
};

// Channels per thread of each kernel, and what a block of it then covers.
constexpr int forward_owned(int padded) { return padded == 4 ? 1 : 2; }
constexpr int backward_owned(int padded) { return padded == 4 ? 1 : 2; }
constexpr int channels_per_block(int padded, int owned) { return kWarps * (32 / (padded / kStates)) * owned; }

// Sizes as the kernels use them; strides resolved (0 is gone).
struct Geometry {
  int batch, time, channels, states;
  int u_stride, raw_stride, z_stride, b_stride, c_stride, y_stride;
  int blocks;  // over the channels
  int tiles, segments, tiles_per_segment;
  int64_t rows;            // of all sequences
  const int32_t* offsets;  // of packed sequences, else null
  // Whether rows of channels, of states in fp32, and of B and C can be moved in packets.
  bool packets, state_packets, token_packets;
};

// N padded to what the kernels are compiled for (4, 16 or 64); throws above.
int padded_states(int64_t states);
Geometry geometry(const SelectiveScanShape& shape, int channels_per_block);
// Elements of an array with the states of every segment.
int64_t segment_size(const Geometry& g);

// Finds what every segment starts from: the state before its first step, or in reverse the gradient of the
// state after its last one (x = dy, w = C). One segment needs no such pass.
template <class T>
struct SegmentStarts {
  Geometry g;
  EigenvalueRange range;
  bool reverse;
  const T *raw, *x, *z, *w;  // x: u, or dy to be gated by z; w: B or C
  int x_stride, w_stride;
  const float *a_log, *bias, *outer;  // outer [B,channels,states]: initial state or gradient of the final one
  float* starts;                      // [segments,B,channels,states], the result
  float* products;                    // the same shape, scratch: the product of each segment's a
};
template <class T>
void find_segment_starts(const SegmentStarts<T>& p, cudaStream_t stream);

__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// a of both ranges from x = delta A log2(e).
template <bool kSigned>
__device__ inline float decay(float x) {
  const float s = exp2_approx(x);
  return kSigned ? fmaf(2.0f, s, -1.0f) : s;
}

__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// softplus(x) = max(x, 0) + log(1 + e), e = exp(-|x|), and its slope, the sigmoid. With v = e / (2 + e) <=
// 1/3 the logarithm is 2 artanh(v) = 2 v (1 + v^2/3 + v^4/5 + ...), good to 2e-7 for every x.
struct Softplus {
  float value, slope;
};
__device__ inline Softplus softplus(float x) {
  const float e = exp2_approx(-fabsf(x) * kLog2E), v = e * reciprocal(2.0f + e), w = v * v;
  float series = fmaf(w, 1.0f / 13, 1.0f / 11);
  series = fmaf(w, series, 1.0f / 9);
  series = fmaf(w, series, 1.0f / 7);
  series = fmaf(w, series, 1.0f / 5);
  series = fmaf(w, series, 1.0f / 3);
  series = fmaf(w, series, 1.0f);
  const float r = reciprocal(1.0f + e);
  return {fmaf(2.0f * v, series, fmaxf(x, 0.0f)), x < 0.0f ? e * r : r};
}

__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

// Where a thread works: lane group, channels and states for the sweep, row packets for loads and stores.
template <class M>
struct Place {
  int batch, segment, first_channel;  // of the block
  int time;                           // steps of the sequence
  int64_t first_row;                  // of the sequence
  int state_lane, group, channel;     // channel: the first of the C owned ones, from first_channel
  int packet_row, packet_channel;

  __device__ Place(const Geometry& g, int item) {
    segment = item % g.segments;
    batch = item / g.segments;
    first_row = g.offsets ? g.offsets[batch] : int64_t{batch} * g.time;
    time = g.offsets ? g.offsets[batch + 1] - g.offsets[batch] : g.time;
    first_channel = static_cast<int>(blockIdx.x % g.blocks) * M::kChannels;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    state_lane = lane % M::kLanes;
    group = lane / M::kLanes;
    channel = (warp * M::kGroups + group) * M::kOwned;
    packet_row = threadIdx.x / M::kPackets;
    packet_channel = threadIdx.x % M::kPackets * 4;
  }
  // The end of the segment's tiles.
  __device__ int last_tile(const Geometry& g) const {
    return min((segment + 1) * g.tiles_per_segment, (time + kTile - 1) / kTile);
  }
};

// The thread's packets of a tile whose first row of `steps` starts at `tile`; zeros beyond.
template <class M, class T>
__device__ inline void load_rows(Packet<T> (&out)[M::kPasses], const T* tile, int stride, int steps,
                                 const Place<M>& at, const Geometry& g) {
  const int left = g.channels - at.first_channel;
  const T* mine = tile + at.first_channel + at.packet_row * stride;
  if (g.packets) {
    const int limit = at.packet_channel < left ? steps : 0;
#pragma unroll
    for (int k = 0; k < M::kPasses; ++k) {
      out[k] = Packet<T>{};
      if (at.packet_row + k * M::kRows < limit)
        out[k] = *reinterpret_cast<const Packet<T>*>(mine + k * M::kRows * stride + at.packet_channel);
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < M::kPasses; ++k) {
    out[k] = Packet<T>{};
    if (at.packet_row + k * M::kRows < steps)
      out[k] = load_packet(mine + k * M::kRows * stride, at.packet_channel, left, false);
  }
}

// Packet thread + k kThreads of the tiles of B and C, [arrays, kTile, NP].
template <class M>
struct Quad {
  int array, t, n;
  __device__ explicit Quad(int k) {
    const int q = threadIdx.x + k * kThreads;
    array = q / M::kQuads, t = q / M::kLanes % kTile, n = q % M::kLanes * 4;
  }
};
template <class M, int kArrays, class T>
__device__ inline void load_quads(Packet<T> (&out)[M::quads(kArrays)], const T* b, int b_stride, const T* c,
                                  int c_stride, int steps, const Geometry& g) {
#pragma unroll
  for (int k = 0; k < M::quads(kArrays); ++k) {
    const Quad<M> q(k);
    out[k] = Packet<T>{};
    if (q.array < kArrays && q.t < steps)
      out[k] = load_packet(q.array ? c + q.t * c_stride : b + q.t * b_stride, q.n, g.states, g.token_packets);
  }
}

// Four states of one channel; `row` points at its first state (null: zeros).
__device__ inline void load_states(float (&v)[4], const float* row, int n, const Geometry& g) {
  if (row && g.state_packets && n < g.states) {
    unpack(*reinterpret_cast<const Packet<float>*>(row + n), v);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = row && n + i < g.states ? row[n + i] : 0.0f;
}
__device__ inline void store_states(float* row, int n, const Geometry& g, const float (&v)[4]) {
  store_packet(row, n, g.states, g.state_packets, v);
}

// Index of the states of (batch or segment x batch or tile, channel).
__device__ inline int64_t state_row(int64_t outer, int channel, const Geometry& g) {
  return (outer * g.channels + channel) * g.states;
}

// delta's A in base 2 for four states: A log2(e) = -exp(A_log) log2(e); 0 beyond the last channel or state.
__device__ inline void load_rates(float (&v)[4], const float* a_log, int channel, int n, const Geometry& g) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    v[i] = channel < g.channels && n + i < g.states
               ? -expf(a_log[int64_t{channel} * g.states + n + i]) * kLog2E
               : 0.0f;
}

// Registers i <-> i ^ p.
__device__ inline void permute(float (&v)[4], int p) {
  const bool one = p & 1, two = p & 2;
  const float a = one ? v[1] : v[0], b = one ? v[0] : v[1], c = one ? v[3] : v[2], d = one ? v[2] : v[3];
  v[0] = two ? c : a, v[1] = two ? d : b, v[2] = two ? a : c, v[3] = two ? b : d;
}

__device__ inline float from_lane(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }

// Half of the pair stays (`upper` keeps the second), the other half is traded with the lane across `mask`.
__device__ inline float trade(float first, float second, bool upper, int mask) {
  return (upper ? second : first) + from_lane(upper ? first : second, mask);
}

}  // namespace signet::kernels::scan
