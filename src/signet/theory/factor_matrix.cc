#include "signet/theory/factor_matrix.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::theory {
namespace {

constexpr double kNormTolerance = 1e-12;  // how far from 1 rounding may push a singular value
// What rounding alone leaves of a number of size 1.
double noise(int64_t n) { return static_cast<double>(n) * 0x1.0p-50; }

// Singular values up to `least` count as zero.
int rank_of(const Matrix& m, double least) {
  const Vector values = singular_values(m);
  return static_cast<int>(std::count_if(values.begin(), values.end(), [&](double s) { return s > least; }));
}

// m <- (I - beta k k^T) m
void apply_factor(double beta, const double* k, Matrix& m) {
  const int64_t n = m.rows();
  for (int64_t j = 0; j < m.columns(); ++j) {
    double* column = m.column(j);
    const double scale = beta * std::inner_product(k, k + n, column, 0.0);
    for (int64_t i = 0; i < n; ++i) column[i] -= scale * k[i];
  }
}

bool as_partial_permutation(const Matrix& m, SignedPartialPermutation& out) {
  const int n = static_cast<int>(m.rows());
  out.target.assign(static_cast<size_t>(n), -1);
  out.sign.assign(static_cast<size_t>(n), 1);
  std::vector<bool> hit(static_cast<size_t>(n), false);
  for (int column = 0; column < n; ++column) {
    for (int row = 0; row < n; ++row) {
      const double x = m(row, column);
      if (x == 0) continue;
      if (std::abs(x) != 1 || out.target[column] >= 0 || hit[row]) return false;
      out.target[column] = row;
      out.sign[column] = x > 0 ? 1 : -1;
      hit[row] = true;
    }
  }
  return true;
}

// Orthogonal q as rank(I - q) reflections. In the Schur form q = Z T Z^T of a normal matrix T has signs and
// turns of planes on its diagonal. A sign -1 is the reflection in its column z of Z. A turn by 2a from z
// towards z' is the reflection in z and then that in cos(a) z + sin(a) z', which is as exact for a small turn
// as for a large one. Turns that move a unit vector by no more than `least` are none.
std::vector<Factor> factor_orthogonal(const Matrix& q, double least) {
  const int64_t n = q.rows();
  const auto [z, t] = real_schur(q);
  std::vector<Factor> factors;
  for (int64_t i = 0; i < n; ++i) {
    const Vector first(z.column(i), z.column(i) + n);
    if (i + 1 == n || t(i + 1, i) == 0) {
      if (t(i, i) < 0) factors.push_back({first, 2.0, 0.0});
      continue;
    }
    const double half = std::atan2((t(i + 1, i) - t(i, i + 1)) / 2, t(i, i)) / 2;
    Vector second(static_cast<size_t>(n));
    for (int64_t j = 0; j < n; ++j) second[j] = std::cos(half) * first[j] + std::sin(half) * z(j, i + 1);
    ++i;
    if (2 * std::abs(std::sin(half)) <= least) continue;
    factors.push_back({first, 2.0, 0.0});
    factors.push_back({std::move(second), 2.0, 0.0});
  }
  return factors;
}

// M = U S V^T = W (V S V^T) with W = U V^T: at most n commuting factors beta_i = 1 - s_i along the columns of
// V act first, then the reflections of W. Replacing W by W (I - 2 v_i v_i^T) and s_i by -s_i leaves M as it
// is and changes rank(I - W) by one, so W never needs all n reflections.
std::vector<Factor> factor_contraction(const Svd& svd) {
  const Matrix& v = svd.v;
  Vector s = svd.s;
  for (double& x : s) x = std::min(x, 1.0);
  const int64_t n = v.rows();
  Matrix w_transposed = v * transposed(svd.u);  // the flips act on its left
  const auto reflections_of = [n](const Matrix& transposed_w) {
    return factor_orthogonal(transposed(transposed_w), noise(n));
  };
  std::vector<Factor> reflections = reflections_of(w_transposed);
  const bool search = n <= 32;
  for (int64_t i = n - 1; i >= 0; --i) {
    report_activity("reflections", n - 1 - i, n);
    const auto rank = static_cast<int64_t>(reflections.size());
    if (search ? rank == 0 : rank < n) break;
    if (s[i] >= 1 && rank < n) continue;  // would turn a free direction into one more factor
    Matrix flipped = w_transposed;
    apply_factor(2, v.column(i), flipped);
    auto fewer = reflections_of(flipped);
    if (fewer.size() >= reflections.size()) continue;
    w_transposed = std::move(flipped);
    s[i] = -s[i];
    reflections = std::move(fewer);
  }
  std::vector<Factor> factors;
  for (int64_t i = 0; i < n; ++i) {
    if (1 - s[i] <= noise(n)) continue;
    factors.push_back({Vector(v.column(i), v.column(i) + n), 1 - s[i], 0.0});
  }
  factors.insert(factors.end(), reflections.begin(), reflections.end());
  return factors;
}

}  // namespace

