#include "signet/kernels/selective_scan/selective_scan_cuda.cuh"

namespace signet::kernels {
namespace scan {
namespace {

template <class T>
struct ForwardArgs {
  SelectiveScanForward<T> p;
  Geometry g;
  const float* starts;  // [segments,B,channels,states], null with one segment
};

template <class T, class M>
struct ForwardTile {
  Packet<T> u[M::kPasses], raw[M::kPasses], z[M::kPasses];
  Packet<T> bc[M::quads(2)];

  __device__ void load(const SelectiveScanForward<T>& p, const Geometry& g, const Place<M>& at,
                       const Walk<false>& walk) {
    const int row = walk.row(), steps = walk.steps();
    load_rows(u, p.u, g.u_stride, row, steps, at, g);
    load_rows(raw, p.raw, g.raw_stride, row, steps, at, g, no_time<T>());
    if (p.z) load_rows(z, p.z, g.z_stride, row, steps, at, g);
    load_quads<M, 2>(bc, p.b, g.b_stride, p.c, g.c_stride, row, steps, g);
  }
};

constexpr int kForwardTogether = 8;
constexpr int kForwardBlocks = 4;  // that are to run on a multiprocessor at once

// Where a pair of channels lies in shared memory: neighbouring packets start in different banks.
__device__ inline int pair_slot(int pair) { return pair ^ (pair >> 3 & 1); }

template <class T, int NP, int C, bool kWhole, bool kSigned>
__global__ void __launch_bounds__(kThreads, NP == 16 ? kForwardBlocks : 1)
    forward_kernel(const __grid_constant__ ForwardArgs<T> args) {
  using M = Map<NP, C, kWhole>;
  // Steps that are read, computed and reduced over the lanes at once.
  constexpr int kTogether = kForwardTogether;
  __shared__ float4 inputs[kTile][M::kChannels / 2];  // (delta, delta u) of two channels; the sweep leaves
                                                      // their sums of C h over n in x and z
  __shared__ float4 bc_tile[2][kTile][M::kLanes];
  const SelectiveScanForward<T>& p = args.p;
  const Geometry g = known<M>(args.g);
  const Place<M> at(g);
  const int first_owned = at.owned[0], pair = pair_slot(first_owned / 2);
  float rate[C][4], h[C][4], d[4], bias[4];
  load_rates(rate, p.a_log, at, g);
  load_channels(d, p.d, at);
  load_channels(bias, p.bias, at);

  Walk<false> walk(g);
  ForwardTile<T, M> next;
  next.load(p, g, at, walk);
  while (!walk.done()) {
    const Walk<false> here = walk;
    const int batch = here.item.batch, steps = here.steps();
    const ForwardTile<T, M> now = next;
    if (here.starts(g))
      load_states(h, args.starts ? args.starts : p.initial_state,
                  args.starts ? here.item.segment * g.batch + batch : batch, at, g);
    if (p.saved && here.tile > 0) store_states(p.saved, here.item.first_place(g) + here.tile, at, g, h);
#pragma unroll
    for (int k = 0; k < M::kPasses; ++k) {
      const int t = at.packet_row + k * M::kRows;
      if (t >= kTile) break;
      float raw[4], u[4];
      unpack(now.raw[k], raw);
      unpack(now.u[k], u);
#pragma unroll
      for (int i = 0; i < 4; ++i) raw[i] = delta_of(g, raw[i] + bias[i]);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        inputs[t][pair_slot(at.packet_channel / 2) ^ i] =
            make_float4(raw[2 * i], raw[2 * i] * u[2 * i], raw[2 * i + 1], raw[2 * i + 1] * u[2 * i + 1]);
    }
#pragma unroll
    for (int k = 0; k < M::quads(2); ++k) {
      const Quad<M> q(k);
      float v[4];
      unpack(now.bc[k], v);
      if (q.array < 2) bc_tile[q.array][q.t][q.n / 4] = make_float4(v[0], v[1], v[2], v[3]);
    }
    __syncthreads();
    walk.advance(g);
    next.load(p, g, at, walk);

#pragma unroll 1
    for (int t = 0; t < steps; t += kTogether) {
      float y[kTogether][C];
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
        float2 in[C];
        float b[4], c[4];
        unpack(Packet<float>{bc_tile[0][t + s][at.state_lane]}, b);
        unpack(Packet<float>{bc_tile[1][t + s][at.state_lane]}, c);
        if constexpr (C == 1) {
          in[0] = (&reinterpret_cast<float2&>(inputs[t + s][pair]))[first_owned & 1];
        } else {
          const float4 both = inputs[t + s][pair];
          in[0] = make_float2(both.x, both.y), in[1] = make_float2(both.z, both.w);
        }
#pragma unroll
        for (int j = 0; j < C; ++j) {
          y[s][j] = 0.0f;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            h[j][i] = advance<kSigned>(slope<kSigned>(in[j].x, rate[j][i]), h[j][i], in[j].y, b[i]);
            y[s][j] = fmaf(c[i], h[j][i], y[s][j]);
          }
        }
      }
      if constexpr (M::kLanes >= 4) {
        // Four steps over four lanes: each lane ends with the step of its number.
#pragma unroll
        for (int s = 0; s < kTogether; s += 4) {
#pragma unroll
          for (int j = 0; j < C; ++j) {
            const float even = trade(y[s][j], y[s + 2][j], at.state_lane & 2, 2);
            const float odd = trade(y[s + 1][j], y[s + 3][j], at.state_lane & 2, 2);
            y[s][j] = trade(even, odd, at.state_lane & 1, 1);
#pragma unroll
            for (int mask = 4; mask < M::kLanes; mask *= 2) y[s][j] += from_lane(y[s][j], mask);
          }
        }
      }
      __syncwarp();
#pragma unroll
      for (int s = 0; s < kTogether; s += M::kLanes >= 4 ? 4 : 1) {
        if (M::kLanes >= 4 && at.state_lane >= 4) break;
        float* out = &inputs[t + s + (M::kLanes >= 4 ? at.state_lane : 0)][pair].x;
#pragma unroll
        for (int j = 0; j < C; ++j) out[(first_owned + j & 1) * 2] = y[s][j];
      }
    }
    __syncthreads();

#pragma unroll
    for (int k = 0; k < M::kPasses; ++k) {
      const int t = at.packet_row + k * M::kRows;
      if (t >= steps) break;
      float u[4], y[4];
      unpack(now.u[k], u);
      const float4 low = inputs[t][pair_slot(at.packet_channel / 2)],
                   high = inputs[t][pair_slot(at.packet_channel / 2) ^ 1];
      const float sums[4] = {low.x, low.z, high.x, high.z};
#pragma unroll
      for (int i = 0; i < 4; ++i) y[i] = fmaf(d[i], u[i], sums[i]);
      if (p.z) {
        float z[4];
        unpack(now.z[k], z);
#pragma unroll
        for (int i = 0; i < 4; ++i) y[i] *= z[i] * logistic(z[i]);
      }
      store_packet(p.y + int64_t{here.row() + t} * g.y_stride + at.row_channel, 0, at.row_channels, g.packets,
                   y);
    }
    if (p.final_state && here.tile + 1 == g.tiles) store_states(p.final_state, batch, at, g, h);
  }
}

template <class T, int NP>
void launch_forward(const ForwardArgs<T>& args, EigenvalueRange range, cudaStream_t stream) {
  constexpr int C = forward_owned(NP);
  constexpr bool kTuned = tuned(NP);
  const bool whole = kTuned && args.g.whole(NP, C), is_signed = range == EigenvalueRange::kSigned;
  const auto kernel =
      whole ? (is_signed ? forward_kernel<T, NP, C, kTuned, true> : forward_kernel<T, NP, C, kTuned, false>)
            : (is_signed ? forward_kernel<T, NP, C, false, true> : forward_kernel<T, NP, C, false, false>);
  const unsigned grid = static_cast<unsigned>(item_blocks(args.g, kForwardBlocks)) * args.g.blocks;
  kernel<<<grid, kThreads, 0, stream>>>(args);
  check_launch("selective_scan_forward");
}

}  // namespace
}  // namespace scan

