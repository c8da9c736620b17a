// Products of a few rows with a matrix, as decoding makes them. Their time is that of reading the matrix
// once, so on the GPU what lies before and behind a product is done in the same pass:
//   n = x, or its RMS norm over groups of `group` columns, which share the gain
//   y = n W^T (+ residual),   with gated   y = silu(n Wg^T) * (n Wu^T), W being Wg over Wu
// x [rows, in]; W [out, in], or [2 out, in] when gated, contiguous; norm [group]; residual and y [rows, out].
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

inline constexpr int64_t kMatvecRows = 4;  // at most: more are a matrix product

template <class T>
struct Matvec {
  int64_t rows = 0, in = 0, out = 0;
  const T* x = nullptr;
  int64_t x_stride = 0;
  const T* weight = nullptr;
  const bf16* narrow_weight = nullptr;  // CPU, float only: W in bf16, instead of weight
  const float* norm = nullptr;          // null: x as it is
  int64_t group = 0;
  float eps = 0;
  bool gated = false;
  const T* residual = nullptr;
  int64_t residual_stride = 0;
  T* y = nullptr;
  int64_t y_stride = 0;
  float* wide_y = nullptr;  // the result unrounded, instead of y
};

// float and double, without norm, gate and wide_y. On the calling thread: others can make other outputs of
// the same product, whose sums do not depend on who makes them.
template <class T>
void matvec(const Matvec<T>& p, Cpu);

// On the GPU sums are fp32 and rounded once, n is not rounded. A kernel reads the matrix and the norm before
// the kernels ahead of it on the stream are done: nothing of the last two may write them. Covered are rows
// of 16-byte pieces; groups of 8 to 256 columns that are powers of two, or of a whole row.
bool matvec_covers(const Matvec<bf16>& p);
void matvec(const Matvec<bf16>& p, Cuda device);

}  // namespace signet::kernels
