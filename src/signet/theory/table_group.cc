#include "signet/theory/table_group.h"

namespace signet::theory {
namespace {

using automata::Permutation;

// The elements that a few generators make, breadth first, and how the generators move them.
struct Cayley {
  std::vector<Permutation> elements;  // the identity first
  std::map<Permutation, int32_t> index;
  std::vector<std::vector<int32_t>> times;          // [generator][element]: the element, then the generator
  std::vector<std::pair<int32_t, size_t>> made_by;  // (earlier element, generator) whose product it is
};

std::optional<Cayley> cayley(int32_t degree, const std::vector<Permutation>& generators, int64_t limit) {
  Cayley g;
  g.times.resize(generators.size());
  g.elements.push_back(automata::identity_permutation(degree));
  g.index[g.elements[0]] = 0;
  g.made_by.emplace_back(0, 0);
  for (size_t i = 0; i < g.elements.size(); ++i)
    for (size_t s = 0; s < generators.size(); ++s) {
      Permutation product = automata::then(g.elements[i], generators[s]);
      const auto [it, fresh] = g.index.emplace(product, static_cast<int32_t>(g.elements.size()));
      g.times[s].push_back(it->second);
      if (!fresh) continue;
      if (static_cast<int64_t>(g.elements.size()) >= limit) return std::nullopt;
      g.elements.push_back(std::move(product));
      g.made_by.emplace_back(static_cast<int32_t>(i), s);
    }
  return g;
}

}  // namespace

std::optional<TableGroup> TableGroup::generate(const std::vector<Permutation>& letters, int64_t limit) {
  // Letters that others make add nothing but time; each one kept at least doubles the group.
  const auto degree = static_cast<int32_t>(letters[0].size());
  std::vector<Permutation> generators;
  auto found = cayley(degree, generators, limit);
  for (const Permutation& s : letters) {
    if (found->index.count(s)) continue;
    generators.push_back(s);
    found = cayley(degree, generators, limit);
    if (!found) return std::nullopt;
  }
  const size_t n = found->elements.size();
  std::vector<int32_t> table(n * n);  // [b][a]: a first, then b
  for (size_t a = 0; a < n; ++a) table[a] = static_cast<int32_t>(a);
  for (size_t b = 1; b < n; ++b) {
    const auto [earlier, s] = found->made_by[b];
    for (size_t a = 0; a < n; ++a)
      table[b * n + a] = found->times[s][table[static_cast<size_t>(earlier) * n + a]];
  }

  // Numbers by the shortest words in all letters.
  std::vector<int32_t> letter_elements, order = {0}, rank(n, -1);
  for (const Permutation& s : letters) letter_elements.push_back(found->index.at(s));
  rank[0] = 0;
  for (size_t i = 0; i < order.size(); ++i)
    for (int32_t s : letter_elements) {
      const int32_t c = table[static_cast<size_t>(s) * n + static_cast<size_t>(order[i])];
      if (rank[c] >= 0) continue;
      rank[c] = static_cast<int32_t>(order.size());
      order.push_back(c);
    }
  TableGroup g;
  g.table_.resize(n * n);
  g.inverse_.resize(n);
  for (size_t a = 0; a < n; ++a)
    for (size_t b = 0; b < n; ++b) {
      const int32_t c = rank[table[static_cast<size_t>(order[b]) * n + static_cast<size_t>(order[a])]];
      g.table_[a * n + b] = c;
      if (c == 0) g.inverse_[a] = static_cast<int32_t>(b);
    }
  for (int32_t s : letter_elements) g.letters_.push_back(rank[s]);
  for (int32_t element : order) g.elements_.push_back(std::move(found->elements[element]));
  g.index_ = std::move(found->index);
  for (auto& [element, number] : g.index_) number = rank[number];
  return g;
}

std::vector<int32_t> TableGroup::generated(const std::vector<int32_t>& generators) const {
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
  return queue;
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
