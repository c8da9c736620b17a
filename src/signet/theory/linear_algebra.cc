#include "signet/theory/linear_algebra.h"

#include <algorithm>
#include <cmath>

#include "signet/base/error.h"
#include "signet/tensor/gemm.h"
#include "signet/tensor/openblas.h"

namespace signet::theory {
namespace {

// Calls routine(work, work_size, info) twice: LAPACK first says what workspace it wants, then works.
template <class Routine>
void with_workspace(const char* name, Routine&& routine) {
  double wanted = 0;
  int size = -1, info = 0;
  routine(&wanted, &size, &info);
  size = static_cast<int>(wanted);
  Vector work(static_cast<size_t>(size));
  routine(work.data(), &size, &info);
  if (info != 0) fail(ErrorCode::kNumerical, "{} did not converge (info {})", name, info);
}

// LAPACK may write beyond its arrays when a number is not finite.
void expect_finite(const Matrix& m) {
  if (!finite(m)) fail(ErrorCode::kNumerical, "a matrix has an entry that is not a finite number");
}

// job 'A' for all singular vectors, 'N' for none.
Svd decompose(Matrix m, char job) {
  expect_finite(m);
  const int rows = static_cast<int>(m.rows()), columns = static_cast<int>(m.columns());
  const bool vectors = job == 'A';
  Svd svd{Matrix(vectors ? rows : 1, vectors ? rows : 1), {}, Vector(std::min(rows, columns))};
  Matrix v_transposed(vectors ? columns : 1, vectors ? columns : 1);
  const int ldu = static_cast<int>(svd.u.rows()), ldv = static_cast<int>(v_transposed.rows());
  with_workspace("the singular value decomposition", [&](double* work, const int* size, int* info) {
    openblas().dgesvd(&job, &job, &rows, &columns, m.column(0), &rows, svd.s.data(), svd.u.column(0), &ldu,
                      v_transposed.column(0), &ldv, work, size, info);
  });
  svd.v = transposed(v_transposed);
  return svd;
}

}  // namespace

Matrix identity(int64_t n) {
  Matrix m(n, n);
  for (int64_t i = 0; i < n; ++i) m(i, i) = 1;
  return m;
}

Matrix transposed(const Matrix& m) {
  Matrix t(m.columns(), m.rows());
  for (int64_t j = 0; j < m.columns(); ++j)
    for (int64_t i = 0; i < m.rows(); ++i) t(j, i) = m(i, j);
  return t;
}

Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows(), b.columns());
  // By rows it is c^T = b^T a^T.
  Gemm<double> product{.m = b.columns(), .n = a.rows(), .k = a.columns()};
  product.a = b.column(0);
  product.lda = b.rows();
  product.b = a.column(0);
  product.ldb = a.rows();
  product.c = c.column(0);
  product.ldc = c.rows();
  gemm(product, Cpu{});
  return c;
}

Matrix operator-(Matrix a, const Matrix& b) {
  for (int64_t j = 0; j < a.columns(); ++j)
    for (int64_t i = 0; i < a.rows(); ++i) a(i, j) -= b(i, j);
  return a;
}

Vector affine(const Matrix& a, const Vector& x, const Vector& b) {
  Vector y = b;
  for (int64_t j = 0; j < a.columns(); ++j)
    for (int64_t i = 0; i < a.rows(); ++i) y[i] += a(i, j) * x[j];
  return y;
}

double norm(const Vector& x) {
  double sum = 0, most = 0;
  for (double value : x) {
    sum += value * value;
    most = std::max(most, std::abs(value));
  }
  if (most == 0 || !std::isfinite(most) || (sum > 0x1.0p-900 && std::isfinite(sum))) return std::sqrt(sum);
  // Squares vanish or overflow: of numbers of about 1 they do not.
  const int scale = std::ilogb(most);
  sum = 0;
  for (const double value : x) sum += std::ldexp(value, -scale) * std::ldexp(value, -scale);
  return std::ldexp(std::sqrt(sum), scale);
}

bool finite(const Matrix& m) {
  return std::all_of(m.values().begin(), m.values().end(), [](double x) { return std::isfinite(x); });
}

std::vector<std::complex<double>> eigenvalues(const Matrix& m) {
  expect_finite(m);
  Matrix destroyed = m;
  const int n = static_cast<int>(m.rows()), one = 1;
  Vector real(static_cast<size_t>(n)), imaginary(static_cast<size_t>(n));
  with_workspace("the computation of eigenvalues", [&](double* work, const int* size, int* info) {
    openblas().dgeev("N", "N", &n, destroyed.column(0), &n, real.data(), imaginary.data(), nullptr, &one,
                     nullptr, &one, work, size, info);
  });
  std::vector<std::complex<double>> values;
  for (int i = 0; i < n; ++i) values.emplace_back(real[i], imaginary[i]);
  return values;
}

std::pair<std::vector<std::complex<double>>, double> eigenvalues_and_condition(const Matrix& m) {
  expect_finite(m);
  Matrix destroyed = m;
  const int n = static_cast<int>(m.rows()), one = 1;
  Vector real(static_cast<size_t>(n)), imaginary(static_cast<size_t>(n));
  Matrix right(n, n);
  with_workspace("the computation of eigenvectors", [&](double* work, const int* size, int* info) {
    openblas().dgeev("N", "V", &n, destroyed.column(0), &n, real.data(), imaginary.data(), nullptr, &one,
                     right.column(0), &n, work, size, info);
  });
  // As the real matrix [[Re, -Im], [Im, Re]], whose singular values are those of the complex one, twice.
  Matrix vectors(int64_t{2} * n, int64_t{2} * n);
  std::vector<std::complex<double>> values;
  for (int j = 0; j < n; ++j) {
    values.emplace_back(real[j], imaginary[j]);
    const int pair = imaginary[j] > 0 ? j : imaginary[j] < 0 ? j - 1 : -1;  // columns Re, Im of a pair
    for (int i = 0; i < n; ++i) {
      const double re = right(i, pair < 0 ? j : pair),
                   im = pair < 0 ? 0 : (imaginary[j] > 0 ? 1 : -1) * right(i, pair + 1);
      vectors(i, j) = vectors(n + i, n + j) = re;
      vectors(n + i, j) = im;
      vectors(i, n + j) = -im;
    }
  }
  const Vector s = singular_values(vectors);
  return {values, s.back() > 0 ? s.front() / s.back() : INFINITY};
}

Vector singular_values(const Matrix& m) { return decompose(m, 'N').s; }

Svd full_svd(const Matrix& m) { return decompose(m, 'A'); }

Schur real_schur(const Matrix& m) {
  expect_finite(m);
  const int n = static_cast<int>(m.rows());
  Schur schur{Matrix(n, n), m};
  Vector real(static_cast<size_t>(n)), imaginary(static_cast<size_t>(n));
  int selected = 0;
  with_workspace("the Schur decomposition", [&](double* work, const int* size, int* info) {
    openblas().dgees("V", "N", nullptr, &n, schur.t.column(0), &n, &selected, real.data(), imaginary.data(),
                     schur.z.column(0), &n, work, size, nullptr, info);
  });
  return schur;
}

}  // namespace signet::theory
