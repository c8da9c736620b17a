#include "signet/automata/monoid.h"

#include <algorithm>
#include <cstring>

#include "signet/automata/numbering.h"
#include "signet/automata/scc.h"
#include "signet/base/activity.h"

namespace signet::automata {
namespace {

constexpr int64_t kMaxMapEntries = int64_t{1} << 26;     // 128 MiB of maps
constexpr int64_t kMaxCayleyEntries = int64_t{1} << 26;  // 2 x 256 MiB of Cayley graphs

uint64_t hash_map(const uint16_t* map, size_t n) {
  uint64_t hash = 0x9E3779B97F4A7C15u;
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {  // four at a time
    uint64_t word;
    std::memcpy(&word, map + i, sizeof word);
    hash = (hash ^ word) * 0xBF58476D1CE4E5B9u;
    hash ^= hash >> 29;
  }
  for (; i < n; ++i) hash = (hash ^ map[i]) * 0x100000001B3u + (hash >> 29);
  return hash ^ hash >> 32;
}

}  // namespace

std::optional<Monoid> Monoid::enumerate(const Dfa& dfa, const Limits& limits) {
  Monoid m;
  m.n_ = dfa.states();
  m.letters_ = dfa.alphabet.size();
  const auto n = static_cast<size_t>(m.n_);
  if (n > 65'535) return std::nullopt;
  const int64_t limit = std::min({limits.monoid, kMaxMapEntries / static_cast<int64_t>(n),
                                  kMaxCayleyEntries / static_cast<int64_t>(m.letters_)});
  Numbering numbering;  // of the elements, by their maps
  std::vector<int32_t> length;
  std::vector<uint16_t> candidate(n);
  // The element equal to `candidate`, added with the given word when new; -1 past the limit.
  const auto intern = [&](int32_t prefix, int32_t suffix, Letter first, Letter last, bool& fresh) {
    fresh = false;
    const uint64_t hash = hash_map(candidate.data(), n);
    const int32_t known = numbering.find(
        hash, [&](int32_t i) { return std::equal(candidate.begin(), candidate.end(), m.element(i)); });
    if (known >= 0) return known;
    if (m.size() >= limit) return -1;
    fresh = true;
    m.maps_.insert(m.maps_.end(), candidate.begin(), candidate.end());
    m.prefix_.push_back(prefix);
    m.suffix_.push_back(suffix);
    m.first_.push_back(first);
    m.last_.push_back(last);
    length.push_back(prefix < 0 ? 0 : length[prefix] + 1);
    m.right_.resize(m.right_.size() + m.letters_, -1);
    m.left_.resize(m.left_.size() + m.letters_, -1);
    return numbering.add(hash);
  };
  bool fresh = false;
  for (size_t q = 0; q < n; ++q) candidate[q] = static_cast<uint16_t>(q);
  intern(-1, -1, -1, -1, fresh);
  std::vector<bool> reduced(m.letters_,
                            false);  // [element][letter]: the word extended by the letter is a new element
  const auto at = [&](int32_t i, Letter a) {
    return static_cast<size_t>(i) * m.letters_ + static_cast<size_t>(a);
  };
  const auto letters = static_cast<Letter>(m.letters_);
  std::vector<uint16_t> letter_maps(m.letters_ * n);
  for (Letter a = 0; a < letters; ++a) {
    for (size_t q = 0; q < n; ++q)
      letter_maps[static_cast<size_t>(a) * n + q] = candidate[q] = static_cast<uint16_t>(dfa.delta[q][a]);
    const int32_t i = intern(0, 0, a, a, fresh);
    if (i < 0) return std::nullopt;
    m.element_of_letter_.push_back(i);
    m.right_[at(0, a)] = m.left_[at(0, a)] = i;
    if (fresh) {
      reduced.resize(reduced.size() + m.letters_, false);
      reduced[at(0, a)] = true;
    }
  }
  for (int32_t begin = 1; begin < m.size();) {
    const int32_t end = m.size();  // elements begin..end-1 have one length
    for (int32_t i = begin; i < end; ++i) {
      report_activity("elements of the transition monoid", m.size(), limit);
      for (Letter a = 0; a < letters; ++a) {
        const int32_t s = m.suffix_[i];
        if (!reduced[at(s, a)]) {
          const int32_t r = m.right_[at(s, a)];  // i a = first (s a) = first r
          m.right_[at(i, a)] = r == 0 ? m.element_of_letter_[m.first_[i]]
                                      : m.right_[at(m.left_[at(m.prefix_[r], m.first_[i])], m.last_[r])];
          continue;
        }
        const uint16_t *map = m.element(i), *moved = letter_maps.data() + static_cast<size_t>(a) * n;
        for (size_t q = 0; q < n; ++q) candidate[q] = moved[map[q]];
        const int32_t product = intern(i, m.right_[at(s, a)], m.first_[i], a, fresh);
        if (product < 0) return std::nullopt;
        m.right_[at(i, a)] = product;
        if (fresh) {
          reduced.resize(reduced.size() + m.letters_, false);
          reduced[at(i, a)] = true;
        }
      }
    }
    for (int32_t i = begin; i < end; ++i)
      for (Letter a = 0; a < letters; ++a)
        m.left_[at(i, a)] = m.right_[at(m.left_[at(m.prefix_[i], a)], m.last_[i])];
    begin = end;
  }
  return m;
}

std::vector<Letter> Monoid::word(int32_t i) const {
  std::vector<Letter> letters;
  for (; i != 0; i = suffix_[i]) letters.push_back(first_[i]);
  return letters;
}

int32_t Monoid::times(int32_t i, int32_t j) const {
  for (; j != 0; j = suffix_[j]) i = step(i, first_[j]);
  return i;
}

bool Monoid::idempotent(int32_t i) const {
  const uint16_t* map = element(i);
  for (State q = 0; q < n_; ++q)
    if (map[map[q]] != map[q]) return false;
  return true;
}

std::vector<int32_t> Monoid::idempotents() const {
  std::vector<int32_t> found;
  for (int32_t i = 0; i < size(); ++i)
    if (idempotent(i)) found.push_back(i);
  return found;
}

int32_t Monoid::rank(int32_t i) const {
  std::vector<bool> seen(static_cast<size_t>(n_));
  int32_t count = 0;
  for (State q = 0; q < n_; ++q)
    if (!seen[element(i)[q]]) seen[element(i)[q]] = true, ++count;
  return count;
}

Monoid::Green Monoid::green() const {
  const auto letters = static_cast<int32_t>(letters_);
  const auto edge = [&](const std::vector<int32_t>& graph, int32_t v, int32_t a) {
    return graph[static_cast<size_t>(v) * letters_ + static_cast<size_t>(a)];
  };
  const Components r =
      strong_components(size(), letters, [&](int32_t v, int32_t a) { return edge(right_, v, a); });
  const Components l =
      strong_components(size(), letters, [&](int32_t v, int32_t a) { return edge(left_, v, a); });
  const Components j = strong_components(size(), 2 * letters, [&](int32_t v, int32_t a) {
    return a < letters ? edge(right_, v, a) : edge(left_, v, a - letters);
  });
  return {r.of, l.of, j.of, r.count, l.count, j.count};
}

}  // namespace signet::automata
