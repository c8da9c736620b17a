// The verdict of each class of networks, from the facts of an automaton.
#pragma once

#include <optional>
#include <vector>

#include "signet/automata/binary_code.h"
#include "signet/automata/skeleton.h"
#include "signet/theory/verdict.h"

namespace signet::theory {

std::vector<Verdict> class_verdicts(const automata::Dfa& dfa, const Facts& facts,
                                    const std::optional<automata::BinaryCode>& code,
                                    const automata::Skeleton* skeleton);

}  // namespace signet::theory
