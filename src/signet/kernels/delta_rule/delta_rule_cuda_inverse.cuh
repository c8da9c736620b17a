// The inverse of a chunk's unit lower triangular matrix, in shared memory, to the accuracy of fp32.
#pragma once

#include "signet/kernels/delta_rule/delta_rule_cuda_chunked.cuh"
#include "signet/kernels/delta_rule/delta_rule_cuda_mma.cuh"

namespace signet::kernels::delta_rule {

inline constexpr int kPitch = kChunk + 4;  // of 64 x 64 fp32 matrices

// x = big + small, both exact in tf32 but for the last bits of small.
struct Tf32 {
  uint32_t big, small;
  __device__ explicit Tf32(float x) {
    big = __float_as_uint(x) & 0xffffe000u;
    small = __float_as_uint(x - __uint_as_float(big));
  }
};
// C[16][16] += A B over K terms on tensor cores, to the accuracy of fp32: A and B lie in shared memory, rows
// of kPitch, and enter as sums of two tf32 numbers.
template <int K>
__device__ void multiply_exactly(float (&c)[2][4], const float* a, const float* b, int lane) {
  const auto multiply = [](float(&sum)[4], const uint32_t(&x)[4], uint32_t y0, uint32_t y1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};\n"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y0), "r"(y1));
  };
  const int row = lane / 4, column = lane % 4;
#pragma unroll
  for (int k = 0; k < K; k += 8) {
    uint32_t big[4], small[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Tf32 x(a[(row + i % 2 * 8) * kPitch + k + column + i / 2 * 4]);
      big[i] = x.big, small[i] = x.small;
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const Tf32 y0(b[(k + column) * kPitch + 8 * n + row]), y1(b[(k + column + 4) * kPitch + 8 * n + row]);
      multiply(c[n], small, y0.big, y1.big);
      multiply(c[n], big, y0.small, y1.small);
      multiply(c[n], big, y0.big, y1.big);
    }
  }
}

// T = (I + M)^-1, M strictly lower, and stored as high and low bf16 parts at `out` (tile_piece<64>): four
// diagonal blocks of 16 by forward substitution, then T21 = -T22 (M21 T11) of blocks of 16 and of 32. By all
// kThreads >= 128 threads of a block, which have written M and synchronised.
template <int kThreads>
__device__ void invert(float* m, float* inverse, Half* to) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // Diagonal blocks of 16 by forward substitution, one column per lane; a warp has two of them.
  const auto at = [](float* matrix, int row, int column) { return matrix + row * kPitch + column; };
  if (warp < 2) {
    const int first = 32 * warp + lane / 16 * 16;
    const float* const block = at(m, first, first);
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float sum[4] = {i == lane % 16 ? -1.f : 0.f, 0.f, 0.f, 0.f};
#pragma unroll
      for (int l = 0; l < i; l += 4) {
        float y[4];
        load_floats(y, block + i * kPitch + l);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (l + e < i) sum[e] = fmaf(y[e], x[l + e], sum[e]);
      }
      x[i] = -((sum[0] + sum[1]) + (sum[2] + sum[3]));
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) *at(inverse, first + i, first + lane % 16) = x[i];
    __syncwarp();
    // T21 = -T22 (M21 T11) of this warp's block of 32. What lies right of the diagonal in m is free.
    const int top = 32 * warp, low = top + 16;
    float sums[2][4];
    clear(sums);
    multiply_exactly<16>(sums, at(m, low, top), at(inverse, top, top), lane);
    for_each_pair(sums, lane, [&](float y0, float y1, int row, int column) {
      *reinterpret_cast<float2*>(at(m, top + row, low + column)) = make_float2(y0, y1);
      *reinterpret_cast<float2*>(at(inverse, top + row, low + column)) = make_float2(0.f, 0.f);
    });
    __syncwarp();
    clear(sums);
    multiply_exactly<16>(sums, at(inverse, low, low), at(m, top, low), lane);
    for_each_pair(sums, lane, [&](float y0, float y1, int row, int column) {
      *reinterpret_cast<float2*>(at(inverse, low + row, top + column)) = make_float2(-y0, -y1);
    });
  }
  __syncthreads();
  // The same for the two blocks of 32: a warp makes 16 x 16 of each product.
  const int row0 = warp / 2 * 16, column0 = warp % 2 * 16;
  float sums[2][4];
  if (warp < 4) {
    clear(sums);
    multiply_exactly<32>(sums, at(m, 32 + row0, 0), at(inverse, 0, column0), lane);
    for_each_pair(sums, lane, [&](float y0, float y1, int row, int column) {
      *reinterpret_cast<float2*>(at(m, row0 + row, 32 + column0 + column)) = make_float2(y0, y1);
      *reinterpret_cast<float2*>(at(inverse, row0 + row, 32 + column0 + column)) = make_float2(0.f, 0.f);
    });
  }
  __syncthreads();
  if (warp < 4) {
    clear(sums);
    multiply_exactly<32>(sums, at(inverse, 32 + row0, 32), at(m, 0, 32 + column0), lane);
    for_each_pair(sums, lane, [&](float y0, float y1, int row, int column) {
      *reinterpret_cast<float2*>(at(inverse, 32 + row0 + row, column0 + column)) = make_float2(-y0, -y1);
    });
  }
  __syncthreads();

  uint4* const out = reinterpret_cast<uint4*>(to);
  for (int i = threadIdx.x; i < kChunk * kChunk / 8; i += kThreads) {
    float x[8];
    load_floats(x, inverse + i / 8 * kPitch + i % 8 * 8);
    const Split s0(x[0], x[1]), s1(x[2], x[3]), s2(x[4], x[5]), s3(x[6], x[7]);
    const int place = tile_piece<64>(i / 8, i % 8);
    out[place] = make_uint4(s0.high, s1.high, s2.high, s3.high);
    out[place + kChunk * kChunk / 8] = make_uint4(s0.low, s1.low, s2.low, s3.low);
  }
}

}  // namespace signet::kernels::delta_rule
