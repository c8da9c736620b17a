// What the kernel and operator tests share: random data, poisoned outputs, relative error, finite
// differences.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "signet/base/isa.h"
#include "signet/base/rng.h"

namespace signet::test {

// What gradients that a kernel adds to hold before it does.
inline constexpr double kAdded = 0.25;

inline std::vector<double> random_values(Rng& rng, int64_t n, double scale = 1.0) {
  std::vector<double> values(static_cast<size_t>(n));
  for (auto& v : values) v = scale * rng.normal();
  return values;
}

template <class T>
std::vector<T> cast(const std::vector<double>& values) {
  return std::vector<T>(values.begin(), values.end());
}

// An output nobody may leave unwritten.
template <class T>
std::vector<T> poisoned(int64_t n) {
  return std::vector<T>(static_cast<size_t>(n), std::numeric_limits<T>::quiet_NaN());
}

// Scratch memory as an unkind caller gives it: poisoned, off every alignment but T's, and watched at both
// ends.
template <class T>
class GuardedScratch {
 public:
  explicit GuardedScratch(int64_t n) : values_(poisoned<T>(n + 2 * kGuard)) {}
  ~GuardedScratch() {
    for (size_t i = 0; i < kGuard; ++i)
      EXPECT_TRUE(std::isnan(values_[i]) && std::isnan(values_[values_.size() - 1 - i])) << "scratch overrun";
  }
  T* data() { return values_.data() + kGuard; }
  void poison() { std::fill(values_.begin(), values_.end(), std::numeric_limits<T>::quiet_NaN()); }

 private:
  static constexpr size_t kGuard = 33;
  std::vector<T> values_;
};

// An optional input: empty means absent.
template <class T>
const T* or_null(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

// Rows of `width` out of a poisoned output with rows of `stride`; what lies between must still be poisoned.
template <class T>
std::vector<T> without_gaps(const std::vector<T>& values, int64_t width, int64_t stride) {
  std::vector<T> rows;
  for (size_t i = 0; i < values.size(); ++i) {
    if (static_cast<int64_t>(i) % stride < width) {
      rows.push_back(values[i]);
    } else {
      EXPECT_TRUE(std::isnan(values[i])) << "the gap between two rows was written";
    }
  }
  return rows;
}

// ||a - b|| / ||b||; NaN anywhere gives infinity.
template <class A, class B>
double relative_error(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
  return std::sqrt(difference / (norm > 0 ? norm : 1.0));
}

// Of the elements of two vectors of one length.
inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double total = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) total += a[i] * b[i];
  return total;
}

template <class T>
constexpr double tolerance() {
  return sizeof(T) == 4 ? 2e-6 : 1e-13;
}

// Compares an analytic gradient with central differences of `loss` in every element of `x` (at most `limit`
// of them, evenly spread). `loss` must read `x` by reference.
inline void expect_gradient(std::vector<double>& x, const std::vector<double>& gradient,
                            const std::function<double()>& loss, const std::string& name,
                            double accuracy = 1e-6, size_t limit = 64) {
  ASSERT_EQ(x.size(), gradient.size()) << name;
  double scale = 0;
  for (double g : gradient) scale = std::max(scale, std::abs(g));
  const size_t stride = std::max<size_t>(1, x.size() / limit);
  for (size_t i = 0; i < x.size(); i += stride) {
    const double saved = x[i], step = 1e-6 * std::max(1.0, std::abs(saved));
    x[i] = saved + step;
    const double above = loss();
    x[i] = saved - step;
    const double below = loss();
    x[i] = saved;
    EXPECT_NEAR((above - below) / (2 * step), gradient[i], accuracy * std::max(scale, 1e-3))
        << name << "[" << i << "]";
  }
}

// Runs the body once for every instruction set of this machine.
inline void for_each_isa(const std::function<void()>& body) {
  const Isa before = current_isa();
  for (Isa isa : {Isa::kBase, Isa::kAvx2, Isa::kAvx512}) {
    if (isa > best_isa()) break;
    SCOPED_TRACE(isa_name(isa));
    set_isa(isa);
    body();
  }
  set_isa(before);
}

}  // namespace signet::test
