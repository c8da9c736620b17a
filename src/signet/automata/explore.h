// A Mealy machine from what it does: states are lists of numbers, found from the first one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "signet/automata/dfa.h"

namespace signet::automata {

struct Transition {
  std::vector<int32_t> state;
  int32_t output;
};

// The minimal machine. `step` must reach finitely many states.
Dfa explore(std::vector<std::string> alphabet, std::vector<int32_t> start,
            const std::function<Transition(const std::vector<int32_t>&, Letter)>& step);

}  // namespace signet::automata
