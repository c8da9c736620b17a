// Small dense matrices. The decompositions are compiled here once: they are what makes Eigen slow to build.
#pragma once

#include <Eigen/Core>

namespace signet::theory {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

Eigen::VectorXcd eigenvalues(const Matrix& m);
Vector singular_values(const Matrix& m);  // largest first
inline double spectral_norm(const Matrix& m) { return singular_values(m)[0]; }

// m = u diag(s) v^T, u and v square and orthogonal.
struct Svd {
  Matrix u, v;
  Vector s;
};
Svd full_svd(const Matrix& m);

}  // namespace signet::theory
