// Backward of the selective scan. Per tile, from the last to the first: recompute the states from the saved
// one before the tile and keep every h_{t-1} in shared memory, then walk back in time with
//
//   g_t = C_t dy_t + r_t,   r_{t-1} = a_t g_t,   q_t = g_t h_{t-1} s'_t        (s' = s or 2 s, = da/d(delta A))
//   du = D dy + delta S,  ddelta = u S + Q      S = sum_n g B,  Q = sum_n q A   (sums over lanes of a channel)
//   dB = sum_d g delta u, dC = sum_d dy h       (sums over lanes, warps, then blocks: always in this order)
//   dA = sum_t q delta                          (in registers, then over batch in a second kernel)
//
// So that sums over lanes need no selects, register i of a lane holds state i ^ p and channel j ^ p', where p
// and p' are the lane's own number: what it sends to the lane across is then always the same register.
#include <algorithm>

#include "signet/kernels/selective_scan/selective_scan_cuda.cuh"

namespace signet::kernels {
namespace scan {
namespace {

template <class T>
struct BackwardArgs {
  SelectiveScanBackward<T> p;
  Geometry g;
  int items_per_block;      // (batch, segment) pairs one block works through
  const float* starts;      // [segments,B,channels,states] gradients of the states, null with one segment
  float* token_sums;        // [blocks,B,T,2,NP] dB and dC of a block's channels
  float* channel_sums;      // [blocks over items, channels (states + 2)]: dA_log, dD, dbias
};

template <class T, class M, bool kGated>
struct BackwardTile {
  Packet<T> u[M::kPasses], raw[M::kPasses], dy[M::kPasses], z[kGated ? M::kPasses : 1];
  float b[M::kScalars], c[M::kScalars], h[M::kOwned][4];

  __device__ void load(const BackwardArgs<T>& args, const Place<M>& at, const int (&channel)[M::kOwned], int tile) {
    const SelectiveScanBackward<T>& p = args.p;
    const Geometry& g = args.g;
    const int steps = g.time - tile * kTile, n0 = at.state_lane * kStates;
    const int64_t row = int64_t{at.batch} * g.time + int64_t{tile} * kTile;
    load_rows(u, p.u + row * g.u_stride, g.u_stride, steps, at, g);
    load_rows(raw, p.raw + row * g.raw_stride, g.raw_stride, steps, at, g);
    load_rows(dy, p.dy + row * g.y_stride, g.y_stride, steps, at, g);
    if constexpr (kGated) load_rows(z, p.z + row * g.z_stride, g.z_stride, steps, at, g);
    load_scalars<M>(b, p.b + row * g.b_stride, g.b_stride, steps, g.states);
    load_scalars<M>(c, p.c + row * g.c_stride, g.c_stride, steps, g.states);
    const float* before = tile > 0 ? p.saved + state_row(int64_t{at.batch} * g.tiles + tile, 0, g)
                          : p.initial_state ? p.initial_state + state_row(at.batch, 0, g)
                                            : nullptr;
#pragma unroll
    for (int j = 0; j < M::kOwned; ++j)
      load_states(h[j], before && channel[j] < g.channels ? before + int64_t{channel[j]} * g.states : nullptr, n0, g);
  }
};

template <int NP, int C, bool kGated>
struct BackwardShared {
  using M = Map<NP, C>;
  static constexpr int kCopies = M::kGroups < 4 ? M::kGroups : 4;  // of B and C, one per permutation p
  float4 inputs[kTile][M::kChannels];     // (delta, delta u, dy, softplus'); the sweep leaves S in y, Q in z
  float4 before[kTile][C][kThreads];      // h_{t-1} of each thread
  float b[kTile][kCopies][NP], c[kTile][kCopies][NP];
  float sums[kTile][kWarps][2 * NP];      // dB and dC of a warp's channels
  float outputs[kGated ? kTile : 1][M::kChannels];  // sum_n C h
};

// What one step of the way back reads.
template <int NP, int C, bool kGated>
struct BackwardStep {
  float4 in[C];
  float before[C][4], b[4], c[4];

