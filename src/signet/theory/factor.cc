#include "signet/theory/factor.h"

#include <cstddef>

namespace signet::theory {
namespace {

Factor unit_factor(int size, int i, double beta, double v = 0) {
  Factor f{std::vector<double>(static_cast<size_t>(size), 0.0), beta, v};
  f.k[static_cast<size_t>(i)] = 1;
  return f;
}

// x_i and x_j change places, both multiplied by sign. (e_i - sign e_j) with beta = 1 is exact, as |k|^2 = 2.
Factor swap_factor(int size, int i, int j, int sign) {
  Factor f = unit_factor(size, i, 1);
  f.k[static_cast<size_t>(j)] = -sign;
  return f;
}

}  // namespace

std::vector<Factor> factor_partial_permutation(const SignedPartialPermutation& m) {
  const int n = m.size();
  std::vector<int32_t> source(static_cast<size_t>(n), -1);
  for (int i = 0; i < n; ++i)
    if (m.target[i] >= 0) source[m.target[i]] = i;
  const auto sign_of = [&](int i) { return m.sign.empty() ? 1 : m.sign[i]; };
  const auto written = [&](int i) { return m.write.empty() ? 0.0 : m.write[i]; };

  std::vector<Factor> factors;
  std::vector<bool> done(static_cast<size_t>(n), false);
  // `orbit` lists a path from its start or a cycle; the last coordinate of a path has no target.
  const auto emit = [&](const std::vector<int>& orbit, bool cycle) {
    int carried = 1;  // the sign with which the next coordinate's value sits at orbit[0]
    for (size_t i = 1; i < orbit.size(); ++i) {
      const int sign = sign_of(orbit[i - 1]) * carried;
      factors.push_back(swap_factor(n, orbit[0], orbit[i], sign));
      carried = sign;
    }
    if (!cycle) {
      factors.push_back(unit_factor(n, orbit[0], 1, written(orbit[0])));
    } else if (carried != sign_of(orbit.back())) {
      factors.push_back(unit_factor(n, orbit[0], 2));
    }
  };
  for (bool cycle : {false, true}) {
    for (int i = 0; i < n; ++i) {
      if (done[i] || (!cycle && source[i] >= 0)) continue;
      std::vector<int> orbit;
      for (int j = i; j >= 0 && !done[j]; j = m.target[j]) {
        done[j] = true;
        orbit.push_back(j);
      }
      emit(orbit, cycle);
    }
  }
  return factors;
}

}  // namespace signet::theory
