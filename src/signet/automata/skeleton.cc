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

// Every image set and where the letters lead it, from all states on.
void find_sets(const Dfa& dfa, const Limits& limits, Skeleton& result) {
  const int64_t limit = std::min(limits.image_sets, kMaxSetBits / dfa.states());
  std::unordered_map<StateSet, int32_t, SetHash> index;
  StateSet all(dfa.states());
  for (State q = 0; q < dfa.states(); ++q) all.insert(q);
  index.emplace(all, 0);
  result.sets.push_back(all);
  for (size_t i = 0; i < result.sets.size(); ++i) {
    report_activity("image sets", static_cast<int64_t>(result.sets.size()), limit);
    const auto members = result.sets[i].members();
    auto& row = result.next.emplace_back();
    for (Letter a = 0; a < dfa.letters(); ++a) {
      StateSet image(dfa.states());
      for (State q : members) image.insert(dfa.delta[q][a]);
      const auto [it, fresh] = index.emplace(image, static_cast<int32_t>(result.sets.size()));
      if (fresh) {
        if (static_cast<int64_t>(result.sets.size()) >= limit)
          bad_input("the automaton has more than {} image sets{}", limit,
                    limit < limits.image_sets
                        ? fmt::format(", the most that are kept of {} states", dfa.states())
                        : limits.advice("; raise the limit with --max-sets", ""));
        result.sets.push_back(image);
      }
      row.push_back(it->second);
    }
  }
}

void find_classes(Letter letters, Skeleton& result) {
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
}

std::vector<Letter> append(std::vector<Letter> word, const std::vector<Letter>& rest) {
  word.insert(word.end(), rest.begin(), rest.end());
  return word;
}

// The permutator group of one class: a spanning tree from the representative to all sets, ways back to it,
// and the permutations of its points that going there, by a letter and home again makes.
class Permutators {
 public:
  Permutators(const Dfa& dfa, Skeleton& skeleton, Skeleton::Class& group)
      : dfa_(dfa), skeleton_(skeleton), group_(group), id_(skeleton.class_of[group.representative]) {}

  // Fills `to` of the sets, and the generators with their words.
  void find() {
    walk_out();
    walk_home();
    map_home();
    collect();
  }

 private:
  struct Step {
    int32_t set;
    Letter letter;
  };

  bool in_class(int32_t set) const { return skeleton_.class_of[set] == id_; }

  void walk_out() {  // breadth first
    std::vector<int32_t> queue = {group_.representative};
    for (size_t i = 0; i < queue.size(); ++i)
      for (Letter a = 0; a < dfa_.letters(); ++a) {
        const int32_t s = queue[i], t = skeleton_.next[s][a];
        if (!in_class(t) || !skeleton_.to[t].empty()) continue;
        skeleton_.to[t] = images(skeleton_.to[s], a);
        from_[t] = {s, a};
        queue.push_back(t);
      }
  }

  void walk_home() {  // breadth first, backwards
    std::unordered_map<int32_t, std::vector<Step>> into;
    for (int32_t s : group_.sets)
      for (Letter a = 0; a < dfa_.letters(); ++a)
        if (const int32_t t = skeleton_.next[s][a]; in_class(t)) into[t].push_back({s, a});
    std::set<int32_t> home = {group_.representative};
    nearest_first_ = {group_.representative};
    for (size_t i = 0; i < nearest_first_.size(); ++i)
      for (const auto& [s, a] : into[nearest_first_[i]])
        if (home.insert(s).second) {
          homeward_[s] = {nearest_first_[i], a};
          nearest_first_.push_back(s);
        }
  }

  // The way home as a map on the members of every set, through the next set's.
  void map_home() {
    for (int32_t t : nearest_first_) {
      auto& map = home_map_[t];
      const auto step = homeward_.find(t);
      if (step == homeward_.end()) {
        map = group_.points;
        continue;
      }
      const auto [next, letter] = step->second;
      const auto next_members = skeleton_.sets[next].members();
      const auto& next_map = home_map_[next];
      for (State q : images(skeleton_.sets[t].members(), letter))
        map.push_back(next_map[static_cast<size_t>(
            std::lower_bound(next_members.begin(), next_members.end(), q) - next_members.begin())]);
    }
  }

