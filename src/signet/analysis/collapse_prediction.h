// Where the states of two words go when a word is repeated, from what the word does to each head.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "signet/analysis/collapse.h"

namespace signet::analysis {

using Numbers = std::vector<double>;       // of a state
using TwoStates = std::array<Numbers, 2>;  // of the two words

class Prediction {
 public:
  virtual ~Prediction() = default;
  virtual bool turns() const = 0;   // some eigenvalue of modulus 1 other than 1: no limit
  virtual bool linear() const = 0;  // every head is
  virtual bool drifts() const = 0;  // some number is kept and added to for ever: no limit
  virtual const std::vector<PartCollapse>& parts() const = 0;
  // Repetitions from the start until both states are one or stand still.
  virtual std::optional<int64_t> repetitions() const = 0;
  // So many repetitions after the start; rounded down to whole steps.
  virtual TwoStates state(int64_t repetitions) const = 0;
};

// So near to 1 an eigenvalue cannot be told from it in this type, and is taken for it.
double taken_for_one(NumberType type);

// From the states `start`; `stride` repetitions are one step.
std::unique_ptr<Prediction> predict_states(Subject& subject, const Word& word, const TwoStates& start,
                                           int64_t stride);

}  // namespace signet::analysis
