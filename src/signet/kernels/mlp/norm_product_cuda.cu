// A block keeps W (row_tiles.cuh). Shared memory: W, a tile for each group, and for each warp a pair of
// panels with its rows of the other operand, in which the result takes its place.
#include "signet/kernels/mlp/norm_product.h"
#include "signet/kernels/mlp/row_tiles.cuh"

namespace signet::kernels {
namespace {

using namespace row_tiles;

constexpr int kWeightBytes = 2 * kTileBytes, kPairBytes = 2 * kWarpPanel;
constexpr int kBytes = 1024 + kWeightBytes + kGroups * kTileBytes + kWarps * kPairBytes;

// Where a group and its warps have theirs.
struct Place {
  char *weights, *tile, *pair;
  __device__ Place(char* shared, const Group& me) {
    weights = aligned_base(shared);
    tile = weights + kWeightBytes + me.index * kTileBytes;
    pair = weights + kWeightBytes + kGroups * kTileBytes + (me.index * 4 + me.warp) * kPairBytes;
  }
};
template <class P>
__device__ inline void fetch_pair(const Group& me, const Place& at, const P* from, int64_t stride, int tile,
                                  int64_t rows) {
  me.fetch_pair(at.pair, from, stride, 0, kWidth / 2, tile, rows);
  close_copy_group();
}

template <int kGroup>
__global__ void __launch_bounds__(kThreads, 2) forward_kernel(NormProductForward p) {
  begin_kernel();
  extern __shared__ char shared[];
  const Group me(p.rows, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), /*spread=*/true);
  const Place at(shared, me);
  copy_matrix<kWidth>(at.weights, p.weight, kWidth, kWidth / 2);
  copy_matrix<kWidth>(at.weights + kTileBytes, p.weight + kWidth / 2 * kWidth, kWidth, kWidth / 2);
  me.fetch_tile(at.tile, p.x, p.x_stride, me.first, p.rows);
  close_copy_group();
  fetch_pair(me, at, p.residual, p.residual_stride, me.first, p.rows);
  float norm[8];
  load_norm_weights(me, p.norm, kGroup, norm);
  wait_for_copies<1>();
  show_to_products();
  __syncthreads();
  const uint32_t weight = shared_address(at.weights);
  for (int tile = me.first; tile < me.tiles; tile += me.step) {
    wait_for_copies<1>();  // only the residual may be under way
    normalise<kGroup / 8>(me, at.tile, norm, p.eps, tile, p.rows,
                          [&](int64_t row, uint4 bits, float, bool there) {
                            if (there) *reinterpret_cast<uint4*>(p.n + row * kWidth + 8 * me.piece()) = bits;
                          });
    show_to_products();
    me.barrier();
    Sums sums[2];
    multiply_tile<false, true>(sums, shared_address(at.tile), weight, weight + kTileBytes);
    me.barrier();  // the tile has been read
    me.fetch_tile(at.tile, p.x, p.x_stride, tile + me.step, p.rows);
    close_copy_group();
    wait_for_copies<1>();  // only the next tile may be under way
    __syncwarp();
#pragma unroll
    for (int side = 0; side < 2; ++side) {
#pragma unroll
      for (int n8 = 0; n8 < 8; ++n8) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint32_t& word = word_at(at.pair + side * kWarpPanel, me.g + 8 * half, n8, me.t);
          const float2 before = unpack_pair(word);
          word = pack_pair(before.x + sums[side][n8][2 * half], before.y + sums[side][n8][2 * half + 1]);
        }
      }
    }
    __syncwarp();
#pragma unroll
    for (int side = 0; side < 2; ++side)
      me.store_panel(at.pair + side * kWarpPanel, p.y, kWidth, side * (kWidth / 2), tile, p.rows);
    __syncwarp();
    fetch_pair(me, at, p.residual, p.residual_stride, tile + me.step, p.rows);
  }
}

// Sum over the four lanes that share a row.
__device__ inline float row_sum(float x) { return lane_sum<4>(x); }

