// Backward of the selective scan. Per tile, from the last to the first: recompute the states from the saved
// one before the tile and keep every second one in shared memory, then walk back in time, two steps at once
// (the state between them is one product away, since both a are at hand), with
//
//   g_t = C_t dy_t + r_t,   r_{t-1} = a_t g_t,   q_t = g_t h_{t-1} s'_t     (s' = s or 2 s)
//   du = D dy + delta S,    ddelta = u S + Q     S = sum_n g B,  Q = sum_n q A
//   dB = sum_d g delta u,   dC = sum_d dy h,     dA = sum_t q delta
//
// S and Q are sums over the lanes of a channel; dB and dC are summed over lanes, warps, then blocks, always
// in this order; dA is summed in registers, then over blocks in a second kernel.
//
// So that sums over lanes need no selects, register i of a lane holds state i ^ p and channel j ^ p', where p
// and p' are the lane's own number: what it sends to the lane across is then always the same register.
#pragma once

#include "signet/kernels/selective_scan/selective_scan_cuda.cuh"

namespace signet::kernels::scan {

template <class T>
struct BackwardArgs {
  SelectiveScanBackward<T> p;
  Geometry g;
  const float* starts;  // [segments,B,channels,states] gradients of the states, null with one segment
  float* token_sums;    // [blocks,rows,2,NP] dB and dC of a block's channels
  float* channel_sums;  // [blocks over items, channels (states + 2)]: dA_log, dD, dbias
};

template <class T, class M, bool kGated>
struct BackwardTile {
  Packet<T> u[M::kPasses], raw[M::kPasses], dy[M::kPasses], z[kGated ? M::kPasses : 1];
  Packet<T> bc[M::quads(2)];
  float h[M::kOwned][4];

  __device__ void load(const SelectiveScanBackward<T>& p, const Geometry& g, const Place<M>& at,
                       const Walk<true>& walk) {
    const int row = walk.row(), steps = walk.steps(), batch = walk.item.batch, tile = walk.tile;
    load_rows(u, p.u, g.u_stride, row, steps, at, g);
    load_rows(raw, p.raw, g.raw_stride, row, steps, at, g, no_time<T>());
    load_rows(dy, p.dy, g.y_stride, row, steps, at, g);
    if constexpr (kGated) load_rows(z, p.z, g.z_stride, row, steps, at, g);
    load_quads<M, 2>(bc, p.b, g.b_stride, p.c, g.c_stride, row, steps, g);
    load_states(h, tile > 0 ? p.saved : p.initial_state, tile > 0 ? walk.item.first_place(g) + tile : batch,
                at, g);
  }
};

// Where a channel lies in shared.inputs: neighbouring packets of four channels start in different banks.
__device__ inline int slot(int channel) { return channel ^ (channel >> 3 & 3); }

template <int NP, int C>
struct BackwardShared {
  using M = Map<NP, C, false>;
  static constexpr int kCopies = M::kGroups < 4 ? M::kGroups : 4;  // of B and C, one per permutation p
  float4 inputs[kTile][M::kChannels];  // (delta, delta u, dy, -); the sweep leaves S, Q and sum_n C h in yzw
  float4 before[kTile / 2][C][kThreads];  // h_{t-1} of each thread for even t
  float4 bc[2][kTile][kCopies][M::kLanes];
  alignas(16) float sums[kTile][kWarps][2 * NP];  // dB and dC of a warp's channels
};

// What steps t and t + 1 of the way back read, t even.
template <int NP, int C>
struct BackwardPair {
  float4 in[2][C];
  float before[C][4], b[2][4], c[2][4];

  template <class Shared>
  __device__ void load(const Shared& shared, int t, int turn, int state_lane, const int (&local)[C]) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      unpack(Packet<float>{shared.bc[0][t + s][turn][state_lane]}, b[s]);
      unpack(Packet<float>{shared.bc[1][t + s][turn][state_lane]}, c[s]);
#pragma unroll
      for (int j = 0; j < C; ++j) in[s][j] = shared.inputs[t + s][local[j]];
    }
#pragma unroll
    for (int j = 0; j < C; ++j) unpack(Packet<float>{shared.before[t / 2][j][threadIdx.x]}, before[j]);
  }
};