  // A Schreier generator is g h^-1 where the words g = (to s, a, home) and h = (to t, home) map the
  // representative onto itself, so all g and h generate the group.
  void collect() {
    const auto n = static_cast<size_t>(dfa_.states());
    const bool thin = group_.points.size() <= kMaxThinnedDegree;
    PermGroup generated(thin ? static_cast<int32_t>(group_.points.size()) : 0);
    std::set<Permutation> known;
    const auto add = [&](Permutation p, const std::function<std::vector<Letter>()>& word) {
      if (is_identity(p) || (thin ? !generated.add(p) : !known.insert(p).second)) return;
      if (group_.generators.size() * p.size() > kMaxGeneratorEntries)
        bad_input("a group on {} points has too many generators to be analysed", p.size());
      group_.generators.push_back(std::move(p));
      group_.words.push_back(word());
    };
    std::vector<int32_t> point_of(n, -1), place(n);
    for (size_t i = 0; i < group_.points.size(); ++i) point_of[group_.points[i]] = static_cast<int32_t>(i);
    const auto home_from = [&](int32_t t, const std::vector<State>& states) {  // states of t, taken home
      const auto members = skeleton_.sets[t].members();
      const auto& map = home_map_.at(t);
      for (size_t i = 0; i < members.size(); ++i) place[members[i]] = static_cast<int32_t>(i);
      Permutation p;
      p.reserve(states.size());
      for (State q : states) p.push_back(point_of[map[static_cast<size_t>(place[q])]]);
      return p;
    };
    for (int32_t s : group_.sets) {
      add(home_from(s, skeleton_.to[s]), [&] { return append(path_to(s), path_home(s)); });
      for (Letter a = 0; a < dfa_.letters(); ++a) {
        const int32_t t = skeleton_.next[s][a];
        if (in_class(t))
          add(home_from(t, images(skeleton_.to[s], a)),
              [&] { return append(append(path_to(s), {a}), path_home(t)); });
      }
    }
  }

  std::vector<State> images(const std::vector<State>& states, Letter a) const {
    std::vector<State> result;
    result.reserve(states.size());
    for (State q : states) result.push_back(dfa_.delta[q][a]);
    return result;
  }
  std::vector<Letter> path_to(int32_t set) const {
    std::vector<Letter> word;
    for (auto step = from_.find(set); step != from_.end(); step = from_.find(step->second.set))
      word.push_back(step->second.letter);
    std::reverse(word.begin(), word.end());
    return word;
  }
  std::vector<Letter> path_home(int32_t set) const {
    std::vector<Letter> word;
    for (auto step = homeward_.find(set); step != homeward_.end(); step = homeward_.find(step->second.set))
      word.push_back(step->second.letter);
    return word;
  }

  const Dfa& dfa_;
  Skeleton& skeleton_;
  Skeleton::Class& group_;
  const int32_t id_;
  std::vector<int32_t> nearest_first_;          // the sets, by the length of their way home
  std::unordered_map<int32_t, Step> from_;      // the last step of a shortest way out to each set
  std::unordered_map<int32_t, Step> homeward_;  // the first step of a shortest way back
  std::unordered_map<int32_t, std::vector<State>> home_map_;  // of each member, ascending: where it gets home
};

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

Skeleton make_skeleton(const Dfa& dfa, const Limits& limits) {
  Skeleton result;
  result.states = dfa.states();
  find_sets(dfa, limits, result);
  find_classes(dfa.letters(), result);
  result.to.resize(result.sets.size());
  int64_t entries = 0;
  for (auto& group : result.classes) {
    report_activity("groups of image sets", &group - result.classes.data(),
                    static_cast<int64_t>(result.classes.size()));
    group.points = result.sets[group.representative].members();
    result.to[group.representative] = group.points;
    entries += static_cast<int64_t>(group.points.size() * group.sets.size());
    if (entries > kMaxBijectionEntries)
      bad_input("the automaton's {} image sets have more than {} members together, the most that are kept",
                result.sets.size(), kMaxBijectionEntries);
    if (group.points.size() > 1)
      Permutators(dfa, result, group).find();
    else
      for (int32_t s : group.sets) result.to[s] = result.sets[s].members();
  }
  return result;
}

}  // namespace signet::automata
