#include "signet/automata/permutation.h"

#include <limits>

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

int64_t order(const Permutation& p) {
  int64_t result = 1;
  for (int64_t length : cycle_lengths(p)) {
    const int64_t factor = length / std::gcd(result, length);
    if (result > std::numeric_limits<int64_t>::max() / factor) return std::numeric_limits<int64_t>::max();
    result *= factor;
  }
  return result;
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
