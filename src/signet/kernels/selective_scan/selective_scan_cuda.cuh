// What the forward and backward selective scan share on the GPU.
//
// A thread owns kStates = 4 states of C channels and walks through time with them in registers; `kLanes`
// neighbouring lanes hold all states of a channel. Time is cut into tiles of kTile steps. Per tile a block
// first turns raw and u into (delta, delta u) in shared memory, once per token and channel, then every thread
// sweeps over the steps. Steps beyond the end carry delta = 0 and dy = 0: they leave the state as it is.
// While it sweeps, the next tile is on its way into registers, be it of the same sequence or of the next one.
//
// A scan with too few channels to fill the GPU is cut into segments of whole tiles: a first pass finds each
// segment's transition (product of a, state from zero), a second chains them, and the main kernel then runs
// all segments at once.
#pragma once

#include <cuda_runtime.h>

#include "signet/kernels/activation/activation_device.cuh"
#include "signet/kernels/hand_on_states.h"
#include "signet/kernels/selective_scan/selective_scan.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/packet.cuh"

namespace signet::kernels::scan {

constexpr int kThreads = 128, kWarps = kThreads / 32, kTile = 16, kStates = 4;
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// Who owns what, for N padded to NP states and C channels per thread. Whole: all channels and states of a
// block exist and all rows move in packets, so that nothing is asked per element.
template <int NP, int C, bool Whole>
struct Map {
  static constexpr bool kWhole = Whole;
  static constexpr int kPadded = NP, kOwned = C;
  static constexpr int kLanes = NP / kStates;  // lanes that share a channel
  static constexpr int kGroups = 32 / kLanes;  // groups of C channels per warp
  static constexpr int kChannels = kWarps * kGroups * C;
  static constexpr int kPackets = kChannels / 4;  // of a row of the tile
  static constexpr int kRows = kThreads / kPackets;
  static constexpr int kPasses = (kTile + kRows - 1) / kRows;
  static constexpr int kQuads = kTile * NP / 4;  // packets of the [kTile, NP] tile of B or C
  // Per thread.
  static constexpr int quads(int arrays) { return (arrays * kQuads + kThreads - 1) / kThreads; }
};

// Channels per thread of each kernel, and what a block of it then covers.
constexpr int forward_owned(int padded) { return padded == 4 ? 1 : 2; }
constexpr int backward_owned(int padded) { return padded == 4 ? 1 : 2; }
constexpr int channels_per_block(int padded, int owned) { return kWarps * (32 / (padded / kStates)) * owned; }
// Only kernels for so many states come for whole blocks as well.
constexpr bool tuned(int padded) { return padded == 16; }

// Sizes as the kernels use them; strides resolved (0 is gone).
struct Geometry {
  int batch, time, channels, states;
  int u_stride, raw_stride, z_stride, b_stride, c_stride, y_stride;
  int blocks;  // over the channels
  int tiles, segments, tiles_per_segment;
  int64_t rows;            // of all sequences
  const int32_t* offsets;  // of packed sequences, else null
  bool softplus;
  // Whether rows of channels, of states in fp32, and of B and C can be moved in packets.
  bool packets, state_packets, token_packets;

  // Whether blocks of so many states and channels are whole (see Map).
  bool whole(int padded, int owned) const {
    return packets && state_packets && token_packets && states == padded &&
           channels % channels_per_block(padded, owned) == 0;
  }
};
// What a kernel for whole blocks knows of it when it is compiled.
template <class M>
__device__ inline Geometry known(Geometry g) {
  if (M::kWhole) g.packets = g.state_packets = g.token_packets = true, g.states = M::kPadded;
  return g;
}

// N padded to what the kernels are compiled for (4, 16 or 64); throws above.
int padded_states(int64_t states);
Geometry geometry(const SelectiveScanShape& shape, int channels_per_block);
// Elements of an array with the states of every segment.
int64_t segment_size(const Geometry& g);
// Blocks that share the (batch, segment) items of one block of channels when `per_processor` of all run on a
// multiprocessor at once.
int item_blocks(const Geometry& g, int per_processor);

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

// Both ranges in terms of s' = da/d(delta A): a = s' = s in [0,1], a = s' - 1 = 2 s - 1 in [-1,1].
// `rate` is A log2(e).
template <bool kSigned>
__device__ inline float slope(float delta, float rate) {
  return exp2_approx(kSigned ? fmaf(delta, rate, 1.0f) : delta * rate);
}
// a h + x y
template <bool kSigned>
__device__ inline float advance(float s, float h, float x, float y) {
  return fmaf(s, h, kSigned ? fmaf(x, y, -h) : x * y);
}
// a r
template <bool kSigned>
__device__ inline float retreat(float s, float r) {
  return kSigned ? fmaf(s, r, -r) : s * r;
}

// softplus(x) = max(x, 0) + log(1 + e), e = exp(-|x|) <= 1, with the polynomial of least relative error
// (3e-8) for log(1 + e) / e: good to 2e-7 for every x.
__device__ inline float softplus(float x) {
  const float e = exp2_approx(-fabsf(x) * kLog2E);
  float series = fmaf(e, 0.0053647403f, -0.030065456f);
  series = fmaf(e, series, 0.079203993f);
  series = fmaf(e, series, -0.13753757f);
  series = fmaf(e, series, 0.19153634f);
  series = fmaf(e, series, -0.24857159f);
  series = fmaf(e, series, 0.33321321f);
  series = fmaf(e, series, -0.49999648f);
  series = fmaf(e, series, 1.0f);
  return fmaf(e, series, fmaxf(x, 0.0f));
}
// raw of a step that takes no time: delta = 0.
constexpr float kNoTime = -1e30f;
__device__ inline float delta_of(const Geometry& g, float x) {
  return g.softplus ? softplus(x) : x < 0.5f * kNoTime ? 0.0f : x;  // NaN stays NaN
}

// A segment of a sequence; beyond the last there is one of negative time.
struct Item {
  int batch = 0, segment = 0;
  int first_row = 0, end_row = -1;  // of the sequence

