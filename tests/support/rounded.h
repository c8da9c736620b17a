// Random inputs that a storage type holds exactly, so that an fp64 reference and a kernel see the same
// numbers.
#pragma once

#include <type_traits>
#include <vector>

#include "signet/base/small_float.h"
#include "support/check.h"
#include "support/cuda.h"

namespace signet::test {

template <class T>
double widen(T x) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<double>(x);
  else
    return static_cast<float>(x);
}

template <class T>
std::vector<double> widen(const std::vector<T>& values) {
  std::vector<double> out;
  for (const T& v : values) out.push_back(widen(v));
  return out;
}

template <class T>
std::vector<T> narrow(const std::vector<double>& values) {
  std::vector<T> out;
  for (double v : values) out.push_back(T(static_cast<float>(v)));
  return out;
}

// Values of T in both precisions: `exact` for the reference, `device` for the kernel.
template <class T>
struct Rounded {
  std::vector<double> exact;
  OnDevice<T> device;
  Rounded(Rng& rng, int64_t n, double scale = 1.0) : Rounded(random_values(rng, n, scale)) {}
  explicit Rounded(const std::vector<double>& values)
      : exact(widen(narrow<T>(values))), device(narrow<T>(values)) {}
  T* get() const { return device.get(); }
  const double* data() const { return exact.data(); }
};

template <class T>
double device_error(const OnDevice<T>& got, const std::vector<double>& expected) {
  return relative_error(widen(got.values()), expected);
}

// What a result that is stored in T may be off by: sums are fp32 in both.
template <class T>
constexpr double device_tolerance() {
  return sizeof(T) == 4 ? 5e-6 : 5e-3;
}

}  // namespace signet::test
