// Operators of decoding on the GPU, which the operators of ops.h turn into where few rows go through a model
// without being recorded.
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
// Whether they go through `matvec` instead of a matrix product: bf16, few, not recorded, and of sizes that it
// covers.
bool few_rows_covers(const Tape& tape, const Var& x, const Var& weight, const Var& norm = {});
Var multiply_few_rows(Tape& tape, const FewRows& p);

}  // namespace signet::autograd
