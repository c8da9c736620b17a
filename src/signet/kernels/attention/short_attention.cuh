// What kernels share that give a whole head of a short bf16 sequence to one block: o = P v with weights P
// [time, time] that are zero above the diagonal. Warp w owns rows [16w, 16w + 16) of every matrix, so that a
// row of P lies in the registers of four lanes; products run on tensor cores, sums in fp32.
#pragma once

#include "signet/kernels/delta_rule/delta_rule_cuda_mma.cuh"
#include "signet/tensor/launch.cuh"

namespace signet::kernels::short_attention {

using delta_rule::Half;
using delta_rule::Rows;

inline constexpr int kMostTokens = 64;
constexpr int kScoreWidth = 64;  // columns of P in registers and in shared memory

inline const Half* halves(const bf16* p) { return reinterpret_cast<const Half*>(p); }
inline Half* halves(bf16* p) { return reinterpret_cast<Half*>(p); }

// A matrix [rows, heads, kD] in global memory, and where the rows of a sequence's head begin.
template <class Element>
struct HeadRows {
  Element* data;
  int64_t stride;  // token to token
  __device__ Element* at(int64_t first_row, int h, int width) const {
    return data + first_row * stride + h * width;
  }
};

// The sequence and the head of this block, and its rows: those of `offsets`, or `most` for each sequence.
struct Place {
  int b, h, time, warp, lane;
  int64_t first;  // row
  __device__ Place(int heads, int most, const int32_t* offsets)
      : b(blockIdx.x / heads),
        h(blockIdx.x % heads),
        time(offsets ? offsets[b + 1] - offsets[b] : most),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        first(offsets ? offsets[b] : static_cast<int64_t>(b) * most) {}
  __device__ int row_blocks() const { return (time + 15) / 16; }
  __device__ bool idle() const { return warp >= row_blocks(); }
};

// Starts the copy of a head's rows into a tile [16 kTiles][kD]; rows beyond `time` become zero.
template <int kD, int kTiles>
__device__ void fetch(Half* tile, const Half* rows, int64_t stride, int time) {
  delta_rule::fetch_tile<kD, 16 * kTiles, 32 * kTiles>(tile, rows, delta_rule::RowMap(1, stride, 0), time,
                                                       static_cast<int>(threadIdx.x));
}

// A warp's rows of sums, rounded, through a tile whose rows [16 warp, 16 warp + 16) nobody else uses.
template <int kD>
__device__ void write(Half* tile, float (&sums)[kD / 8][4], Half* rows, int64_t stride, int time, int warp,
                      int lane) {
  __syncwarp();
  delta_rule::stage_rows<kD>(tile, sums, 16 * warp, 0, lane);
  delta_rule::drain_rows<kD, kD>(tile, 16 * warp, 0, lane,
                                 [&](int row) { return row < time ? rows + row * stride : nullptr; });
}

// The row blocks of A B^T that a causal row block `warp` needs, for tiles [rows][kD].
template <int kD>
__device__ void scores(float (&s)[8][4], const Half* a, const Half* b, int warp, int lane) {
  delta_rule::clear(s);
  delta_rule::row_block_product<kD, Rows<kD>, false, Rows<kD>, true>(s, a, 16 * warp, b, 0, warp + 1, lane);
}

// P B for a row block P of weights in registers.
template <int kD>
__device__ void weigh(float (&sums)[kD / 8][4], const float (&weights)[8][4], const Half* b, int warp,
                      int lane) {
  delta_rule::clear(sums);
  delta_rule::product_of_sums<false, Rows<kD>, false, kD / 8>(sums, weights, b, 0, 0, warp + 1, lane);
}

// Row block `warp` of P^T B, P [rows][kScoreWidth] in shared memory, of which row blocks before `end` count.
template <int kD, int kTiles>
__device__ void weigh_transposed(float (&sums)[kD / 8][4], const Half* weights, const Half* b, int warp,
                                 int end, int lane) {
  delta_rule::clear(sums);
#pragma unroll
  for (int s = 0; s < kTiles; ++s) {
    if (s < warp || s >= end) continue;
    uint32_t left[4], right[4];
    delta_rule::load_left_transposed<Rows<kScoreWidth>>(left, weights, 16 * warp, 16 * s, lane);
#pragma unroll
    for (int n = 0; n < kD / 8; n += 2) {
      delta_rule::load_right<Rows<kD>>(right, b, 16 * s, 8 * n, lane);
      delta_rule::multiply_add_pair(sums[n], sums[n + 1], left, right);
    }
  }
}

// A row block of weights to shared memory, rounded.
__device__ inline void keep(Half* tile, float (&weights)[8][4], int warp, int lane) {
  delta_rule::stage_rows<kScoreWidth>(tile, weights, 16 * warp, 0, lane);
}

// f(value, other, row within the sequence, column) over the elements of two row blocks on or below the
// diagonal; those above it become zero.
template <class F>
__device__ void for_causal(float (&a)[8][4], float (&b)[8][4], int warp, int lane, F f) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    if (n / 2 > warp) continue;  // zero already
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = 16 * warp + lane / 4 + e / 2 * 8, column = n * 8 + lane % 4 * 2 + e % 2;
      if (column <= row) {
        f(a[n][e], b[n][e], e / 2, row, column);
      } else {
        a[n][e] = b[n][e] = 0.0f;
      }
    }
  }
}

// Sums (or maxima) over the row of four neighbouring lanes, for the lane's two rows.
__device__ inline void add_lanes(float (&x)[2]) {
#pragma unroll
  for (float& v : x) {
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    v += __shfl_xor_sync(0xffffffffu, v, 2);
  }
}
__device__ inline void largest_of_lanes(float (&x)[2]) {
#pragma unroll
  for (float& v : x) {
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
  }
}

// Whether rows at p, `stride` elements apart, can be moved in pieces of 16 bytes.
inline bool pieces_fit(const bf16* p, int64_t stride) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride % 8 == 0 && stride < (1 << 24);
}

// Calls run<kTiles>() with 16 kTiles >= time.
template <class Run>
void choose_tiles(int64_t time, Run run) {
  if (time <= 16) return run.template operator()<1>();
  if (time <= 32) return run.template operator()<2>();
  if (time <= 48) return run.template operator()<3>();
  run.template operator()<4>();
}

}  // namespace signet::kernels::short_attention
