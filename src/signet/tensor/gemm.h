// Matrix products, row-major: C = op(A) op(B) + (accumulate ? C : 0), op transposes when its flag is set.
// C is [m, n], op(A) [m, k], op(B) [k, n]; ld* are row strides in elements. fp32 runs on oneDNN where it is
// installed (docs/decisions.md has the measurements), else on OpenBLAS; fp64 on OpenBLAS. Splits the rows of
// C over the thread pool when called outside a parallel region.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"

namespace signet {

template <class T>
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  const T* a = nullptr;
  int64_t lda = 0;
  bool transpose_a = false;
  const T* b = nullptr;
  int64_t ldb = 0;
  bool transpose_b = false;
  T* c = nullptr;
  int64_t ldc = 0;
  bool accumulate = false;
};

template <class T>
void gemm(const Gemm<T>& p, Cpu);

const char* gemm_backend();  // "oneDNN" or "OpenBLAS", for fp32

}  // namespace signet
