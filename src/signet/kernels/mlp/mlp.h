// A SwiGLU block with its norm and residual sum in one pass, on the GPU, in bf16:
//   n = x rstd norm (RMS over the row),   h = silu(n Wg^T) * (n Wu^T),   y = x + h Wd^T
// x, y [rows, width]; gate_up = Wg over Wu [2 hidden, width]; down = Wd [width, hidden]. Nothing is kept:
// backward computes n and h again, writes dx, and writes what the gradients of the matrices are products of:
//   dWd += dy^T h,   d(gate_up) += (dgate_up)^T n
// n, h and the gradient of the gates are rounded to bf16 as if they were stored; sums are fp32.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"
#include "signet/tensor/reduce.h"

namespace signet::kernels {

struct MlpInputs {
  int64_t rows = 0, width = 0, hidden = 0;
  const bf16* x = nullptr;
  int64_t x_stride = 0;
  const float* norm = nullptr;
  float eps = 0;
  const bf16* gate_up = nullptr;
  const bf16* down = nullptr;
};

struct MlpForward : MlpInputs {
  bf16* y = nullptr;
  int64_t y_stride = 0;
};

struct MlpBackward : MlpInputs {
  const bf16* dy = nullptr;
  int64_t dy_stride = 0;
  bf16* dx = nullptr;  // overwritten; not dy itself
  int64_t dx_stride = 0;
  bf16* normed = nullptr;       // [rows, width]: n
  bf16* inner = nullptr;        // [rows, hidden]: h
  bf16* dgate_up = nullptr;     // [rows, 2 hidden]
  float* dnorm = nullptr;       // [width], added to
  float* workspace = nullptr;   // [mlp_workspace_size]
  ColumnSums* later = nullptr;  // takes the last sums over rows (null: done at once)
};

// Whether this GPU (Hopper) and the sizes are covered: width 128, hidden a multiple of 64; pointers 16-byte
// aligned, strides multiples of 8. And whether it pays: with few rows, and with more blocks of 128 than there
// are multiprocessors, norm, products and SwiGLU one after the other are faster.
bool mlp_covers(int64_t width, int64_t hidden);
bool mlp_pays(int64_t rows);

int64_t mlp_workspace_size(int64_t rows, int64_t width, Cuda);
void mlp_forward(const MlpForward& p, Cuda device);
void mlp_backward(const MlpBackward& p, Cuda device);

}  // namespace signet::kernels