const char* matrix_kind_name(MatrixKind kind) {
  switch (kind) {
    case MatrixKind::kPartialPermutation:
      return "signed partial permutation";
    case MatrixKind::kOrthogonal:
      return "orthogonal";
    default:
      return "contraction";
  }
}

Matrix factor_product(const std::vector<Factor>& factors, int size) {
  Matrix product = identity(size);
  for (const Factor& f : factors) apply_factor(f.beta, f.k.data(), product);
  return product;
}

Factorization factor_matrix(const Matrix& m) {
  if (m.rows() == 0) bad_input("the matrix is empty; give a square matrix of numbers");
  if (m.rows() != m.columns())
    bad_input("the matrix has {} and {}; only square matrices are transitions", count_of(m.rows(), "row"),
              count_of(m.columns(), "column"));
  if (m.rows() > kMaxFactorSize)
    bad_input("the matrix has {} rows; factor takes at most {}", m.rows(), kMaxFactorSize);
  if (!std::all_of(m.values().begin(), m.values().end(), [](double x) { return std::isfinite(x); }))
    bad_input("the matrix has an entry that is not a finite number");

  const int n = static_cast<int>(m.rows());
  const Svd svd = full_svd(m);
  Factorization result;
  result.norm = std::abs(svd.s[0]);  // LAPACK has -0 of -0
  if (!std::isfinite(result.norm))
    bad_input("the matrix has a singular value that is beyond fp64; scale it down");
  if (result.norm > 1 + kNormTolerance * n)
    fail(ErrorCode::kCheckFailed,
         "largest singular value {:.17g} is above 1: a product of generalized Householder factors with "
         "eigenvalues in [-1, 1] never lengthens a vector (Proposition 1); divide the matrix by it",
         result.norm);
  // So far is an orthogonal matrix from the one it was rounded from.
  const double defect = norm(transposed(m) * m - identity(n)), rounded = std::max(noise(n), 4 * defect);
  const bool orthogonal =
      defect < std::max(8 * noise(n), kNormTolerance * std::min(1.0, norm(identity(n) - m)) * n);

  SignedPartialPermutation partial;
  if (as_partial_permutation(m, partial)) {
    result.kind = MatrixKind::kPartialPermutation;
    result.factors = factor_partial_permutation(partial);
  } else if (orthogonal) {
    result.kind = MatrixKind::kOrthogonal;
    result.factors = factor_orthogonal(m, rounded);
  } else {
    result.factors = factor_contraction(svd);
  }
  result.residual = norm(m - factor_product(result.factors, n));
  // Of the first two kinds the factors are rank(I - M). Of others, singular values of I - M that are beyond
  // the residual: I less a product of fewer factors has a lower rank, so it is farther away.
  result.bound = result.lower_bound = static_cast<int>(result.factors.size());
  if (result.kind == MatrixKind::kContraction) {
    result.bound = 2 * n - 1;
    result.lower_bound = rank_of(identity(n) - m, std::max(noise(n), result.residual));
  }
  return result;
}

}  // namespace signet::theory
