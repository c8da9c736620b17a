#include "signet/theory/factor.h"

#include <Eigen/Dense>
#include <cmath>

#include "signet/base/error.h"

namespace signet::theory {
namespace {

constexpr double kRankTolerance = 1e-9;   // singular values of I - M below this count as zero
constexpr double kNormTolerance = 1e-12;  // how far above 1 rounding may push a singular value

Factor unit_factor(int size, int i, double beta, double v = 0) {
  Factor f{std::vector<double>(static_cast<size_t>(size), 0.0), beta, v};
  f.k[static_cast<size_t>(i)] = 1;
  return f;
}

// x_i and x_j change places, both multiplied by sign. (e_i - sign e_j) with beta = 1 is exact, as |k|^2 = 2.
Factor swap_factor(int size, int i, int j, int sign) {
  Factor f = unit_factor(size, i, 1);
  f.k[static_cast<size_t>(j)] = -sign;
  return f;
}

int rank_of(const Eigen::MatrixXd& m) {
  const Eigen::VectorXd values = Eigen::JacobiSVD<Eigen::MatrixXd>(m).singularValues();
  return static_cast<int>((values.array() > kRankTolerance).count());
}

Eigen::MatrixXd identity(Eigen::Index n) { return Eigen::MatrixXd::Identity(n, n); }

bool as_partial_permutation(const Eigen::MatrixXd& m, SignedPartialPermutation& out) {
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

// Orthogonal q as rank(I - q) reflections. For v = x - q x the reflection in v takes q x to x and keeps what
// q fixes, so every step raises the dimension of the fixed space by one. The unit vector that moves farthest
// keeps v well away from rounding errors.
std::vector<Factor> factor_orthogonal(Eigen::MatrixXd q) {
  const Eigen::Index n = q.rows();
  std::vector<Factor> leftmost_first;
  for (Eigen::Index step = 0; step < n; ++step) {
    const Eigen::MatrixXd difference = identity(n) - q;
    Eigen::Index column = 0;
    const double farthest = difference.colwise().norm().maxCoeff(&column);
    if (farthest < kRankTolerance) break;
    const Eigen::VectorXd v = difference.col(column) / farthest;
    q -= 2 * v * (v.transpose() * q);
    leftmost_first.push_back({std::vector<double>(v.data(), v.data() + n), 2.0, 0.0});
  }
  return {leftmost_first.rbegin(), leftmost_first.rend()};
}

// M = U S V^T = W (V S V^T) with W = U V^T: at most n commuting factors beta_i = 1 - s_i along the columns of
// V act first, then the reflections of W. Replacing W by W (I - 2 v_i v_i^T) and s_i by -s_i leaves M as it
// is and changes rank(I - W) by one, so W never needs all n reflections.
std::vector<Factor> factor_contraction(const Eigen::JacobiSVD<Eigen::MatrixXd>& svd) {
  const Eigen::MatrixXd& v = svd.matrixV();
  Eigen::VectorXd s = svd.singularValues().cwiseMin(1.0);
  const Eigen::Index n = s.size();
  Eigen::MatrixXd w = svd.matrixU() * v.transpose();
  int rank = rank_of(identity(n) - w);
  const bool search = n <= 32;
  for (Eigen::Index i = n - 1; i >= 0 && (search ? rank > 0 : rank == n); --i) {
    if (s[i] >= 1 && rank < n) continue;  // would turn a free direction into one more factor
    const Eigen::MatrixXd flipped = w - 2 * (w * v.col(i)) * v.col(i).transpose();
    const int flipped_rank = rank_of(identity(n) - flipped);
    if (flipped_rank >= rank) continue;
    w = flipped;
    s[i] = -s[i];
    rank = flipped_rank;
  }
  std::vector<Factor> factors;
  for (Eigen::Index i = 0; i < n; ++i) {
    if (1 - s[i] <= kNormTolerance) continue;
    factors.push_back({std::vector<double>(v.col(i).data(), v.col(i).data() + n), 1 - s[i], 0.0});
  }
  for (Factor& f : factor_orthogonal(w)) factors.push_back(std::move(f));
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

std::vector<Factor> factor_partial_permutation(const SignedPartialPermutation& m) {
  const int n = m.size();
  std::vector<int32_t> source(static_cast<size_t>(n), -1);
  for (int i = 0; i < n; ++i)
    if (m.target[i] >= 0) source[m.target[i]] = i;
  const auto sign_of = [&](int i) { return m.sign.empty() ? 1 : m.sign[i]; };
  const auto written = [&](int i) { return m.write.empty() ? 0.0 : m.write[i]; };

  std::vector<Factor> factors;
  std::vector<bool> done(static_cast<size_t>(n), false);
  // `orbit` lists a path from its start or a cycle; the last coordinate of a path has no target.
  const auto emit = [&](const std::vector<int>& orbit, bool cycle) {
    int carried = 1;  // the sign with which the next coordinate's value sits at orbit[0]
    for (size_t i = 1; i < orbit.size(); ++i) {
      const int sign = sign_of(orbit[i - 1]) * carried;
      factors.push_back(swap_factor(n, orbit[0], orbit[i], sign));
      carried = sign;
    }
    if (!cycle) {
      factors.push_back(unit_factor(n, orbit[0], 1, written(orbit[0])));
    } else if (carried != sign_of(orbit.back())) {
      factors.push_back(unit_factor(n, orbit[0], 2));
    }
  };
  for (bool cycle : {false, true}) {
    for (int i = 0; i < n; ++i) {
      if (done[i] || (!cycle && source[i] >= 0)) continue;
      std::vector<int> orbit;
      for (int j = i; j >= 0 && !done[j]; j = m.target[j]) {
        done[j] = true;
        orbit.push_back(j);
      }
      emit(orbit, cycle);
    }
  }
  return factors;
}

Eigen::MatrixXd factor_product(const std::vector<Factor>& factors, int size) {
  Eigen::MatrixXd product = identity(size);
  for (const Factor& f : factors) {
    const Eigen::Map<const Eigen::VectorXd> k(f.k.data(), size);
    product -= f.beta * k * (k.transpose() * product);
  }
  return product;
}

Factorization factor_matrix(const Eigen::MatrixXd& m) {
  if (m.rows() == 0) bad_input("the matrix is empty; give a square matrix of numbers");
  if (m.rows() != m.cols())
    bad_input("the matrix has {} rows and {} columns; only square matrices are transitions", m.rows(),
              m.cols());
  if (m.rows() > kMaxFactorSize)
    bad_input("the matrix has {} rows; factor takes at most {}", m.rows(), kMaxFactorSize);
  if (!m.allFinite()) bad_input("the matrix has an entry that is not a finite number");

  const int n = static_cast<int>(m.rows());
  const Eigen::JacobiSVD<Eigen::MatrixXd> svd(m, Eigen::ComputeFullU | Eigen::ComputeFullV);
  Factorization result;
  result.norm = svd.singularValues()[0];
  if (result.norm > 1 + kNormTolerance * n)
    fail(
        ErrorCode::kCheckFailed,
        "largest singular value {:.17g} is above 1: a product of generalized Householder factors with "
        "eigenvalues in [-1, 1] never lengthens a vector (Proposition 1); scale the matrix by {:.6g} or less",
        result.norm, 1 / result.norm);
  result.lower_bound = rank_of(identity(n) - m);

  SignedPartialPermutation partial;
  if (as_partial_permutation(m, partial)) {
    result.kind = MatrixKind::kPartialPermutation;
    result.factors = factor_partial_permutation(partial);
    result.bound = result.lower_bound;
  } else if ((m.transpose() * m - identity(n)).norm() < 1e-10 * n) {
    result.kind = MatrixKind::kOrthogonal;
    result.factors = factor_orthogonal(m);
    result.bound = result.lower_bound;
  } else {
    result.factors = factor_contraction(svd);
    result.bound = 2 * n - 1;
  }
  result.residual = (m - factor_product(result.factors, n)).norm();
  return result;
}

}  // namespace signet::theory