  __device__ void load(const BackwardShared<NP, C, kGated>& shared, int t, int turn, int n0, const int (&local)[C]) {
    unpack(*reinterpret_cast<const Packet<float>*>(&shared.b[t][turn][n0]), b);
    unpack(*reinterpret_cast<const Packet<float>*>(&shared.c[t][turn][n0]), c);
#pragma unroll
    for (int j = 0; j < C; ++j) {
      in[j] = shared.inputs[t][local[j]];
      unpack(Packet<float>{shared.before[t][j][threadIdx.x]}, before[j]);
    }
  }
};

// Sum over the lanes of a channel: on return value[0] of lane l is that of channel register 0, that is of the
// channel j = l's own number, summed over the lanes that differ in those bits.
template <int C, int kLanes>
__device__ inline void sum_channels(float (&value)[C]) {
  if constexpr (C >= 4 && kLanes >= 4) {
#pragma unroll
    for (int j = 0; j < 2; ++j) value[j] += from_lane(value[j + 2], 2);
  }
  if constexpr (C >= 2 && kLanes >= 2) value[0] += from_lane(value[1], 1);
}

template <class T, int NP, int C, bool kSigned, bool kGated>
__global__ void __launch_bounds__(kThreads) backward_kernel(const __grid_constant__ BackwardArgs<T> args) {
  using M = Map<NP, C>;
  using Shared = BackwardShared<NP, C, kGated>;
  using Step = BackwardStep<NP, C, kGated>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
  const SelectiveScanBackward<T>& p = args.p;
  const Geometry& g = args.g;
  const int items = g.batch * g.segments, first_item = blockIdx.x / g.blocks * args.items_per_block;
  const int last_item = min(first_item + args.items_per_block, items);
  Place<M> at(g, first_item);
  const int warp = threadIdx.x / 32, n0 = at.state_lane * kStates, row_channel = at.first_channel + at.packet_channel;
  const int turn = at.group & (Shared::kCopies - 1);                                // p
  constexpr int kTraded = C < M::kLanes ? C : M::kLanes;
  const int own = at.state_lane & (kTraded - 1);                                    // p'

  int local[C], channel[C];
  float rate[C][4], da[C][4] = {}, r[C][4], h[C][4], d[4] = {}, bias[4] = {}, dd[4] = {}, dbias[4] = {};
#pragma unroll
  for (int j = 0; j < C; ++j) {
    local[j] = at.channel + (j ^ own);
    channel[j] = at.first_channel + local[j];
    load_rates(rate[j], p.a_log, channel[j], n0, g);
    permute(rate[j], turn);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (p.d && row_channel + i < g.channels) d[i] = p.d[row_channel + i];
    if (p.bias && row_channel + i < g.channels) bias[i] = p.bias[row_channel + i];
  }

  BackwardTile<T, M, kGated> next;
  const auto last_tile_of = [&](int segment) { return min((segment + 1) * g.tiles_per_segment, g.tiles) - 1; };
  next.load(args, at, channel, last_tile_of(at.segment));
  for (int item = first_item, tile = last_tile_of(at.segment); item < last_item;) {
    const int steps = min(kTile, g.time - tile * kTile), batch = at.batch, segment = at.segment;
    if (tile == last_tile_of(segment)) {
      const float* end = args.starts       ? args.starts + state_row(int64_t{segment} * g.batch + batch, 0, g)
                         : p.d_final_state ? p.d_final_state + state_row(batch, 0, g)
                                           : nullptr;
#pragma unroll
      for (int j = 0; j < C; ++j) {
        load_states(r[j], end && channel[j] < g.channels ? end + int64_t{channel[j]} * g.states : nullptr, n0, g);
        permute(r[j], turn);
      }
    }
    const BackwardTile<T, M, kGated> now = next;
#pragma unroll
    for (int j = 0; j < C; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) h[j][i] = now.h[j][i];
      permute(h[j], turn);
    }
#pragma unroll
    for (int k = 0; k < M::kPasses; ++k) {
      const int t = at.packet_row + k * M::kRows;
      if (t >= kTile) break;
      float raw[4], u[4], dy[4];
      unpack(now.raw[k], raw);
      unpack(now.u[k], u);
      unpack(now.dy[k], dy);
      if constexpr (kGated) {
        float z[4];
        unpack(now.z[k], z);
#pragma unroll
        for (int i = 0; i < 4; ++i) dy[i] *= z[i] * sigmoid(z[i]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        Softplus delta{0.0f, 0.0f};
        if (t < steps) delta = softplus(raw[i] + bias[i]);
        shared.inputs[t][at.packet_channel + i] = make_float4(delta.value, delta.value * u[i], dy[i], delta.slope);
      }
    }
#pragma unroll
    for (int k = 0; k < M::kScalars; ++k) {
      const int e = threadIdx.x + k * kThreads, t = e / NP, n = e % NP;
      if (t >= kTile) break;
#pragma unroll
      for (int copy = 0; copy < Shared::kCopies; ++copy) {
        shared.b[t][copy][n ^ copy] = now.b[k];
        shared.c[t][copy][n ^ copy] = now.c[k];
      }
    }
    __syncthreads();
    const int this_tile = tile;
    if (--tile < segment * g.tiles_per_segment) {
      if (++item < last_item) {
        at = Place<M>(g, item);
        tile = last_tile_of(at.segment);
      }
    }
    if (item < last_item) next.load(args, at, channel, tile);

#pragma unroll 2
    for (int t = 0; t < steps; ++t) {
      float b[4];
      unpack(*reinterpret_cast<const Packet<float>*>(&shared.b[t][turn][n0]), b);
#pragma unroll
      for (int j = 0; j < C; ++j) {
        const float2 in = *reinterpret_cast<const float2*>(&shared.inputs[t][local[j]]);
        shared.before[t][j][threadIdx.x] = make_float4(h[j][0], h[j][1], h[j][2], h[j][3]);
#pragma unroll
        for (int i = 0; i < 4; ++i) h[j][i] = fmaf(decay<kSigned>(in.x * rate[j][i]), h[j][i], in.y * b[i]);
      }
    }

    const auto walk_back = [&](const Step& step, int t) {
      float db[4] = {}, dc[4] = {}, sum_s[C], sum_q[C], sum_y[C];
#pragma unroll
      for (int j = 0; j < C; ++j) {
        const float4 in = step.in[j];
        sum_s[j] = sum_q[j] = sum_y[j] = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float a = decay<kSigned>(in.x * rate[j][i]), grad = fmaf(step.c[i], in.z, r[j][i]);
          r[j][i] = a * grad;
          const float q = (kSigned ? r[j][i] + grad : r[j][i]) * step.before[j][i];
          sum_s[j] = fmaf(grad, step.b[i], sum_s[j]);
          sum_q[j] = fmaf(q, rate[j][i], sum_q[j]);
          if (kGated) sum_y[j] = fmaf(step.c[i], h[j][i], sum_y[j]);
          da[j][i] = fmaf(q, in.x, da[j][i]);
          db[i] = fmaf(grad, in.y, db[i]);
          dc[i] = fmaf(in.z, h[j][i], dc[i]);
          h[j][i] = step.before[j][i];
        }
      }
      // dB and dC over the groups of channels of the warp.
      constexpr int kAcross = M::kLanes;  // lane distance of neighbouring groups
      if constexpr (M::kGroups == 2) {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          shared.sums[t][warp][n0 + (i ^ turn)] = db[i] + from_lane(db[i + 1], kAcross);
          shared.sums[t][warp][NP + n0 + (i ^ turn)] = dc[i] + from_lane(dc[i + 1], kAcross);
        }
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          db[i] += from_lane(db[i + 2], 2 * kAcross);
          dc[i] += from_lane(dc[i + 2], 2 * kAcross);
        }
        db[0] += from_lane(db[1], kAcross);
        dc[0] += from_lane(dc[1], kAcross);
        const bool upper = at.group & 4;
        float mine = trade(db[0], dc[0], upper, 4 * kAcross);
#pragma unroll
        for (int mask = 8 * kAcross; mask < 32; mask *= 2) mine += from_lane(mine, mask);
        if (at.group < 8) shared.sums[t][warp][(upper ? NP : 0) + n0 + turn] = mine;
      }
      // S, Q and the outputs over the lanes of each channel.
      sum_channels<C, M::kLanes>(sum_s);
      sum_channels<C, M::kLanes>(sum_q);
      if constexpr (kGated) sum_channels<C, M::kLanes>(sum_y);
      __syncwarp();
      if constexpr (kTraded < M::kLanes) {
        const bool upper = at.state_lane & kTraded;
        float mine = trade(sum_s[0], sum_q[0], upper, kTraded);
        float y = kGated ? sum_y[0] + from_lane(sum_y[0], kTraded) : 0.0f;
#pragma unroll
        for (int mask = 2 * kTraded; mask < M::kLanes; mask *= 2) {
          mine += from_lane(mine, mask);
          if (kGated) y += from_lane(y, mask);
        }
        if (at.state_lane < 2 * kTraded) (upper ? shared.inputs[t][local[0]].z : shared.inputs[t][local[0]].y) = mine;
        if (kGated && at.state_lane < kTraded) shared.outputs[t][local[0]] = y;
      } else {
#pragma unroll
        for (int j = 0; j < C / kTraded; ++j) {
          shared.inputs[t][local[j]].y = sum_s[j];
          shared.inputs[t][local[j]].z = sum_q[j];
          if (kGated) shared.outputs[t][local[j]] = sum_y[j];
        }
      }
    };
    // What a step reads is fetched before the step in front of it writes.
    Step even, odd;
    even.load(shared, steps - 1, turn, n0, local);
    for (int t = steps - 1; t >= 0; t -= 2) {
      if (t > 0) odd.load(shared, t - 1, turn, n0, local);
      walk_back(even, t);
      if (t > 1) even.load(shared, t - 2, turn, n0, local);
      if (t > 0) walk_back(odd, t - 1);
    }
    if (this_tile == 0 && p.d_initial_state) {
#pragma unroll
      for (int j = 0; j < C; ++j) {
        if (channel[j] >= g.channels) continue;
        float natural[4] = {r[j][0], r[j][1], r[j][2], r[j][3]};
        permute(natural, turn);
        store_states(p.d_initial_state + state_row(batch, channel[j], g), n0, g, natural);
      }
    }
    __syncthreads();

