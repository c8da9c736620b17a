#include "signet/tensor/gemm.h"

#include <signal.h>
#include <sys/time.h>

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

TEST(Gemm, SignalsLeaveNoTrace) {
  interrupted<float>();
  interrupted<double>();
}

}  // namespace
}  // namespace signet