// dB and dC over the groups of channels of a warp. With at least 8 groups db[0] is then the sum of register
// 0, of dB in the lower groups of 8 and of dC in the upper; with 2 groups registers 0 and 2 are summed.
template <class M>
__device__ inline void sum_tokens(float (&db)[4], float (&dc)[4], int group) {
  constexpr int kAcross = M::kLanes;  // lane distance of neighbouring groups
  if constexpr (M::kGroups == 2) {
#pragma unroll
    for (int i = 0; i < 4; i += 2)
      db[i] += from_lane(db[i + 1], kAcross), dc[i] += from_lane(dc[i + 1], kAcross);
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      db[i] += from_lane(db[i + 2], 2 * kAcross), dc[i] += from_lane(dc[i + 2], 2 * kAcross);
    db[0] += from_lane(db[1], kAcross), dc[0] += from_lane(dc[1], kAcross);
    db[0] = trade(db[0], dc[0], group & 4, 4 * kAcross);
#pragma unroll
    for (int mask = 8 * kAcross; mask < 32; mask *= 2) db[0] += from_lane(db[0], mask);
  }
}

// Over the lanes of a channel: the channels are dealt out to the first C lanes, register 0 holds the lane's
// own.
template <class M>
__device__ inline void deal_channels(float (&value)[M::kOwned]) {
  if constexpr (M::kOwned >= 4 && M::kLanes >= 4) {
#pragma unroll
    for (int j = 0; j < 2; ++j) value[j] += from_lane(value[j + 2], 2);
  }
  if constexpr (M::kOwned >= 2 && M::kLanes >= 2) value[0] += from_lane(value[1], 1);
}
template <class M>
__device__ inline void sum_channels(float (&value)[M::kOwned]) {
  deal_channels<M>(value);
#pragma unroll
  for (int mask = M::kOwned; mask < M::kLanes; mask *= 2) value[0] += from_lane(value[0], mask);
}
// Both sums at once: while lanes are left, the second C lanes take `second`, in `first`.
template <class M>
__device__ inline void sum_channels(float (&first)[M::kOwned], float (&second)[M::kOwned], int state_lane) {
  deal_channels<M>(first);
  deal_channels<M>(second);
  if constexpr (M::kOwned < M::kLanes) {
    first[0] = trade(first[0], second[0], state_lane & M::kOwned, M::kOwned);
#pragma unroll
    for (int mask = 2 * M::kOwned; mask < M::kLanes; mask *= 2) first[0] += from_lane(first[0], mask);
  }
}

template <class T, int NP, int C, bool kWhole, bool kSigned, bool kGated>
__global__ void __launch_bounds__(kThreads) backward_kernel(const __grid_constant__ BackwardArgs<T> args) {
  using M = Map<NP, C, kWhole>;
  using Shared = BackwardShared<NP, C>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
  const SelectiveScanBackward<T>& p = args.p;
  const Geometry g = known<M>(args.g);
  Place<M> at(g);
  const int warp = threadIdx.x / 32, n0 = at.state_lane * kStates;
  const int turn = at.group & (Shared::kCopies - 1);  // p
  constexpr int kTraded = C < M::kLanes ? C : M::kLanes;
  const int own = at.state_lane & (kTraded - 1);  // p'

  int local[C];
  float rate[C][4], da[C][4] = {}, r[C][4], h[C][4], d[4], bias[4], dd[4] = {}, dbias[4] = {};
#pragma unroll
  for (int j = 0; j < C; ++j) at.owned[j] ^= own, local[j] = slot(at.owned[j]);
  load_rates(rate, p.a_log, at, g);
  permute(rate, turn);
  load_channels(d, p.d, at);
  load_channels(bias, p.bias, at);

  Walk<true> walk(g);
  BackwardTile<T, M, kGated> next;
  next.load(p, g, at, walk);
  while (!walk.done()) {
    const Walk<true> here = walk;
    const int steps = here.steps(), batch = here.item.batch, first_row = here.row();
    if (here.starts(g)) {
      load_states(r, args.starts ? args.starts : p.d_final_state,
                  args.starts ? here.item.segment * g.batch + batch : batch, at, g);
      permute(r, turn);
    }
    const BackwardTile<T, M, kGated> now = next;
#pragma unroll
    for (int j = 0; j < C; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) h[j][i] = now.h[j][i];
    }
    permute(h, turn);
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
        for (int i = 0; i < 4; ++i) dy[i] *= z[i] * logistic(z[i]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float delta = delta_of(g, raw[i] + bias[i]);
        shared.inputs[t][slot(at.packet_channel) ^ i] = make_float4(delta, delta * u[i], dy[i], 0.0f);
      }
    }