    const int64_t first_row = int64_t{batch} * g.time + int64_t{this_tile} * kTile;
#pragma unroll
    for (int k = 0; k < M::kPasses; ++k) {
      const int t = at.packet_row + k * M::kRows;
      if (t >= steps) break;
      float u[4], dy[4], z[4], du[4], draw[4], dz[4];
      unpack(now.u[k], u);
      unpack(now.dy[k], dy);
      if constexpr (kGated) unpack(now.z[k], z);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 in = shared.inputs[t][at.packet_channel + i];
        if constexpr (kGated) {
          const float s = sigmoid(z[i]), y = fmaf(d[i], u[i], shared.outputs[t][at.packet_channel + i]);
          dz[i] = dy[i] * y * s * fmaf(z[i], 1.0f - s, 1.0f);
          dy[i] *= z[i] * s;
        }
        du[i] = fmaf(d[i], dy[i], in.x * in.y);
        draw[i] = fmaf(u[i], in.y, kLn2 * in.z) * in.w;
        dd[i] = fmaf(dy[i], u[i], dd[i]);
        dbias[i] += draw[i];
      }
      store_packet(p.du + (first_row + t) * g.u_stride, row_channel, g.channels, g.packets, du);
      store_packet(p.draw + (first_row + t) * g.raw_stride, row_channel, g.channels, g.packets, draw);
      if constexpr (kGated) store_packet(p.dz + (first_row + t) * g.z_stride, row_channel, g.channels, g.packets, dz);
    }
    const int64_t sums_row = int64_t{blockIdx.x % g.blocks} * g.batch * g.time + first_row;
    for (int e = threadIdx.x; e < steps * 2 * NP; e += kThreads) {
      const int t = e / (2 * NP), column = e % (2 * NP);
      float total = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total += shared.sums[t][w][column];
      args.token_sums[(sums_row + t) * 2 * NP + column] = total;
    }
  }

  float* sums = args.channel_sums + int64_t{blockIdx.x / g.blocks} * g.channels * (g.states + 2);
