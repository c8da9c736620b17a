// Tensor core building blocks (bf16 products, fp32 sums, mma.sync m16n8k16) over swizzled tiles in shared
// memory. With g = lane / 4 and q = lane % 4, an accumulator tile c[4] holds C[g][2q], C[g][2q+1],
// C[g+8][2q], C[g+8][2q+1] of 16 rows and 8 columns.
#pragma once

#include "signet/kernels/delta_rule/delta_rule_cuda.cuh"

namespace signet::kernels::delta_rule {

using Half = __nv_bfloat16;

// A tile of rows of W elements without padding: 16-byte pieces of a row are permuted so that the 8 rows one
// ldmatrix phase reads lie in different banks.
template <int W>
__device__ int tile_piece(int row, int piece) {
  constexpr int kPieces = W / 8;
  if constexpr (kPieces >= 8) {
    return row * kPieces + (piece ^ (row & 7));
  } else {
    return row * kPieces + (piece ^ ((row / (8 / kPieces)) & (kPieces - 1)));
  }
}
// Element (row, column); even columns pair with the next one.
template <int W>
__device__ int tile_index(int row, int column) {
  return tile_piece<W>(row, column / 8) * 8 + column % 8;
}
// The address of a piece whose row is rows (a multiple of 8) + row and whose piece is pieces (even) + piece
// (0 or 1), where row and piece depend on the lane alone: written so that only one xor is left per `pieces`,
// and `rows` becomes the instruction's offset. Tiles lie at multiples of 256 bytes.
template <int W>
struct Rows {
  __device__ static unsigned address(const Half* tile, int rows, int row, int pieces, int piece) {
    const unsigned lane_part =
        static_cast<unsigned>(__cvta_generic_to_shared(tile)) + tile_piece<W>(row, piece) * 16;
    return (lane_part ^ (pieces * 16)) + rows * (W * 2);
  }
};
// A matrix of W columns as blocks of 8 x 8, 128 bytes each, W / 8 to a row of blocks: what a warp writes from
// registers without detours, and ldmatrix reads without bank conflicts.
template <int W>
struct Blocks {
  __device__ static unsigned address(const Half* tile, int rows, int row, int pieces, int piece) {
    const unsigned lane_part = static_cast<unsigned>(__cvta_generic_to_shared(tile)) +
                               (row / 8 * (W / 8) + piece) * 128 + row % 8 * 16;
    return lane_part + (rows / 8 * (W / 8) + pieces) * 128;
  }
};

__device__ inline void load_matrices(uint32_t (&x)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&x)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

// The left operand A[m0..m0+15][k0..k0+15], of a tile stored [m][k] or [k][m].
template <class L>
__device__ void load_left(uint32_t (&a)[4], const Half* tile, int m0, int k0, int lane) {
  load_matrices(a, L::address(tile, m0, lane & 15, k0 / 8, lane >> 4));
}
template <class L>
__device__ void load_left_transposed(uint32_t (&a)[4], const Half* tile, int m0, int k0, int lane) {
  load_matrices_transposed(a, L::address(tile, k0, (lane >> 4) * 8 + (lane & 7), m0 / 8, (lane >> 3) & 1));
}
// The right operand B[k0..k0+15][n0..n0+15] (two tiles of 8 columns: b[0], b[1] and b[2], b[3]), of a tile
// stored [n][k] or [k][n].
template <class L>
__device__ void load_right_transposed(uint32_t (&b)[4], const Half* tile, int k0, int n0, int lane) {
  load_matrices(b, L::address(tile, n0, (lane >> 4) * 8 + (lane & 7), k0 / 8, (lane >> 3) & 1));
}
template <class L>
__device__ void load_right(uint32_t (&b)[4], const Half* tile, int k0, int n0, int lane) {
  load_matrices_transposed(b, L::address(tile, k0, ((lane >> 3) & 1) * 8 + (lane & 7), n0 / 8, lane >> 4));
}

__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Two neighbouring column tiles.
__device__ inline void multiply_add_pair(float (&c0)[4], float (&c1)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[4]) {
  multiply_add(c0, a, b[0], b[1]);
  multiply_add(c1, a, b[2], b[3]);
}

template <int N>
__device__ void clear(float (&c)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0.f;
}

// Two floats rounded to bf16, the first in the low half.
__device__ inline uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline float low_half(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float high_half(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// x = high + low to 16 bits of mantissa: products with both parts keep fp32 accuracy to 2^-17.
struct Split {
  uint32_t high, low;
  __device__ Split(float x, float y) {
    high = pack(x, y);
    low = pack(x - low_half(high), y - high_half(high));
  }
};

// Accumulator tiles 2s, 2s + 1 as the left operand of a further product, k = columns 16s .. 16s+15.
__device__ inline void as_left(uint32_t (&high)[4], uint32_t (&low)[4], const float (&c0)[4],
                               const float (&c1)[4]) {
  const Split s0(c0[0], c0[1]), s1(c0[2], c0[3]), s2(c1[0], c1[1]), s3(c1[2], c1[3]);
  high[0] = s0.high, high[1] = s1.high, high[2] = s2.high, high[3] = s3.high;
  low[0] = s0.low, low[1] = s1.low, low[2] = s2.low, low[3] = s3.low;
}

// C[16 rows at m0][N * 8 columns at n0] += A B over K columns. LA and LB are the layouts; A is stored [m][k],
// or [k][m] when kLeftTransposed, B [k][n], or [n][k] when kRightTransposed.
template <int K, class LA, bool kLeftTransposed, class LB, bool kRightTransposed, int N>
__device__ void product(float (&c)[N][4], const Half* a_tile, int m0, const Half* b_tile, int n0, int lane) {
#pragma unroll
  for (int k = 0; k < K; k += 16) {
    uint32_t a[4], b[4];
    if constexpr (kLeftTransposed)
      load_left_transposed<LA>(a, a_tile, m0, k, lane);
    else
      load_left<LA>(a, a_tile, m0, k, lane);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      if constexpr (kRightTransposed)
        load_right_transposed<LB>(b, b_tile, k, n0 + n * 8, lane);
      else
        load_right<LB>(b, b_tile, k, n0 + n * 8, lane);
      multiply_add_pair(c[n], c[n + 1], a, b);
    }
  }
}

// C += P B with P a 16 x 64 accumulator, B stored [k][n] or, when kTransposed, [n][k]; k = 16s for s in
// [begin, end). P is rounded to bf16, or enters as the sum of two bf16 parts when kSplit.
template <bool kSplit, class LB, bool kTransposed, int N>
__device__ void product_of_sums(float (&c)[N][4], const float (&p)[8][4], const Half* b_tile, int n0,
                                int begin, int end, int lane) {
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    if (s >= begin && s < end) {
      uint32_t high[4], low[4], b[4];
      as_left(high, low, p[2 * s], p[2 * s + 1]);
#pragma unroll
      for (int n = 0; n < N; n += 2) {
        if constexpr (kTransposed)
          load_right_transposed<LB>(b, b_tile, 16 * s, n0 + n * 8, lane);
        else
          load_right<LB>(b, b_tile, 16 * s, n0 + n * 8, lane);
        multiply_add_pair(c[n], c[n + 1], high, b);
        if constexpr (kSplit) multiply_add_pair(c[n], c[n + 1], low, b);
      }
    }
  }
}

// 64 x 64 products row block by row block: P[16 rows at m0][column tiles 2s, 2s+1] += A B for s in [begin,
// end), A and B as in product().
template <int K, class LA, bool kLeftTransposed, class LB, bool kRightTransposed>
__device__ void row_block_product(float (&p)[8][4], const Half* a_tile, int m0, const Half* b_tile, int begin,
                                  int end, int lane) {
#pragma unroll
  for (int k = 0; k < K; k += 16) {
    uint32_t a[4], b[4];
    if constexpr (kLeftTransposed)
      load_left_transposed<LA>(a, a_tile, m0, k, lane);
    else
      load_left<LA>(a, a_tile, m0, k, lane);
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      if (s >= begin && s < end) {
        if constexpr (kRightTransposed)
          load_right_transposed<LB>(b, b_tile, k, 16 * s, lane);
        else
          load_right<LB>(b, b_tile, k, 16 * s, lane);
        multiply_add_pair(p[2 * s], p[2 * s + 1], a, b);
      }
    }
  }
}

