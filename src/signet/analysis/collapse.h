// When does a network forget? Two words that it tells apart go on with u, u^2, u^3, ...: after how many
// repetitions of u their states merge, as predicted from what u does to the state, and as run.
// docs/collapse.md.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "signet/analysis/subject.h"

namespace signet::analysis {

// One head. Repetitions after which its numbers no longer change, nor differ by more than rounding.
struct PartCollapse {
  theory::StatePart part;
  bool linear = true;                // and not read for its direction alone; else nothing is predicted
  double rate = 0;                   // largest modulus of an eigenvalue of u that is below 1
  int64_t kept = 0;                  // eigenvalues of modulus 1
  std::optional<int64_t> predicted;  // none: not linear, it drifts, or its limits differ
  double apart = 0;                  // of the limits, in real numbers
  bool drifts = false;               // u adds to a number that it keeps: no limit
};

// What is seen after so many repetitions.
struct CollapsePoint {
  int64_t repetitions = 0;
  std::optional<double> measured, predicted;  // largest difference of the two states
};

struct Collapse {
  // The same bits; bits that repeat themselves, apart; different, but by rounding alone; none of it yet.
  enum class End { kMerged, kStill, kRounding, kOpen };

  Word word, first, second;    // u, and the witnesses
  std::vector<Word> suffixes;  // after u^n they are asked about both words; one that tells them apart leads
  bool told_apart = false;     // after one u

  std::vector<PartCollapse> parts;
  // Repetitions until the states are one or stand still: predicted (none where a head's limits differ), and
  // run.
  std::optional<int64_t> predicted, measured;
  End end = End::kOpen;
  double apart = 0;    // largest difference then
  int64_t period = 0;  // of standing still, in repetitions

  // The least n from which on none of `suffixes` tells the words apart; none: they are told apart at every
  // length looked at, which is every length where the states stand still.
  std::optional<int64_t> forgets_predicted, forgets_measured;
  bool answers_predicted = false;  // at every length: where forgets_predicted is none, they stay apart
  // A word prefix u^n suffix that the network then answers wrongly, by its automaton.
  struct Wrong {
    Word prefix;
    int64_t repetitions = 0;
    Word suffix;
  };
  std::optional<Wrong> wrong;
  int64_t looked_at = 0;  // repetitions run

  // Whether prediction and run agree, within a factor of two. None where there is nothing to compare: no
  // prediction, or a run that did not go far enough.
  std::optional<bool> states_agree() const, answers_agree() const;

  std::vector<CollapsePoint> points;
};

struct CollapseOptions {
  Word word;
  std::optional<std::pair<Word, Word>> witnesses;  // chosen where not given
  int64_t limit = 1'000'000;                       // letters
};

// Throws kBadInput where no word of the network's task repeats `word`, or the witnesses cannot come before
// it, and of a network without a recurrence.
Collapse collapse(Subject& subject, const CollapseOptions& options);

}  // namespace signet::analysis