  __device__ Item(const Geometry& g, int index) {
    if (index >= g.batch * g.segments) return;
    batch = index;
    if (g.segments > 1) batch = index / g.segments, segment = index % g.segments;
    first_row = g.offsets ? g.offsets[batch] : batch * g.time;
    end_row = g.offsets ? g.offsets[batch + 1] : first_row + g.time;
  }
  __device__ int time() const { return end_row - first_row; }
  // Where the states before the tiles of the sequence are kept: apart, whatever the lengths.
  __device__ int first_place(const Geometry& g) const {
    return g.offsets ? first_row / kTile + batch : batch * g.tiles;
  }
  __device__ int first_tile(const Geometry& g) const { return segment * g.tiles_per_segment; }
  __device__ int end_tile(const Geometry& g) const {
    return min(first_tile(g) + g.tiles_per_segment, (time() + kTile - 1) / kTile);
  }
};

// The tiles a block works through, with time or against it: those of every item of its share. Shares go back
// and forth over the items, so that they hold the same work where sequences are sorted by length. Where the
// next item lies is read an item ahead. At the end it stands on a tile without steps.
template <bool kReverse>
struct Walk {
  Item item, ahead;
  int round = 0, tile;

  __device__ explicit Walk(const Geometry& g) : item(g, nth(g, 0)), ahead(item) { enter(g); }
  __device__ bool done() const { return item.time() < 0; }
  __device__ int row() const { return item.first_row + tile * kTile; }
  __device__ int steps() const { return min(kTile, item.time() - tile * kTile); }
  // Whether it is the first tile on the way through its item, or the last.
  __device__ bool starts(const Geometry& g) const {
    return tile == (kReverse ? item.end_tile(g) - 1 : item.first_tile(g));
  }
  __device__ bool ends(const Geometry& g) const {
    return tile == (kReverse ? item.first_tile(g) : item.end_tile(g) - 1);
  }
  __device__ void advance(const Geometry& g) {
    if (ends(g))
      enter(g);
    else
      tile += kReverse ? -1 : 1;
  }

 private:
  __device__ static int nth(const Geometry& g, int round) {
    const int shares = static_cast<int>(gridDim.x) / g.blocks,
              share = static_cast<int>(blockIdx.x) / g.blocks;
    return round * shares + (round % 2 ? shares - 1 - share : share);
  }
  // The next item, or the one after where it is empty, as packed ones may be.
  __device__ void enter(const Geometry& g) {
    do {
      item = ahead;
      ahead = Item(g, nth(g, ++round));
    } while (!done() && item.first_tile(g) >= item.end_tile(g));
    tile = kReverse ? max(item.end_tile(g) - 1, 0) : item.first_tile(g);
  }
};

// Where a thread works: lane group, channels and states for the sweep, row packets for loads and stores.
template <class M>
struct Place {
  int first_channel, channels;  // of the block: those that exist
  int state_lane, group;
  int owned[M::kOwned];            // channels, from first_channel
  int packet_row, packet_channel;  // from first_channel
  int row_channel, row_channels;   // the packet's first channel of all, and how many exist from there on

