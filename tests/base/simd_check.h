// Tests of base/simd.h for one instruction set: simd_<isa>_test.cc defines SIGNET_ISA_<isa> and includes
// this.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "signet/base/isa.h"
#include "support/check.h"

#include "signet/base/isa_target.h"

#include "signet/base/simd.h"

namespace signet::SIGNET_ISA {

inline bool runs_here() {
  return SIGNET_VECTOR_BYTES <= (best_isa() >= Isa::kAvx512 ? 64 : best_isa() == Isa::kAvx2 ? 32 : 16);
}

// f on every element, a vector at a time.
template <class T, class F>
std::vector<T> map(const std::vector<T>& x, const F& f) {
  std::vector<T> padded = x, y(x.size() + kLanes<T>);
  padded.resize(y.size(), T(0));
  for (size_t i = 0; i < x.size(); i += kLanes<T>) store(y.data() + i, f(load(padded.data() + i)));
  y.resize(x.size());
  return y;
}

// |got - exact| in units in the last place of T at `exact` (of a subnormal where that is one).
template <class T>
double ulps(T got, long double exact) {
  const T nearest = static_cast<T>(exact);
  if (std::isnan(exact)) return std::isnan(got) ? 0 : INFINITY;
  if (std::isinf(nearest)) return got == nearest ? 0 : INFINITY;
  const T size = std::abs(nearest);
  const long double unit =
      static_cast<long double>(std::nextafter(size, std::numeric_limits<T>::infinity())) - size;
  return static_cast<double>(std::abs(static_cast<long double>(got) - exact) / unit);
}

template <class T>
std::vector<T> grid(double low, double high, int n) {
  std::vector<T> x;
  for (int i = 0; i <= n; ++i) x.push_back(static_cast<T>(low + (high - low) * i / n));
  return x;
}

template <class T, class F, class G>
void expect_ulps(const std::vector<T>& x, const F& f, const G& exact, double most) {
  const auto y = map<T>(x, f);
  double worst = 0;
  T where = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = ulps<T>(y[i], exact(static_cast<long double>(x[i])));
    if (!(error <= worst)) worst = error, where = x[i];
  }
  EXPECT_LE(worst, most) << "at " << where;
}

template <class T>
void check_exp() {
  constexpr bool kFloat = sizeof(T) == 4;
  auto f = [](Vec<T> v) { return exp<T>(v); };
  auto exact = [](long double v) { return std::exp(v); };
  const double lowest = kFloat ? -87.3 : -708.3, highest = kFloat ? 88.7 : 709.7;
  expect_ulps<T>(grid<T>(-1, 1, 20000), f, exact, 2);
  expect_ulps<T>(grid<T>(lowest, highest, 20000), f, exact, 2);
  expect_ulps<T>(grid<T>(kFloat ? -110 : -760, lowest, 10000), f, exact, 2);  // subnormal, then zero
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const T tiny = std::numeric_limits<T>::denorm_min();
  const auto y = map<T>({T(0), -T(0), inf, -inf, nan, tiny, -tiny, T(1e4), T(-1e4),
                         std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest()},
                        f);
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], 1);
  EXPECT_EQ(y[2], inf);
  EXPECT_EQ(y[3], 0);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], 1);
  EXPECT_EQ(y[6], 1);
  EXPECT_EQ(y[7], inf);
  EXPECT_EQ(y[8], 0);
  EXPECT_EQ(y[9], inf);
  EXPECT_EQ(y[10], 0);
}

