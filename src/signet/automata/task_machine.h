// The training tasks that a finite automaton solves, as Mealy machines over their input tokens: the output of
// the last transition of a sample is its target. Outputs elsewhere are what the task would ask if the sample
// ended there, 0 where it cannot.
#pragma once

#include <string_view>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/automata/limits.h"

namespace signet::automata {

// For help: names, and patterns of names.
const std::vector<std::string>& task_machine_names();

// The minimal machine; letters are the task's names of its input tokens, in order of their ids, without what
// every row begins with. A language is returned as such, the others as Mealy machines. Throws kBadInput for a
// task that is unknown, not finite-state, or a language beyond the limits.
Dfa task_machine(std::string_view task, const Limits& limits = {});

}  // namespace signet::automata