  // Whether the block has such a channel.
  __device__ bool has(int channel) const { return M::kWhole || channel < channels; }
  __device__ explicit Place(const Geometry& g) {
    __builtin_assume(threadIdx.x < kThreads);
    first_channel = static_cast<int>(blockIdx.x % g.blocks) * M::kChannels;
    channels = M::kWhole ? M::kChannels : g.channels - first_channel;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    state_lane = lane % M::kLanes;
    group = lane / M::kLanes;
#pragma unroll
    for (int j = 0; j < M::kOwned; ++j) owned[j] = (warp * M::kGroups + group) * M::kOwned + j;
    packet_row = threadIdx.x / M::kPackets;
    packet_channel = threadIdx.x % M::kPackets * 4;
    row_channel = first_channel + packet_channel, row_channels = channels - packet_channel;
  }
};

template <class T>
__device__ inline Packet<T> no_time() {
  return pack<T>({kNoTime, kNoTime, kNoTime, kNoTime});
}

// The thread's packets of a tile that starts at `row` of an array and has `steps`; `beyond` after the last.
template <class M, class T>
__device__ inline void load_rows(Packet<T> (&out)[M::kPasses], const T* array, int stride, int row, int steps,
                                 const Place<M>& at, const Geometry& g, const Packet<T>& beyond = {}) {
#pragma unroll
  for (int k = 0; k < M::kPasses; ++k) {
    const int t = at.packet_row + k * M::kRows;
    out[k] = beyond;
    if (t < steps)
      out[k] = load_packet(array + int64_t{row + t} * stride + at.row_channel, 0, at.row_channels, g.packets);
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
                                  int c_stride, int row, int steps, const Geometry& g) {
#pragma unroll
  for (int k = 0; k < M::quads(kArrays); ++k) {
    const Quad<M> q(k);
    out[k] = Packet<T>{};
    if (q.array < kArrays && q.t < steps)
      out[k] = load_packet((q.array ? c : b) + int64_t{row + q.t} * (q.array ? c_stride : b_stride), q.n,
                           g.states, g.token_packets);
  }
}

// Index of the states of (batch or segment x batch or tile, channel).
__device__ inline int64_t state_row(int outer, int channel, const Geometry& g) {
  return (int64_t{outer} * g.channels + channel) * g.states;
}
// The thread's states of the channels it owns, of row `outer` of an array (null: zeros).
template <class M>
__device__ inline void load_states(float (&v)[M::kOwned][4], const float* states, int outer,
                                   const Place<M>& at, const Geometry& g) {
#pragma unroll
  for (int j = 0; j < M::kOwned; ++j) {
    Packet<float> packet{};
    if (states && at.has(at.owned[j]))
      packet = load_packet(states + state_row(outer, at.first_channel + at.owned[j], g),
                           at.state_lane * kStates, g.states, g.state_packets);
    unpack(packet, v[j]);
  }
}
template <class M>
__device__ inline void store_states(float* states, int outer, const Place<M>& at, const Geometry& g,
                                    const float (&v)[M::kOwned][4]) {
#pragma unroll
  for (int j = 0; j < M::kOwned; ++j)
    if (at.has(at.owned[j]))
      store_packet(states + state_row(outer, at.first_channel + at.owned[j], g), at.state_lane * kStates,
                   g.states, g.state_packets, v[j]);
}

// delta's A in base 2: A log2(e) = -exp(A_log) log2(e); 0 beyond the last channel or state.
template <class M>
__device__ inline void load_rates(float (&v)[M::kOwned][4], const float* a_log, const Place<M>& at,
                                  const Geometry& g) {
#pragma unroll
  for (int j = 0; j < M::kOwned; ++j) {
    const float* row = a_log + state_row(0, at.first_channel + at.owned[j], g);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int n = at.state_lane * kStates + i;
      v[j][i] = at.has(at.owned[j]) && n < g.states ? -expf(row[n]) * kLog2E : 0.0f;
    }
  }
}
// D or the bias of the thread's packet of channels; 0 where there is none.
template <class M>
__device__ inline void load_channels(float (&v)[4], const float* row, const Place<M>& at) {
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = row && at.has(at.packet_channel + i) ? row[at.row_channel + i] : 0.0f;
}

// Registers i <-> i ^ p.
template <int C>
__device__ inline void permute(float (&values)[C][4], int p) {
  const bool one = p & 1, two = p & 2;
#pragma unroll
  for (int j = 0; j < C; ++j) {
    float(&v)[4] = values[j];
    const float a = one ? v[1] : v[0], b = one ? v[0] : v[1], c = one ? v[3] : v[2], d = one ? v[2] : v[3];
    v[0] = two ? c : a, v[1] = two ? d : b, v[2] = two ? a : c, v[3] = two ? b : d;
  }
}

__device__ inline float from_lane(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }

// Half of the pair stays (`upper` keeps the second), the other half is traded with the lane across `mask`.
__device__ inline float trade(float first, float second, bool upper, int mask) {
  return (upper ? second : first) + from_lane(upper ? first : second, mask);
}

}  // namespace signet::kernels::scan
