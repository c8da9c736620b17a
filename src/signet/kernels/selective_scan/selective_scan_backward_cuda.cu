#include <algorithm>

#include "signet/kernels/selective_scan/selective_scan_backward_cuda.cuh"

namespace signet::kernels {
namespace scan {
namespace {

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

constexpr int kBackwardBlocks = 2;  // that run on a multiprocessor at once

template <class T, int NP, bool kGated>
void launch_backward(const BackwardArgs<T>& args, EigenvalueRange range, cudaStream_t stream) {
  constexpr int C = backward_owned(NP);
  constexpr int64_t bytes = sizeof(BackwardShared<NP, C>);
  constexpr bool kTuned = tuned(NP);
  const bool whole = kTuned && args.g.whole(NP, C), is_signed = range == EigenvalueRange::kSigned;
  const auto kernel = whole ? (is_signed ? backward_kernel<T, NP, C, kTuned, true, kGated>
                                         : backward_kernel<T, NP, C, kTuned, false, kGated>)
                            : (is_signed ? backward_kernel<T, NP, C, false, true, kGated>
                                         : backward_kernel<T, NP, C, false, false, kGated>);
  allow_shared_memory(kernel, bytes, "selective_scan_backward");
  const unsigned grid = static_cast<unsigned>(item_blocks(args.g, kBackwardBlocks)) * args.g.blocks;
  kernel<<<grid, kThreads, bytes, stream>>>(args);
  check_launch("selective_scan_backward");
}

struct BackwardSizes {
  int64_t starts, token_sums, channel_sums;
  explicit BackwardSizes(const Geometry& g) {
    starts = g.segments > 1 ? 2 * segment_size(g) : 0;
    token_sums = int64_t{g.blocks} * g.rows * 2 * padded_states(g.states);
    channel_sums = int64_t{item_blocks(g, kBackwardBlocks)} * g.channels * (g.states + 2);
  }
};

}  // namespace
}  // namespace scan

int64_t selective_scan_saved_size(const SelectiveScanShape& shape, Cuda) {
  const int64_t tiles = shape.offsets ? shape.packed_rows / scan::kTile + shape.batch
                                      : shape.batch * ((shape.time + scan::kTile - 1) / scan::kTile);
  return tiles * shape.channels * shape.states;
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
  const int64_t states = int64_t{g.batch} * g.channels * g.states;
  if (states == 0) return;
  if (g.time == 0)
    return hand_on_states(p.d_initial_state, p.d_final_state, states,
                          "selective_scan_backward: gradient of the initial state", device);
  g.packets = g.channels % 4 == 0 && packets_fit(p.u, g.u_stride) && packets_fit(p.raw, g.raw_stride) &&
              packets_fit(p.dy, g.y_stride) && packets_fit(p.du, g.u_stride) &&
              packets_fit(p.draw, g.raw_stride) &&
              (!p.z || (packets_fit(p.z, g.z_stride) && packets_fit(p.dz, g.z_stride)));
  g.token_packets = g.states % 4 == 0 && packets_fit(p.b, g.b_stride) && packets_fit(p.c, g.c_stride);
  g.state_packets = packets_fit(p.initial_state, g.states) && packets_fit(p.saved, g.states) &&
                    packets_fit(p.d_final_state, g.states) && packets_fit(p.d_initial_state, g.states) &&
                    packets_fit(p.workspace, g.states) && g.channels % 2 == 0;
  const BackwardSizes sizes(g);
  // The token sums come first: they are read in packets.
  float *token_sums = p.workspace, *starts = token_sums + sizes.token_sums,
        *channel_sums = starts + sizes.starts;
  BackwardArgs<T> args{p, g, nullptr, token_sums, channel_sums};
  if (g.segments > 1) {
    find_segment_starts(
        SegmentStarts<T>{g, p.shape.range, true, p.raw, p.dy, p.z, p.c, g.y_stride, g.c_stride, p.a_log,
                         p.bias, p.d_final_state, starts, starts + segment_size(g)},
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

  const int64_t tokens = g.rows, packets = tokens * padded / 2;
  token_sum_kernel<<<static_cast<unsigned>((packets + 255) / 256), 256, 0, stream>>>(
      token_sums, g.blocks, tokens, padded, g.states, p.db, g.b_stride, p.dc, g.c_stride);
  check_launch("selective_scan_backward: dB and dC");
  const int64_t columns = int64_t{g.channels} * (g.states + 2);
  channel_sum_kernel<<<static_cast<unsigned>((columns + 31) / 32), dim3(32, 32), 0, stream>>>(
      channel_sums, item_blocks(g, kBackwardBlocks), columns, int64_t{g.channels} * g.states, g.channels,
      p.da_log, p.dd, p.dbias);
  check_launch("selective_scan_backward: dA_log, dD and dbias");
}

template void selective_scan_backward(const SelectiveScanBackward<float>&, Cuda);
template void selective_scan_backward(const SelectiveScanBackward<bf16>&, Cuda);

}  // namespace signet::kernels
