// Theorem 4 with linear depth and with its gap closed: the elimination cascade of automata/
// elimination_cascade.h as n-1 layers of dimension 2n whose gates are partial permutations.
//
// Layer j holds e_j as a one-hot vector in coordinates 0..n-1 (new) and, from its last reset, the element it
// had before in n..2n-1 (old). A letter that moves P injectively permutes the new half and leaves the old one
// alone; the old e_j is then the one preimage of the new. A reset copies new to old and writes r: the gate
// [[0,0],[I,0]] with input (r, 0), a partial permutation as well. So (P, P', s) of the next layer, which
// needs both the old and the new e_j, can be read off this layer's state. The trail is (P, P', s).
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <map>
#include <unordered_map>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/theory/compile_parts.h"

namespace signet::theory {

using automata::Dfa;
using automata::Letter;
using automata::State;

namespace {

using Set = uint64_t;

struct EliminationTrail {
  Set old_set, new_set;
  Letter letter;
  bool operator==(const EliminationTrail&) const = default;
};
struct EliminationTrailHash {
  size_t operator()(const EliminationTrail& t) const {
    uint64_t h = t.old_set * 0x9E3779B97F4A7C15u;
    h = (h ^ (h >> 31) ^ t.new_set) * 0xBF58476D1CE4E5B9u;
    return (h ^ (h >> 29) ^ static_cast<uint64_t>(t.letter)) * 0x94D049BB133111EBu >> 7;
  }
};

class Elimination {
 public:
  Elimination(const Dfa& dfa, int64_t max_table) : dfa_(dfa), n_(dfa.states()), max_table_(max_table) {}

  Network build() {
    network_.dfa = dfa_;
    network_.construction =
        fmt::format("elimination cascade: {} for {}", count_of(n_ - 1, "layer"), count_of(n_, "state"));
    const Set all = n_ == 64 ? ~Set{0} : (Set{1} << n_) - 1;
    std::vector<EliminationTrail> trails;
    for (Letter s = 0; s < dfa_.letters(); ++s) trails.push_back({all, all, s});
    Set start_set = all;
    for (State j = 0; j + 1 < n_; ++j) {
      // The start state is coded by the others in increasing order.
      const State first = j < dfa_.start ? j : j + 1;
      trails = add_layer(trails, start_set, first, j + 2 == n_);
      start_set &= ~(Set{1} << first);
    }
    answers_.store(network_);
    return std::move(network_);
  }

 private:
  struct Action {
    bool moves;
    State reset;
  };

  Action action(const EliminationTrail& t) const {
    Set image = 0;
    bool injective = true;
    for (Set rest = t.old_set; rest; rest &= rest - 1) {
      const Set target = Set{1} << dfa_.delta[std::countr_zero(rest)][t.letter];
      injective &= !(image & target);
      image |= target;
    }
    return injective ? Action{true, -1}
                     : Action{false, static_cast<State>(std::countr_zero(t.new_set & ~image))};
  }

  // A permutation of the new half that agrees with the letter on P: the letter on a transversal of its kernel
  // that contains P, its paths closed. Coordinates outside P hold nothing, so any completion serves, and few
  // different ones arise.
  int32_t move_context(Block& block, const EliminationTrail& t) {
    std::vector<int32_t> target(static_cast<size_t>(n_), -1), source = target;
    const auto take = [&](State q) {
      const State to = dfa_.delta[q][t.letter];
      if (source[to] >= 0) return;
      target[q] = to;
      source[to] = q;
    };
    for (State q = 0; q < n_; ++q)
      if (t.old_set >> q & 1) take(q);
    for (State q = 0; q < n_; ++q)
      if (target[q] < 0) take(q);
    for (State q = 0; q < n_; ++q) {  // q starts a path: lead its end back to q
      if (source[q] >= 0) continue;
      State end = q;
      while (target[end] >= 0) end = target[end];
      target[end] = q;
      source[q] = end;
    }
    for (State q = 0; q < n_; ++q) target.push_back(n_ + q);  // old slots stay
    const auto [it, fresh] = moves_.emplace(target, block.contexts);
    if (fresh) add_householder_context(block, factor_partial_permutation({target, {}, {}}));
    return it->second;
  }

  int32_t reset_context(Block& block, State to) {
    const auto [it, fresh] = resets_.emplace(to, block.contexts);
    if (fresh) {
      SignedPartialPermutation m;
      for (State q = 0; q < n_; ++q) m.target.push_back(n_ + q);
      m.target.resize(static_cast<size_t>(n_) * 2, -1);
      m.write.assign(static_cast<size_t>(n_) * 2, 0.0);
      m.write[to] = 1;
      add_householder_context(block, factor_partial_permutation(m));
    }
    return it->second;
  }

