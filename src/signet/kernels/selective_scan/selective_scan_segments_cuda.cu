#include <algorithm>

#include "signet/kernels/selective_scan/selective_scan_cuda.cuh"

namespace signet::kernels {
namespace scan {
namespace {

// Segments shorter than this would spend more in the extra pass than they gain.
constexpr int kLeastTilesPerSegment = 8;

template <class T, class M>
struct SegmentTile {
  Packet<T> raw[M::kPasses], x[M::kPasses], z[M::kPasses];
  Packet<T> w[M::quads(1)];

  __device__ void load(const SegmentStarts<T>& p, const Geometry& g, const Place<M>& at, const Item& item,
                       int tile) {
    const int steps = item.time() - tile * kTile, row = item.first_row + tile * kTile;
    load_rows(raw, p.raw, g.raw_stride, row, steps, at, g, no_time<T>());
    load_rows(x, p.x, p.x_stride, row, steps, at, g);
    if (p.z) load_rows(z, p.z, g.z_stride, row, steps, at, g);
    load_quads<M, 1>(w, p.w, p.w_stride, p.w, p.w_stride, row, steps, g);
  }
};

// Per segment: the product of its a, and from zero either h_t = a_t h_{t-1} + delta_t u_t B_t forwards or
// r_{t-1} = a_t (r_t + dy_t C_t) backwards.
template <class T, int NP, int C, bool kWhole, bool kSigned, bool kReverse>
__global__ void __launch_bounds__(kThreads) transition_kernel(const __grid_constant__ SegmentStarts<T> p) {
  using M = Map<NP, C, kWhole>;
  __shared__ float2 inputs[kTile * M::kChannels];  // (delta, x)
  __shared__ float4 w_tile[kTile][M::kLanes];
  const Geometry g = known<M>(p.g);
  const Item item(g, blockIdx.x / g.blocks);
  if (item.segment == (kReverse ? 0 : g.segments - 1)) return;  // nobody starts from its result
  const Place<M> at(g);
  float rate[C][4], h[C][4] = {}, product[C][4], total[C] = {}, bias[4];
  load_rates(rate, p.a_log, at, g);
  load_channels(bias, p.bias, at);
#pragma unroll
  for (int j = 0; j < C; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) product[j][i] = 1.0f;
  }
  const int first = item.first_tile(g), last = item.end_tile(g);
  const auto nth_tile = [&](int i) { return kReverse ? last - 1 - i : first + i; };
  SegmentTile<T, M> next;
  next.load(p, g, at, item, nth_tile(0));
  for (int index = 0; index < last - first; ++index) {
#pragma unroll
    for (int k = 0; k < M::kPasses; ++k) {
      const int t = at.packet_row + k * M::kRows;
      if (t >= kTile) break;
      float raw[4], x[4];
      unpack(next.raw[k], raw);
      unpack(next.x[k], x);
      if (p.z) {
        float z[4];
        unpack(next.z[k], z);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] *= z[i] * logistic(z[i]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float delta = delta_of(g, raw[i] + bias[i]);
        inputs[t * M::kChannels + at.packet_channel + i] = make_float2(delta, kReverse ? x[i] : delta * x[i]);
      }
    }
#pragma unroll
    for (int k = 0; k < M::quads(1); ++k) {
      const Quad<M> q(k);
      float v[4];
      unpack(next.w[k], v);
      if (q.array < 1) w_tile[q.t][q.n / 4] = make_float4(v[0], v[1], v[2], v[3]);
    }
    __syncthreads();
    if (index + 1 < last - first) next.load(p, g, at, item, nth_tile(index + 1));

#pragma unroll 4
    for (int step = 0; step < kTile; ++step) {
      const int t = kReverse ? kTile - 1 - step : step;
      float w[4];
      unpack(Packet<float>{w_tile[t][at.state_lane]}, w);
#pragma unroll
      for (int j = 0; j < C; ++j) {
        const float2 in = inputs[t * M::kChannels + at.owned[j]];
        total[j] += in.x;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float s = slope<kSigned>(in.x, rate[j][i]);
          h[j][i] = kReverse ? retreat<kSigned>(s, fmaf(in.y, w[i], h[j][i]))
                             : advance<kSigned>(s, h[j][i], in.y, w[i]);
          if (kSigned) product[j][i] = retreat<kSigned>(s, product[j][i]);
        }
      }
    }
    __syncthreads();
  }
  if (!kSigned) {
#pragma unroll
    for (int j = 0; j < C; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) product[j][i] = exp2_approx(total[j] * rate[j][i]);
    }
  }
  store_states(p.starts, item.segment * g.batch + item.batch, at, g, h);
  store_states(p.products, item.segment * g.batch + item.batch, at, g, product);
}

// One thread per state: what segment s hands on is its product times what it starts from plus its own result.
__global__ void chain_kernel(const float* outer, float* starts, const float* products, int64_t states,
                             int segments, bool reverse) {
  const int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (e >= states) return;
  float carry = outer ? outer[e] : 0.0f;
#pragma unroll 4
  for (int i = 0; i < segments; ++i) {
    const int64_t at = (reverse ? segments - 1 - i : i) * states + e;
    const bool used = i + 1 < segments;
    const float own = used ? starts[at] : 0.0f, product = used ? products[at] : 0.0f;
    starts[at] = carry;
    carry = fmaf(product, carry, own);
  }
}

