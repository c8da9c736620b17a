// What a letter does to the state of each head of a network: the transition itself, as a matrix and an
// offset, found by trying it on a basis. docs/check.md.
#pragma once

#include <string>
#include <vector>

#include "signet/analysis/subject.h"
#include "signet/theory/gate_check.h"

namespace signet::analysis {

struct HeadTransitions {
  theory::StatePart part;
  // Whether letters act linearly on its state; if not, `gates` are their derivatives at the start.
  bool linear = true;
  int64_t copies = 1;     // columns of the state that letters treat alike; `gates` are of the first
  theory::GateSet gates;  // one per letter
};

// Heads of more than `largest` numbers are left out. Of later layers: with the layers before them at the
// start of a word.
std::vector<HeadTransitions> head_transitions(Subject& subject, int64_t largest = 1024);

}  // namespace signet::analysis