template <int kGroup>
__global__ void __launch_bounds__(kThreads, 2) backward_kernel(NormProductBackward p) {
  begin_kernel();
  constexpr int kTiles = kGroup / 8;  // results of 8 columns that a group of columns has
  extern __shared__ char shared[];
  const Group me(p.rows, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), /*spread=*/true);
  const Place at(shared, me);
  copy_matrix<kWidth>(at.weights, p.weight, kWidth, kWidth);
  me.fetch_tile(at.tile, p.dy, p.dy_stride, me.first, p.rows);
  close_copy_group();
  fetch_pair(me, at, p.x, p.x_stride, me.first, p.rows);
  wait_for_copies<1>();
  show_to_products();
  __syncthreads();
  const uint32_t weight = shared_address(at.weights);
  float2 dnorm[kTiles] = {};
  for (int tile = me.first; tile < me.tiles; tile += me.step) {
    wait_for_copies<1>();  // only x may be under way
    show_to_products();
    me.barrier();
    Sums sums[2];
    multiply_tile<true, true>(sums, shared_address(at.tile), weight, weight + kTileBytes);
    me.barrier();  // the tile has been read
    me.fetch_tile(at.tile, p.dy, p.dy_stride, tile + me.step, p.rows);
    close_copy_group();
    wait_for_copies<1>();  // only the next tile may be under way
    __syncwarp();
#pragma unroll
    for (int head = 0; head < kWidth / kGroup; ++head) {
      const auto word = [&](int n8, int half) -> uint32_t& {
        const int c = head * kTiles + n8;
        return word_at(at.pair + c / 8 * kWarpPanel, me.g + 8 * half, c % 8, me.t);
      };
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float square = 0.0f, along = 0.0f;
#pragma unroll
        for (int n8 = 0; n8 < kTiles; ++n8) {
          const int c = head * kTiles + n8;
          const float2 x = unpack_pair(word(n8, half)),
                       w = *reinterpret_cast<const float2*>(p.norm + 8 * n8 + 2 * me.t);
          const float* d = &sums[c / 8][c % 8][2 * half];
          square = fmaf(x.x, x.x, fmaf(x.y, x.y, square));
          along = fmaf(d[0] * w.x, x.x, fmaf(d[1] * w.y, x.y, along));
        }
        const float rstd = rsqrtf(row_sum(square) * (1.0f / kGroup) + p.eps);
        along = row_sum(along) * (1.0f / kGroup) * rstd * rstd;
#pragma unroll
        for (int n8 = 0; n8 < kTiles; ++n8) {
          const int c = head * kTiles + n8;
          uint32_t& here = word(n8, half);
          const float2 x = unpack_pair(here),
                       w = *reinterpret_cast<const float2*>(p.norm + 8 * n8 + 2 * me.t);
          const float* d = &sums[c / 8][c % 8][2 * half];
          dnorm[n8].x = fmaf(d[0], x.x * rstd, dnorm[n8].x),
          dnorm[n8].y = fmaf(d[1], x.y * rstd, dnorm[n8].y);
          here = pack_pair(rstd * (d[0] * w.x - x.x * along), rstd * (d[1] * w.y - x.y * along));
        }
      }
    }
    __syncwarp();
#pragma unroll
    for (int side = 0; side < 2; ++side)
      me.store_panel(at.pair + side * kWarpPanel, p.dx, p.dx_stride, side * (kWidth / 2), tile, p.rows);
    __syncwarp();
    fetch_pair(me, at, p.x, p.x_stride, tile + me.step, p.rows);
  }
  // Over the rows of a warp, then over the warps of the block.
  wait_for_copies<0>();
  __syncthreads();
  float* const totals = reinterpret_cast<float*>(at.weights);  // [kWarps][kGroup]
#pragma unroll
  for (int n8 = 0; n8 < kTiles; ++n8) {
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) {
      dnorm[n8].x += __shfl_xor_sync(0xffffffffu, dnorm[n8].x, mask);
      dnorm[n8].y += __shfl_xor_sync(0xffffffffu, dnorm[n8].y, mask);
    }
    if (me.g == 0)
      *reinterpret_cast<float2*>(totals + (me.index * 4 + me.warp) * kGroup + 8 * n8 + 2 * me.t) = dnorm[n8];
  }
  __syncthreads();
  for (int column = static_cast<int>(threadIdx.x); column < kGroup; column += kThreads) {
    float total = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) total += totals[warp * kGroup + column];
    p.workspace[int64_t{blockIdx.x} * kGroup + column] = total;
  }
}

template <class P>
void check(const P& p, bool aligned) {
  if (!norm_product_covers(kWidth, kWidth, p.group) || !aligned)
    fail(ErrorCode::kUsage, "no product of normalised groups of {} columns here", p.group);
}

}  // namespace

bool norm_product_covers(int64_t in, int64_t out, int64_t group) {
  return in == kWidth && out == kWidth && (group == 32 || group == 64 || group == 128) &&
         cuda_device().hopper;
}

int64_t norm_product_workspace_size(int64_t rows, int64_t group, Cuda) {
  return workers_for(rows, 1, /*spread=*/true) * group;
}

void norm_product_forward(const NormProductForward& p, Cuda device) {
  check(p, fits(p.x, p.x_stride) && fits(p.residual, p.residual_stride) && fits(p.weight, 0) &&
               fits(p.n, 0) && fits(p.y, 0));
  if (p.rows == 0) return;
  const auto kernel = p.group == 32   ? forward_kernel<32>
                      : p.group == 64 ? forward_kernel<64>
                                      : forward_kernel<128>;
  run("norm_product_forward", kernel, workers_for(p.rows, 1, /*spread=*/true), kBytes, p, device);
}

void norm_product_backward(const NormProductBackward& p, Cuda device) {
  check(p, fits(p.x, p.x_stride) && fits(p.dy, p.dy_stride) && fits(p.weight, 0) && fits(p.dx, p.dx_stride) &&
               fits(p.norm, 0));
  if (p.rows == 0) return;
  const auto kernel = p.group == 32   ? backward_kernel<32>
                      : p.group == 64 ? backward_kernel<64>
                                      : backward_kernel<128>;
  const int64_t blocks = workers_for(p.rows, 1, /*spread=*/true);
  run("norm_product_backward", kernel, blocks, kBytes, p, device);
  add_column_sum({p.workspace, blocks, p.group, p.group, p.dnorm}, p.later, device);
}

}  // namespace signet::kernels
