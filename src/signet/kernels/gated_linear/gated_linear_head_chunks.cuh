// What the gradients of a chunk with one gate per head are made of: two warps per 16 of its tokens, each with
// half of the columns of every tile.
#pragma once

#include "signet/kernels/delta_rule/delta_rule_cuda_group.cuh"
#include "signet/kernels/gated_linear/gated_linear_chunks.cuh"

namespace signet::kernels::gated_linear {

inline constexpr int kHeadThreads = 256, kHalf = kWide / 2;  // kHalf: columns of a warp

struct HeadWarp {
  int lane, warp, block, first, n0;  // its block of tokens and the first of them, its first column
  __device__ HeadWarp()
      : lane(threadIdx.x % 32),
        warp(threadIdx.x / 32),
        block(warp % kBlocks),
        first(kBlock * block),
        n0(warp / kBlocks * kHalf) {}
};

// C[16 tokens at m0][kHalf rows of the right tile at n0] += products of rows over 64 columns, for right rows
// below `end`.
__device__ inline void add_row_products(float (&c)[4][4], const Half* left, int m0, const Half* right, int n0,
                                        int end, int lane) {
#pragma unroll
  for (int k = 0; k < kWide; k += 16) {
    uint32_t a[4], b[4];
    load_left<Rows<kWide>>(a, left, m0, k, lane);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      if (n0 + 16 * n < end) {
        load_right_transposed<Rows<kWide>>(b, right, k, n0 + 16 * n, lane);
        multiply_add_pair(c[2 * n], c[2 * n + 1], a, b);
      }
    }
  }
}
// The same of all right rows by the four warps of a half at once, between begin_products() and
// issue_products().
__device__ inline void issue_row_products(float (&c)[4][4], const Half* left, const Half* right,
                                          const HeadWarp& w) {
  if constexpr (kWgmma) {
#pragma unroll
    for (int k = 0; k < kWide; k += 16)
      multiply_shared(c, operand_of<false>(Panels<64>{}, left, k, 0),
                      operand_of<false>(Panels<64>{}, right + w.n0 * kWide, k, 0));
  } else {
    add_row_products(c, left, w.first, right, w.n0, kWide, w.lane);
  }
}
// C[16][kHalf] += A[16][16] B[16 rows at k0][kHalf columns at n0]
__device__ inline void multiply_half(float (&c)[4][4], const uint32_t (&a)[4], const Half* tile, int k0,
                                     int n0, int lane) {
#pragma unroll
  for (int n = 0; n < 4; n += 2) {
    uint32_t b[4];
    load_right<Rows<kWide>>(b, tile, k0, n0 + n * 8, lane);
    multiply_add_pair(c[n], c[n + 1], a, b);
  }
}
__device__ inline void scale_half(float (&c)[4][4], float near, float far) {
#pragma unroll
  for (int n = 0; n < 4; ++n) c[n][0] *= near, c[n][1] *= near, c[n][2] *= far, c[n][3] *= far;
}

// This thread's part of the sum of products of two tiles' elements.
__device__ inline float inner_part(const Half* x, const Half* y) {
  float sum = 0.f;
#pragma unroll
  for (int n = 0; n < kTileSize / 8 / kHeadThreads; ++n) {
    const int piece = n * kHeadThreads + static_cast<int>(threadIdx.x);
    float a[8], b[8];
    load_floats(a, x + piece * 8);
    load_floats(b, y + piece * 8);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum = fmaf(a[e], b[e], sum);
  }
  return sum;
}

// What two tokens of a lane read from the state, q . y, and write through its gradient, k . z.
__device__ inline void add_read_and_written(float (&read)[2], float (&written)[2], const float (&y)[4][4],
                                            const float (&z)[4][4], const Half* q, const Half* k,
                                            const HeadWarp& w) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int place = tile_index<kWide>(w.first + w.lane / 4 + 8 * part, w.n0 + n * 8 + w.lane % 4 * 2);
      const uint32_t query = *reinterpret_cast<const uint32_t*>(q + place),
                     key = *reinterpret_cast<const uint32_t*>(k + place);
      read[part] =
          fmaf(low_half(query), y[n][2 * part], fmaf(high_half(query), y[n][2 * part + 1], read[part]));
      written[part] =
          fmaf(low_half(key), z[n][2 * part], fmaf(high_half(key), z[n][2 * part + 1], written[part]));
    }
  }
}
// y += X k and z += X^T q of the pairs X of tokens.
__device__ inline void add_pairs_of_tokens(float (&y)[4][4], float (&z)[4][4], const Half* pairs,
                                           const Half* q, const Half* k, const HeadWarp& w) {
#pragma unroll
  for (int other = 0; other < kBlocks; ++other) {
    uint32_t left[4];
    if (other <= w.block) {
      load_left<Rows<kWide>>(left, pairs, w.first, other * kBlock, w.lane);
      multiply_half(y, left, k, other * kBlock, w.n0, w.lane);
    }
    if (other >= w.block) {
      load_left_transposed<Rows<kWide>>(left, pairs, w.first, other * kBlock, w.lane);
      multiply_half(z, left, q, other * kBlock, w.n0, w.lane);
    }
  }
}

