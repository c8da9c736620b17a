// How large a head must be that tracks an automaton in one layer and whose answers a linear map reads. A
// compiled layer may decode its state by a table, which a trained block without an MLP has not: S4 on four
// points has a representation of three numbers and two reflections a letter, but no linear function of it
// tells whether a point is at its place (docs/train.md).
#pragma once

#include <cstdint>
#include <optional>

#include "signet/automata/dfa.h"
#include "signet/theory/network.h"

namespace signet::analysis {

struct HeadShape {
  int64_t dim = 0, factors = 0;  // numbers, and Householder factors a letter
};

// Of the smallest exact layer found for the automaton; of its one-hot code where the smaller one is not read
// by a linear map. None where no exact layer is known.
std::optional<HeadShape> exact_layer_shape(const automata::Dfa& automaton);

// Whether a linear function of what the layer can hold (its state, and the products of its letters' matrices,
// which are the states of other starts) and the letter decide the automaton's answer. True where the layer is
// too large to ask.
bool reads_linearly(const theory::Network& one_layer);

}  // namespace signet::analysis
