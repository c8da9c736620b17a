// Products of a warpgroup (4 warps) whose left operand and sums lie in registers and whose right operand lies
// in shared memory: wgmma on Hopper, mma.sync elsewhere. A warp owns 16 rows of the 64; rows do not mix, so
// that a chain of such products needs no barrier.
//
// Right operands are tiles of 64 x 64 in the order tile_piece<64>, which is wgmma's 128-byte swizzle, at
// multiples of 1024 bytes.
#pragma once

#include "signet/kernels/delta_rule/delta_rule_cuda_mma.cuh"
#include "signet/tensor/warpgroup.cuh"

namespace signet::kernels::delta_rule {

inline constexpr int kTile = 64 * 64;

// A matrix of D columns as D / 64 tiles, one after the other.
template <int D>
struct Panels {
  __device__ static unsigned address(const Half* tile, int rows, int row, int pieces, int piece) {
    return Rows<64>::address(tile + pieces / 8 * kTile, rows, row, pieces % 8, piece);
  }
  __device__ static int index(int row, int column) {
    return column / 64 * kTile + tile_index<64>(row, column % 64);
  }
};

// How wgmma finds 16 elements of k and 64 columns of a right operand stored [k][n] when kRows, else [n][k]:
// where they begin, the steps between groups of 8 rows or columns, the order within. k is a multiple of 16, n
// of 64.
__device__ inline uint64_t operand(const Half* at, int step_k, int step_n, bool swizzled) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(at));
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(step_k / 16) << 16 |
         static_cast<uint64_t>(step_n / 16) << 32 | static_cast<uint64_t>(swizzled ? 1 : 0) << 62;
}
template <bool kRows, int D>
__device__ uint64_t operand_of(Panels<D>, const Half* tile, int k, int n) {
  return operand(kRows ? tile + n / 64 * kTile + k * 64 : tile + k / 64 * kTile + k % 64, 1024, 1024, true);
}
template <bool kRows, int W>
__device__ uint64_t operand_of(Blocks<W>, const Half* tile, int k, int n) {
  static_assert(kRows);
  return operand(tile + (k / 8 * (W / 8) + n / 8) * 64, W / 8 * 128, 128, false);
}

// c[16 rows of this warp][columns 8 first .. 8 first + 63] += a B, a the rows' 16 elements of k.
template <bool kRows, int N>
__device__ void multiply_wide(float (&c)[N][4], int first, const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
      "{%32,%33,%34,%35}, %36, p, 1, 1, %37;\n}\n"
      : "+f"(c[first][0]), "+f"(c[first][1]), "+f"(c[first][2]), "+f"(c[first][3]), "+f"(c[first + 1][0]),
        "+f"(c[first + 1][1]), "+f"(c[first + 1][2]), "+f"(c[first + 1][3]), "+f"(c[first + 2][0]),
        "+f"(c[first + 2][1]), "+f"(c[first + 2][2]), "+f"(c[first + 2][3]), "+f"(c[first + 3][0]),
        "+f"(c[first + 3][1]), "+f"(c[first + 3][2]), "+f"(c[first + 3][3]), "+f"(c[first + 4][0]),
        "+f"(c[first + 4][1]), "+f"(c[first + 4][2]), "+f"(c[first + 4][3]), "+f"(c[first + 5][0]),
        "+f"(c[first + 5][1]), "+f"(c[first + 5][2]), "+f"(c[first + 5][3]), "+f"(c[first + 6][0]),
        "+f"(c[first + 6][1]), "+f"(c[first + 6][2]), "+f"(c[first + 6][3]), "+f"(c[first + 7][0]),
        "+f"(c[first + 7][1]), "+f"(c[first + 7][2]), "+f"(c[first + 7][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kRows ? 1 : 0));
}
// The same with B rows k0 .. k0 + 15 of one tile stored [k][n] when kRows, else columns k0 .. of a tile
// stored [n][k].
template <bool kRows>
__device__ void multiply_tile(float (&c)[8][4], const uint32_t (&a)[4], const Half* tile, int k0, int lane) {
  if constexpr (kWgmma) {
    multiply_wide<kRows>(c, 0, a, operand_of<kRows>(Panels<64>{}, tile, k0, 0));
  } else {
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      uint32_t b[4];
      if constexpr (kRows)
        load_right<Rows<64>>(b, tile, k0, n * 8, lane);
      else
        load_right_transposed<Rows<64>>(b, tile, k0, n * 8, lane);
      multiply_add_pair(c[n], c[n + 1], a, b);
    }
  }
}

