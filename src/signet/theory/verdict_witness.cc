#include "signet/theory/verdict_witness.h"

#include <fmt/core.h>

#include <algorithm>

#include "signet/automata/deciders.h"
#include "signet/automata/dfa_io.h"
#include "signet/automata/group_facts.h"
#include "signet/base/rng.h"
#include "signet/base/text.h"

namespace signet::theory {

using namespace automata;

namespace {

constexpr int64_t kMaxShortWords = 20'000;
constexpr size_t kMaxWordLength = 20'000;

std::string list(const std::vector<State>& states, const char* separator) {
  std::vector<std::string> names;
  for (State q : states) names.push_back(std::to_string(q));
  return join(names, separator);
}

std::string shown(const Dfa& dfa, const std::vector<Letter>& word) {
  const std::string text = word_text(dfa, word);
  return text.size() <= 120 ? text : printable(text, 100) + fmt::format(" ({} letters)", word.size());
}

std::optional<Witness> cycle_of(const Dfa& dfa, const std::vector<Letter>& word,
                                const std::vector<State>& map, const std::function<bool(int64_t)>& wanted) {
  std::vector<int32_t> seen(map.size(), -1);
  for (size_t q = 0; q < map.size(); ++q) {
    std::vector<State> path;
    auto at = static_cast<State>(q);
    for (; seen[at] < 0; at = map[at]) {
      seen[at] = static_cast<int32_t>(q);
      path.push_back(at);
    }
    if (seen[at] != static_cast<int32_t>(q)) continue;  // ran into an earlier path
    path.erase(path.begin(), std::find(path.begin(), path.end(), at));
    if (!wanted(static_cast<int64_t>(path.size()))) continue;
    Witness witness{"cycle", "", {word}, path};
    auto closed = path;
    closed.push_back(path.front());
    if (closed.size() > 14) {
      const std::vector<State> first(closed.begin(), closed.begin() + 6);
      witness.text = fmt::format("the word {} permutes {} states in one cycle {} -> ..", shown(dfa, word),
                                 path.size(), list(first, " -> "));
    } else {
      witness.text = fmt::format("the word {} moves states {}", shown(dfa, word), list(closed, " -> "));
    }
    return witness;
  }
  return std::nullopt;
}

std::vector<State> map_of(const Dfa& dfa, const std::vector<Letter>& word) {
  std::vector<State> map;
  for (State q = 0; q < dfa.states(); ++q) map.push_back(dfa.run(q, word));
  return map;
}

}  // namespace

std::optional<Witness> find_cycle(const Dfa& dfa, const Skeleton* skeleton,
                                  const std::function<bool(int64_t)>& wanted) {
  // Short words in shortlex order, each with the map it induces.
  struct Entry {
    std::vector<Letter> word;
    std::vector<State> map;
  };
  const int64_t limit = std::min<int64_t>(kMaxShortWords, 20'000'000 / dfa.states());
  std::vector<Entry> queue = {{{}, map_of(dfa, {})}};
  for (size_t i = 0; i < queue.size() && static_cast<int64_t>(queue.size()) < limit; ++i)
    for (Letter a = 0; a < dfa.letters(); ++a) {
      Entry next = queue[i];
      next.word.push_back(a);
      for (State& q : next.map) q = dfa.delta[q][a];
      if (auto witness = cycle_of(dfa, next.word, next.map, wanted)) return witness;
      queue.push_back(std::move(next));
    }
  if (!skeleton) return std::nullopt;
  for (const auto& c : skeleton->classes) {
    if (c.generators.empty()) continue;
    Rng rng(1);
    std::vector<Letter> word = c.words.front();
    for (int trial = 0; trial < 200; ++trial) {
      const auto& next =
          static_cast<size_t>(trial) < c.words.size() ? c.words[static_cast<size_t>(trial)] : word;
      if (auto witness = cycle_of(dfa, next, map_of(dfa, next), wanted)) return witness;
      const auto& factor = c.words[rng.below(static_cast<uint32_t>(c.words.size()))];
      word.insert(word.end(), factor.begin(), factor.end());
      if (word.size() > kMaxWordLength) word = factor;
    }
  }
  return std::nullopt;
}

std::optional<Witness> find_unsolvable(const Dfa& dfa, const Skeleton& skeleton) {
  const Skeleton::Class* best = nullptr;
  GroupFacts best_facts;
  for (const auto& c : skeleton.classes) {
    if (c.generators.size() < 2 || (best && c.points.size() >= best->points.size())) continue;
    GroupFacts facts = group_facts(static_cast<int32_t>(c.points.size()), c.generators);
    if (facts.solvable) continue;
    best = &c;
    best_facts = std::move(facts);
  }
  if (!best) return std::nullopt;
  Witness witness{"group", "", {}, best->points};
  // As few of the generators as still give a group that is not solvable.
  std::vector<Permutation> chosen;
  std::string actions;
  for (size_t g = 0; g < best->generators.size(); ++g) {
    chosen.push_back(best->generators[g]);
    witness.words.push_back(best->words[g]);
    Permutation on_states = identity_permutation(dfa.states());
    for (size_t i = 0; i < best->points.size(); ++i)
      on_states[best->points[i]] = best->points[best->generators[g][i]];
    actions +=
        fmt::format("{}{} as {}", g ? ", " : "", shown(dfa, best->words[g]), cycle_notation(on_states));
    if (chosen.size() == best->generators.size()) break;
    GroupFacts facts = group_facts(static_cast<int32_t>(best->points.size()), chosen);
    if (facts.solvable) continue;
    best_facts = std::move(facts);
    break;
  }
  std::string group = best_facts.name;
  if (group.rfind("order", 0) == 0) group = "a group of " + group;
  witness.text = fmt::format("on states {{{}}} words act as {}, which is not solvable: {}",
                             printable(list(best->points, ","), 200), group, printable(actions, 400));
  return witness;
}

std::optional<Witness> find_recurrent_pair(const Dfa& dfa) {
  const auto witness = [&](const std::vector<Letter>& word, State p, State q) {
    return Witness{
        "pair",
        fmt::format("the word {} leads state {} back to {} and {} back to {}, however often it is read",
                    shown(dfa, word), p, p, q, q),
        {word},
        {p, q}};
  };
  // A letter that fixes two states is the simplest.
  for (Letter a = 0; a < dfa.letters(); ++a) {
    std::vector<State> fixed;
    for (State q = 0; q < dfa.states() && fixed.size() < 2; ++q)
      if (dfa.delta[q][a] == q) fixed.push_back(q);
    if (fixed.size() == 2) return witness({a}, fixed[0], fixed[1]);
  }
  // Else the shortest word for the first pair of distinct states that comes back to itself.
  const State n = dfa.states();
  if (n > 1'500) {  // pairs are too many: a power of a letter with two states on cycles
    for (Letter a = 0; a < dfa.letters(); ++a) {
      const auto cycles = recurrent_states(dfa, a);
      // One cycle only: its states come in order, and the letter leads the last one to the first.
      if (cycles.size() < 2 || dfa.delta[cycles.back()][a] != cycles.front()) continue;
      return witness(std::vector<Letter>(cycles.size(), a), cycles[0], cycles[1]);
    }
    return std::nullopt;
  }
  int64_t budget = 50'000'000;
  for (State p = 0; p < n && budget > 0; ++p)
    for (State q = p + 1; q < n && budget > 0; ++q) {
      budget -= static_cast<int64_t>(n) * n / 8;
      std::vector<int32_t> from(static_cast<size_t>(n) * n, -2);
      std::vector<Letter> by(from.size(), -1);
      std::vector<int32_t> queue = {p * n + q};
      for (size_t i = 0; i < queue.size(); ++i)
        for (Letter a = 0; a < dfa.letters(); ++a) {
          const State x = dfa.delta[queue[i] / n][a], y = dfa.delta[queue[i] % n][a];
          const int32_t pair = x * n + y;
          if (x == y || from[pair] != -2) continue;
          from[pair] = queue[i];
          by[pair] = a;
          if (pair == queue[0]) {
            std::vector<Letter> word;
            int32_t at = pair;
            do word.push_back(by[at]), at = from[at];
            while (at != pair);
            std::reverse(word.begin(), word.end());
            return witness(word, p, q);
          }
          queue.push_back(pair);
        }
    }
  return std::nullopt;
}

}  // namespace signet::theory