  // The elements e_j that occur together with each set P_j, from the start and closed under all trails.
  std::unordered_map<Set, Set> reachable(const std::vector<EliminationTrail>& trails,
                                         const std::vector<Action>& actions, Set start_set,
                                         State first) const {
    std::unordered_map<Set, std::vector<size_t>> by_set;
    for (size_t i = 0; i < trails.size(); ++i) by_set[trails[i].old_set].push_back(i);
    std::unordered_map<Set, Set> elements;
    std::vector<std::pair<Set, State>> queue = {{start_set, first}};
    elements[start_set] = Set{1} << first;
    for (size_t i = 0; i < queue.size(); ++i) {
      const auto [set, e] = queue[i];
      const auto it = by_set.find(set);
      if (it == by_set.end()) continue;
      for (size_t index : it->second) {
        const State to = actions[index].moves ? dfa_.delta[e][trails[index].letter] : actions[index].reset;
        Set& known = elements[trails[index].new_set];
        if (known >> to & 1) continue;
        known |= Set{1} << to;
        queue.emplace_back(trails[index].new_set, to);
      }
    }
    return elements;
  }

  std::vector<EliminationTrail> add_layer(const std::vector<EliminationTrail>& trails, Set start_set,
                                          State first, bool last) {
    std::vector<Action> actions;
    for (const EliminationTrail& t : trails) actions.push_back(action(t));
    const auto elements = reachable(trails, actions, start_set, first);
    Layer layer;
    layer.blocks.emplace_back();
    Block& block = layer.blocks[0];
    block.kind = BlockKind::kHouseholder;
    block.dim = 2 * n_;
    moves_.clear();
    resets_.clear();
    // Codes: new element, old element or none.
    const int64_t codes = static_cast<int64_t>(n_) * (n_ + 1);
    for (State e = 0; e < n_; ++e)
      for (State old = -1; old < n_; ++old) {
        std::vector<double> code(static_cast<size_t>(n_) * 2, 0.0);
        code[e] = 1;
        if (old >= 0) code[n_ + old] = 1;
        block.codes.insert(block.codes.end(), code.begin(), code.end());
        if (e == first && old < 0) block.initial = code;
      }
    layer.trails = layer.rows = static_cast<int32_t>(trails.size());
    table_ += codes * layer.rows;
    if (table_ > max_table_)
      bad_input(
          "the cascade of this automaton with {} states needs tables of more than {} entries; raise "
          "--max-table, or compile to one-hot",
          n_, max_table_);
    layer.next.assign(static_cast<size_t>(codes * layer.rows), -1);

    std::vector<EliminationTrail> below;
    std::unordered_map<EliminationTrail, int32_t, EliminationTrailHash> index;
    for (size_t i = 0; i < trails.size(); ++i) {
      const EliminationTrail& t = trails[i];
      layer.row.push_back(static_cast<int32_t>(i));
      layer.context.push_back(actions[i].moves ? move_context(block, t)
                                               : reset_context(block, actions[i].reset));
      const auto found = elements.find(t.old_set);
      const Set occurring = found == elements.end() ? 0 : found->second;
      for (Set rest = occurring; rest; rest &= rest - 1) {
        const State e = std::countr_zero(rest);
        const State to = actions[i].moves ? dfa_.delta[e][t.letter] : actions[i].reset;
        const EliminationTrail next = {t.old_set & ~(Set{1} << e), t.new_set & ~(Set{1} << to), t.letter};
        int32_t id;
        if (last) {
          id = answers_.answer(std::countr_zero(next.new_set), t.letter);
        } else {
          const auto [it, fresh] = index.emplace(next, static_cast<int32_t>(below.size()));
          if (fresh) below.push_back(next);
          id = it->second;
        }
        int32_t* row =
            layer.next.data() + static_cast<int64_t>(i) * codes + static_cast<int64_t>(to) * (n_ + 1);
        if (actions[i].moves) {
          std::fill(row, row + n_ + 1, id);
        } else {
          row[e + 1] = id;
        }
      }
    }
    finish_householder(block);
    network_.layers.push_back(std::move(layer));
    return below;
  }

  const Dfa& dfa_;
  const State n_;
  const int64_t max_table_;
  int64_t table_ = 0;
  Network network_;
  Answers answers_{dfa_};
  std::map<std::vector<int32_t>, int32_t> moves_;
  std::map<State, int32_t> resets_;
};

}  // namespace

Network compile_elimination(const Dfa& dfa, int64_t max_table) {
  if (dfa.states() > kMaxEliminationStates)
    bad_input(
        "the elimination cascade is compiled for at most {} states; this automaton has {}: use "
        "--construction reflections, or compile to one-hot",
        kMaxEliminationStates, dfa.states());
  return Elimination(dfa, max_table).build();
}

}  // namespace signet::theory
