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
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/automata/limits.h"
#include "signet/automata/numbering.h"

namespace signet::automata {

class EliminationCascade {
 public:
  using Code = std::vector<State>;  // e_1 .. e_{n-1}

  // One table row: what a level does in a context.
  struct Row {
    int32_t old_set, new_set;  // see members()
    Letter letter;
    State reset;  // the new element, or -1: it moves, e -> e s
    bool moves() const { return reset < 0; }
  };

  explicit EliminationCascade(const Dfa& dfa);

  int32_t levels() const { return n_ - 1; }
  const Dfa& dfa() const { return dfa_; }
  // The code of the start state: the others in increasing order.
  Code start() const;
  State decode(const Code& code) const;
  // The code after `letter`. Contexts met on the way are tabulated.
  Code step(const Code& code, Letter letter) { return step(code, letter, 0); }

  // Contexts met so far with their actions, in the order they were met.
  const std::vector<Row>& rows(int32_t level) const { return rows_[static_cast<size_t>(level)]; }
  std::vector<State> members(int32_t set) const;  // in increasing order

  // Meets every context of every code reachable from the start. False, with tables as far as they go, when
  // there are more than `max_codes` codes, or when these, their contexts and their sets of states take more
  // than `max_table` numbers of four bytes.
  bool explore(int64_t max_codes, int64_t max_table = INT64_MAX);
  int64_t codes_explored() const { return codes_explored_; }

 private:
  // A subset of Q that loses elements; its hash is the sum of its elements' keys.
  struct Shrinking {
    std::vector<uint64_t> words;
    uint64_t hash;
  };

  // Rows above `first_new` are known to be tabulated already.
  Code step(const Code& code, Letter letter, size_t first_new);
  Shrinking whole() const;
  void remove(Shrinking& set, State q) const;
  int32_t set_number(const Shrinking& set);
  void tabulate(size_t level, const Row& row);

  Dfa dfa_;
  State n_;
  std::vector<uint64_t> keys_;  // per state
  std::vector<uint64_t> sets_;  // words of the sets that contexts name, one after the other
  Numbering set_numbers_;
  std::vector<Numbering> row_numbers_;  // per level
  std::vector<std::vector<Row>> rows_;  // per level
  int64_t contexts_ = 0;                // rows of all levels
  int64_t codes_explored_ = 0;
};

}  // namespace signet::automata