#pragma unroll
  for (int j = 0; j < C; ++j) {
    if (channel[j] >= g.channels) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) da[j][i] *= rate[j][i] * kLn2;  // dA_log = A dA
    permute(da[j], turn);
    store_states(sums + int64_t{channel[j]} * g.states, n0, g, da[j]);
  }
  __syncthreads();
  float* rows = &shared.inputs[0][0].x;  // [2][kRows][kChannels]
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    rows[at.packet_row * M::kChannels + at.packet_channel + i] = dd[i];
    rows[(M::kRows + at.packet_row) * M::kChannels + at.packet_channel + i] = dbias[i];
  }
  __syncthreads();
  for (int e = threadIdx.x; e < 2 * M::kChannels; e += kThreads) {
    const int which = e / M::kChannels, c = e % M::kChannels;
    float total = 0.0f;
    for (int row = 0; row < M::kRows; ++row) total += rows[(which * M::kRows + row) * M::kChannels + c];
    if (at.first_channel + c < g.channels)
      sums[int64_t{g.channels} * (g.states + which) + at.first_channel + c] = total;
  }
}

// dB and dC of a token: the sum over the blocks of channels.
template <class T>
__global__ void token_sum_kernel(const float* sums, int blocks, int64_t tokens, int padded, int states, T* db,
                                 int64_t b_stride, T* dc, int64_t c_stride) {
  const int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, packets = tokens * padded / 2;
  if (e >= packets) return;
  float total[4] = {};
#pragma unroll 8
  for (int block = 0; block < blocks; ++block) {
    float v[4];
    unpack(reinterpret_cast<const Packet<float>*>(sums)[block * packets + e], v);
#pragma unroll
    for (int i = 0; i < 4; ++i) total[i] += v[i];
  }
  const int64_t token = e / (padded / 2);
  const int column = static_cast<int>(e % (padded / 2)) * 4, n = column % padded;
  T* row = column < padded ? db + token * b_stride : dc + token * c_stride;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (n + i < states) row[n + i] = from_float<T>(total[i]);
}

