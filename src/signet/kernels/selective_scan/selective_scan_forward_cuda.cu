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
  float b[M::kScalars], c[M::kScalars];

  __device__ void load(const ForwardArgs<T>& args, const Place<M>& at, int tile) {
    const auto& [p, g, starts] = args;
    const int steps = g.time - tile * kTile;
    const int64_t row = int64_t{at.batch} * g.time + int64_t{tile} * kTile;
    load_rows(u, p.u + row * g.u_stride, g.u_stride, steps, at, g);
    load_rows(raw, p.raw + row * g.raw_stride, g.raw_stride, steps, at, g);
    if (p.z) load_rows(z, p.z + row * g.z_stride, g.z_stride, steps, at, g);
    load_scalars<M>(b, p.b + row * g.b_stride, g.b_stride, steps, g.states);
    load_scalars<M>(c, p.c + row * g.c_stride, g.c_stride, steps, g.states);
  }
};

template <class T, int NP, int C, bool kSigned>
__global__ void __launch_bounds__(kThreads) forward_kernel(const __grid_constant__ ForwardArgs<T> args) {
  using M = Map<NP, C>;
  constexpr int kTogether = 4 / C;  // steps whose outputs are reduced over the lanes at once
  __shared__ float2 inputs[kTile * M::kChannels];  // (delta, delta u); the sweep leaves sum_n C h in x
  __shared__ __align__(16) float b_tile[kTile * NP], c_tile[kTile * NP];
  const SelectiveScanForward<T>& p = args.p;
  const Geometry& g = args.g;
  const Place<M> at(g, blockIdx.x / g.blocks);
  const int n0 = at.state_lane * kStates, row_channel = at.first_channel + at.packet_channel;

  float rate[C][4], h[C][4], d[4] = {}, bias[4] = {};
#pragma unroll
  for (int j = 0; j < C; ++j) {
    const int channel = at.first_channel + at.channel + j;
    load_rates(rate[j], p.a_log, channel, n0, g);
    const float* start = args.starts ? args.starts + state_row(int64_t{at.segment} * g.batch + at.batch, channel, g)
                         : p.initial_state ? p.initial_state + state_row(at.batch, channel, g)
                                           : nullptr;
    load_states(h[j], channel < g.channels ? start : nullptr, n0, g);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (p.d && row_channel + i < g.channels) d[i] = p.d[row_channel + i];
    if (p.bias && row_channel + i < g.channels) bias[i] = p.bias[row_channel + i];
  }

  const int first = at.segment * g.tiles_per_segment, last = min(first + g.tiles_per_segment, g.tiles);
  ForwardTile<T, M> next;
  next.load(args, at, first);
  for (int tile = first; tile < last; ++tile) {
    const int steps = min(kTile, g.time - tile * kTile);
    const ForwardTile<T, M> now = next;
    if (p.saved && tile > 0) {
#pragma unroll
      for (int j = 0; j < C; ++j) {
        const int channel = at.first_channel + at.channel + j;
        if (channel < g.channels)
          store_states(p.saved + state_row(int64_t{at.batch} * g.tiles + tile, channel, g), n0, g, h[j]);
      }
    }
#pragma unroll
    for (int k = 0; k < M::kPasses; ++k) {
      const int t = at.packet_row + k * M::kRows;
      if (t >= kTile) break;
      float raw[4], u[4];
      unpack(now.raw[k], raw);
      unpack(now.u[k], u);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float delta = t < steps ? softplus(raw[i] + bias[i]).value : 0.0f;
        inputs[t * M::kChannels + at.packet_channel + i] = make_float2(delta, delta * u[i]);
      }
    }
#pragma unroll
    for (int k = 0; k < M::kScalars; ++k) {
      const int e = threadIdx.x + k * kThreads;
      if (e < kTile * NP) b_tile[e] = now.b[k], c_tile[e] = now.c[k];
    }
    __syncthreads();
    if (tile + 1 < last) next.load(args, at, tile + 1);

#pragma unroll 2
    for (int t = 0; t < steps; t += kTogether) {
      float y[4];
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
        const float4 b4 = *reinterpret_cast<const float4*>(b_tile + (t + s) * NP + n0);
        const float4 c4 = *reinterpret_cast<const float4*>(c_tile + (t + s) * NP + n0);
        const float b[4] = {b4.x, b4.y, b4.z, b4.w}, c[4] = {c4.x, c4.y, c4.z, c4.w};
#pragma unroll
        for (int j = 0; j < C; ++j) {
          const float2 in = inputs[(t + s) * M::kChannels + at.channel + j];
          float sum = 0.0f;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            h[j][i] = fmaf(decay<kSigned>(in.x * rate[j][i]), h[j][i], in.y * b[i]);
            sum = fmaf(c[i], h[j][i], sum);
          }
          y[s * C + j] = sum;
        }
      }
      if constexpr (M::kLanes >= 4) {
        // Four values over four lanes: each lane ends with the one of its number.
        const float low = trade(y[0], y[2], at.state_lane & 2, 2), high = trade(y[1], y[3], at.state_lane & 2, 2);
        float mine = trade(low, high, at.state_lane & 1, 1);
#pragma unroll
        for (int mask = 4; mask < M::kLanes; mask *= 2) mine += from_lane(mine, mask);
        const int s = (at.state_lane & 3) / C, j = (at.state_lane & 3) % C;
        if (at.state_lane < 4) inputs[(t + s) * M::kChannels + at.channel + j].x = mine;
      } else {
#pragma unroll
        for (int v = 0; v < 4; ++v) inputs[(t + v / C) * M::kChannels + at.channel + v % C].x = y[v];
      }
    }
    __syncthreads();