// f(value, row, column) over the elements this lane holds, row and column within the block.
template <int N, class F>
__device__ void for_each_element(float (&c)[N][4], int lane, F f) {
  const int row = lane / 4, column = lane % 4 * 2;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    f(c[n][0], row, n * 8 + column);
    f(c[n][1], row, n * 8 + column + 1);
    f(c[n][2], row + 8, n * 8 + column);
    f(c[n][3], row + 8, n * 8 + column + 1);
  }
}
// f(x, y, row, column) over pairs of neighbouring columns.
template <int N, class F>
__device__ void for_each_pair(float (&c)[N][4], int lane, F f) {
  const int row = lane / 4, column = lane % 4 * 2;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    f(c[n][0], c[n][1], row, n * 8 + column);
    f(c[n][2], c[n][3], row + 8, n * 8 + column);
  }
}

// c times the same elements of a matrix of fp32 rows of 64; row(i) is row i's.
template <int N, class F>
__device__ void multiply_by_rows(float (&c)[N][4], int lane, F row) {
  const float *const low = row(lane / 4), *const high = row(lane / 4 + 8);
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const int column = n * 8 + lane % 4 * 2;
    const float2 x = *reinterpret_cast<const float2*>(low + column),
                 y = *reinterpret_cast<const float2*>(high + column);
    c[n][0] *= x.x, c[n][1] *= x.y, c[n][2] *= y.x, c[n][3] *= y.y;
  }
}
// The products of two accumulators of one shape, times a factor, to rows of fp32.
template <int N, class F>
__device__ void write_products(const float (&c)[N][4], const float (&other)[N][4], float factor, int lane,
                               F row) {
  float *const low = row(lane / 4), *const high = row(lane / 4 + 8);
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const int column = n * 8 + lane % 4 * 2;
    *reinterpret_cast<float2*>(low + column) =
        make_float2(factor * other[n][0] * c[n][0], factor * other[n][1] * c[n][1]);
    *reinterpret_cast<float2*>(high + column) =
        make_float2(factor * other[n][2] * c[n][2], factor * other[n][3] * c[n][3]);
  }
}