// dA_log, dD and dbias: 32 columns per block, its 32 rows of threads each summing every 32nd row.
__global__ void channel_sum_kernel(const float* sums, int rows, int64_t columns, int64_t da_columns,
                                   int64_t channels, float* da_log, float* dd, float* dbias) {
  __shared__ float part[32][33];
  const int64_t column = int64_t{blockIdx.x} * 32 + threadIdx.x;
  float total = 0.0f;
  if (column < columns) {
#pragma unroll 4
    for (int row = threadIdx.y; row < rows; row += 32) total += sums[row * columns + column];
  }
  part[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  total = 0.0f;
#pragma unroll
  for (int row = 0; row < 32; ++row) total += part[row][threadIdx.x];
  if (column < da_columns)
    da_log[column] += total;
  else if (column < da_columns + channels && dd)
    dd[column - da_columns] += total;
  else if (column >= da_columns + channels && dbias)
    dbias[column - da_columns - channels] += total;
}

template <class T, int NP, bool kGated>
void launch_backward(const BackwardArgs<T>& args, EigenvalueRange range, cudaStream_t stream) {
  constexpr int C = backward_owned(NP);
  constexpr int64_t bytes = sizeof(BackwardShared<NP, C, kGated>);
  const auto kernel = range == EigenvalueRange::kSigned ? backward_kernel<T, NP, C, true, kGated>
                                                        : backward_kernel<T, NP, C, false, kGated>;
  allow_shared_memory(kernel, bytes, "selective_scan_backward");
  const int items = args.g.batch * args.g.segments;
  const unsigned rows = (items + args.items_per_block - 1) / args.items_per_block;
  kernel<<<rows * args.g.blocks, kThreads, bytes, stream>>>(args);
  check_launch("selective_scan_backward");
}

// How many (batch, segment) items a block works through, so that all blocks run at once, two per processor.
int items_per_block(const Geometry& g) {
  const int64_t blocks = int64_t{g.blocks} * g.batch * g.segments, slots = 2 * cuda_device().multiprocessors;
  return static_cast<int>((blocks + slots - 1) / slots);
}

struct BackwardSizes {
  int64_t starts, token_sums, channel_sums;
  explicit BackwardSizes(const Geometry& g) {
    const int64_t items = int64_t{g.batch} * g.segments, per_block = items_per_block(g);
    starts = g.segments > 1 ? 2 * segment_size(g) : 0;
    token_sums = int64_t{g.blocks} * g.batch * g.time * 2 * padded_states(g.states);
    channel_sums = (items + per_block - 1) / per_block * g.channels * (g.states + 2);
  }
};

}  // namespace
}  // namespace scan

int64_t selective_scan_saved_size(const SelectiveScanShape& shape, Cuda) {
  return shape.batch * ((shape.time + scan::kTile - 1) / scan::kTile) * shape.channels * shape.states;
}

