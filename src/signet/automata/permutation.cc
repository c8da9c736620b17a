#include "signet/automata/permutation.h"

#include <algorithm>
#include <limits>
#include <map>

namespace signet::automata {

std::vector<int32_t> cycle_lengths(const Permutation& p) {
  std::vector<int32_t> lengths;
  std::vector<bool> seen(p.size());
  for (size_t i = 0; i < p.size(); ++i) {
    if (seen[i]) continue;
    int32_t length = 0;
    for (size_t j = i; !seen[j]; j = static_cast<size_t>(p[j])) seen[j] = true, ++length;
    lengths.push_back(length);
  }
  return lengths;
}

bool is_even(const Permutation& p) { return (p.size() - cycle_lengths(p).size()) % 2 == 0; }

std::vector<int64_t> order_factors(const Permutation& p) {
  std::map<int64_t, int64_t> power_of;  // per prime, the largest power that divides a cycle's length
  for (int64_t length : cycle_lengths(p))
    for (int64_t prime = 2; length > 1; ++prime) {
      if (prime * prime > length) prime = length;
      int64_t power = 1;
      for (; length % prime == 0; length /= prime) power *= prime;
      if (power > 1) power_of[prime] = std::max(power_of[prime], power);
    }
  std::vector<int64_t> factors;
  for (const auto& [prime, power] : power_of) factors.push_back(power);
  return factors;
}

int64_t order(const Permutation& p) {
  int64_t result = 1;
  for (int64_t factor : order_factors(p)) {
    if (result > std::numeric_limits<int64_t>::max() / factor) return std::numeric_limits<int64_t>::max();
    result *= factor;
  }
  return result;
}

std::string product_text(const std::vector<int64_t>& factors) {
  std::vector<uint32_t> digits = {1};  // base 10^9, least first
  for (const int64_t factor : factors) {
    uint64_t carry = 0;
    for (auto& digit : digits) {
      carry += uint64_t{digit} * static_cast<uint64_t>(factor);
      digit = static_cast<uint32_t>(carry % 1'000'000'000);
      carry /= 1'000'000'000;
    }
    if (carry) digits.push_back(static_cast<uint32_t>(carry));
  }
  std::string text = std::to_string(digits.back());
  for (size_t i = digits.size() - 1; i-- > 0;) {
    const std::string part = std::to_string(digits[i]);
    text += std::string(9 - part.size(), '0') + part;
  }
  return text;
}

std::string cycle_notation(const Permutation& p) {
  std::string text;
  std::vector<bool> seen(p.size());
  for (size_t i = 0; i < p.size(); ++i) {
    if (seen[i] || p[i] == static_cast<int32_t>(i)) continue;
    char separator = '(';
    for (size_t j = i; !seen[j]; j = static_cast<size_t>(p[j])) {
      seen[j] = true;
      text += separator + std::to_string(j);
      separator = ',';
    }
    text += ')';
  }
  return text.empty() ? "()" : text;
}

}  // namespace signet::automata
