// Inputs and errors of the benchmarks.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "signet/base/rng.h"

namespace signet::bench {

inline std::vector<float> random_values(uint64_t seed, int64_t n, double scale = 1) {
  Rng rng(seed);
  std::vector<float> values(static_cast<size_t>(n));
  for (auto& v : values) v = static_cast<float>(scale * (rng.uniform() + rng.uniform() - 1));
  return values;
}

inline std::vector<double> to_double(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// ||a - b|| / ||b||; NaN anywhere gives infinity.
inline double relative_error(const std::vector<float>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  const double error = std::sqrt(difference / (norm > 0 ? norm : 1));
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

}  // namespace signet::bench