int64_t selective_scan_workspace_size(const SelectiveScanShape& shape, Cuda) {
  using namespace scan;
  const int padded = padded_states(shape.states);
  const Geometry forward = geometry(shape, channels_per_block(padded, forward_owned(padded)));
  const BackwardSizes backward(geometry(shape, channels_per_block(padded, backward_owned(padded))));
  return std::max(forward.segments > 1 ? 2 * segment_size(forward) : 0,
                  backward.starts + backward.token_sums + backward.channel_sums);
}

template <class T>
void selective_scan_backward(const SelectiveScanBackward<T>& p, Cuda device) {
  using namespace scan;
  const cudaStream_t stream = stream_of(device);
  const int padded = padded_states(p.shape.states);
  Geometry g = geometry(p.shape, channels_per_block(padded, backward_owned(padded)));
  const size_t state_bytes = sizeof(float) * g.batch * g.channels * g.states;
  if (state_bytes == 0) return;
  if (g.time == 0) {
    if (p.d_initial_state && p.d_final_state)
      check_cuda(cudaMemcpyAsync(p.d_initial_state, p.d_final_state, state_bytes, cudaMemcpyDeviceToDevice, stream),
                 "selective_scan_backward: gradient of the initial state");
    else if (p.d_initial_state)
      check_cuda(cudaMemsetAsync(p.d_initial_state, 0, state_bytes, stream),
                 "selective_scan_backward: gradient of the initial state");
    return;
  }
  g.packets = g.channels % 4 == 0 && packets_fit(p.u, g.u_stride) && packets_fit(p.raw, g.raw_stride) &&
              packets_fit(p.dy, g.y_stride) && packets_fit(p.du, g.u_stride) && packets_fit(p.draw, g.raw_stride) &&
              (!p.z || (packets_fit(p.z, g.z_stride) && packets_fit(p.dz, g.z_stride)));
  g.state_packets = packets_fit(p.initial_state, g.states) && packets_fit(p.saved, g.states) &&
                    packets_fit(p.d_final_state, g.states) && packets_fit(p.d_initial_state, g.states) &&
                    packets_fit(p.workspace, g.states) && g.channels % 2 == 0;
  const BackwardSizes sizes(g);
  // The token sums come first: they are read in packets.
  float *token_sums = p.workspace, *starts = token_sums + sizes.token_sums, *channel_sums = starts + sizes.starts;
  BackwardArgs<T> args{p, g, items_per_block(g), nullptr, token_sums, channel_sums};
  if (g.segments > 1) {
    find_segment_starts(SegmentStarts<T>{g, p.shape.range, true, p.raw, p.dy, p.z, p.c, g.y_stride, g.c_stride,
                                         p.a_log, p.bias, p.d_final_state, starts, starts + segment_size(g)},
                        stream);
    args.starts = starts;
  }
  if (padded == 4)
    p.z ? launch_backward<T, 4, true>(args, p.shape.range, stream)
        : launch_backward<T, 4, false>(args, p.shape.range, stream);
  else if (padded == 16)
    p.z ? launch_backward<T, 16, true>(args, p.shape.range, stream)
        : launch_backward<T, 16, false>(args, p.shape.range, stream);
  else
    p.z ? launch_backward<T, 64, true>(args, p.shape.range, stream)
        : launch_backward<T, 64, false>(args, p.shape.range, stream);

  const int64_t tokens = int64_t{g.batch} * g.time, packets = tokens * padded / 2;
  token_sum_kernel<<<static_cast<unsigned>((packets + 255) / 256), 256, 0, stream>>>(
      token_sums, g.blocks, tokens, padded, g.states, p.db, g.b_stride, p.dc, g.c_stride);
  check_launch("selective_scan_backward: dB and dC");
  const int64_t columns = int64_t{g.channels} * (g.states + 2);
  const int rows = (g.batch * g.segments + args.items_per_block - 1) / args.items_per_block;
  channel_sum_kernel<<<static_cast<unsigned>((columns + 31) / 32), dim3(32, 32), 0, stream>>>(
      channel_sums, rows, columns, int64_t{g.channels} * g.states, g.channels, p.da_log, p.dd, p.dbias);
  check_launch("selective_scan_backward: dA_log, dD and dbias");
}

template void selective_scan_backward(const SelectiveScanBackward<float>&, Cuda);
template void selective_scan_backward(const SelectiveScanBackward<bf16>&, Cuda);

}  // namespace signet::kernels
