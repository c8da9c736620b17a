#include "signet/theory/image_sets.h"

#include <algorithm>
#include <bit>
#include <set>

#include "signet/base/error.h"

namespace signet::theory {

using automata::Letter;
using automata::Permutation;
using automata::State;

ImageSets::ImageSets(const automata::Dfa& dfa, int64_t max_sets) : dfa_(dfa) {
  const State n = dfa.states();
  if (n > 64) bad_input("reset cascades are compiled for at most 64 states; this automaton has {}", n);
  add(n == 64 ? ~Set{0} : (Set{1} << n) - 1);
  for (State q = 0; q < n; ++q) add(Set{1} << q);
  for (size_t i = 0; i < sets_.size(); ++i) {
    std::vector<int32_t> row;
    for (Letter s = 0; s < dfa.letters(); ++s) {
      Set to = 0;
      for (Set rest = sets_[i]; rest; rest &= rest - 1) to |= Set{1} << dfa.delta[std::countr_zero(rest)][s];
      row.push_back(add(to));
    }
    next_.push_back(std::move(row));
    if (static_cast<int64_t>(sets_.size()) > max_sets)
      bad_input("the automaton has more than {} image sets; raise --max-sets", max_sets);
  }
  find_classes();
  carry_tiles();
  find_depths();
}

int32_t ImageSets::add(Set set) {
  const auto [it, fresh] = index_.emplace(set, static_cast<int32_t>(sets_.size()));
  if (fresh) sets_.push_back(set);
  return it->second;
}

// Kosaraju: sets by finishing time, then components of the reversed graph.
void ImageSets::find_classes() {
  const int32_t n = static_cast<int32_t>(sets_.size());
  std::vector<std::vector<int32_t>> before(n);
  for (int32_t i = 0; i < n; ++i)
    for (int32_t to : next_[i]) before[to].push_back(i);
  std::vector<int32_t> finished;
  std::vector<bool> seen(n, false);
  std::vector<std::pair<int32_t, size_t>> stack;
  for (int32_t root = 0; root < n; ++root) {
    if (seen[root]) continue;
    seen[root] = true;
    stack.emplace_back(root, 0);
    while (!stack.empty()) {
      auto& [set, edge] = stack.back();
      if (edge == next_[set].size()) {
        finished.push_back(set);
        stack.pop_back();
        continue;
      }
      const int32_t to = next_[set][edge++];
      if (seen[to]) continue;
      seen[to] = true;
      stack.emplace_back(to, 0);
    }
  }
  class_.assign(n, -1);
  for (int32_t i = n - 1; i >= 0; --i) {
    if (class_[finished[i]] >= 0) continue;
    std::vector<int32_t> queue = {finished[i]};
    class_[finished[i]] = static_cast<int32_t>(representative_.size());
    for (size_t j = 0; j < queue.size(); ++j)
      for (int32_t from : before[queue[j]])
        if (class_[from] < 0) {
          class_[from] = class_[finished[i]];
          queue.push_back(from);
        }
    representative_.push_back(*std::min_element(queue.begin(), queue.end()));
  }
}

ImageSets::Set ImageSets::image(Set set, const std::vector<State>& map) const {
  Set to = 0;
  for (Set rest = set; rest; rest &= rest - 1) to |= Set{1} << map[std::countr_zero(rest)];
  return to;
}

void ImageSets::carry_tiles() {
  tiles_.resize(representative_.size());
  tile_sets_.resize(sets_.size());
  word_.resize(sets_.size());
  to_.resize(sets_.size());
  for (size_t c = 0; c < representative_.size(); ++c) {
    const int32_t r = representative_[c];
    if (singleton(r)) continue;
    std::vector<Set> inside;
    for (Set set : sets_)
      if (set != sets_[r] && (set & ~sets_[r]) == 0) inside.push_back(set);
    std::sort(inside.begin(), inside.end(), [](Set a, Set b) {
      return std::make_pair(-std::popcount(a), a) < std::make_pair(-std::popcount(b), b);
    });
    for (Set set : inside) {
      const bool maximal =
          std::none_of(tiles_[c].begin(), tiles_[c].end(), [&](Set tile) { return (set & ~tile) == 0; });
      if (maximal) tiles_[c].push_back(set);
    }
    // Breadth first from the representative through its class.
    to_[r].resize(static_cast<size_t>(dfa_.states()));
    for (State q = 0; q < dfa_.states(); ++q) to_[r][q] = q;
    std::vector<int32_t> queue = {r};
    for (size_t i = 0; i < queue.size(); ++i) {
      const int32_t set = queue[i];
      for (Set tile : tiles_[c]) tile_sets_[set].push_back(index_.at(image(tile, to_[set])));
      for (Letter s = 0; s < dfa_.letters(); ++s) {
        const int32_t to = next_[set][s];
        if (class_[to] != static_cast<int32_t>(c) || !to_[to].empty()) continue;
        to_[to] = to_[set];
        for (State& q : to_[to]) q = dfa_.delta[q][s];
        word_[to] = word_[set];
        word_[to].push_back(s);
        queue.push_back(to);
      }
    }
  }
}

void ImageSets::find_depths() {
  const size_t n = representative_.size();
  std::vector<std::set<int32_t>> below(n);
  std::vector<int32_t> incoming(n, 0);
  const auto edge = [&](int32_t from, int32_t to) {
    if (from != to && below[from].insert(to).second) ++incoming[to];
  };
  for (size_t i = 0; i < sets_.size(); ++i)
    for (int32_t to : next_[i]) edge(class_[i], class_[to]);
  for (size_t c = 0; c < n; ++c)
    for (Set tile : tiles_[c]) edge(static_cast<int32_t>(c), class_[index_.at(tile)]);
  depth_.assign(n, 0);
  std::vector<int32_t> ready;
  for (size_t c = 0; c < n; ++c)
    if (incoming[c] == 0) ready.push_back(static_cast<int32_t>(c));
  for (size_t i = 0; i < ready.size(); ++i)
    for (int32_t to : below[ready[i]]) {
      depth_[to] = std::max(depth_[to], depth_[ready[i]] + 1);
      if (--incoming[to] == 0) ready.push_back(to);
    }
  for (size_t c = 0; c < n; ++c)
    if (!tiles_[c].empty()) levels_ = std::max(levels_, depth_[c] + 1);
}

int32_t ImageSets::tile_around(int32_t set, int32_t inner) const {
  const auto& tiles = tile_sets_[set];
  for (size_t i = 0; i < tiles.size(); ++i)
    if ((sets_[inner] & ~sets_[tiles[i]]) == 0) return static_cast<int32_t>(i);
  fail(ErrorCode::kFailure, "holonomy: no tile around a proper subset");
}

Permutation ImageSets::tile_permutation(int32_t set, Letter s) const {
  const auto &from = tile_sets_[set], &to = tile_sets_[next_[set][s]];
  Permutation p;
  for (int32_t tile : from)
    p.push_back(static_cast<int32_t>(std::find(to.begin(), to.end(), next_[tile][s]) - to.begin()));
  return p;
}

std::vector<ImageSets::Generator> ImageSets::generators(int32_t c) const {
  std::vector<Generator> result;
  if (tiles_[c].empty()) return result;
  // Words back to the representative, breadth first over reversed edges.
  std::vector<int32_t> members;
  for (size_t i = 0; i < sets_.size(); ++i)
    if (class_[i] == c) members.push_back(static_cast<int32_t>(i));
  std::unordered_map<int32_t, std::vector<Letter>> back = {{representative_[c], {}}};
  for (bool grew = true; grew;) {
    grew = false;
    for (int32_t set : members) {
      if (back.count(set)) continue;
      for (Letter s = 0; s < dfa_.letters(); ++s) {
        const auto it = back.find(next_[set][s]);
        if (class_[next_[set][s]] != c || it == back.end()) continue;
        std::vector<Letter> word = {s};
        word.insert(word.end(), it->second.begin(), it->second.end());
        back[set] = std::move(word);
        grew = true;
        break;
      }
    }
  }
  std::set<Permutation> seen;
  for (int32_t set : members)
    for (Letter s = 0; s < dfa_.letters(); ++s) {
      if (!keeps_class(set, s)) continue;
      Permutation p = tile_permutation(set, s);
      if (automata::is_identity(p) || !seen.insert(p).second) continue;
      Generator g{std::move(p), word_[set]};
      g.word.push_back(s);
      const auto& tail = back.at(next_[set][s]);
      g.word.insert(g.word.end(), tail.begin(), tail.end());
      result.push_back(std::move(g));
    }
  return result;
}

}  // namespace signet::theory
