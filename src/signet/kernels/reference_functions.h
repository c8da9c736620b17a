// What several fp64 references share.
#pragma once

#include <algorithm>
#include <cmath>

namespace signet::kernels {

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

}  // namespace signet::kernels
