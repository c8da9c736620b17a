// How much may be wrong before a network's answers are? Whether its states gather in components, the gap
// between them, and the disturbances of states, inputs and weights that change an answer: those that are
// proved harmless (compiled networks, and trained ones made exact in place) and the smallest harmful ones
// that a search finds. docs/robust.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "signet/analysis/extract.h"
#include "signet/theory/robustness.h"

namespace signet::analysis {

// The smallest disturbance found that changes an answer, and where.
struct Disturbance {
  std::optional<double> least;  // none: nothing that was tried changes one
  double tried = 0;             // the largest
  int64_t searched = 0;         // directions
  Word prefix;                  // of states: the word before it
  Letter letter = -1;  // of states: after which the first answer differs; of inputs: the letter disturbed
};

struct Robustness {
  // What the states reached look like.
  bool gathers = false;  // in components with a gap between them
  bool proved_finite =
      false;  // all words lead to these components, proved; else seen on words of training length
  int64_t components = 0;
  double gap = 0, within = 0;  // least distance of two components; longest way from state to state inside one
  std::vector<PartComponents> parts;
  std::string reason;  // why they do not gather, or why nothing is proved

  // Of a compiled network; of a trained one that can be crystallised in place, of the exact network then.
  std::optional<theory::NetworkRobustness> proved;
  bool of_crystal = false;
  Disturbance state;                 // 2-norm over all heads
  std::optional<Disturbance> input;  // of a trained network: 2-norm of what is added to a letter's embedding
  Disturbance
      weights;  // compiled: each weight by so much; trained: by so much of its tensor's root mean square
  int64_t length = 0;  // of the words on which weights are tried

  // States reached, for a picture: along their two principal axes, with the component of each, or its answer
  // where states do not gather.
  struct Seen {
    double x = 0, y = 0;
    int32_t component = 0;
  };
  std::vector<Seen> seen;
};

struct RobustOptions {
  int64_t length = 0;             // of words for the weights; 0: the training length
  int64_t most_states = 200'000;  // of the proof
};

// Throws kBadInput of a network without a recurrence.
Robustness robustness(Subject& subject, const RobustOptions& options = {});

}  // namespace signet::analysis
