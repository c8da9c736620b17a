// The cascade of a DFA with n states by elimination: n-1 levels for any automaton, without its monoid.
//
// The current state q is coded by an ordering of the others: level j = 1..n-1 removes the element e_j from
// P_1 = Q, P_{j+1} = P_j \ {e_j}; what remains in P_n is {q}. Under a letter s, let P = P_j be the old set
// and P' = P'_j the new one; both are known from the levels above, and P s lies inside P'.
//   s injective on P:  e'_j = e_j s      the level moves its element (a partial permutation)
//   otherwise:         e'_j = min(P' \ P s)   the level is reset
// Then P_{j+1} s lies inside P'_{j+1} again. A level's context is (P, P', s); its action is one table row.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/automata/limits.h"

namespace signet::automata {

class EliminationCascade {
 public:
  using Set = std::vector<State>;  // sorted

  struct Action {
    bool moves;   // e -> e s, or reset
    State reset;  // the new element when it does not move; -1 otherwise
  };
  struct Context {
    int32_t old_set, new_set;  // indices into sets()
    Letter letter;
    bool operator<(const Context& other) const {
      if (old_set != other.old_set) return old_set < other.old_set;
      return new_set != other.new_set ? new_set < other.new_set : letter < other.letter;
    }
  };
  using Code = std::vector<State>;  // e_1 .. e_{n-1}

  // Throws kBadInput for n > kMaxStates: codes and sets take O(n^2) a step.
  explicit EliminationCascade(const Dfa& dfa);
  static constexpr State kMaxStates = 512;

  int32_t levels() const { return n_ - 1; }
  const Dfa& dfa() const { return dfa_; }
  // The code of the start state: the others in increasing order.
  Code start() const;
  State decode(const Code& code) const;
  // The code after `letter`. Contexts met on the way are tabulated.
  Code step(const Code& code, Letter letter);

  // What step() does at `level` (0-based) in a context given by sets; P' must contain P s.
  Action action(const Set& old_set, const Set& new_set, Letter letter) const;

  // Contexts met so far, per level, with their actions.
  const std::map<Context, Action>& contexts(int32_t level) const { return contexts_[level]; }
  const std::vector<Set>& sets() const { return sets_; }

  // Meets every context of every code reachable from the start. False, with tables as far as they go, when
  // there are more than `max_codes` codes.
  bool explore(int64_t max_codes);
  int64_t codes_explored() const { return codes_explored_; }

 private:
  int32_t set_index(const Set& set);

  Dfa dfa_;
  State n_;
  std::vector<std::map<Context, Action>> contexts_;
  std::vector<Set> sets_;
  std::map<Set, int32_t> set_index_;
  int64_t codes_explored_ = 0;
};

}  // namespace signet::automata
