// Operators of decoding, which the operators of ops.h turn into where few rows go through a model without
// being recorded.
#pragma once

#include "signet/autograd/ops.h"

namespace signet::autograd {

// y = norm(x) W^T (+ residual), or its gated form (kernels/matvec/matvec.h). `norm` may be empty; its size is
// that of the groups.
struct FewRows {
  Var x, norm, weight, residual;
  double eps = 0;
  bool gated = false, unrounded = false;
};
// Whether they go through `matvec` instead of a matrix product: few, not recorded, on the GPU bf16 and of
// sizes that it covers, on the CPU without norm and gate and with a matrix that is worth it.
bool few_rows_covers(const Tape& tape, const Var& x, const Var& weight, const Var& norm = {});
Var multiply_few_rows(Tape& tape, const FewRows& p);

}  // namespace signet::autograd