template <class T>
void check_exp2_product() {
  const T b = T(-1.37);
  auto f = [&](Vec<T> v) { return exp2_product<T>(v, splat(b)); };
  auto exact = [&](long double v) { return std::exp2(v * static_cast<long double>(b)); };
  const double most = sizeof(T) == 4 ? 90 : 740;
  // Without a fused multiply-add the product is rounded first: an error that grows with the exponent.
  const double fused = sizeof(T) == 4 ? 2 : 3;
  expect_ulps<T>(grid<T>(0, 1, 10000), f, exact, SIGNET_VECTOR_BYTES == 16 ? fused + 2 : fused);
  expect_ulps<T>(grid<T>(0, most, 20000), f, exact, SIGNET_VECTOR_BYTES == 16 ? most : fused);
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const auto y = map<T>({T(0), T(most * 1.1), T(1e6), std::numeric_limits<T>::max(), inf, nan}, f);
  EXPECT_EQ(y[0], 1);
  for (int i = 1; i < 5; ++i) EXPECT_EQ(y[i], 0) << i;
  EXPECT_TRUE(std::isnan(y[5]));
  // Around the smallest normal number nothing but the power, or zero.
  constexpr T kSmallest = std::numeric_limits<T>::min();
  const auto exponents = grid<T>(std::log2(kSmallest) - 3, std::log2(kSmallest) + 3, 4000);
  const auto powers = map<T>(exponents, [](Vec<T> v) { return exp2_product<T>(v, splat(T(1))); });
  for (size_t i = 0; i < exponents.size(); ++i) {
    const long double power = std::exp2(static_cast<long double>(exponents[i]));
    if (power < kSmallest) EXPECT_EQ(powers[i], 0) << exponents[i];
    if (power > 1.5 * kSmallest || powers[i] != 0) EXPECT_LT(ulps<T>(powers[i], power), most) << exponents[i];
  }
  // Beyond the range every remainder that an exponent can leave in its field comes once, also those that
  // wrap.
  for (const T value : map<T>(grid<T>(most * 1.1, most * 10, 10000), f)) EXPECT_EQ(value, 0);
}

template <class T>
void check_sigmoid_and_softplus() {
  auto sigmoid_exact = [](long double v) { return 1 / (1 + std::exp(-v)); };
  auto softplus_exact = [](long double v) { return std::max(v, 0.0L) + std::log1p(std::exp(-std::abs(v))); };
  expect_ulps<T>(
      grid<T>(-80, 80, 20000), [](Vec<T> v) { return sigmoid<T>(v); }, sigmoid_exact, 4);
  expect_ulps<T>(
      grid<T>(-80, 80, 20000), [](Vec<T> v) { return softplus<T>(v); }, softplus_exact, 4);
  expect_ulps<T>(
      grid<T>(-80, 80, 20000), [](Vec<T> v) { return softplus_and_slope<T>(v).slope; }, sigmoid_exact, 4);
  const auto ends = map<T>({T(40), T(-800)}, [](Vec<T> v) { return sigmoid<T>(v); });
  EXPECT_EQ(ends[0], 1);
  EXPECT_EQ(ends[1], 0);
}

template <class T>
void check_loads_and_sums() {
  std::vector<T> x;
  for (int i = 0; i < kLanes<T>; ++i) x.push_back(T(1) / static_cast<T>(i + 3));
  for (int n = 0; n < kLanes<T>; ++n) {
    const auto exact_size =
        std::make_unique<T[]>(static_cast<size_t>(n));  // a read past the end is one past it
    std::copy_n(x.begin(), n, exact_size.get());
    const Vec<T> v = load_n(exact_size.get(), n);
    auto out = test::poisoned<T>(kLanes<T>);
    store_n(out.data(), v, n);
    for (int i = 0; i < kLanes<T>; ++i) {
      EXPECT_EQ(v[i], i < n ? x[i] : T(0));
      EXPECT_TRUE(i < n ? out[i] == x[i] : std::isnan(out[i]));
    }
  }
  auto tree = x;
  for (int half = kLanes<T> / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) tree[i] += tree[i + half];
  EXPECT_EQ(sum<T>(load(x.data())), tree[0]);
  EXPECT_TRUE(std::signbit(splat(-T(0))[0]));
}

template <class T>
void check_all() {
  if (!runs_here()) GTEST_SKIP() << "this processor has no such vectors";
  check_exp<T>();
  check_exp2_product<T>();
  check_sigmoid_and_softplus<T>();
  check_loads_and_sums<T>();
}

}  // namespace signet::SIGNET_ISA
