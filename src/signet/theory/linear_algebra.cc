#include "signet/theory/linear_algebra.h"

#include <Eigen/Eigenvalues>
#include <Eigen/SVD>

namespace signet::theory {
namespace {

Eigen::JacobiSVD<Matrix> decompose(const Matrix& m, unsigned what) {
  return Eigen::JacobiSVD<Matrix>(m, what);
}

}  // namespace

Eigen::VectorXcd eigenvalues(const Matrix& m) { return Eigen::EigenSolver<Matrix>(m, false).eigenvalues(); }

Vector singular_values(const Matrix& m) { return decompose(m, 0).singularValues(); }

Svd full_svd(const Matrix& m) {
  const auto svd = decompose(m, Eigen::ComputeFullU | Eigen::ComputeFullV);
  return {svd.matrixU(), svd.matrixV(), svd.singularValues()};
}

}  // namespace signet::theory
