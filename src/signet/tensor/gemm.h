// Matrix products, row-major: C = op(A) op(B) + (accumulate ? C : 0), op transposes when its flag is set.
// C is [m, n], op(A) [m, k], op(B) [k, n]; ld* are row strides in elements. fp32 runs on the tiles of a
// processor that has some (gemm_amx.h), else on oneDNN where it is installed (docs/decisions.md has the
// measurements), else on OpenBLAS; fp64 on OpenBLAS. Splits the rows of C over the thread pool when called
// outside a parallel region.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet {

// How fp32 products are computed on the GPU; sums are fp32 in all of them.
enum class GemmMath {
  kFp32,
  kTf32,  // factors rounded to 10 bits of mantissa, on the tensor cores
  kBf16   // factors rounded to bf16
};

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
  GemmMath math = GemmMath::kFp32;   // GPU only, for fp32
  Accumulator<T>* wide_c = nullptr;  // GPU only: the result unrounded, instead of c
  const T* addend = nullptr;         // GPU only: [m, n] added to the product, instead of accumulate
  int64_t ld_addend = 0;
  void* workspace = nullptr;  // GPU only: kGemmWorkspaceBytes of scratch (null: the stream's own)
};
inline constexpr int64_t kGemmWorkspaceBytes = int64_t{32} << 20;

template <class T>
void gemm(const Gemm<T>& p, Cpu);

// On the GPU: float and bf16, by cuBLASLt. The first call on a stream without a workspace allocates
// that stream's, and the first call of a shape looks for an algorithm, of large ones for the fastest that
// gives the same bits, which takes some tens of milliseconds; after that a call only launches.
template <class T>
void gemm(const Gemm<T>& p, Cuda);

// Of a stream that is about to end; nothing may be running on it.
void free_gemm_workspace(Cuda);

const char* gemm_backend();  // of fp32: "oneDNN" or "OpenBLAS", behind "AMX tiles, " where there are some

}  // namespace signet
