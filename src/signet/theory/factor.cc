#include "signet/theory/factor.h"

#include <algorithm>
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

// The factors of one cycle, orbit[0] -> orbit[1] -> .. -> orbit[0], where signs[i] goes with the move that
// leaves orbit[i]. Positions move by i -> i + 1, which is i -> -i followed by i -> 1 - i: two involutions, so
// the swaps of each are disjoint. With a and b their signs, a[i] b[-i] = signs[i] is solved from position 0,
// which the first leaves alone, along the chain of positions that the two connect; it closes when all signs
// multiply to 1.
void append_cycle(const std::vector<int>& orbit, const std::vector<int>& signs, int size,
                  std::vector<Factor>& factors) {
  const size_t r = orbit.size();
  std::vector<int> a(r, 1), b(r, 1);
  for (size_t i = 0; i <= r / 2; ++i) {
    const size_t minus = (r - i) % r, next = (i + 1) % r, minus_next = (2 * r - i - 1) % r;
    b[minus] = b[next] = signs[i] * a[i];
    a[minus_next] = a[next] = signs[minus_next] * b[next];
  }
  for (size_t i = 1; i < r - i; ++i) factors.push_back(swap_factor(size, orbit[i], orbit[r - i], a[i]));
  for (size_t i = 0; i < r; ++i) {
    const size_t other = (r + 1 - i) % r;
    if (i < other) factors.push_back(swap_factor(size, orbit[i], orbit[other], b[i]));
  }
}

}  // namespace

std::vector<Factor> factor_partial_permutation(const SignedPartialPermutation& m) {
  const int n = m.size();
  std::vector<int32_t> source(static_cast<size_t>(n), -1);
  for (int i = 0; i < n; ++i)
    if (m.target[i] >= 0) source[m.target[i]] = i;

  std::vector<Factor> factors;
  std::vector<bool> done(static_cast<size_t>(n), false);
  const auto emit = [&](std::vector<int> orbit, bool cycle) {
    const int start = orbit[0];
    // A path's last coordinate becomes position 0: emptied, or given what is to be written at the start of
    // the path, and moved there.
    if (!cycle) std::rotate(orbit.begin(), orbit.end() - 1, orbit.end());
    std::vector<int> signs;
    int product = 1;
    for (int i : orbit) {
      signs.push_back(m.sign.empty() || m.target[i] < 0 ? 1 : m.sign[i]);
      product *= signs.back();
    }
    signs[0] *= product;
    if (!cycle)
      factors.push_back(unit_factor(n, orbit[0], 1, m.write.empty() ? 0.0 : signs[0] * m.write[start]));
    else if (product < 0)
      factors.push_back(unit_factor(n, orbit[0], 2));
    append_cycle(orbit, signs, n, factors);
  };
  for (bool cycle : {false, true}) {
    for (int i = 0; i < n; ++i) {
      if (done[i] || (!cycle && source[i] >= 0)) continue;
      std::vector<int> orbit;
      for (int j = i; j >= 0 && !done[j]; j = m.target[j]) {
        done[j] = true;
        orbit.push_back(j);
      }
      emit(std::move(orbit), cycle);
    }
  }
  return factors;
}

int32_t factor_count(const SignedPartialPermutation& m) {
  int32_t positive_cycles = 0;
  std::vector<bool> done(static_cast<size_t>(m.size()), false);
  for (int32_t i = 0; i < m.size(); ++i) {
    if (done[i]) continue;
    int32_t sign = 1, j = i;
    for (; j >= 0 && !done[j]; j = m.target[j]) {
      done[j] = true;
      if (!m.sign.empty()) sign *= m.sign[j];
    }
    positive_cycles += j == i && sign > 0;  // a path ends at -1, or at a part of it that was walked before
  }
  return m.size() - positive_cycles;
}

}  // namespace signet::theory
