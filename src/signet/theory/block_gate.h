// What a context of a linear block does to its state, as a matrix: x -> matrix x + input.
#pragma once

#include "signet/theory/linear_algebra.h"
#include "signet/theory/network.h"

namespace signet::theory {

struct BlockGate {
  Matrix matrix;
  Vector input;
  // Bounds the Frobenius norm of the error of `matrix`: 0 where it is the weights themselves, or a product of
  // factors that did not round.
  double off = 0;
};

// In fp64, of any block but a cell.
BlockGate block_gate(const Block& block, int32_t context);

}  // namespace signet::theory
