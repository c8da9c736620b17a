// Words that show why a language is out of reach.
#pragma once

#include <functional>
#include <optional>

#include "signet/automata/skeleton.h"
#include "signet/theory/verdict.h"

namespace signet::theory {

// A word under which some states form a cycle whose length satisfies `wanted`; short words first, then the
// generators of the skeleton's groups and products of them.
std::optional<Witness> find_cycle(const automata::Dfa& dfa, const automata::Skeleton* skeleton,
                                  const std::function<bool(int64_t)>& wanted);

// A set of states on which words act as a group that is not solvable.
std::optional<Witness> find_unsolvable(const automata::Dfa& dfa, const automata::Skeleton& skeleton);

// Two states that some word brings back to themselves: the past is remembered for ever, so no last k letters
// decide.
std::optional<Witness> find_recurrent_pair(const automata::Dfa& dfa);

}  // namespace signet::theory
