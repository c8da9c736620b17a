// Compiled automata as safetensors files (docs/compile.md has the layout): the parameters of every block and
// the tables as tensors, the automaton with them, the structure as JSON in the metadata. A file may come from
// anywhere: sizes are bounded, every index is checked, and nothing is trusted before that.
#pragma once

#include <string>

#include "signet/theory/network.h"

namespace signet::theory {

void save_network(const std::string& path, const Network& network);

// Throws kBadInput naming the file and what is wrong with it.
Network load_network(const std::string& path);

}  // namespace signet::theory