template <class T>
void selective_scan_forward(const SelectiveScanForward<T>& p, Cuda device) {
  using namespace scan;
  const cudaStream_t stream = stream_of(device);
  const int padded = padded_states(p.shape.states);
  Geometry g = geometry(p.shape, channels_per_block(padded, forward_owned(padded)));
  const int64_t states = int64_t{g.batch} * g.channels * g.states;
  if (states == 0) return;
  if (g.time == 0)
    return hand_on_states(p.final_state, p.initial_state, states, "selective_scan_forward: final state",
                          device);
  g.packets = g.channels % 4 == 0 && packets_fit(p.u, g.u_stride) && packets_fit(p.raw, g.raw_stride) &&
              packets_fit(p.y, g.y_stride) && (!p.z || packets_fit(p.z, g.z_stride));
  g.token_packets = g.states % 4 == 0 && packets_fit(p.b, g.b_stride) && packets_fit(p.c, g.c_stride);
  g.state_packets = packets_fit(p.initial_state, g.states) && packets_fit(p.final_state, g.states) &&
                    packets_fit(p.saved, g.states) && packets_fit(p.workspace, g.states);
  ForwardArgs<T> args{p, g, nullptr};
  if (g.segments > 1) {
    float* starts = p.workspace;
    find_segment_starts(
        SegmentStarts<T>{g, p.shape.range, false, p.raw, p.u, nullptr, p.b, g.u_stride, g.b_stride, p.a_log,
                         p.bias, p.initial_state, starts, starts + segment_size(g)},
        stream);
    args.starts = starts;
  }
  switch (padded) {
    case 4:
      return launch_forward<T, 4>(args, p.shape.range, stream);
    case 16:
      return launch_forward<T, 16>(args, p.shape.range, stream);
    default:
      return launch_forward<T, 64>(args, p.shape.range, stream);
  }
}

template void selective_scan_forward(const SelectiveScanForward<float>&, Cuda);
template void selective_scan_forward(const SelectiveScanForward<bf16>&, Cuda);

}  // namespace signet::kernels