#pragma unroll
    for (int k = 0; k < M::quads(2); ++k) {
      const Quad<M> q(k);
      float v[4];
      unpack(now.bc[k], v);
      if (q.array < 2) {
        float4(&copies)[Shared::kCopies][M::kLanes] = shared.bc[q.array][q.t];
        copies[0][q.n / 4] = make_float4(v[0], v[1], v[2], v[3]);
        copies[1][q.n / 4] = make_float4(v[1], v[0], v[3], v[2]);
        if constexpr (Shared::kCopies == 4) {
          copies[2][q.n / 4] = make_float4(v[2], v[3], v[0], v[1]);
          copies[3][q.n / 4] = make_float4(v[3], v[2], v[1], v[0]);
        }
      }
    }
    __syncthreads();
    walk.advance(g);
    next.load(p, g, at, walk);

    // Steps are taken several at a time: all reads (on the way back those of the next steps), then all sums
    // over lanes, then all writes, so that the latencies overlap.
#pragma unroll 1
    for (int t = 0; t < steps; t += 4) {
      float2 in[4][C];
      float b[4][4];
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        unpack(Packet<float>{shared.bc[0][t + s][turn][at.state_lane]}, b[s]);
#pragma unroll
        for (int j = 0; j < C; ++j)
          in[s][j] = *reinterpret_cast<const float2*>(&shared.inputs[t + s][local[j]]);
      }
#pragma unroll
      for (int s = 0; s < 4; ++s) {
#pragma unroll
        for (int j = 0; j < C; ++j) {
          if (s % 2 == 0)
            shared.before[(t + s) / 2][j][threadIdx.x] = make_float4(h[j][0], h[j][1], h[j][2], h[j][3]);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            h[j][i] = advance<kSigned>(slope<kSigned>(in[s][j].x, rate[j][i]), h[j][i], in[s][j].y, b[s][i]);
        }
      }
    }

    BackwardPair<NP, C> pair;
    const int top = (steps - 1) / 4 * 4;  // four steps are unrolled, so that addresses are constants
    pair.load(shared, top + 2, turn, at.state_lane, local);
#pragma unroll 1
    for (int base = top; base >= 0; base -= 4) {
#pragma unroll
      for (int t0 = base + 2, part = 1; part >= 0; --part, t0 -= 2) {
        float db[2][4] = {}, dc[2][4] = {}, sum_s[2][C] = {}, sum_q[2][C] = {}, sum_y[2][C] = {};
#pragma unroll
        for (int j = 0; j < C; ++j) {
          float slopes[2][4], between[4];  // s', h_t0
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            slopes[0][i] = slope<kSigned>(pair.in[0][j].x, rate[j][i]);
            slopes[1][i] = slope<kSigned>(pair.in[1][j].x, rate[j][i]);
            between[i] = advance<kSigned>(slopes[0][i], pair.before[j][i], pair.in[0][j].y, pair.b[0][i]);
          }
#pragma unroll
          for (int s = 1; s >= 0; --s) {
            const auto [delta, delta_u, dy, unused] = pair.in[s][j];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const float grad = fmaf(pair.c[s][i], dy, r[j][i]);
              r[j][i] = retreat<kSigned>(slopes[s][i], grad);
              const float before = s > 0 ? between[i] : pair.before[j][i],
                          after = s > 0 ? h[j][i] : between[i];
              const float q = slopes[s][i] * grad * before;
              sum_s[s][j] = fmaf(grad, pair.b[s][i], sum_s[s][j]);
              sum_q[s][j] = fmaf(q, rate[j][i], sum_q[s][j]);
              if (kGated) sum_y[s][j] = fmaf(pair.c[s][i], after, sum_y[s][j]);
              da[j][i] = fmaf(q, delta, da[j][i]);
              db[s][i] = fmaf(grad, delta_u, db[s][i]);
              dc[s][i] = fmaf(dy, after, dc[s][i]);
            }
          }
#pragma unroll
          for (int i = 0; i < 4; ++i) h[j][i] = pair.before[j][i];
        }
        // In front of the first step: not used.
        pair.load(shared, part > 0 ? t0 - 2 : max(t0 - 2, 0), turn, at.state_lane, local);
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          sum_tokens<M>(db[s], dc[s], at.group);
          sum_channels<M>(sum_s[s], sum_q[s], at.state_lane);
          if constexpr (kGated) sum_channels<M>(sum_y[s]);
        }
        __syncwarp();
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const int t = t0 + s;
          if constexpr (M::kGroups == 2) {
            float* sums = shared.sums[t][warp] + n0;
            sums[turn] = db[s][0], sums[2 ^ turn] = db[s][2];
            sums[NP + turn] = dc[s][0], sums[NP + (2 ^ turn)] = dc[s][2];
          } else if (at.group < 8) {
            shared.sums[t][warp][(at.group & 4 ? NP : 0) + n0 + turn] = db[s][0];
          }
          if constexpr (M::kLanes == 1) {
#pragma unroll
            for (int j = 0; j < C; ++j)
              shared.inputs[t][local[j]].y = sum_s[s][j], shared.inputs[t][local[j]].z = sum_q[s][j];
          } else if constexpr (kTraded == M::kLanes) {
            shared.inputs[t][local[0]].y = sum_s[s][0], shared.inputs[t][local[0]].z = sum_q[s][0];
          } else if (at.state_lane < 2 * kTraded) {
            (&shared.inputs[t][local[0]].y)[at.state_lane / kTraded] = sum_s[s][0];
          }
          if constexpr (kGated && M::kLanes == 1) {
#pragma unroll
            for (int j = 0; j < C; ++j) shared.inputs[t][local[j]].w = sum_y[s][j];
          } else if (kGated && at.state_lane < kTraded) {
            shared.inputs[t][local[0]].w = sum_y[s][0];
          }
        }
      }
    }
    if (here.tile == 0 && p.d_initial_state) {
      permute(r, turn);  // the walk through its item ends here
      store_states(p.d_initial_state, batch, at, g, r);
    }
    __syncthreads();

