// Blocks of 16 x 16 in the registers of a warp. Every product contracts columns with columns, C = A B^T: then
// sums rounded to bf16 are an operand of the next product, left or right, as they are.
#pragma once

#include "signet/kernels/delta_rule/delta_rule_cuda_mma.cuh"

namespace signet::kernels::delta_rule::short_sequence {

// 16 x 16 numbers of bf16 as ldmatrix gives them: rows 0-7 | 8-15 of columns 0-7, then of columns 8-15.
struct Fragment {
  uint32_t x[4];
};
// High and low parts.
struct Parts {
  Fragment high, low;
};
// 16 x 16 sums: two accumulators of 16 x 8.
struct Block {
  float x[2][4];
};

__device__ inline Fragment rounded(const Block& c) {
  return {pack(c.x[0][0], c.x[0][1]), pack(c.x[0][2], c.x[0][3]), pack(c.x[1][0], c.x[1][1]),
          pack(c.x[1][2], c.x[1][3])};
}
__device__ inline Parts in_parts(const Block& c) {
  Parts p;
  as_left(p.high.x, p.low.x, c.x[0], c.x[1]);
  return p;
}
__device__ inline Block widened(const Fragment& f) {
  Block c;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    c.x[i / 2][i % 2 * 2] = low_half(f.x[i]);
    c.x[i / 2][i % 2 * 2 + 1] = high_half(f.x[i]);
  }
  return c;
}
__device__ inline Fragment transposed(const Fragment& f) {
  const auto turn = [](uint32_t x) {
    uint32_t y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(y) : "r"(x));
    return y;
  };
  return {turn(f.x[0]), turn(f.x[2]), turn(f.x[1]), turn(f.x[3])};
}
__device__ inline void multiply(Block& a, const Block& b) {
#pragma unroll
  for (int e = 0; e < 8; ++e) a.x[e / 4][e % 4] *= b.x[e / 4][e % 4];
}
__device__ inline void multiply(Block& a, float factor) {
#pragma unroll
  for (int e = 0; e < 8; ++e) a.x[e / 4][e % 4] *= factor;
}

// C = A B^T with nothing to add to, which costs no registers set to zero.
__device__ inline void multiply_only(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};\n"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.f));
}
__device__ inline Block product(const Fragment& a, const Fragment& b) {
  Block c;
  multiply_only(c.x[0], a.x, b.x[0], b.x[2]);
  multiply_only(c.x[1], a.x, b.x[1], b.x[3]);
  return c;
}
// C += A B^T.
__device__ inline void add(Block& c, const Fragment& a, const Fragment& b) {
  multiply_add(c.x[0], a.x, b.x[0], b.x[2]);
  multiply_add(c.x[1], a.x, b.x[1], b.x[3]);
}
__device__ inline void add(Block& c, const Parts& a, const Fragment& b) {
  add(c, a.low, b), add(c, a.high, b);
}
__device__ inline void add(Block& c, const Fragment& a, const Parts& b) {
  add(c, a, b.low), add(c, a, b.high);
}
__device__ inline void add(Block& c, const Parts& a, const Parts& b) {
  add(c, a.low, b.high), add(c, a.high, b.low), add(c, a.high, b.high);
}
__device__ inline Block product(const Fragment& a, const Parts& b) {
  Block c = product(a, b.low);
  add(c, a, b.high);
  return c;
}
__device__ inline Block product(const Parts& a, const Parts& b) {
  Block c = product(a.low, b.high);
  add(c, a.high, b.low), add(c, a.high, b.high);
  return c;
}

// Rows of D elements from sums, rounded, in pieces of 16 bytes: four lanes that have a row (or half of two)
// trade what they hold. to(row) is null for a row that does not exist.
template <int D, class F>
__device__ void write_rows(const Block (&c)[D / 16], int lane, F to) {
  uint32_t words[2 * D / 8];  // [half][column tile]
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      words[half * (D / 8) + n] = pack(c[n / 2].x[n % 2][2 * half], c[n / 2].x[n % 2][2 * half + 1]);
  }
  const bool odd = lane & 1, upper = lane & 2;
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    const uint32_t* const w = words + 4 * i;
    const uint32_t s0 = __shfl_xor_sync(kFullWarp, odd ? w[0] : w[1], 1),
                   s1 = __shfl_xor_sync(kFullWarp, odd ? w[2] : w[3], 1);
    const uint32_t a0 = odd ? s0 : w[0], a1 = odd ? w[1] : s0, b0 = odd ? s1 : w[2], b1 = odd ? w[3] : s1;
    const uint32_t r0 = __shfl_xor_sync(kFullWarp, upper ? a0 : b0, 2),
                   r1 = __shfl_xor_sync(kFullWarp, upper ? a1 : b1, 2);
    const uint4 piece = upper ? make_uint4(r0, r1, b0, b1) : make_uint4(a0, a1, r0, r1);
    const int word = 4 * i + lane % 4;  // which this lane has now, of the four lanes
    if (Half* out = to(word / (D / 8) * 8 + lane / 4))
      *reinterpret_cast<uint4*>(out + word % (D / 8) * 8) = piece;
  }
}

}  // namespace signet::kernels::delta_rule::short_sequence
