// The two ends of a SwiGLU layer that are a product and a pass over its result, in one pass each, on the GPU,
// in bf16:
//   forward:   gate, up = n Wg^T, n Wu^T,   h = silu(gate) * up
//   backward:  dh = dy Wd,   dgate = dh up silu'(gate),   dup = dh silu(gate)
// n, dy [rows, width]; Wg over Wu [2 hidden, width]; Wd [width, hidden]; gate beside up, and their gradients,
// [rows, 2 hidden]; h [rows, hidden]. dh is never written. Sums are fp32. Backward reads gate and up as they
// were stored; layers wider than 128 take h from these in both passes, with the same bits, and round dh as if
// it were written.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

struct GluProductForward {
  int64_t rows = 0, width = 0, hidden = 0;
  const bf16* n = nullptr;
  int64_t n_stride = 0;
  const bf16* gate_up_weight = nullptr;
  bf16* gate_up = nullptr;  // null: not wanted
  bf16* h = nullptr;
};

struct GluProductBackward {
  int64_t rows = 0, width = 0, hidden = 0;
  const bf16* dy = nullptr;
  int64_t dy_stride = 0;
  const bf16* down_weight = nullptr;
  const bf16* gate_up = nullptr;
  bf16* dgate_up = nullptr;  // may be gate_up
  bf16* h = nullptr;         // receives what forward made (null: not wanted)
};

// Whether this GPU (Hopper) and the sizes are covered: width 128 with hidden a multiple of 64, or width a
// multiple of 64 and hidden of 128 from 256 on; pointers 16-byte aligned, strides multiples of 8.
bool glu_product_covers(int64_t width, int64_t hidden);
// Whether backward makes h again.
bool glu_product_makes_h(int64_t width, int64_t hidden);

void glu_product_forward(const GluProductForward& p, Cuda device);
void glu_product_backward(const GluProductBackward& p, Cuda device);

}  // namespace signet::kernels
