#include "signet/tensor/gemm.h"

#include <signal.h>
#include <sys/time.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "signet/base/error.h"
#include "signet/base/rng.h"
#include "signet/base/signals.h"
#include "signet/base/thread_pool.h"
#include "support/check.h"

namespace signet {
namespace {

template <class T>
std::vector<T> product(int m, int n, int k, const std::vector<T>& a, const std::vector<T>& b) {
  auto c = test::poisoned<T>(int64_t{m} * n);
  gemm(Gemm<T>{m, n, k, a.data(), k, false, b.data(), k, true, c.data(), n, false}, Cpu{});
  return c;
}

// Every combination of the flags, empty and odd sizes, rows with gaps, enough rows for several threads, and
// what is cut along every side on tiles.
template <class T>
void matches_the_sums() {
  const int64_t sizes[][3] = {{0, 3, 2},   {3, 0, 2},     {3, 2, 0},     {1, 1, 1},      {5, 7, 3},
                              {17, 1, 33}, {300, 65, 64}, {30, 62, 530}, {290, 270, 515}};
  Rng rng(8);
  for (const auto& [m, n, k] : sizes) {
    for (int flags = 0; flags < 8; ++flags) {
      const bool ta = flags & 1, tb = flags & 2, accumulate = flags & 4;
      SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << " flags " << flags);
      const int64_t lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 2, ldc = n + 1;
      const auto a = test::random_values(rng, (ta ? k : m) * lda),
                 b = test::random_values(rng, (tb ? n : k) * ldb);
      const auto before = test::random_values(rng, m * n);
      auto c = test::poisoned<T>(m * ldc);
      std::vector<double> expected;
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = accumulate ? before[i * n + j] : 0;
          for (int64_t l = 0; l < k; ++l)
            sum += a[ta ? l * lda + i : i * lda + l] * b[tb ? j * ldb + l : l * ldb + j];
          expected.push_back(sum);
          if (accumulate) c[i * ldc + j] = static_cast<T>(before[i * n + j]);
        }
      const auto a_cast = test::cast<T>(a), b_cast = test::cast<T>(b);
      gemm(Gemm<T>{m, n, k, a_cast.data(), lda, ta, b_cast.data(), ldb, tb, c.data(), ldc, accumulate},
           Cpu{});
      EXPECT_LT(test::relative_error(test::without_gaps(c, n, ldc), expected), test::tolerance<T>());
    }
  }
}

TEST(Gemm, MatchesTheSums) {
  matches_the_sums<float>();
  matches_the_sums<double>();
}

// A product that the library refuses is an error, not a result that was never written.
TEST(Gemm, ARefusedProductIsAnError) {
  if (!std::string(gemm_backend()).ends_with("oneDNN")) GTEST_SKIP() << "OpenBLAS does not say";
  const std::vector<float> a(12, 1), b(12, 1);
  std::vector<float> c(16);
  const Gemm<float> overlapping{4, 4, 3, a.data(), 3, false, b.data(), 4, false, c.data(), 2};  // rows of c
  EXPECT_THROW(gemm(overlapping, Cpu{}), Error);
}

// A signal may come at any moment of a product, on its thread, and must leave no trace in it.
template <class T>
void interrupted() {
  const int m = 61, n = 31, k = 95;  // on tiles, where there are some
  Rng rng(3);
  const auto a = test::cast<T>(test::random_values(rng, m * k)),
             b = test::cast<T>(test::random_values(rng, n * k));
  const auto expected = product<T>(m, n, k, a, b);
  const StopSignal stop;  // its handlers, called by a timer
  struct sigaction handler = {}, before = {};
  ASSERT_EQ(::sigaction(SIGUSR1, nullptr, &handler), 0);
  ASSERT_EQ(::sigaction(SIGALRM, &handler, &before), 0);
  const itimerval often = {{0, 50}, {0, 50}}, never = {};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  int wrong = 0;
  for (int i = 0; i < 3000; ++i) wrong += product<T>(m, n, k, a, b) != expected;
  ASSERT_EQ(::setitimer(ITIMER_REAL, &never, nullptr), 0);
  ASSERT_EQ(::sigaction(SIGALRM, &before, nullptr), 0);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(StopSignal::requested(), SIGALRM);
}

// A product [m, k] x [k, n] on tiles and as without them.
struct Products {
  int m, n, k;
  std::vector<float> a, b, on_tiles, without;

