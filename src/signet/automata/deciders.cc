#include "signet/automata/deciders.h"

#include <algorithm>
#include <array>
#include <map>

#include "signet/automata/scc.h"

namespace signet::automata {
namespace {

constexpr int64_t kMaxPairWork = 40'000'000;
constexpr State kMaxTripleStates = 160;  // 4 M triples

// Pairs p < q as numbers.
struct Pairs {
  State n;
  int32_t count() const { return n * (n - 1) / 2; }
  int32_t of(State p, State q) const {
    if (p > q) std::swap(p, q);
    return q * (q - 1) / 2 + p;
  }
};

// Longest path, in edges, from each node to leaving the graph; nullopt when there is a cycle.
std::optional<int32_t> longest_path(int32_t nodes, int32_t degree, const auto& target) {
  const Components components = strong_components(nodes, degree, target);
  if (components.count != nodes) return std::nullopt;
  // Components are numbered targets first.
  std::vector<int32_t> order(static_cast<size_t>(nodes)), longest(static_cast<size_t>(nodes), 0);
  for (int32_t v = 0; v < nodes; ++v) order[components.of[v]] = v;
  int32_t best = 0;
  for (int32_t v : order) {
    for (int32_t e = 0; e < degree; ++e) {
      const int32_t w = target(v, e);
      if (w == v) return std::nullopt;
      longest[v] = std::max(longest[v], 1 + (w < 0 ? 0 : longest[w]));
    }
    best = std::max(best, longest[v]);
  }
  return best;
}

bool absorbing(const Dfa& dfa, State q) {
  return std::all_of(dfa.delta[q].begin(), dfa.delta[q].end(), [q](State target) { return target == q; });
}

}  // namespace

std::vector<State> recurrent_states(const Dfa& dfa, Letter letter) {
  std::vector<State> found;
  std::vector<int32_t> seen(dfa.delta.size(), -1);
  for (State q = 0; q < dfa.states(); ++q) {
    State at = q;
    for (; seen[at] < 0; at = dfa.delta[at][letter]) seen[at] = q;
    if (seen[at] != q) continue;
    const State home = at;
    do found.push_back(at), at = dfa.delta[at][letter];
    while (at != home);
  }
  return found;
}

bool is_group(const Dfa& dfa) {
  for (Letter a = 0; a < dfa.letters(); ++a) {
    std::vector<bool> hit(dfa.delta.size());
    for (const auto& row : dfa.delta) {
      if (hit[row[a]]) return false;
      hit[row[a]] = true;
    }
  }
  return true;
}

bool is_commutative(const Dfa& dfa) {
  for (const auto& row : dfa.delta)
    for (Letter a = 0; a < dfa.letters(); ++a)
      for (Letter b = 0; b < a; ++b)
        if (dfa.delta[row[a]][b] != dfa.delta[row[b]][a]) return false;
  return true;
}

std::optional<int32_t> definite_window(const Dfa& dfa) {
  // A letter that keeps two states apart for ever is the quick way to a no.
  for (Letter a = 0; a < dfa.letters(); ++a)
    if (recurrent_states(dfa, a).size() > 1) return std::nullopt;
  std::vector<int32_t> merged(
      dfa.delta.size());  // class of each state: states that all words of length k merge
  for (size_t q = 0; q < merged.size(); ++q) merged[q] = static_cast<int32_t>(q);
  size_t classes = merged.size();
  for (int32_t k = 0;; ++k) {
    if (classes == 1) return k;
    std::map<std::vector<int32_t>, int32_t> rows;
    std::vector<int32_t> next(merged.size());
    for (size_t q = 0; q < merged.size(); ++q) {
      std::vector<int32_t> row;
      for (State target : dfa.delta[q]) row.push_back(merged[target]);
      next[q] = rows.emplace(std::move(row), static_cast<int32_t>(rows.size())).first->second;
    }
    if (rows.size() == classes) return std::nullopt;
    classes = rows.size();
    merged = std::move(next);
  }
}

std::optional<int32_t> reverse_definite_window(const Dfa& dfa) {
  if (dfa.states() == 1) return 0;
  // Absorbing states are left out; what remains may not cycle.
  return longest_path(dfa.states(), dfa.letters(), [&](int32_t q, int32_t a) {
    return absorbing(dfa, q) || absorbing(dfa, dfa.delta[q][a]) ? -1 : dfa.delta[q][a];
  });
}

bool is_r_trivial(const Dfa& dfa) {
  return strong_components(dfa.states(), dfa.letters(), [&](int32_t q, int32_t a) {
           return dfa.delta[q][a];
         }).count == dfa.states();
}

std::optional<bool> is_j_trivial(const Dfa& dfa) {
  if (!is_r_trivial(dfa)) return false;
  if (static_cast<int64_t>(dfa.states()) * dfa.states() * dfa.letters() * dfa.letters() > kMaxPairWork)
    return std::nullopt;
  const Pairs pairs{dfa.states()};
  for (Letter a = 0; a < dfa.letters(); ++a)
    for (Letter b = 0; b < a; ++b) {
      // Backwards from the diagonal over pairs, under the two letters.
      std::vector<std::vector<int32_t>> sources(static_cast<size_t>(pairs.count()));
      std::vector<bool> merges(static_cast<size_t>(pairs.count()));
      std::vector<int32_t> queue;
      for (State q = 0; q < dfa.states(); ++q)
        for (State p = 0; p < q; ++p)
          for (Letter c : {a, b}) {
            const State x = dfa.delta[p][c], y = dfa.delta[q][c];
            const int32_t pair = pairs.of(p, q);
            if (x != y) {
              sources[pairs.of(x, y)].push_back(pair);
            } else if (!merges[pair]) {
              merges[pair] = true;
              queue.push_back(pair);
            }
          }
      for (size_t i = 0; i < queue.size(); ++i)
        for (int32_t source : sources[queue[i]])
          if (!merges[source]) merges[source] = true, queue.push_back(source);
      for (const auto& row : dfa.delta)
        if (row[a] != row[b] && !merges[pairs.of(row[a], row[b])]) return false;
    }
  return true;
}

bool letters_partial_injections(const Dfa& dfa) {
  // The sink is any absorbing state; without one every letter must be a permutation.
  for (State sink = -1; sink < dfa.states(); ++sink) {
    if (sink >= 0 && !absorbing(dfa, sink)) continue;
    bool injective = true;
    for (Letter a = 0; a < dfa.letters() && injective; ++a) {
      std::vector<bool> hit(dfa.delta.size());
      for (const auto& row : dfa.delta) {
        if (row[a] == sink) continue;
        injective &= !hit[row[a]];
        hit[row[a]] = true;
      }
    }
    if (injective) return true;
  }
  return false;
}

bool letters_permutations_or_resets(const Dfa& dfa) {
  for (Letter a = 0; a < dfa.letters(); ++a) {
    std::vector<bool> hit(dfa.delta.size());
    State distinct = 0;
    for (const auto& row : dfa.delta)
      if (!hit[row[a]]) hit[row[a]] = true, ++distinct;
    if (distinct != 1 && distinct != dfa.states()) return false;
  }
  return true;
}

BarrierSearch find_barrier_pattern(const Dfa& dfa, int64_t budget) {
  const State n = dfa.states();
  if (n > kMaxTripleStates) return {false, std::nullopt};
  const Letter letters = dfa.letters();
  // p and q must come back together: (p, q) on a cycle of the graph of ordered pairs.
  const auto pair_target = [&](int32_t v, int32_t a) {
    const State p = dfa.delta[v / n][a], q = dfa.delta[v % n][a];
    return p == q ? -1 : p * n + q;
  };
  const Components recurrent = strong_components(n * n, letters, pair_target);
  std::vector<std::vector<std::vector<State>>> sources(letters, std::vector<std::vector<State>>(n));
  for (Letter a = 0; a < letters; ++a)
    for (State q = 0; q < n; ++q) sources[a][dfa.delta[q][a]].push_back(q);

  // reach(p, q, goal): which x have a word (x,p,q) -> (goal,p,q), by a backward search in which the pair
  // stays inside its component; next[triple] is the letter to take.
  std::vector<int32_t> stamp(static_cast<size_t>(n) * n * n, 0);
  std::vector<Letter> next(stamp.size());
  int32_t round = 0;
  const auto triple = [n](State x, State p, State q) { return (static_cast<size_t>(x) * n + p) * n + q; };
  const auto search = [&](State p, State q, State goal) {
    ++round;
    const int32_t component = recurrent.of[p * n + q];
    std::vector<std::array<State, 3>> queue = {{goal, p, q}};
    stamp[triple(goal, p, q)] = round;
    next[triple(goal, p, q)] = -1;
    for (size_t i = 0; i < queue.size(); ++i) {
      const auto [x, y, z] = queue[i];
      for (Letter a = 0; a < letters; ++a)
        for (State sy : sources[a][y])
          for (State sz : sources[a][z]) {
            if (sy == sz || recurrent.of[sy * n + sz] != component) continue;
            for (State sx : sources[a][x]) {
              --budget;
              if (stamp[triple(sx, sy, sz)] == round) continue;
              stamp[triple(sx, sy, sz)] = round;
              next[triple(sx, sy, sz)] = a;
              queue.push_back({sx, sy, sz});
            }
          }
    }
  };
  const auto word_from = [&](State x, State p, State q) {
    std::vector<Letter> word;
    while (next[triple(x, p, q)] >= 0) {
      const Letter a = next[triple(x, p, q)];
      word.push_back(a);
      x = dfa.delta[x][a], p = dfa.delta[p][a], q = dfa.delta[q][a];
    }
    return word;
  };
  for (State p = 0; p < n; ++p)
    for (State q = p + 1; q < n; ++q) {
      if (budget < 0) return {false, std::nullopt};
      search(p, q, p);
      std::vector<std::pair<State, std::vector<Letter>>> to_p;
      for (State x = 0; x < n; ++x)
        if (x != p && x != q && stamp[triple(x, p, q)] == round) to_p.emplace_back(x, word_from(x, p, q));
      if (to_p.empty()) continue;
      search(p, q, q);
      for (auto& [x, u] : to_p)
        if (stamp[triple(x, p, q)] == round) return {true, BarrierPattern{x, p, q, u, word_from(x, p, q)}};
    }
  return {true, std::nullopt};
}

}  // namespace signet::automata
