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
        n0(warp / kBlocks % 2 * kHalf) {}
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
template <int kThreads = kHeadThreads>
__device__ float inner_part(const Half* x, const Half* y) {
  float sum = 0.f;
#pragma unroll
  for (int n = 0; n < kTileSize / 8 / kThreads; ++n) {
    const int piece = n * kThreads + static_cast<int>(threadIdx.x);
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

// What the gates' gradients are summed from; every part is written by one warp.
//   dg_u = sum_{t>=u} D(u,t) sum_{r<u} D(r,u-1) M_tr
// with M_tr what passes from r to t: within the chunk by `pairs`, from the state before it (r = -1) by
// `read`, through the gradient behind it (t = n) by `written`, and from that state to that gradient by
// `inner`.
template <int kWarps, int kColumns>
struct GateSums {
  alignas(16) float pairs[kWarps][kChunk];
  alignas(16) float read[kColumns][kChunk], written[kColumns][kChunk];  // by the columns of warps
  float inner[kWarps];
};

// Rounded in one addition, since products ignore the bits below. (A NaN may become 0; what it came from makes
// the other gradients NaN.)
__device__ inline uint32_t as_tf32(float x) { return __float_as_uint(x) + 0x1000u; }
// C[16][8] += A[16][8] B[8][8]: columns 2q and 2q + 1 of an accumulator tile are columns q and q + 4 of A,
// and the rows of B in the same order, so that tiles need not be rearranged.
__device__ inline void multiply_add_tf32(float (&c)[4], const uint32_t (&a)[4], float2 b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[2]), "r"(a[1]), "r"(a[3]), "r"(as_tf32(b.x)), "r"(as_tf32(b.y)));
}

// sum_{t>=u} D(u,t) sum_{r<u} D(r,u-1) M_tr over this warp's 16 t from `first` on and 8 N r from r0 on, for u
// = 2 lane and 2 lane + 1: a product with the table of decays, whose columns u are then weighted and summed.
template <int N>
__device__ float2 gate_pairs(const float (&passing)[N][4], int first, int r0, const Decays& decays,
                             int lane) {
  const int g = lane / 4, q = lane % 4;
  uint32_t a[N][4];
  int from[N];  // D(r,u-1) of u = g
#pragma unroll
  for (int n = 0; n < N; ++n) {
    from[n] = Decays::place(r0 + 8 * n + 2 * q, g + 7) - 8 * kChunk;
#pragma unroll
    for (int e = 0; e < 4; ++e) a[n][e] = as_tf32(passing[n][e]);
  }
  float parts[kChunk / 4];  // of u = 8 tile + 2 q and the next
#pragma unroll
  for (int tile = 0; tile < kChunk / 8; ++tile) {
    float c[4] = {};
    if (8 * tile + 7 > r0 && 8 * tile < first + kBlock) {  // the same for the warp
#pragma unroll
      for (int n = 0; n < N; ++n) {
        if (8 * n + r0 < 8 * tile + 7) {
          const bool there = tile > 0 || g > 0;  // before u = 0 is nothing
          const auto* decay = reinterpret_cast<const float2*>(decays.table + from[n] + 8 * tile * kChunk);
          multiply_add_tf32(c, a[n], there ? *decay : make_float2(0.f, 0.f));
        }
      }
      const float2 near = decays.pair(8 * tile + 2 * q, first + g),
                   far = decays.pair(8 * tile + 2 * q, first + g + 8);
      c[0] = fmaf(near.x, c[0], far.x * c[2]), c[1] = fmaf(near.y, c[1], far.y * c[3]);
    }
    parts[2 * tile] = c[0], parts[2 * tile + 1] = c[1];
  }
  sum_scatter<8, 4>(parts, lane);  // lanes g have tile g's
  return make_float2(parts[0], parts[1]);
}

// This warp's parts; `column` of the warps with its tokens.
template <class Sums>
__device__ void put_gate_sums(Sums& sums, float2 pairs, float (&read)[2], float (&written)[2], float inner,
                              float scale, int column, const HeadWarp& w) {
  reinterpret_cast<float2*>(sums.pairs[w.warp])[w.lane] = pairs;
  sum_all<4, 1>(read);
  sum_all<4, 1>(written);
  float whole[1] = {inner};
  sum_all<32, 1>(whole);
  if (w.lane % 4 == 0) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int t = w.first + w.lane / 4 + 8 * part;
      sums.read[column][t] = scale * read[part], sums.written[column][t] = written[part];
    }
  }
  if (w.lane == 0) sums.inner[w.warp] = whole[0];
}

// By one warp when all parts are there, lane l for u = 2l and 2l + 1. R_u = sum_{t>=u} D(u,t) read_t and W_u
// = sum_{r<u} D(r,u-1) written_r are linear recurrences, scanned over the lanes.
template <int kWarps, int kColumns>
__device__ void write_gate_gradients(const Problem<bf16>& p, const ChunkPlace& at,
                                     const GateSums<kWarps, kColumns>& sums, const float* before,
                                     const float* behind, const float* gates, int lane) {
  const int u = 2 * lane;
  const auto add = [&](float2& to, const float* part) {
    const float2 x = *reinterpret_cast<const float2*>(part + u);
    to.x += x.x, to.y += x.y;
  };
  float2 total = {}, read = {}, written = {};
  float inner = 0.f;
#pragma unroll
  for (int part = 0; part < kWarps; ++part) add(total, sums.pairs[part]), inner += sums.inner[part];
#pragma unroll
  for (int part = 0; part < kColumns; ++part) add(read, sums.read[part]), add(written, sums.written[part]);
  const float near = gates[u], far = gates[u + 1], next = lane < 31 ? gates[u + 2] : 0.f;
  // R_u = read_u + g_{u+1} R_{u+1} from behind, W_{u+1} = written_u + g_u W_u from the beginning.
  float back_factor = far * next, back = fmaf(far, read.y, read.x);
  float on_factor = near * far, on = fmaf(far, written.x, written.y);
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float later_factor = __shfl_down_sync(kFullWarp, back_factor, step),
                later = __shfl_down_sync(kFullWarp, back, step),
                earlier_factor = __shfl_up_sync(kFullWarp, on_factor, step),
                earlier = __shfl_up_sync(kFullWarp, on, step);
    if (lane + step < 32) back = fmaf(back_factor, later, back), back_factor *= later_factor;
    if (lane >= step) on = fmaf(on_factor, earlier, on), on_factor *= earlier_factor;
  }
  const float later = __shfl_down_sync(kFullWarp, back, 1), earlier = __shfl_up_sync(kFullWarp, on, 1);
  const float write = lane > 0 ? earlier : 0.f, write_next = fmaf(near, write, written.x);  // W_u, W_{u+1}
  const float read_next = fmaf(next, later, read.y);                                        // R_{u+1}
  const float from = lane > 0 ? before[u - 1] : 1.f,
              from_next = before[u];  // D(-1,u-1), D(-1,u)
  total.x += fmaf(from, back, behind[u] * fmaf(from, inner, write));
  total.y += fmaf(from_next, read_next, behind[u + 1] * fmaf(from_next, inner, write_next));
  if (u < at.tokens) p.dgate[(at.row + u) * p.gate_stride + at.h] = total.x;
  if (u + 1 < at.tokens) p.dgate[(at.row + u + 1) * p.gate_stride + at.h] = total.y;
}

}  // namespace signet::kernels::gated_linear
