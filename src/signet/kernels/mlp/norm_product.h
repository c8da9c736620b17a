// The end of a mixer in one pass each way, on the GPU, in bf16: RMS norm of every head, output projection and
// residual sum.
//   forward:   n = x rstd norm (over groups of `group` columns, which share the gain),   y = n W^T + residual
//   backward:  dn = dy W,   dx = rstd (dn norm - xhat mean(dn norm xhat)),   dnorm += sum dn xhat
// x, n, residual, y, dy, dx [rows, 128]; W [128, 128]; norm [group]. n is kept for dW += dy^T n, which is the
// caller's; xhat = x rstd is computed again, dn never written.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"
#include "signet/tensor/reduce.h"

namespace signet::kernels {

// What both passes are given.
struct NormProductInputs {
  int64_t rows = 0, group = 0;
  const bf16* x = nullptr;
  int64_t x_stride = 0;
  const float* norm = nullptr;
  float eps = 0;
  const bf16* weight = nullptr;
};

struct NormProductForward : NormProductInputs {
  const bf16* residual = nullptr;
  int64_t residual_stride = 0;
  bf16* n = nullptr;
  bf16* y = nullptr;
};

struct NormProductBackward : NormProductInputs {
  const bf16* dy = nullptr;
  int64_t dy_stride = 0;
  bf16* dx = nullptr;
  int64_t dx_stride = 0;
  float* dnorm = nullptr;
  float* workspace = nullptr;   // [norm_product_workspace_size]
  ColumnSums* later = nullptr;  // takes the last sums over rows (null: done at once)
};

// Whether this GPU (Hopper) and the sizes are covered: 128 columns on both sides of W, groups of 32, 64 or
// 128; pointers 16-byte aligned, strides multiples of 8.
bool norm_product_covers(int64_t in, int64_t out, int64_t group);

int64_t norm_product_workspace_size(int64_t rows, int64_t group, Cuda);
void norm_product_forward(const NormProductForward& p, Cuda device);
void norm_product_backward(const NormProductBackward& p, Cuda device);

}  // namespace signet::kernels
