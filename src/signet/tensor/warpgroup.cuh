// Products of a warpgroup (4 warps) that run while it goes on: wgmma, on Hopper alone. A warp has 16 of the
// 64 rows of a result in its registers.
#pragma once

#include "signet/tensor/bulk_copy.cuh"

namespace signet {

// What lies between products in flight and other uses of their registers.
template <int N>
__device__ void keep_in_place(float (&c)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
    asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
}
__device__ inline void begin_products() {
  if constexpr (kWgmma) asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
// Everything since begin_products is under way; its sums must not be touched before await_products.
__device__ inline void issue_products() {
  if constexpr (kWgmma) asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
// All but the last kLater issues have ended.
template <int kLater = 0>
__device__ void await_products() {
  if constexpr (kWgmma) asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kLater) : "memory");
}
__device__ inline void end_products() {
  issue_products();
  await_products();
}
// Copies into shared memory that have ended are seen by wgmma from here on.
__device__ inline void show_to_products() {
  if constexpr (kWgmma) asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// c[16 rows of this warp][64 columns] += a b, 16 steps of k of both in shared memory, described as wgmma
// wants them: a stored [m][k], or [k][m] when kLeftColumns; b stored [k][n] when kRows, else [n][k].
template <bool kLeftColumns = false, bool kRows = false>
__device__ void multiply_shared(float (&c)[8][4], uint64_t a, uint64_t b) {
  if constexpr (kWgmma)
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
        "%32, %33, p, 1, 1, %34, %35;\n}\n"
        : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]),
          "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
          "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]),
          "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
          "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]),
          "+f"(c[7][2]), "+f"(c[7][3])
        : "l"(a), "l"(b), "n"(kLeftColumns ? 1 : 0), "n"(kRows ? 1 : 0));
}
// The same of 32 columns.
__device__ inline void multiply_shared(float (&c)[4][4], uint64_t a, uint64_t b) {
  if constexpr (kWgmma)
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, 0, 0;\n}\n"
        : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]),
          "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
          "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3])
        : "l"(a), "l"(b));
}

}  // namespace signet
