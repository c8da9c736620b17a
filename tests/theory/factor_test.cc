#include "signet/theory/factor_matrix.h"

#include <numeric>

#include "signet/base/error.h"
#include "support/check.h"

namespace signet::theory {
namespace {

Matrix random_matrix(Rng& rng, int n) {
  Matrix m(n, n);
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < n; ++i) m(i, j) = rng.normal();
  return m;
}
Matrix random_orthogonal(Rng& rng, int n) { return full_svd(random_matrix(rng, n)).u; }
Matrix scaled(Matrix m, double scale) {
  for (int64_t j = 0; j < m.columns(); ++j)
    for (int64_t i = 0; i < m.rows(); ++i) m(i, j) *= scale;
  return m;
}
int rank_of(const Matrix& m) {
  int rank = 0;
  for (double s : singular_values(m)) rank += s > 1e-9;
  return rank;
}

// Every factor must have its eigenvalue 1 - beta |k|^2 in [-1, 1].
void expect_valid(const Factorization& f) {
  for (const Factor& factor : f.factors) {
    double square = 0;
    for (double x : factor.k) square += x * x;
    EXPECT_GE(factor.beta, 0);
    EXPECT_LE(factor.beta * square, 2 + 1e-12);
  }
  EXPECT_LT(f.residual, 1e-9);
}

SignedPartialPermutation random_partial(Rng& rng, int n, bool total, bool with_signs) {
  SignedPartialPermutation m;
  m.target.resize(n);
  std::iota(m.target.begin(), m.target.end(), 0);
  for (int i = n - 1; i > 0; --i) std::swap(m.target[i], m.target[rng.below(i + 1)]);
  for (auto& t : m.target)
    if (!total && rng.below(3) == 0) t = -1;
  for (int i = 0; i < n; ++i) m.sign.push_back(with_signs && rng.below(2) ? -1 : 1);
  return m;
}
Matrix matrix_of(const SignedPartialPermutation& p) {
  Matrix m(p.size(), p.size());
  for (int i = 0; i < p.size(); ++i)
    if (p.target[i] >= 0) m(p.target[i], i) = p.sign.empty() ? 1 : p.sign[i];
  return m;
}

TEST(Factor, PartialPermutationsTakeRankFactorsExactly) {
  Rng rng(1);
  for (int trial = 0; trial < 400; ++trial) {
    const int n = 1 + static_cast<int>(rng.below(9));
    const auto p = random_partial(rng, n, trial % 2, trial % 4 < 2);
    const Matrix m = matrix_of(p);
    const auto factors = factor_partial_permutation(p);
    EXPECT_EQ(factor_product(factors, n), m);  // bit for bit
    EXPECT_EQ(static_cast<int>(factors.size()), rank_of(identity(n) - m));
    EXPECT_EQ(static_cast<int>(factors.size()), factor_count(p));
    const auto f = factor_matrix(m);
    EXPECT_EQ(f.kind, MatrixKind::kPartialPermutation);
    EXPECT_EQ(f.factors.size(), factors.size());
    EXPECT_EQ(f.residual, 0);
  }
}

TEST(Factor, PermutationsTakeSizeMinusCycles) {
  Rng rng(2);
  for (int trial = 0; trial < 100; ++trial) {
    const int n = 1 + static_cast<int>(rng.below(12));
    const auto p = random_partial(rng, n, true, false);
    int cycles = 0;
    std::vector<bool> seen(n, false);
    for (int i = 0; i < n; ++i) {
      cycles += !seen[i];
      for (int j = i; !seen[j]; j = p.target[j]) seen[j] = true;
    }
    EXPECT_EQ(static_cast<int>(factor_partial_permutation(p).size()), n - cycles);
  }
}

// Factors that share no coordinate commute: a factor can act one round after the last that it meets.
TEST(Factor, PartialPermutationsTakeTwoRounds) {
  Rng rng(11);
  for (int trial = 0; trial < 300; ++trial) {
    const int n = 1 + static_cast<int>(rng.below(16));
    auto p = random_partial(rng, n, trial % 2, trial % 4 < 2);
    p.write.assign(n, 0.0);
    std::vector<bool> hit(n, false);
    for (int t : p.target)
      if (t >= 0) hit[t] = true;
    std::vector<double> x(n), expected(n, 0.0);
    for (int i = 0; i < n; ++i) {
      x[i] = static_cast<double>(rng.below(100));
      if (!hit[i]) expected[i] = p.write[i] = static_cast<double>(rng.below(100));
    }
    for (int i = 0; i < n; ++i)
      if (p.target[i] >= 0) expected[p.target[i]] = p.sign[i] * x[i];
    std::vector<int> taken(n, 0);
    for (const Factor& f : factor_partial_permutation(p)) {
      int round = 0;
      double u = 0;
      for (int i = 0; i < n; ++i) {
        u += f.k[i] * x[i];
        if (f.k[i] != 0) round = std::max(round, taken[i] + 1);
      }
      EXPECT_LE(round, 2);
      for (int i = 0; i < n; ++i) {
        x[i] += f.k[i] * f.beta * (f.v - u);
        if (f.k[i] != 0) taken[i] = round;
      }
    }
    EXPECT_EQ(x, expected);
  }
}

TEST(Factor, WritesRideOnProjections) {
  // 0 -> 1 -> out, 2 -> out: coordinates 0 and 2 receive nothing and may be written.
  SignedPartialPermutation p{{1, -1, -1}, {}, {5, 0, 7}};
  const auto factors = factor_partial_permutation(p);
  EXPECT_EQ(factors.size(), 3u);
  std::vector<double> x = {2, 3, 4};
  for (const Factor& f : factors) {
    double u = 0;
    for (int i = 0; i < 3; ++i) u += f.k[i] * x[i];
    for (int i = 0; i < 3; ++i) x[i] += f.k[i] * f.beta * (f.v - u);
  }
  EXPECT_EQ(x, (std::vector<double>{5, 2, 7}));
}

TEST(Factor, OrthogonalTakesRankReflections) {
  Rng rng(3);
  for (int trial = 0; trial < 120; ++trial) {
    const int n = 1 + static_cast<int>(rng.below(8)), fixed = static_cast<int>(rng.below(n + 1));
    // A random rotation of a random subspace of dimension n - fixed.
    Matrix core = identity(n);
    if (fixed < n) {
      const Matrix turn = random_orthogonal(rng, n - fixed);
      for (int j = 0; j < n - fixed; ++j)
        for (int i = 0; i < n - fixed; ++i) core(i, j) = turn(i, j);
    }
    const Matrix basis = random_orthogonal(rng, n), m = basis * core * transposed(basis);
    const auto f = factor_matrix(m);
    expect_valid(f);
    EXPECT_NE(f.kind, MatrixKind::kContraction);
    EXPECT_EQ(static_cast<int>(f.factors.size()), rank_of(identity(n) - m));
  }
}

// A turn by 1e-9 beside a reflection is no rounding error: three factors, and nothing is left.
TEST(Factor, SmallTurnsAreTurns) {
  Rng rng(5);
  for (const int n : {3, 6, 40, 150})
    for (const double turn : {1e-9, 1e-11}) {
      Matrix core = identity(n);
      core(0, 0) = -1;
      core(1, 1) = core(2, 2) = std::cos(turn);
      core(1, 2) = -std::sin(turn);
      core(2, 1) = std::sin(turn);
      const Matrix basis = random_orthogonal(rng, n);
      for (const Matrix& m : {core, basis * core * transposed(basis)}) {
        const auto f = factor_matrix(m);
        EXPECT_EQ(f.kind, MatrixKind::kOrthogonal);
        EXPECT_EQ(f.factors.size(), 3u) << n << " " << turn;
        EXPECT_EQ(f.lower_bound, 3) << n << " " << turn;
        EXPECT_LT(f.residual, 1e-15 * n * n) << n << " " << turn;
      }
    }
  // And what is a little shorter is not orthogonal.
  const auto shorter = factor_matrix(parse_matrix("-1 0\n0 0.9999999999", "test"));
  EXPECT_EQ(shorter.kind, MatrixKind::kContraction);
  EXPECT_EQ(shorter.factors.size(), 2u);
  EXPECT_LT(shorter.residual, 1e-15);
}

TEST(Factor, ContractionsTakeAtMostTwiceSizeMinusOne) {
  Rng rng(4);
  for (int trial = 0; trial < 400; ++trial) {
    const int n = 1 + static_cast<int>(rng.below(6));
    Matrix m = random_matrix(rng, n);
    if (trial % 3 == 0)  // rank-deficient
      for (int j = 0; j < n; ++j) m(0, j) = 0;
    if (const double norm = spectral_norm(m); norm > 0)
      m = scaled(m, (trial % 2 ? 1.0 : rng.uniform()) / norm);
    const auto f = factor_matrix(m);
    expect_valid(f);
    EXPECT_LE(static_cast<int>(f.factors.size()), 2 * n - 1);
    EXPECT_GE(static_cast<int>(f.factors.size()), f.lower_bound);
  }
}

// Rounding errors are no reflections: what is left of the rotation once its reflections are taken out is
// noise, and in this matrix a little more of it than in most.
TEST(Factor, NoiseIsNotFactored) {
  const auto f =
      factor_matrix(parse_matrix("-0.283249708261526 -0.12302762101260134 0.2838571930728666\n"
                                 "0.23958959935195234 -0.24449780565871956 -0.03851710352236474\n"
                                 "-0.09070505301626393 0.16497977593187688 -0.3141935716605048",
                                 "test"));
  EXPECT_EQ(f.factors.size(), 5u);
  EXPECT_LT(f.residual, 1e-14);
  Rng rng(6);
  for (int trial = 0; trial < 2000; ++trial) {
    const int n = 2 + static_cast<int>(rng.below(4));
    const Matrix m = random_matrix(rng, n);
    const auto g = factor_matrix(scaled(m, rng.uniform() / spectral_norm(m)));
    EXPECT_LE(static_cast<int>(g.factors.size()), 2 * n - 1);
    EXPECT_LT(g.residual, 1e-14);
  }
}

// The bound is tight for n = 2: a shrinking quarter turn is not a product of two factors (docs/theory.md).
TEST(Factor, QuarterTurnNeedsThree) {
  EXPECT_EQ(factor_matrix(parse_matrix("0 -0.5\n0.5 0", "test")).factors.size(), 3u);
}

TEST(Factor, LargeMatrixKeepsTheBound) {
  Rng rng(5);
  const Matrix m = random_matrix(rng, 48);
  const auto f = factor_matrix(scaled(m, 1 / spectral_norm(m)));
  expect_valid(f);
  EXPECT_LE(f.factors.size(), 95u);
}

TEST(Factor, NormAboveOneIsRefusedWithItsSingularValue) {
  try {
    factor_matrix(parse_matrix("1.25", "test"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCheckFailed);
    EXPECT_NE(std::string(error.what()).find("1.25"), std::string::npos);
  }
}

TEST(Factor, BadMatricesAreRefused) {
  const auto code = [](const std::string& text) {
    try {
      factor_matrix(parse_matrix(text, "test"));
    } catch (const Error& error) {
      return static_cast<int>(error.code());
    }
    return 0;
  };
  EXPECT_EQ(code("[[0,1],[1,0]]"), 0);
  EXPECT_EQ(code("0,1\n1,0\n"), 0);
  EXPECT_EQ(code("0 1;\n\n1 0"), 0);
  EXPECT_EQ(code("\xEF\xBB\xBF"
                 "0 , 1\r\n1\t0\r\n"),
            0);  // as spreadsheets write
  for (const char* text : {"", "   ", "[]", "[[]]", "[[1,2],[3]]", "[[1,2,3]]", "[1,2]", "{\"a\":1}",
                           "[[\"x\"]]", "[[[[[[1]]]]]]", "[[1,2],[3,4]", "1,x\n2,3", "[[1e999]]", "nan",
                           "inf", "[[1e308,1e308],[1e308,1e308]]"})
    EXPECT_EQ(code(text), 3) << text;
  EXPECT_EQ(code(std::string(100000, '[')), 3);
  // An empty cell is no number, and neither are bytes.
  for (const char* text : {"1,,0\n0,1,", "1,,0\n0,1,0\n0,0,1", ",1", "1,0,\n0,1,", "1;;0"})
    EXPECT_EQ(code(text), 3) << text;
  EXPECT_EQ(code(std::string("\0\1\2\377\376", 5)), 3);
  EXPECT_EQ(code(std::string("0,1\n1,0\0garbage", 15)), 3);
}

// What differs from the identity, however little, needs a factor.
TEST(Factor, NearTheIdentityIsNotTheIdentity) {
  for (const double tiny : {1e-8, 1e-10, 1e-12}) {
    Matrix shrinks = identity(3), turns = identity(2);
    shrinks(1, 1) = 1 - tiny;
    turns(0, 1) = -tiny;
    turns(1, 0) = tiny;
    for (const auto& [m, factors] : {std::pair{shrinks, 1u}, std::pair{turns, 2u}}) {
      const Factorization result = factor_matrix(m);
      EXPECT_EQ(result.factors.size(), factors) << tiny;
      EXPECT_GE(result.lower_bound, 1);
      EXPECT_LT(result.residual, 1e-3 * tiny);
    }
  }
  EXPECT_TRUE(factor_matrix(identity(3)).factors.empty());
}

}  // namespace
}  // namespace signet::theory
