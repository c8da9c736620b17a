// Layers of width 128: a block keeps the weights of a slice of 64 hidden columns (row_tiles.cuh). Wider ones:
// glu_product_wide_cuda.cu.
#include "signet/kernels/activation/activation_device.cuh"
#include "signet/kernels/mlp/glu_product_cuda.cuh"
#include "signet/kernels/mlp/row_tiles.cuh"

namespace signet::kernels {
namespace {

using namespace row_tiles;

constexpr int kSlice = 64;

// Shared memory: weights of gate and up, two tiles of n for each group, a panel to store from for each warp.
constexpr int kForwardWeights = 2 * kTileBytes;
constexpr int kForwardBytes = 1024 + kForwardWeights + kGroups * 2 * kTileBytes + kWarps * kWarpPanel;

__global__ void __launch_bounds__(kThreads, 2) forward_kernel(GluProductForward p) {
  begin_kernel();
  extern __shared__ char shared[];
  const int slices = static_cast<int>(p.hidden) / kSlice, slice = static_cast<int>(blockIdx.x) % slices,
            column = slice * kSlice;
  const Group me(p.rows, static_cast<int>(blockIdx.x) / slices, static_cast<int>(gridDim.x) / slices,
                 /*spread=*/false);
  char* const weights = aligned_base(shared);
  char* const tiles = weights + kForwardWeights + me.index * 2 * kTileBytes;
  char* const panel =
      weights + kForwardWeights + kGroups * 2 * kTileBytes + (me.index * 4 + me.warp) * kWarpPanel;
  copy_matrix<kWidth>(weights, p.gate_up_weight + int64_t{column} * kWidth, kWidth, kSlice);
  copy_matrix<kWidth>(weights + kTileBytes, p.gate_up_weight + (p.hidden + column) * kWidth, kWidth, kSlice);
  me.fetch_tile(tiles, p.n, p.n_stride, me.first, p.rows);
  close_copy_group();
  wait_for_copies<0>();
  show_to_products();
  __syncthreads();
  const uint32_t weight = shared_address(weights);
  for (int tile = me.first, slot = 0; tile < me.tiles; tile += me.step, slot ^= 1) {
    wait_for_copies<0>();
    show_to_products();
    me.barrier();  // the tile is there, and nobody of the group reads the one before any more
    me.fetch_tile(tiles + (slot ^ 1) * kTileBytes, p.n, p.n_stride, tile + me.step, p.rows);
    close_copy_group();
    Sums sums[2];
    multiply_tile<false, true>(sums, shared_address(tiles + slot * kTileBytes), weight, weight + kTileBytes);
    Sums &gate = sums[0], &up = sums[1];
    // Through the warp's panel, so that whole rows leave.
    const auto store = [&](const Sums& c, bf16* to, int64_t stride) {
#pragma unroll
      for (int n8 = 0; n8 < 8; ++n8) {
        word_at(panel, me.g, n8, me.t) = pack_pair(c[n8][0], c[n8][1]);
        word_at(panel, me.g + 8, n8, me.t) = pack_pair(c[n8][2], c[n8][3]);
      }
      __syncwarp();
      me.store_panel(panel, to, stride, column, tile, p.rows);
      __syncwarp();
    };
    if (p.gate_up) {
      store(gate, p.gate_up, 2 * p.hidden);
      store(up, p.gate_up + p.hidden, 2 * p.hidden);
    }
#pragma unroll
    for (int n8 = 0; n8 < 8; ++n8) {
#pragma unroll
      for (int i = 0; i < 4; ++i) up[n8][i] *= gate[n8][i] * logistic(gate[n8][i]);
    }
    store(up, p.h, p.hidden);
  }
}

// Shared memory: weights of the slice, a tile of dy for each group, and for each warp two pairs of panels of
// gate and up, in which their gradients take their place.
constexpr int kBackwardWeights = 2 * kPanel, kPairBytes = 2 * kWarpPanel;
constexpr int kBackwardBytes = 1024 + kBackwardWeights + kGroups * kTileBytes + kWarps * 2 * kPairBytes;

__global__ void __launch_bounds__(kThreads, 2) backward_kernel(GluProductBackward p) {
  begin_kernel();
  extern __shared__ char shared[];
  const int slices = static_cast<int>(p.hidden) / kSlice,
            column = static_cast<int>(blockIdx.x) % slices * kSlice;
  const Group me(p.rows, static_cast<int>(blockIdx.x) / slices, static_cast<int>(gridDim.x) / slices,
                 /*spread=*/false);
  char* const weights = aligned_base(shared);
  char* const dy = weights + kBackwardWeights + me.index * kTileBytes;
  char* const pairs =
      weights + kBackwardWeights + kGroups * kTileBytes + (me.index * 4 + me.warp) * 2 * kPairBytes;
  const auto fetch_pair = [&](int slot, int tile) {
    me.fetch_pair(pairs + slot * kPairBytes, p.gate_up, 2 * p.hidden, column,
                  column + static_cast<int>(p.hidden), tile, p.rows);
    close_copy_group();
  };
  copy_matrix<kSlice>(weights, p.down_weight + column, p.hidden, kWidth);
  me.fetch_tile(dy, p.dy, p.dy_stride, me.first, p.rows);
  fetch_pair(0, me.first), fetch_pair(1, me.first + me.step);
  wait_for_copies<1>();
  show_to_products();
  __syncthreads();
  for (int tile = me.first, slot = 0; tile < me.tiles; tile += me.step, slot ^= 1) {
    wait_for_copies<1>();  // only the pair of the next tile may be under way
    show_to_products();
    me.barrier();
    Sums sums[1];
    multiply_tile<true, false>(sums, shared_address(dy), shared_address(weights), 0);
    const Sums& dh = sums[0];
    me.barrier();  // the tile of dy has been read
    me.fetch_tile(dy, p.dy, p.dy_stride, tile + me.step, p.rows);
    close_copy_group();
    char* const pair = pairs + slot * kPairBytes;
#pragma unroll
    for (int n8 = 0; n8 < 8; ++n8) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t &gate_word = word_at(pair, me.g + 8 * half, n8, me.t),
                 &up_word = word_at(pair + kWarpPanel, me.g + 8 * half, n8, me.t);
        const float2 gate = unpack_pair(gate_word), up = unpack_pair(up_word);
        // With s the logistic function of x: silu(x) = x s, silu'(x) = s + x s - x s s.
        const auto each = [](float x, float u, float d, float& dgate, float& dup) {
          const float s = logistic(x), silu = x * s;
          dgate = d * u * fmaf(-silu, s, s + silu);
          dup = d * silu;
        };
        float2 dgate, dup;
        each(gate.x, up.x, dh[n8][2 * half], dgate.x, dup.x);
        each(gate.y, up.y, dh[n8][2 * half + 1], dgate.y, dup.y);
        gate_word = pack_pair(dgate.x, dgate.y), up_word = pack_pair(dup.x, dup.y);
      }
    }
    __syncwarp();
    me.store_panel(pair, p.dgate_up, 2 * p.hidden, column, tile, p.rows);
    me.store_panel(pair + kWarpPanel, p.dgate_up + p.hidden, 2 * p.hidden, column, tile, p.rows);
    __syncwarp();
    fetch_pair(slot, tile + 2 * me.step);
  }
}