#pragma unroll
    for (int k = 0; k < M::kPasses; ++k) {
      const int t = at.packet_row + k * M::kRows;
      if (t >= steps) break;
      float u[4], z[4], y[4];
      unpack(now.u[k], u);
      if (p.z) unpack(now.z[k], z);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        y[i] = fmaf(d[i], u[i], inputs[t * M::kChannels + at.packet_channel + i].x);
        if (p.z) y[i] *= z[i] * sigmoid(z[i]);
      }
      const int64_t row = int64_t{at.batch} * g.time + int64_t{tile} * kTile + t;
      store_packet(p.y + row * g.y_stride, row_channel, g.channels, g.packets, y);
    }
  }
  if (p.final_state && last == g.tiles) {
#pragma unroll
    for (int j = 0; j < C; ++j) {
      const int channel = at.first_channel + at.channel + j;
      if (channel < g.channels)
        store_states(p.final_state + state_row(at.batch, channel, g), n0, g, h[j]);
    }
  }
}

template <class T, int NP>
void launch_forward(const ForwardArgs<T>& args, EigenvalueRange range, cudaStream_t stream) {
  constexpr int C = forward_owned(NP);
  const int64_t grid = int64_t{args.g.blocks} * args.g.batch * args.g.segments;
  if (range == EigenvalueRange::kSigned)
    forward_kernel<T, NP, C, true><<<static_cast<unsigned>(grid), kThreads, 0, stream>>>(args);
  else
    forward_kernel<T, NP, C, false><<<static_cast<unsigned>(grid), kThreads, 0, stream>>>(args);
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
  const size_t state_bytes = sizeof(float) * g.batch * g.channels * g.states;
  if (state_bytes == 0) return;
  if (g.time == 0) {
    if (p.final_state && p.initial_state)
      check_cuda(cudaMemcpyAsync(p.final_state, p.initial_state, state_bytes, cudaMemcpyDeviceToDevice, stream),
                 "selective_scan_forward: final state");
    else if (p.final_state)
      check_cuda(cudaMemsetAsync(p.final_state, 0, state_bytes, stream), "selective_scan_forward: final state");
    return;
  }
  g.packets = g.channels % 4 == 0 && packets_fit(p.u, g.u_stride) && packets_fit(p.raw, g.raw_stride) &&
              packets_fit(p.y, g.y_stride) && (!p.z || packets_fit(p.z, g.z_stride));
  g.state_packets = packets_fit(p.initial_state, g.states) && packets_fit(p.final_state, g.states) &&
                    packets_fit(p.saved, g.states) && packets_fit(p.workspace, g.states);
  ForwardArgs<T> args{p, g, nullptr};
  if (g.segments > 1) {
    float* starts = p.workspace;
    find_segment_starts(SegmentStarts<T>{g, p.shape.range, false, p.raw, p.u, nullptr, p.b, g.u_stride, g.b_stride,
                                         p.a_log, p.bias, p.initial_state, starts, starts + segment_size(g)},
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
