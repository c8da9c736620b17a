#include "signet/automata/skeleton.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <set>
#include <unordered_map>

#include "signet/automata/perm_group.h"
#include "signet/automata/scc.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"

namespace signet::automata {
namespace {

constexpr int64_t kMaxSetBits = int64_t{1} << 31;           // 256 MiB of sets
constexpr int64_t kMaxBijectionEntries = int64_t{1} << 26;  // 256 MiB of bijections
constexpr size_t kMaxThinnedDegree = 500;                   // up to here redundant generators are left out
constexpr size_t kMaxGeneratorEntries = size_t{1} << 26;

struct SetHash {
  size_t operator()(const StateSet& set) const { return set.hash(); }
};

// A class's spanning tree from its representative, and a way back to it.
struct Paths {
  std::vector<int32_t> parent;    // set one step nearer the representative
  std::vector<Letter> letter;     // parent --letter--> set
  std::vector<int32_t> homeward;  // a next set on a shortest way back
  std::vector<Letter> home_letter;
};

std::vector<Letter> path_to(const Paths& paths, int32_t set) {
  std::vector<Letter> word;
  for (; paths.parent[set] >= 0; set = paths.parent[set]) word.push_back(paths.letter[set]);
  std::reverse(word.begin(), word.end());
  return word;
}
std::vector<Letter> path_home(const Paths& paths, int32_t set) {
  std::vector<Letter> word;
  for (; paths.homeward[set] >= 0; set = paths.homeward[set]) word.push_back(paths.home_letter[set]);
  return word;
}

}  // namespace

int32_t StateSet::size() const {
  int32_t count = 0;
  for (uint64_t word : words_) count += std::popcount(word);
  return count;
}
std::vector<State> StateSet::members() const {
  std::vector<State> states;
  for (size_t i = 0; i < words_.size(); ++i)
    for (uint64_t word = words_[i]; word; word &= word - 1)
      states.push_back(static_cast<State>(i * 64 + static_cast<size_t>(std::countr_zero(word))));
  return states;
}
uint64_t StateSet::hash() const {
  uint64_t hash = 0x9E3779B97F4A7C15u;
  for (uint64_t word : words_) {
    hash = (hash ^ word) * 0xBF58476D1CE4E5B9u;
    hash ^= hash >> 31;
  }
  return hash;
}

std::optional<Skeleton> make_skeleton(const Dfa& dfa, const Limits& limits) {
  Skeleton result;
  const State n = result.states = dfa.states();
  const Letter letters = dfa.letters();
  const int64_t limit = std::min(limits.image_sets, kMaxSetBits / n);
  std::unordered_map<StateSet, int32_t, SetHash> index;
  std::vector<int32_t> sizes;
  StateSet all(n);
  for (State q = 0; q < n; ++q) all.insert(q);
  index.emplace(all, 0);
  result.sets.push_back(all);
  for (size_t i = 0; i < result.sets.size(); ++i) {
    report_activity("image sets", static_cast<int64_t>(result.sets.size()), limit);
    const auto members = result.sets[i].members();
    sizes.push_back(static_cast<int32_t>(members.size()));
    auto& row = result.next.emplace_back();
    for (Letter a = 0; a < letters; ++a) {
      StateSet image(n);
      for (State q : members) image.insert(dfa.delta[q][a]);
      const auto [it, fresh] = index.emplace(image, static_cast<int32_t>(result.sets.size()));
      if (fresh) {
        if (static_cast<int64_t>(result.sets.size()) >= limit) return std::nullopt;
        result.sets.push_back(image);
      }
      row.push_back(it->second);
    }
  }

  const auto count = static_cast<int32_t>(result.sets.size());
  const Components components =
      strong_components(count, letters, [&](int32_t s, int32_t a) { return result.next[s][a]; });
  result.classes.resize(static_cast<size_t>(components.count));
  for (int32_t s = 0; s < count; ++s) {
    result.class_of.push_back(components.count - 1 - components.of[s]);
    auto& members = result.classes[result.class_of[s]].sets;
    if (members.empty()) result.classes[result.class_of[s]].representative = s;
    members.push_back(s);
  }

  Paths paths;
  paths.parent.assign(sizes.size(), -1);
  paths.letter.assign(sizes.size(), -1);
  paths.homeward.assign(sizes.size(), -1);
  paths.home_letter.assign(sizes.size(), -1);
  result.to.resize(sizes.size());
  int64_t entries = 0;
  for (auto& group : result.classes) {
    report_activity("groups of image sets", &group - result.classes.data(), components.count);
    group.points = result.sets[group.representative].members();
    result.to[group.representative] = group.points;
    entries += static_cast<int64_t>(group.points.size() * group.sets.size());
    if (entries > kMaxBijectionEntries) return std::nullopt;
    if (group.points.size() == 1) {
      for (int32_t s : group.sets) result.to[s] = result.sets[s].members();
      continue;
    }
    const int32_t id = result.class_of[group.representative];
    // Breadth first out of the representative, then breadth first back to it.
    std::vector<int32_t> queue = {group.representative};
    for (size_t i = 0; i < queue.size(); ++i)
      for (Letter a = 0; a < letters; ++a) {
        const int32_t s = queue[i], t = result.next[s][a];
        if (result.class_of[t] != id || !result.to[t].empty()) continue;
        for (State q : result.to[s]) result.to[t].push_back(dfa.delta[q][a]);
        paths.parent[t] = s;
        paths.letter[t] = a;
        queue.push_back(t);
      }
    std::unordered_map<int32_t, std::vector<std::pair<int32_t, Letter>>> into;
    for (int32_t s : group.sets)
      for (Letter a = 0; a < letters; ++a)
        if (result.class_of[result.next[s][a]] == id) into[result.next[s][a]].emplace_back(s, a);
    std::set<int32_t> home = {group.representative};
    queue = {group.representative};
    for (size_t i = 0; i < queue.size(); ++i)
      for (const auto& [s, a] : into[queue[i]])
        if (home.insert(s).second) {
          paths.homeward[s] = queue[i];
          paths.home_letter[s] = a;
          queue.push_back(s);
        }
    // A Schreier generator is g h^-1 where the words g = (to s, a, home) and h = (to t, home) map the
    // representative onto itself, so all g and h generate the group.
    const bool thin = group.points.size() <= kMaxThinnedDegree;
    PermGroup generated(thin ? static_cast<int32_t>(group.points.size()) : 0);
    std::set<Permutation> known;
    std::vector<int32_t> point_of(static_cast<size_t>(n), -1), place(static_cast<size_t>(n));
    const auto add = [&](Permutation p, const std::function<std::vector<Letter>()>& word) {
      if (is_identity(p) || (thin ? !generated.add(p) : !known.insert(p).second)) return;
      if (group.generators.size() * p.size() > kMaxGeneratorEntries)
        bad_input("a group on {} points has too many generators to be analysed", p.size());
      group.generators.push_back(std::move(p));
      group.words.push_back(word());
    };
    std::unordered_map<int32_t, std::vector<State>> home_map;  // to[t] followed by the way home
    for (int32_t t : queue) {                                  // nearest home first
      auto& map = home_map[t];
      if (paths.homeward[t] < 0) {
        map = group.points;
        continue;
      }
      // The way home as a map on all states of t, through the next set's.
      std::vector<State> images;
      for (State q : result.sets[t].members()) images.push_back(dfa.delta[q][paths.home_letter[t]]);
      const auto next_members = result.sets[paths.homeward[t]].members();
      const auto& next_map = home_map[paths.homeward[t]];
      for (State q : images)
        map.push_back(next_map[static_cast<size_t>(
            std::lower_bound(next_members.begin(), next_members.end(), q) - next_members.begin())]);
    }
    for (size_t i = 0; i < group.points.size(); ++i) point_of[group.points[i]] = static_cast<int32_t>(i);
    const auto home_from = [&](int32_t t, const std::vector<State>& states) {  // states of t, taken home
      const auto members = result.sets[t].members();
      const auto& map = home_map.at(t);
      for (size_t i = 0; i < members.size(); ++i) place[members[i]] = static_cast<int32_t>(i);
      Permutation p;
      p.reserve(states.size());
      for (State q : states) p.push_back(point_of[map[static_cast<size_t>(place[q])]]);
      return p;
    };
    const auto append = [](std::vector<Letter> word, const std::vector<Letter>& rest) {
      word.insert(word.end(), rest.begin(), rest.end());
      return word;
    };
    for (int32_t s : group.sets) {
      add(home_from(s, result.to[s]), [&] { return append(path_to(paths, s), path_home(paths, s)); });
      for (Letter a = 0; a < letters; ++a) {
        const int32_t t = result.next[s][a];
        if (result.class_of[t] != id) continue;
        std::vector<State> images;
        for (State q : result.to[s]) images.push_back(dfa.delta[q][a]);
        add(home_from(t, images),
            [&] { return append(append(path_to(paths, s), {a}), path_home(paths, t)); });
      }
    }
  }
  return result;
}

}  // namespace signet::automata
