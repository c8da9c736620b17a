// Generalized Householder factors I - beta k k^T with eigenvalues in [-1, 1], and signed partial permutations
// as the fewest of them: the step from "where does this letter take each state" to the (k, beta, v) that
// kernels/delta_rule takes. Any other matrix: factor_matrix.h. docs/factor.md has the proofs.
#pragma once

#include <cstdint>
#include <vector>

namespace signet::theory {

// x <- (I - beta k k^T) x + beta k v: one factor of the delta rule on a state with one column.
struct Factor {
  std::vector<double> k;
  double beta = 0;
  double v = 0;
};

// A matrix with at most one entry, +1 or -1, per row and per column: M e_i = sign[i] e_{target[i]}, or 0
// where target[i] is -1. `write` (empty: zero) is added; it may be non-zero only at coordinates nothing maps
// to.
struct SignedPartialPermutation {
  std::vector<int32_t> target;
  std::vector<int32_t> sign;  // empty: all +1
  std::vector<double> write;  // empty: none

  int32_t size() const { return static_cast<int32_t>(target.size()); }
};

// The factors in the order in which they act; their number is rank(I - M), which is the least possible, when
// nothing is written (a write costs nothing, as it rides on a projection). Entries of k are 0 and +-1 and
// beta is 1 or 2: exact in every floating-point type on integer states. A cycle is two rounds of disjoint
// swaps; a path is closed to a cycle after its last coordinate is projected out; a cycle whose signs multiply
// to -1 costs one more factor, the sign flip of its first coordinate. So all factors fall into two rounds of
// commuting ones.
std::vector<Factor> factor_partial_permutation(const SignedPartialPermutation& m);
// How many these are, without making them: the size less the cycles whose signs multiply to 1.
int32_t factor_count(const SignedPartialPermutation& m);

}  // namespace signet::theory
