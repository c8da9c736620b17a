// The last matrix of a model and its loss as one operator (kernels/head_loss/head_loss.h).
#pragma once

#include <cstdint>

#include "signet/autograd/ops.h"

namespace signet::autograd {

// What cross_entropy(tape, linear(tape, x, weight), targets, ...) does, without the matrix of logits. The
// gradients of x and weight are made here, not in backward(): nothing recorded later may use x.
void head_loss(Tape& tape, const Var& x, const Var& weight, const int32_t* targets, int64_t count,
               double* loss_sum, int32_t* predictions, const LossOptions& options = {},
               const CapturedLoss& captured = {});

}  // namespace signet::autograd
