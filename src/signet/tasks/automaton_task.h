// Any automaton as a task: read letters, say at every position whether the word so far is in the language (or
// the output, of a Mealy machine), or which state it leads to. Ids: 0 pad, then the letters in order;
// classes: 0 no and 1 yes (or the outputs, ascending), or the states. Words: BalancedWalk of word_walk.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "signet/tasks/task.h"

namespace signet::tasks {

struct AutomatonSpec {
  std::string regex, alphabet;    // an expression; its letters when no alphabet is given
  std::string dfa;                // or the JSON of docs/automata.md
  std::string targets = "label";  // or "state"
};

inline constexpr int64_t kMaxDfaBytes = 1 << 19;  // so that it fits into a configuration

// For people, different for different tasks: the expression, with its alphabet where it does not imply it, or
// what kind of automaton it is and a part of its hash.
std::string automaton_title(const AutomatonSpec& spec);

// Throws kBadInput that says what is wrong with the automaton, or that it is too large for a task.
std::unique_ptr<Task> make_automaton_task(const AutomatonSpec& spec);

}  // namespace signet::tasks
