// What a letter does to the state of each head of a network: the transition itself, as a matrix and an
// offset. Of a compiled network they are its weights, of a trained one they are found by trying it on a
// basis. docs/check.md.
#pragma once

#include <string>
#include <vector>

#include "signet/analysis/subject.h"
#include "signet/theory/gate_check.h"

namespace signet::analysis {

// x -> matrix x + offset, of all numbers of a part.
struct Affine {
  theory::Matrix matrix;
  theory::Vector offset;
  bool linear = true;  // a random state is led where matrix and offset lead it
};

// What `word` does to each part of a layer (of tensor 0, at most `largest` numbers) that begins at `offset`
// of the state, with everything else as in `state`. Unit vectors are tried with length `scale`, or
// with that of what the word adds where it is much larger.
struct PartTransition {
  theory::StatePart part;
  int64_t offset = 0;
  Affine map;
};
std::vector<PartTransition> layer_transitions(theory::Recogniser& network, const std::vector<double>& state,
                                              size_t layer, const Word& word, int64_t largest,
                                              double scale = 1);

// Numbers that some of the matrices mix: sets, in order of their first members.
std::vector<std::vector<int64_t>> mixed_numbers(const std::vector<const theory::Matrix*>& matrices,
                                                int64_t size);
theory::Matrix submatrix(const theory::Matrix& m, const std::vector<int64_t>& numbers);

struct HeadTransitions {
  theory::StatePart part;
  // Whether letters act linearly on its state, whatever that of the layer's other heads; if not, `gates` are
  // their derivatives at the start.
  bool linear = true;
  // Columns of a trained head's state that letters treat alike; `gates` are of the first.
  int64_t copies = 1;
  // One per letter, at the start of a word; what letters do after others with them. Of norm 1 where the
  // direction of the state is all that is read.
  theory::GateSet gates;
};

inline constexpr int64_t kLargestHead = 1024;

// Heads of more than `largest` numbers are left out. A letter's gate may depend on the word before it: on
// what the layers above tell, or on the memory of a convolution. Of a compiled network these other gates are
// all those that the head has, of a trained one those after some of its words. Throws kBadInput of a network
// without a recurrence.
std::vector<HeadTransitions> head_transitions(Subject& subject, int64_t largest = kLargestHead);

}  // namespace signet::analysis
