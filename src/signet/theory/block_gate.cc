#include "signet/theory/block_gate.h"

#include <algorithm>
#include <cmath>

namespace signet::theory {
namespace {

// Sums and products that notice when they round.
class Watched {
 public:
  bool exact() const { return exact_; }
  double product(double a, double b) {
    const double p = a * b;
    // The error of a smaller product may itself be too small for a number.
    exact_ &= a == 0 || b == 0 || (std::abs(p) > 0x1.0p-900 && std::fma(a, b, -p) == 0);
    return p;
  }
  double sum(double a, double b) {
    const double s = a + b, of_b = s - a;
    exact_ &= (a - (s - of_b)) + (b - of_b) == 0;  // the error of the sum (Knuth)
    return s;
  }

 private:
  bool exact_ = true;
};

// One factor after the other, on the columns of the identity. With b = |beta| |k|^2 a factor of norm g, at
// most max(1, |1 - beta |k|^2|), multiplies the error so far by g. On m entries of a key it rounds a column
// of size s by no more than (m + 4) 2^-52 (1 + b) s.
BlockGate householder_gate(const Block& block, int32_t context) {
  const int64_t n = block.dim;
  BlockGate gate{identity(n), Vector(static_cast<size_t>(n), 0.0), 0};
  double size = std::sqrt(static_cast<double>(n)) * (1 + 0x1.0p-50);  // of all columns
  for (int32_t j = 0; j < block.used[static_cast<size_t>(context)]; ++j) {
    const size_t row = static_cast<size_t>(context) * block.factors + j;
    const double* key = block.k.data() + row * block.dim;
    const double beta = block.beta[row];
    std::vector<int64_t> entries;
    double square = 0;
    for (int64_t i = 0; i < n; ++i)
      if (key[i] != 0) {
        entries.push_back(i);
        square += key[i] * key[i];
      }
    Watched watched;
    for (int64_t column = 0; column < n; ++column) {
      double* x = gate.matrix.column(column);
      double u = 0;
      for (const int64_t i : entries) u = watched.sum(u, watched.product(key[i], x[i]));
      if (u == 0) continue;
      const double w = watched.product(beta, u);
      for (const int64_t i : entries) x[i] = watched.sum(x[i], -watched.product(key[i], w));
    }
    double u = 0;
    for (const int64_t i : entries) u += key[i] * gate.input[static_cast<size_t>(i)];
    for (const int64_t i : entries) gate.input[static_cast<size_t>(i)] += key[i] * beta * (block.v[row] - u);
    const double b = std::abs(beta) * square, m = static_cast<double>(entries.size()),
                 growth = std::max(1.0, std::abs(1 - beta * square) + (m + 4) * 0x1.0p-52 * (1 + b));
    gate.off *= growth;
    if (!watched.exact()) gate.off += (m + 4) * 0x1.0p-52 * (1 + b) * size;
    size *= growth;
  }
  return gate;
}

}  // namespace

BlockGate block_gate(const Block& block, int32_t context) {
  if (block.kind == BlockKind::kHouseholder) return householder_gate(block, context);
  const int64_t n = block.dim, first = static_cast<int64_t>(context) * n;
  BlockGate gate{Matrix(n, n), Vector(static_cast<size_t>(n), 0.0), 0};
  if (block.kind == BlockKind::kOneHot) {
    for (int64_t j = 0; j < n; ++j)
      if (const int32_t to = block.target[static_cast<size_t>(first + j)]; to >= 0) gate.matrix(to, j) = 1;
    return gate;
  }
  const double* numbers = block.gate.data() + first;
  std::copy_n(block.input.begin() + first, n, gate.input.begin());
  if (block.kind == BlockKind::kDiagonal) {
    for (int64_t i = 0; i < n; ++i) gate.matrix(i, i) = numbers[i];
    return gate;
  }
  for (int64_t i = 0; i + 1 < n; i += 2) {
    gate.matrix(i, i) = gate.matrix(i + 1, i + 1) = numbers[i];
    gate.matrix(i + 1, i) = numbers[i + 1];
    gate.matrix(i, i + 1) = -numbers[i + 1];
  }
  return gate;
}

}  // namespace signet::theory