bool narrow_covers(int64_t width, int64_t hidden) {
  return width == kWidth && hidden > 0 && hidden % kSlice == 0 && hidden <= (int64_t{1} << 20) &&
         cuda_device().hopper;
}

template <class P>
void run_glu(const char* name, void (*narrow)(P), int bytes, void (*wide)(const P&, Cuda), const P& p,
             bool aligned, Cuda device) {
  if (!glu_product_covers(p.width, p.hidden) || !aligned)
    fail(ErrorCode::kUsage, "no product of a SwiGLU layer of width {} and hidden width {} here", p.width,
         p.hidden);
  if (p.rows == 0) return;
  if (!narrow_covers(p.width, p.hidden)) return wide(p, device);
  const int64_t slices = p.hidden / kSlice;
  run(name, narrow, slices * workers_for(p.rows, slices, /*spread=*/false), bytes, p, device);
}

}  // namespace

bool glu_product_covers(int64_t width, int64_t hidden) {
  return narrow_covers(width, hidden) || wide_glu_covers(width, hidden);
}
bool glu_product_makes_h(int64_t width, int64_t hidden) { return wide_glu_covers(width, hidden); }

void glu_product_forward(const GluProductForward& p, Cuda device) {
  run_glu("glu_product_forward", forward_kernel, kForwardBytes, wide_glu_forward, p,
          fits(p.n, p.n_stride) && fits(p.gate_up_weight, 0) && fits(p.gate_up, 0) && fits(p.h, 0), device);
}

void glu_product_backward(const GluProductBackward& p, Cuda device) {
  if (p.h && !glu_product_makes_h(p.width, p.hidden))
    fail(ErrorCode::kUsage, "backward of a SwiGLU layer of width {} does not make h again", p.width);
  run_glu("glu_product_backward", backward_kernel, kBackwardBytes, wide_glu_backward, p,
          fits(p.dy, p.dy_stride) && fits(p.down_weight, 0) && fits(p.gate_up, 0) && fits(p.dgate_up, 0) &&
              fits(p.h, 0),
          device);
}

}  // namespace signet::kernels
