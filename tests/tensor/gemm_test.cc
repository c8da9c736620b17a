#include "signet/tensor/gemm.h"

#include <signal.h>
#include <sys/time.h>

#include "signet/base/error.h"
#include "signet/base/rng.h"
#include "signet/base/signals.h"
#include "support/check.h"

namespace signet {
namespace {

template <class T>
std::vector<T> product(int m, int n, int k, const std::vector<T>& a, const std::vector<T>& b) {
  auto c = test::poisoned<T>(int64_t{m} * n);
  gemm(Gemm<T>{m, n, k, a.data(), k, false, b.data(), k, true, c.data(), n, false}, Cpu{});
  return c;
}

// Every combination of the flags, empty and odd sizes, rows with gaps, and enough rows for several threads.
template <class T>
void matches_the_sums() {
  const int64_t sizes[][3] = {{0, 3, 2}, {3, 0, 2},   {3, 2, 0},    {1, 1, 1},
                              {5, 7, 3}, {17, 1, 33}, {300, 65, 64}};
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
  if (std::string(gemm_backend()) != "oneDNN") GTEST_SKIP() << "OpenBLAS does not say";
  const std::vector<float> a(12, 1), b(12, 1);
  std::vector<float> c(16);
  const Gemm<float> overlapping{4, 4, 3, a.data(), 3, false, b.data(), 4, false, c.data(), 2};  // rows of c
  EXPECT_THROW(gemm(overlapping, Cpu{}), Error);
}

// A signal may come at any moment of a product, on its thread, and must leave no trace in it.
template <class T>
void interrupted() {
  const int m = 61, n = 8, k = 100;
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