// Rows row and row + 8 of an accumulator block to bf16 rows at low and high (null: not there), with 32-bit
// stores.
template <int N>
__device__ void write_rows(const float (&c)[N][4], Half* low, Half* high, float factor, int lane) {
  if (low) {
#pragma unroll
    for (int n = 0; n < N; ++n)
      *reinterpret_cast<uint32_t*>(low + lane % 4 * 2 + n * 8) = pack(factor * c[n][0], factor * c[n][1]);
  }
  if (high) {
#pragma unroll
    for (int n = 0; n < N; ++n)
      *reinterpret_cast<uint32_t*>(high + lane % 4 * 2 + n * 8) = pack(factor * c[n][2], factor * c[n][3]);
  }
}

// An accumulator block goes to global memory by way of a tile nobody else uses any more: 16-byte stores of
// whole rows. stage_rows rounds it into rows m0 .. and columns n0 .. of the tile, drain_rows writes kColumns
// of them to to(row) + column, where `to` gives null for a row that does not exist. One warp does both.
template <int W, int N>
__device__ void stage_rows(Half* tile, float (&c)[N][4], int m0, int n0, int lane) {
  for_each_pair(c, lane, [&](float x, float y, int row, int column) {
    *reinterpret_cast<uint32_t*>(tile + tile_index<W>(m0 + row, n0 + column)) = pack(x, y);
  });
}
template <int W, int kColumns, class F>
__device__ void drain_rows(const Half* tile, int m0, int n0, int lane, F to) {
  constexpr int kPieces = kColumns / 8;
  __syncwarp();
#pragma unroll 4
  for (int i = lane; i < 16 * kPieces; i += 32) {
    const int row = m0 + i / kPieces, piece = n0 / 8 + i % kPieces;
    if (Half* out = to(row))
      *reinterpret_cast<uint4*>(out + piece * 8) =
          reinterpret_cast<const uint4*>(tile)[tile_piece<W>(row, piece)];
  }
}

// Where row i of a chunk lies: token i / factors, factor i % factors, for i < 64. Strides below 2^24.
struct RowMap {
  int inverse, token_step, factor_stride;
  __host__ __device__ RowMap(int factors, int64_t token_stride, int64_t factor_stride)
      : inverse(65536 / factors + 1),
        token_step(static_cast<int>(token_stride - factors * factor_stride)),
        factor_stride(static_cast<int>(factor_stride)) {}
  __device__ int offset(int row) const { return ((row * inverse) >> 16) * token_step + row * factor_stride; }
};

// Copies rows [0, valid) of W elements into a tile of kRows rows; the others become zero. Asynchronous, by
// kThreads threads of which this is number `thread`.
template <int W, int kRows, int kThreads>
__device__ void fetch_tile(Half* tile, const Half* source, const RowMap& map, int valid, int thread) {
  constexpr int kPieces = W / 8, kStep = kThreads / kPieces;
  const int first = thread / kPieces, piece = thread % kPieces;
  const Half* const column = source + piece * 8;
  const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(tile));
#pragma unroll 8
  for (int row = first; row < kRows; row += kStep) {
    const bool inside = row < valid;
    const Half* from = column + (inside ? map.offset(row) : 0);
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(base + tile_piece<W>(row, piece) * 16),
        "l"(from), "r"(inside ? 16 : 0)
        : "memory");
  }
}
// A tile that lies in global memory as it will in shared memory.
template <int kElements, int kThreads>
__device__ void fetch_linear(Half* tile, const Half* source, int thread) {
#pragma unroll
  for (int i = 0; i < kElements / 8; i += kThreads)
    copy_async<16>(tile + (i + thread) * 8, source + (i + thread) * 8);
}
}  // namespace signet::kernels::delta_rule
