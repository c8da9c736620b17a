#include "signet/theory/linear_algebra.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "signet/base/error.h"
#include "support/check.h"

namespace signet::theory {
namespace {

Matrix random_matrix(Rng& rng, int64_t rows, int64_t columns) {
  Matrix m(rows, columns);
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) m(i, j) = rng.normal();
  return m;
}

TEST(LinearAlgebra, NormsOfWhatIsLargeOrSmall) {
  for (const double size : {1.0, 0x1.0p-300, 0x1.0p-600, 0x1.0p-1070, 0x1.0p600, 0x1.0p1020})
    EXPECT_EQ(norm(Vector{3 * size, 0, -4 * size}), 5 * size) << size;
  EXPECT_EQ(norm(Vector{0, -0.0}), 0);
  EXPECT_EQ(norm(Vector{1, INFINITY}), INFINITY);
  EXPECT_TRUE(std::isnan(norm(Vector{1e-300, NAN})));
}

TEST(LinearAlgebra, ProductsAgreeWithTheDefinition) {
  Rng rng(1);
  for (int64_t n : {1, 2, 3, 17, 64}) {
    const Matrix a = random_matrix(rng, n, n + 2), b = random_matrix(rng, n + 2, 2 * n);
    const Matrix c = a * b;
    ASSERT_EQ(c.rows(), n);
    ASSERT_EQ(c.columns(), 2 * n);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < 2 * n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < n + 2; ++k) sum += a(i, k) * b(k, j);
        EXPECT_NEAR(c(i, j), sum, 1e-12);
        EXPECT_EQ(transposed(c)(j, i), c(i, j));
      }
    const Vector x(static_cast<size_t>(n + 2), 0.5), y(static_cast<size_t>(n), 3.0);
    const Vector z = affine(a, x, y);
    for (int64_t i = 0; i < n; ++i) {
      double sum = 3;
      for (int64_t k = 0; k < n + 2; ++k) sum += 0.5 * a(i, k);
      EXPECT_NEAR(z[i], sum, 1e-12);
    }
  }
}

TEST(LinearAlgebra, SingularValueDecompositionMultipliesBack) {
  Rng rng(2);
  for (int64_t n : {1, 2, 3, 8, 33, 120})
    for (bool deficient : {false, true}) {
      Matrix m = random_matrix(rng, n, n);
      if (deficient)
        for (int64_t j = 0; j < n; ++j) m(n / 2, j) = 0;
      const Svd svd = full_svd(m);
      EXPECT_TRUE(std::is_sorted(svd.s.rbegin(), svd.s.rend()));
      EXPECT_GE(svd.s.back(), 0);
      if (deficient) {
        EXPECT_LT(svd.s.back(), 1e-12);
      }
      Matrix us = svd.u;
      for (int64_t j = 0; j < n; ++j)
        for (int64_t i = 0; i < n; ++i) us(i, j) *= svd.s[j];
      EXPECT_LT(norm(us * transposed(svd.v) - m), 1e-12 * n);
      EXPECT_LT(norm(transposed(svd.u) * svd.u - identity(n)), 1e-13 * n);
      EXPECT_LT(norm(transposed(svd.v) * svd.v - identity(n)), 1e-13 * n);
      const Vector values = singular_values(m);
      for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], svd.s[i], 1e-12);
    }
}

// The error analysis of compiled networks takes a norm within 1e-14 of 1 for that of a permutation or
// rotation.
TEST(LinearAlgebra, NormsOfPermutationsAndRotationsAreOne) {
  Rng rng(3);
  for (int64_t n : {1, 2, 5, 24, 60, 120}) {
    std::vector<int64_t> target(static_cast<size_t>(n));
    std::iota(target.begin(), target.end(), 0);
    for (int64_t i = n - 1; i > 0; --i) std::swap(target[i], target[rng.below(i + 1)]);
    Matrix permutation(n, n), rotation(n, n);
    for (int64_t i = 0; i < n; ++i) permutation(target[i], i) = i % 3 ? 1 : -1;
    rotation(n - 1, n - 1) = 1;
    for (int64_t i = 0; i + 1 < n; i += 2) {
      const double angle = 0.1 * static_cast<double>(i + 1);
      rotation(i, i) = rotation(i + 1, i + 1) = std::cos(angle);
      rotation(i, i + 1) = -(rotation(i + 1, i) = std::sin(angle));
    }
    EXPECT_NEAR(spectral_norm(permutation), 1, 1e-14) << n;
    EXPECT_NEAR(spectral_norm(rotation), 1, 1e-14) << n;
  }
}

TEST(LinearAlgebra, EigenvaluesOfKnownMatrices) {
  // The cyclic shift of n: the n-th roots of unity.
  for (int64_t n : {1, 2, 3, 7, 30}) {
    Matrix shift(n, n);
    for (int64_t i = 0; i < n; ++i) shift((i + 1) % n, i) = 1;
    const auto values = eigenvalues(shift);
    ASSERT_EQ(static_cast<int64_t>(values.size()), n);
    std::vector<bool> hit(static_cast<size_t>(n), false);
    for (const auto& z : values) {
      EXPECT_LT(std::abs(std::pow(z, static_cast<double>(n)) - 1.0), 1e-10);
      const double turns = std::arg(z) / (2 * M_PI) * static_cast<double>(n);
      hit[static_cast<size_t>((std::llround(turns) + n) % n)] = true;
    }
    EXPECT_EQ(std::count(hit.begin(), hit.end(), true), n);
  }
  // A triangular matrix: its diagonal, exactly.
  Matrix triangular(3, 3);
  triangular(0, 0) = 0.25;
  triangular(1, 1) = -1;
  triangular(2, 2) = 0.25;
  triangular(0, 2) = triangular(0, 1) = triangular(1, 2) = 5;
  double sum = 0;
  for (const auto& z : eigenvalues(triangular)) {
    EXPECT_EQ(z.imag(), 0);
    EXPECT_TRUE(z.real() == 0.25 || z.real() == -1);
    sum += z.real();
  }
  EXPECT_EQ(sum, -0.5);
}

TEST(LinearAlgebra, NumbersThatAreNotFiniteAreRefused) {
  for (double bad : {INFINITY, -INFINITY, NAN}) {
    Matrix m = identity(3);
    m(2, 1) = bad;
    EXPECT_FALSE(finite(m));
    EXPECT_THROW(eigenvalues(m), Error);
    EXPECT_THROW(spectral_norm(m), Error);
    EXPECT_THROW(full_svd(m), Error);
  }
  EXPECT_TRUE(finite(identity(3)));
}

}  // namespace
}  // namespace signet::theory
