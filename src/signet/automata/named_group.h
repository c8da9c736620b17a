// Groups by name, with generators as letters.
//
//   Sn An Zn (Cn) Dn (order 2n) Dicn Q8 V4
//   F20 F21 ..       Fk: k = p d with d | p - 1, Z_p with a d-cycle of automorphisms
//   SL(2,p) GL(2,p) PSL(2,p) PGL(2,p)
//   S3xZ2, Z2wrS3    products, wreath products
//
// The automaton of a group has its elements as states and a generator per letter, acting by right
// multiplication, so that after w = s1 s2 .. sk the state is s1 s2 .. sk (leftmost first); start and only
// accepting state: the identity. The word problem, in other words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/automata/limits.h"
#include "signet/automata/permutation.h"

namespace signet::automata {

struct NamedGroup {
  std::string name;
  int32_t degree = 0;                   // of the natural action below
  std::vector<Permutation> generators;  // one per letter
  std::vector<std::string> letters;     // generators in cycle notation; numbers for Zn
};

// Letters by `generators`: "standard" (few), "swaps" (every transposition of the natural action), "adjacent"
// (swaps of neighbours), "3cycles" (every 3-cycle), "all" (every element, identity first). Throws kBadInput
// for an unknown name, a group without such generators, or one beyond the limits.
NamedGroup named_group(std::string_view name, std::string_view generators = "standard",
                       const Limits& limits = {});

const std::vector<std::string>& generator_sets();

struct GroupAutomaton {
  Dfa dfa;                            // minimal, canonical
  std::vector<Permutation> elements;  // per state, in the natural action
};
GroupAutomaton word_problem(const NamedGroup& group, const Limits& limits = {});

// The natural action as a machine: states are the points reachable from 0, each letter moves the point; the
// output of a transition is the new point.
Dfa natural_action(const NamedGroup& group);

}  // namespace signet::automata
