// How much may be wrong with a compiled network before its answers are: disturbances of its states, of what
// it writes and of its weights, with bounds that are proved (docs/theory.md, section 7). Sizes are 2-norms of
// one block's state; every block may be disturbed by as much at the same time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "signet/base/rounding.h"
#include "signet/theory/network.h"

namespace signet::theory {

// In the type's parameters. Of the bounds those without "in_type" are for exact arithmetic.
struct BlockRobustness {
  size_t layer = 0, block = 0;
  double gap = 0;       // least distance of two code words; 0 with but one
  bool finite = false;  // undisturbed states stay near their code words for ever
  // Any one state may be moved by this, at any time, and every answer after it is right.
  double once = 0;
  // Every state may be moved by this after every letter: the block is robust where it is not 0.
  double every = 0;
  double inputs = 0;         // each number that a letter adds may be off by this, at every letter
  double rounding = 0;       // the most that a step adds by rounding in the type
  double every_in_type = 0;  // what is left of `every`: not 0 where the block is strongly robust in the type
  // Each weight may be off by this: for ever, and for words of so many letters as were asked for.
  double weights = 0, weights_for_length = 0;
  // Where it is weakest: a code word and a context that keep (growth 1 or more) or contract least.
  int32_t code = -1, context = -1;
  double growth = 0;
};

struct NetworkRobustness {
  std::vector<BlockRobustness> blocks;
  size_t weakest = 0;  // the block of the least `every`, then of the least `once`
  // A state of the automaton and a letter that lead to the weakest block's code word and context.
  automata::State state = 0;
  automata::Letter letter = 0;
  int64_t tuples = 0;  // of code words reached: the components
  bool finite() const {
    return std::all_of(blocks.begin(), blocks.end(), [](const auto& block) { return block.finite; });
  }
};

// None where the states do not stay near code words, so that nothing is known; `reason` then says why. Looks
// at `max_states` tuples of code words at most; `length` is for weights_for_length.
std::optional<NetworkRobustness> network_robustness(const Network& network, NumberType type, int64_t length,
                                                    int64_t max_states, std::string* reason);

}  // namespace signet::theory