#pragma unroll
    for (int k = 0; k < M::kPasses; ++k) {
      const int t = at.packet_row + k * M::kRows;
      if (t >= steps) break;
      float raw[4], u[4], dy[4], z[4], du[4], draw[4], dz[4];
      unpack(now.raw[k], raw);
      unpack(now.u[k], u);
      unpack(now.dy[k], dy);
      if constexpr (kGated) unpack(now.z[k], z);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 in = shared.inputs[t][slot(at.packet_channel) ^ i];
        if constexpr (kGated) {
          const float s = logistic(z[i]), y = fmaf(d[i], u[i], in.w);
          dz[i] = dy[i] * y * s * fmaf(z[i], 1.0f - s, 1.0f);
          dy[i] *= z[i] * s;
        }
        du[i] = fmaf(d[i], dy[i], in.x * in.y);
        draw[i] = fmaf(u[i], in.y, kLn2 * in.z) * (g.softplus ? logistic(raw[i] + bias[i]) : 1.0f);
        dd[i] = fmaf(dy[i], u[i], dd[i]);
        dbias[i] += draw[i];
      }
      const auto store = [&](T* to, int stride, const float(&values)[4]) {
        store_packet(to + int64_t{first_row + t} * stride + at.row_channel, 0, at.row_channels, g.packets,
                     values);
      };
      store(p.du, g.u_stride, du);
      store(p.draw, g.raw_stride, draw);
      if constexpr (kGated) store(p.dz, g.z_stride, dz);
    }
    const int64_t sums_row = int64_t{blockIdx.x % g.blocks} * g.rows + first_row;
#pragma unroll
    for (int e = threadIdx.x; e < kTile * NP / 2; e += kThreads) {
      const int t = e / (NP / 2), quad = e % (NP / 2);
      if (t >= steps) break;
      float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float4 part = reinterpret_cast<const float4*>(shared.sums[t][w])[quad];
        total.x += part.x, total.y += part.y, total.z += part.z, total.w += part.w;
      }
      reinterpret_cast<float4*>(args.token_sums)[(sums_row + t) * (NP / 2) + quad] = total;
    }
  }

  float* sums = args.channel_sums + int64_t{blockIdx.x / g.blocks} * g.channels * (g.states + 2);
#pragma unroll
  for (int j = 0; j < C; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) da[j][i] *= rate[j][i] * kLn2;  // dA_log = A dA
  }
  permute(da, turn);
  store_states(sums, 0, at, g, da);
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
    if (at.has(c)) sums[int64_t{g.channels} * (g.states + which) + at.first_channel + c] = total;
  }
}

}  // namespace signet::kernels::scan
