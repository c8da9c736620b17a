// Any matrix of spectral norm at most 1 as a product of generalized Householder factors (Proposition 1 of
// Grazzi et al., arXiv 2411.12537, with a better count). docs/factor.md has the proofs.
#pragma once

#include <string>
#include <vector>

#include "signet/theory/factor.h"
#include "signet/theory/linear_algebra.h"

namespace signet::theory {

enum class MatrixKind { kPartialPermutation, kOrthogonal, kContraction };
const char* matrix_kind_name(MatrixKind kind);

struct Factorization {
  MatrixKind kind = MatrixKind::kContraction;
  std::vector<Factor> factors;  // in the order in which they act
  int bound = 0;                // what the theorem for this kind promises
  int lower_bound = 0;          // rank(I - M), to rounding: no fewer factors can do
  double norm = 0;              // largest singular value of M
  double residual = 0;          // Frobenius norm of M minus the product, in fp64
};

// Square M with spectral norm at most 1. Throws kCheckFailed with the singular value when it is larger, and
// kBadInput for a matrix that is empty, not square, not finite or larger than kMaxFactorSize.
inline constexpr int kMaxFactorSize = 512;
Factorization factor_matrix(const Matrix& m);

// The product of the factors' matrices, last factor leftmost.
Matrix factor_product(const std::vector<Factor>& factors, int size);

// "[[0,1],[1,0]]" (JSON) or lines of comma- or space-separated numbers. Throws kBadInput.
Matrix parse_matrix(const std::string& text, const std::string& source);

}  // namespace signet::theory