// By way of the warp's part of a tile that nobody else reads any more.
__device__ inline void write_gradient(bf16* out, int64_t stride, const ChunkPlace& at, Half* tile,
                                      float (&c)[4][4], const HeadWarp& w, int columns) {
  stage_rows<kWide>(tile, c, w.first, w.n0, w.lane);
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int row = w.first + n * 8 + w.lane / 4, piece = w.n0 / 8 + w.lane % 4;
    if (row < at.tokens && piece * 8 < columns)
      *reinterpret_cast<uint4*>(out + row * stride + piece * 8) =
          reinterpret_cast<const uint4*>(tile)[tile_piece<kWide>(row, piece)];
  }
}

// What passes from r to t: row t, n last; column r + 1.
struct Passed {
  static constexpr int kStride = kChunk + 1;
  float at[(kChunk + 1) * kStride];
  float inner[kHeadThreads / 32];  // S . dS, by warps
};

// dg_u = sum_{t>=u} D(u,t) X_t, with X_t = sum_{r<u} D(r,u-1) M_tr carried from u to u + 1 by X_t <- g_u X_t
// + M_tu. Nobody else uses the memory of `m`; the decays may still be on their way to it.
__device__ inline void write_gate_gradients(const Problem<bf16>& p, const ChunkPlace& at, Passed& m,
                                            const Decays& decays, const float* gates, float (&passing)[4][4],
                                            float (&read)[2], float (&written)[2], float inner,
                                            const HeadWarp& w) {
  sum_all<4, 1>(read);
  sum_all<4, 1>(written);
  float whole[1] = {inner};
  sum_all<32, 1>(whole);
  for_each_element(passing, w.lane,
                   [&](float x, int t, int r) { m.at[(w.first + t) * Passed::kStride + w.n0 + r + 1] = x; });
  // Of half of the channels, then of both.
  for (int half = 0; half < 2; ++half) {
    if (w.lane % 4 == 0 && w.n0 == half * kHalf) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int t = w.first + w.lane / 4 + 8 * part;
        float &from = m.at[t * Passed::kStride], &to = m.at[kChunk * Passed::kStride + t + 1];
        from = p.scale * read[part] + (half ? from : 0.f), to = written[part] + (half ? to : 0.f);
      }
    }
    if (half == 0) __syncthreads();
  }
  if (w.lane == 0) m.inner[w.warp] = whole[0];
  __syncthreads();
  if (const int t = static_cast<int>(threadIdx.x); t <= kChunk) {
    constexpr int kAhead = 8;
    float* const row = m.at + t * Passed::kStride;
    float x = row[0];
    if (t == kChunk) {
      x = 0.f;
#pragma unroll
      for (float each : m.inner) x += each;
    }
#pragma unroll 1
    for (int base = 0; base < kChunk; base += kAhead) {
      float coming[kAhead], decay[kAhead], g[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        coming[i] = row[base + i + 1], g[i] = gates[base + i];
        decay[i] = t < kChunk ? decays.between(base + i, t) : decays.behind[base + i];
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        row[base + i + 1] = base + i <= t ? decay[i] * x : 0.f;
        x = fmaf(g[i], x, coming[i]);
      }
    }
  }
  __syncthreads();
  if (const int u = static_cast<int>(threadIdx.x); u < at.tokens) {
    float total = 0.f;
#pragma unroll 13
    for (int t = 0; t <= kChunk; ++t) total += m.at[t * Passed::kStride + u + 1];
    p.dgate[(at.row + u) * p.gate_stride + at.h] = total;
  }
}

}  // namespace signet::kernels::gated_linear