  Products(int m, int n, int k, const std::function<double(double)>& value) : m(m), n(n), k(k) {
    Rng rng(5);
    for (double x : test::random_values(rng, m * k)) a.push_back(static_cast<float>(value(x)));
    for (double x : test::random_values(rng, n * k)) b.push_back(static_cast<float>(value(x)));
    multiply();
  }
  void multiply() {
    const Isa before = current_isa();
    set_isa(Isa::kAmx);
    on_tiles = product<float>(m, n, k, a, b);
    set_isa(Isa::kAvx512);
    without = product<float>(m, n, k, a, b);
    set_isa(before);
  }
  std::vector<double> exact() const {
    std::vector<double> c;
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        double sum = 0;
        for (int l = 0; l < k; ++l) sum += static_cast<double>(a[i * k + l]) * b[j * k + l];
        c.push_back(sum);
      }
    return c;
  }
};

class GemmOnTiles : public testing::Test {
  void SetUp() override {
    if (best_isa() < Isa::kAmx) GTEST_SKIP() << "no AMX here";
  }
};

TEST_F(GemmOnTiles, IsAsExactAsFp32) {
  for (const double scale : {1.0, 1e-12, 1e12}) {
    const Products p(96, 64, 1000, [&](double x) { return x * scale; });
    EXPECT_NE(p.on_tiles, p.without);
    EXPECT_LT(test::relative_error(p.on_tiles, p.exact()), 1.5 * test::relative_error(p.without, p.exact()))
        << scale;
  }
}

// Exactly where all sums are: every bit of a factor is multiplied.
TEST_F(GemmOnTiles, KeepsEveryBitOfAFactor) {
  Products p(64, 64, 64, [](double x) { return x; });
  for (int i = 0; i < 64 * 64; ++i) p.b[i] = i % 65 == 0 ? -1 : 0;
  p.multiply();
  for (int i = 0; i < 64 * 64; ++i) EXPECT_EQ(p.on_tiles[i], -p.a[i]);
  const auto turned = product<float>(64, 64, 64, p.b, p.a);  // of the other factor: the transpose
  for (int i = 0; i < 64 * 64; ++i) EXPECT_EQ(turned[i % 64 * 64 + i / 64], -p.a[i]);
}

// Products below 2^-126 are zero.
TEST_F(GemmOnTiles, TinyAndHuge) {
  const Products tiny(64, 64, 64, [](double x) { return x * 1e-17; });
  const auto exact = tiny.exact();
  for (size_t i = 0; i < exact.size(); ++i)
    EXPECT_NEAR(tiny.on_tiles[i], exact[i], 1e-6 * std::abs(exact[i]) + 6 * 64 * 0x1p-126);
  Products huge(64, 64, 64, [](double) { return 0; });
  std::fill(huge.a.begin(), huge.a.end(), std::numeric_limits<float>::max());
  for (int i = 0; i < 64; ++i) huge.b[i * 64] = 1, huge.b[i * 64 + 2] = -1, huge.b[i * 64 + 4] = 0.5f;
  huge.multiply();
  EXPECT_EQ(huge.on_tiles, std::vector<float>(64 * 64, std::numeric_limits<float>::max() / 2));
}

TEST_F(GemmOnTiles, WhatIsNotFiniteStaysSo) {
  for (const float value : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0x7f800001u)}) {
    Products p(64, 64, 64, [](double x) { return x; });
    p.a[3 * 64 + 7] = value;
    p.b[5 * 64 + 9] = value;
    p.multiply();
    for (int i = 0; i < 64; ++i)
      for (int j = 0; j < 64; ++j)
        EXPECT_EQ(std::isfinite(p.on_tiles[i * 64 + j]), i != 3 && j != 5) << i << " " << j << " " << value;
  }
}

TEST_F(GemmOnTiles, SameBitsForAnyThreadsRowsAndColumns) {
  const int threads = thread_count();
  const Products p(150, 90, 700, [](double x) { return x; });
  const Isa before = current_isa();
  set_isa(Isa::kAmx);
  for (int count : {1, 2, 3, 7}) {
    set_thread_count(count);
    EXPECT_EQ(product<float>(p.m, p.n, p.k, p.a, p.b), p.on_tiles) << count;
  }
  set_thread_count(threads);
  const int row = 37, column = 11, m = 93, n = 60;
  const auto part = product<float>(m, n, p.k, {p.a.begin() + row * p.k, p.a.end()},
                                   {p.b.begin() + column * p.k, p.b.end()});
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) EXPECT_EQ(part[i * n + j], p.on_tiles[(row + i) * p.n + column + j]);
  set_isa(before);
}

TEST(Gemm, SizesThatOpenBlasCannotCountAreRefused) {
  const double one = 1;
  double c = 0;
  const int64_t many = int64_t{1} << 32;
  EXPECT_THROW(gemm(Gemm<double>{1, 1, many, &one, many, false, &one, 1, false, &c, 1}, Cpu{}), Error);
}

TEST(Gemm, SignalsLeaveNoTrace) {
  interrupted<float>();
  interrupted<double>();
}

}  // namespace
}  // namespace signet
