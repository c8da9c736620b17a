#include "signet/theory/table_group.h"

namespace signet::theory {

using automata::Permutation;

std::optional<TableGroup> TableGroup::generate(const std::vector<Permutation>& letters, int64_t limit) {
  TableGroup g;
  const Permutation one = automata::identity_permutation(static_cast<int32_t>(letters[0].size()));
  g.index_[one] = 0;
  g.elements_.push_back(one);
  for (size_t i = 0; i < g.elements_.size(); ++i)
    for (const Permutation& s : letters) {
      Permutation product = automata::then(g.elements_[i], s);
      if (!g.index_.emplace(product, static_cast<int32_t>(g.elements_.size())).second) continue;
      if (static_cast<int64_t>(g.elements_.size()) >= limit) return std::nullopt;
      g.elements_.push_back(std::move(product));
    }
  const size_t n = g.elements_.size();
  g.table_.resize(n * n);
  g.inverse_.resize(n);
  for (size_t a = 0; a < n; ++a)
    for (size_t b = 0; b < n; ++b) {
      const int32_t c = g.index_.at(automata::then(g.elements_[a], g.elements_[b]));
      g.table_[a * n + b] = c;
      if (c == 0) g.inverse_[a] = static_cast<int32_t>(b);
    }
  for (const Permutation& s : letters) g.letters_.push_back(g.index_.at(s));
  return g;
}

TableGroup::Subset TableGroup::generated(const std::vector<int32_t>& generators) const {
  Subset in(elements_.size(), false);
  std::vector<int32_t> queue = {0};
  in[0] = true;
  for (size_t i = 0; i < queue.size(); ++i)
    for (int32_t g : generators) {
      const int32_t c = product(queue[i], g);
      if (in[c]) continue;
      in[c] = true;
      queue.push_back(c);
    }
  return in;
}

std::vector<int32_t> TableGroup::class_representatives() const {
  std::vector<bool> seen(elements_.size(), false);
  std::vector<int32_t> result;
  for (int32_t a = 0; a < order(); ++a) {
    if (seen[a]) continue;
    result.push_back(a);
    for (int32_t g = 0; g < order(); ++g) seen[product(product(inverse(g), a), g)] = true;
  }
  return result;
}

}  // namespace signet::theory