template <class T, int NP, bool kWhole>
void launch_transitions(const SegmentStarts<T>& p, cudaStream_t stream) {
  const unsigned grid = static_cast<unsigned>(int64_t{p.g.blocks} * p.g.batch * p.g.segments);
  constexpr int C = forward_owned(NP);
  const bool is_signed = p.range == EigenvalueRange::kSigned;
  const auto kernel = is_signed ? (p.reverse ? transition_kernel<T, NP, C, kWhole, true, true>
                                             : transition_kernel<T, NP, C, kWhole, true, false>)
                                : (p.reverse ? transition_kernel<T, NP, C, kWhole, false, true>
                                             : transition_kernel<T, NP, C, kWhole, false, false>);
  kernel<<<grid, kThreads, 0, stream>>>(p);
  check_launch("selective_scan: segment transitions");
}

}  // namespace

int padded_states(int64_t states) {
  if (states > 64)
    fail(ErrorCode::kUsage, "the selective scan on the GPU takes at most 64 states per channel; got {}",
         states);
  return states <= 4 ? 4 : states <= 16 ? 16 : 64;
}

Geometry geometry(const SelectiveScanShape& shape, int channels_per_block) {
  const SelectiveScanShape full = with_strides(shape);
  const int64_t largest = std::max({shape.batch, shape.time, shape.channels, full.u_stride, full.raw_stride,
                                    full.z_stride, full.b_stride, full.c_stride, full.y_stride});
  const int64_t least = std::min({shape.batch, shape.time, shape.channels, shape.states});
  const int64_t rows = shape.rows();
  if (largest > (1 << 26) || least < 0 || rows >= int64_t{1} << 30)
    fail(ErrorCode::kUsage,
         "selective scan of batch {}, time {}, channels {}, states {}: sizes and strides must be in "
         "[0, 2^26], rows below 2^30",
         shape.batch, shape.time, shape.channels, shape.states);
  Geometry g{};
  g.batch = static_cast<int>(shape.batch), g.time = static_cast<int>(shape.time);
  g.channels = static_cast<int>(shape.channels), g.states = static_cast<int>(shape.states);
  g.u_stride = static_cast<int>(full.u_stride), g.raw_stride = static_cast<int>(full.raw_stride);
  g.z_stride = static_cast<int>(full.z_stride), g.y_stride = static_cast<int>(full.y_stride);
  g.b_stride = static_cast<int>(full.b_stride), g.c_stride = static_cast<int>(full.c_stride);
  g.blocks = (g.channels + channels_per_block - 1) / channels_per_block;
  g.tiles = (g.time + kTile - 1) / kTile;
  g.rows = shape.rows(), g.offsets = shape.offsets, g.softplus = shape.softplus;
  const int64_t wanted = 2 * cuda_device().multiprocessors, have = int64_t{g.blocks} * g.batch;
  const int64_t most = g.offsets ? 1 : std::max(1, g.tiles / kLeastTilesPerSegment);
  const int64_t segments = have > 0 ? std::clamp<int64_t>(wanted / have, 1, most) : 1;
  g.tiles_per_segment = std::max<int>(1, static_cast<int>((g.tiles + segments - 1) / segments));
  g.segments = std::max(1, (g.tiles + g.tiles_per_segment - 1) / g.tiles_per_segment);
  return g;
}

int item_blocks(const Geometry& g, int per_processor) {
  const int64_t items = int64_t{g.batch} * g.segments, slots = per_processor * cuda_device().multiprocessors;
  return static_cast<int>(std::min(items, std::max<int64_t>(1, slots / g.blocks)));
}

int64_t segment_size(const Geometry& g) { return int64_t{g.segments} * g.batch * g.channels * g.states; }

template <class T>
void find_segment_starts(const SegmentStarts<T>& given, cudaStream_t stream) {
  SegmentStarts<T> p = given;
  const int padded = padded_states(p.g.states);
  const int channels = channels_per_block(padded, forward_owned(padded));
  p.g.blocks = (p.g.channels + channels - 1) / channels;
  if (padded == 4)
    launch_transitions<T, 4, false>(p, stream);
  else if (padded == 64)
    launch_transitions<T, 64, false>(p, stream);
  else if (p.g.whole(16, forward_owned(16)))
    launch_transitions<T, 16, true>(p, stream);
  else
    launch_transitions<T, 16, false>(p, stream);
  const int64_t states = int64_t{p.g.batch} * p.g.channels * p.g.states;
  chain_kernel<<<static_cast<unsigned>((states + 255) / 256), 256, 0, stream>>>(
      p.outer, p.starts, p.products, states, p.g.segments, p.reverse);
  check_launch("selective_scan: chain of segments");
}

template void find_segment_starts(const SegmentStarts<float>&, cudaStream_t);
template void find_segment_starts(const SegmentStarts<bf16>&, cudaStream_t);

}  // namespace scan
}  // namespace signet::kernels
