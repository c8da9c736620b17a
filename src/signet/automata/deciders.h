// Properties of an automaton that its transition structure decides in polynomial time, without the monoid.
// They speak of the transition monoid T of the automaton as given; apply them to the minimal one for facts
// about a language.
#pragma once

#include <optional>
#include <vector>

#include "signet/automata/dfa.h"

namespace signet::automata {

// States on the cycles of a letter, cycle by cycle.
std::vector<State> recurrent_states(const Dfa& dfa, Letter letter);

bool is_group(const Dfa& dfa);        // every letter is a permutation
bool is_commutative(const Dfa& dfa);  // letters commute

// Definite: the state depends on the last k letters only; the least such k, or nullopt. Found by merging
// states that have equal rows, again and again, until one state is left (Perles, Rabin and Shamir 1963).
std::optional<int32_t> definite_window(const Dfa& dfa);
// Reverse definite: the first k letters decide; the least such k. Every cycle is a loop on an absorbing
// state.
std::optional<int32_t> reverse_definite_window(const Dfa& dfa);

bool is_r_trivial(const Dfa& dfa);  // every cycle is a loop
// R-trivial and locally confluent: q a and q b meet under some word over {a, b} (Klima and Polak 2013). O(n^2
// letters^2); nullopt where that is too much.
std::optional<bool> is_j_trivial(const Dfa& dfa);

bool letters_partial_injections(const Dfa& dfa);      // off one absorbing state; permutations count
bool letters_permutations_or_resets(const Dfa& dfa);  // every letter is a permutation or constant

// The forbidden pattern of the one-layer barrier (docs/theory.md): states x, p != q and words u: (x,p,q) ->
// (p,p,q), v: (x,p,q) -> (q,p,q). It exists exactly if two distinct idempotents of T have the same image.
struct BarrierPattern {
  State x, p, q;
  std::vector<Letter> u, v;
};
struct BarrierSearch {
  bool complete;  // false: the budget ran out before the answer was certain
  std::optional<BarrierPattern> pattern;
};
BarrierSearch find_barrier_pattern(const Dfa& dfa, int64_t budget = 100'000'000);

}  // namespace signet::automata
