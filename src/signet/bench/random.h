// Inputs and errors of the benchmarks.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include "signet/base/rng.h"

namespace signet::bench {

// Vectors that start where tensors do: at a cache line.
template <class T>
struct CacheLineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};
  CacheLineAllocator() = default;
  template <class U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kLine); }
  bool operator==(const CacheLineAllocator&) const { return true; }
};
template <class T>
using Values = std::vector<T, CacheLineAllocator<T>>;

// Large ones repeat after a million values, a prime number of them so that rows differ: making gigabytes of
// random numbers would take longer than what is timed.
inline Values<float> random_values(uint64_t seed, int64_t n, double scale = 1) {
  constexpr size_t kPeriod = 1'000'003;
  Rng rng(seed);
  Values<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        i < kPeriod ? static_cast<float>(scale * (rng.uniform() + rng.uniform() - 1)) : values[i - kPeriod];
  return values;
}

inline Values<double> to_double(const Values<float>& values) { return {values.begin(), values.end()}; }

// ||a - b|| / ||b||; NaN anywhere gives infinity.
template <class T>
double relative_error(const Values<T>& a, const Values<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  const double error = std::sqrt(difference / (norm > 0 ? norm : 1));
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

}  // namespace signet::bench