// C[16 rows at m0][N * 8 columns] += A B by all warps of a group at once, which have the same B. A is stored
// [m][k], or [k][m] when kLeftTransposed, B [k][n] when kRows, else [n][k].
template <int K, class LA, bool kLeftTransposed, class LB, bool kRows, int N>
__device__ void group_product(float (&c)[N][4], const Half* a_tile, int m0, const Half* b_tile, int lane) {
  if constexpr (!kWgmma) {
    product<K, LA, kLeftTransposed, LB, !kRows>(c, a_tile, m0, b_tile, 0, lane);
  } else {
    uint32_t a[K / 16][4];
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
      if constexpr (kLeftTransposed)
        load_left_transposed<LA>(a[k], a_tile, m0, 16 * k, lane);
      else
        load_left<LA>(a[k], a_tile, m0, 16 * k, lane);
    }
    keep_in_place(c);
    begin_products();
#pragma unroll
    for (int n = 0; n < N; n += 8) {
#pragma unroll
      for (int k = 0; k < K / 16; ++k)
        multiply_wide<kRows>(c, n, a[k], operand_of<kRows>(LB{}, b_tile, 16 * k, n * 8));
    }
    end_products();
    keep_in_place(c);
  }
}
// C += P B with P's first kSteps * 16 columns, in two bf16 parts; B stored [k][n].
template <int kSteps, class LB, int N>
__device__ void group_product_of_sums(float (&c)[N][4], const float (&p)[8][4], const Half* b_tile,
                                      int lane) {
  if constexpr (!kWgmma) {
    product_of_sums<true, LB, false>(c, p, b_tile, 0, 0, kSteps, lane);
  } else {
    uint32_t high[kSteps][4], low[kSteps][4];
#pragma unroll
    for (int k = 0; k < kSteps; ++k) as_left(high[k], low[k], p[2 * k], p[2 * k + 1]);
    keep_in_place(c);
    begin_products();
#pragma unroll
    for (int n = 0; n < N; n += 8) {
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        const uint64_t b = operand_of<true>(LB{}, b_tile, 16 * k, n * 8);
        multiply_wide<true>(c, n, high[k], b);
        multiply_wide<true>(c, n, low[k], b);
      }
    }
    end_products();
    keep_in_place(c);
  }
}

// Column j of a 16 x 64 accumulator times factors[j].
__device__ inline void scale_columns(float (&c)[8][4], const float* factors, int lane) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float2 x = *reinterpret_cast<const float2*>(factors + n * 8 + lane % 4 * 2);
    c[n][0] *= x.x, c[n][1] *= x.y, c[n][2] *= x.x, c[n][3] *= x.y;
  }
}

// An accumulator of 16 rows as the left operand of the next product, in two bf16 parts.
template <int N>
__device__ void split_rows(uint32_t (&high)[N][4], uint32_t (&low)[N][4], const float (&c)[2 * N][4]) {
#pragma unroll
  for (int k = 0; k < N; ++k) as_left(high[k], low[k], c[2 * k], c[2 * k + 1]);
}

// c += (high + low) (t[0] + t[1]), tiles as above, but for low t[1], which is below what is kept.
template <bool kRows, class Tiles>
__device__ void multiply_sums(float (&c)[8][4], const uint32_t (&high)[4][4], const uint32_t (&low)[4][4],
                              const Tiles& t, int lane) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    multiply_tile<kRows>(c, high[k], t[0], 16 * k, lane);
    multiply_tile<kRows>(c, low[k], t[0], 16 * k, lane);
    multiply_tile<kRows>(c, high[k], t[1], 16 * k, lane);
  }
}

// What a warp writes to global memory by way of shared memory of its own. On Hopper whole blocks leave by
// bulk copies, which the warp does not wait for; elsewhere they are written from registers.
struct WarpMemory {
  Half blocks[2048], high[1024], low[1024];
};
// It lies behind what else a block has in shared memory, on Hopper alone.
template <class Memory>
__device__ WarpMemory& warp_memory(Memory& memory) {
  return reinterpret_cast<WarpMemory*>(&memory + 1)[threadIdx.x / 32];
}
inline int shared_bytes(size_t memory, int warps) {
  return static_cast<int>(memory + (cuda_device().hopper ? warps * sizeof(WarpMemory) : 0));
}

// Four 8 x 8 matrices to rows of 16 bytes, this lane's at `row`; transposed when kTransposed.
template <bool kTransposed>
__device__ void store_matrices(const uint32_t (&x)[4], const Half* row) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};\n" ::"r"(address),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};\n" ::"r"(address), "r"(x[0]),
                 "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
