// The minimal automaton of a language or Mealy machine, numbered canonically: breadth first from the start,
// letters in alphabet order. Two automata over the same alphabet do the same exactly if their minimal forms
// are equal member by member.
#pragma once

#include "signet/automata/dfa.h"

namespace signet::automata {

// Throws kBadInput when a member of `dfa` is out of range or sizes disagree.
void validate(const Dfa& dfa);

// States reachable from the start, in canonical order.
Dfa reachable_part(const Dfa& dfa);

// Hopcroft's partition refinement, O(letters * n log n).
Dfa minimize(const Dfa& dfa);

bool equivalent(const Dfa& a, const Dfa& b);

}  // namespace signet::automata
