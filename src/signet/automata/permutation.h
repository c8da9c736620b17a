// Permutations of 0..n-1 as image lists. Words act on the right: `then(p, q)` does p first.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace signet::automata {

using Permutation = std::vector<int32_t>;  // point i goes to p[i]

inline Permutation identity_permutation(int32_t n) {
  Permutation p(n);
  std::iota(p.begin(), p.end(), 0);
  return p;
}
inline bool is_identity(const Permutation& p) {
  for (size_t i = 0; i < p.size(); ++i)
    if (p[i] != static_cast<int32_t>(i)) return false;
  return true;
}
inline Permutation then(const Permutation& p, const Permutation& q) {
  Permutation result(p.size());
  for (size_t i = 0; i < p.size(); ++i) result[i] = q[p[i]];
  return result;
}
inline Permutation inverse(const Permutation& p) {
  Permutation result(p.size());
  for (size_t i = 0; i < p.size(); ++i) result[p[i]] = static_cast<int32_t>(i);
  return result;
}

// Lengths of all cycles, fixed points included.
std::vector<int32_t> cycle_lengths(const Permutation& p);
bool is_even(const Permutation& p);
int64_t order(const Permutation& p);                       // saturates at INT64_MAX
std::vector<int64_t> order_factors(const Permutation& p);  // powers of different primes, ascending

std::string product_text(const std::vector<int64_t>& factors);  // decimal, any size; factors up to 2^31

// "(0,1)(2,4,3)"; "()" for the identity.
std::string cycle_notation(const Permutation& p);

}  // namespace signet::automata