#endif
}
// Left operands, 16 rows by columns column0 .., into a matrix of blocks (Blocks<W>): put_blocks into `staged`
// of 16 rows, then send_blocks to rows row0 .. of the matrix in global memory. `staged` may be written again
// after await_sent.
template <int W, int N>
__device__ void put_blocks(Half* staged, const uint32_t (&a)[N][4], int column0, int lane) {
  const int matrix = lane / 8;
  Half* const row = staged + (matrix % 2 * (W / 8) + column0 / 8 + matrix / 2) * 64 + lane % 8 * 8;
#pragma unroll
  for (int k = 0; k < N; ++k) store_matrices<false>(a[k], row + 2 * k * 64);
}
template <int W>
__device__ void send_blocks(Half* to, const Half* staged, int row0, int lane) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  show_to_products();
  __syncwarp();
  if (lane == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n" ::"l"(to + row0 * W),
                 "r"(static_cast<unsigned>(__cvta_generic_to_shared(staged))), "n"(16 * W * 2)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
  }
#endif
}
__device__ inline void await_sent(int lane) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory");
  __syncwarp();
#endif
}
// The same in one go where there are no bulk copies.
template <int W, int N>
__device__ void write_blocks(Half* to, const uint32_t (&a)[N][4], int row0, int column0, int lane) {
  uint32_t* const words = reinterpret_cast<uint32_t*>(to) + (row0 / 8 * (W / 8) + column0 / 8) * 32 + lane;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    words[(2 * k) * 32] = a[k][0], words[(2 * k + 1) * 32] = a[k][2];
    words[(W / 8 + 2 * k) * 32] = a[k][1], words[(W / 8 + 2 * k + 1) * 32] = a[k][3];
  }
}
// 16 rows of all P * 64 columns, either way.
template <int P>
__device__ void keep_blocks(Half* to, Half* staged, const uint32_t (&a)[P][4][4], int row0, int lane) {
  await_sent(lane);
#pragma unroll
  for (int part = 0; part < P; ++part) {
    if constexpr (kWgmma)
      put_blocks<64 * P>(staged, a[part], 64 * part, lane);
    else
      write_blocks<64 * P>(to, a[part], row0, 64 * part, lane);
  }
  send_blocks<64 * P>(to, staged, row0, lane);
}

// An 8 x 8 matrix of bf16 spread over a warp, transposed.
__device__ inline uint32_t transpose(uint32_t x) {
  uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(y) : "r"(x));
  return y;
}
// Left operands of 16 rows (channels) to 16 channels of N * 16 rows in global memory: row r at to(r), null
// where there is none. `staged` is free for it.
template <int N, class F>
__device__ void write_columns(const uint32_t (&a)[N][4], Half* staged, int lane, F to) {
  if constexpr (kWgmma) {  // rows of 32 bytes in two pieces, exchanged in every other four rows
    const int matrix = lane / 8, row = matrix / 2 * 8 + lane % 8;
    Half* const piece = staged + row * 16 + (matrix % 2 ^ (row / 4 % 2)) * 8;
#pragma unroll
    for (int k = 0; k < N; ++k) store_matrices<true>(a[k], piece + k * 256);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int r = 16 * k + lane / 2;
      if (Half* const out = to(r))
        reinterpret_cast<uint4*>(out)[lane % 2] =
            *reinterpret_cast<const uint4*>(staged + r * 16 + (lane % 2 ^ (r / 4 % 2)) * 8);
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t pair = transpose(a[k][i]);
        if (Half* const out = to(16 * k + i / 2 * 8 + lane / 4))
          *reinterpret_cast<uint32_t*>(out + i % 2 * 8 + lane % 4 * 2) = pair;
      }
    }
  }
}

// A state [dk][dv] in global memory as S^T in registers: rows dv = column .. column + 15, all of dk.
template <int D>
__device__ void load_state(float (&s)[D / 64][8][4], const float* state, int column, float factor, int lane) {
#pragma unroll
  for (int part = 0; part < D / 64; ++part)
    for_each_element(s[part], lane, [&](float& x, int row, int channel) {
      x = state ? factor * state[static_cast<int64_t>(64 * part + channel) * D + column + row] : 0.f;
    });
}
template <int D>
__device__ void store_state(float (&s)[D / 64][8][4], float* state, int column, float factor, int lane) {
#pragma unroll
  for (int part = 0; part < D / 64; ++part)
    for_each_element(s[part], lane, [&](float x, int row, int channel) {
      state[static_cast<int64_t>(64 * part + channel) * D + column + row] = factor * x;
    });
}

}  // namespace signet::kernels::delta_rule
