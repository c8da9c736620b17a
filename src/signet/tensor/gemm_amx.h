// fp32 products on the tile unit of the CPU (Isa::kAmx), which multiplies bf16 and sums fp32. A factor is cut
// into three bf16, x = x1 + x2 + x3, 8 of its 24 bits each, and
//
//   a b = a1 b1 + a1 b2 + a2 b1 + a1 b3 + a2 b2 + a3 b1
//
// but for 2^-24 of it on average, and 2^-21 at most. Unlike in other fp32 products, what is below 2^-126 is
// zero, parts of factors and products of parts too, and infinity gives NaN.
#pragma once

#include "signet/tensor/gemm.h"

namespace signet {

// Whether tiles are faster than vectors: at any size of which at most a fifth is padding to multiples of 32.
bool amx_pays(const Gemm<float>& p);

// On the calling thread; k > 0. An element of C has the same bits whatever m and n are.
void multiply_by_amx(const Gemm<float>& p);

}  // namespace signet
