// Small dense matrices in fp64, stored column by column as LAPACK wants them. OpenBLAS brings LAPACK.
#pragma once

#include <complex>
#include <cstdint>
#include <utility>
#include <vector>

namespace signet::theory {

using Vector = std::vector<double>;

class Matrix {
 public:
  Matrix() = default;
  Matrix(int64_t rows, int64_t columns)  // of zeros
      : rows_(rows), columns_(columns), values_(static_cast<size_t>(rows * columns)) {}

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  double& operator()(int64_t i, int64_t j) { return values_[j * rows_ + i]; }
  double operator()(int64_t i, int64_t j) const { return values_[j * rows_ + i]; }
  double* column(int64_t j) { return values_.data() + j * rows_; }
  const double* column(int64_t j) const { return values_.data() + j * rows_; }
  const Vector& values() const { return values_; }
  bool operator==(const Matrix&) const = default;

 private:
  int64_t rows_ = 0, columns_ = 0;
  Vector values_;
};

Matrix identity(int64_t n);
Matrix transposed(const Matrix& m);
Matrix operator*(const Matrix& a, const Matrix& b);
Matrix operator-(Matrix a, const Matrix& b);
Vector affine(const Matrix& a, const Vector& x, const Vector& b);  // a x + b
double norm(const Vector& x);
inline double norm(const Matrix& m) { return norm(m.values()); }  // Frobenius

bool finite(const Matrix& m);  // no entry is infinite or NaN

// These throw kNumerical for a matrix that is not finite.
std::vector<std::complex<double>> eigenvalues(const Matrix& m);
// With the eigenvectors' condition number; infinite where they do not span the space.
std::pair<std::vector<std::complex<double>>, double> eigenvalues_and_condition(const Matrix& m);
Vector singular_values(const Matrix& m);  // largest first
inline double spectral_norm(const Matrix& m) { return singular_values(m)[0]; }

// Square m = u diag(s) v^T, u and v orthogonal.
struct Svd {
  Matrix u, v;
  Vector s;
};
Svd full_svd(const Matrix& m);

// Square m = z t z^T, z orthogonal, t upper triangular but for blocks [[a, b], [c, a]] with b c < 0, one for
// each pair of eigenvalues that are not real.
struct Schur {
  Matrix z, t;
};
Schur real_schur(const Matrix& m);

}  // namespace signet::theory
