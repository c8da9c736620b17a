// A Mealy machine from questions alone: L* (Angluin, 1987) with the analysis of counterexamples of Rivest and
// Schapire (1993). For networks whose states do not gather.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "signet/analysis/subject.h"

namespace signet::analysis {

inline constexpr int32_t kNotAsked = -2;  // words that nobody asks about, and letters after which none does

// Answers of a network to whole words, remembered.
class Oracle {
 public:
  Oracle(theory::Recogniser& network, const Words& words) : network_(network), words_(words) {}
  // The answer after the last letter of each word; kNotAsked of words that are not asked about.
  std::vector<int32_t> answers(const std::vector<Word>& words);
  int64_t asked() const { return static_cast<int64_t>(known_.size()); }

 private:
  bool allowed(const Word& word) const;
  theory::Recogniser& network_;
  const Words& words_;
  std::map<Word, int32_t> known_;
};

struct QueryOptions {
  int32_t most_states = 256;
  int64_t most_words = 200'000;
  int64_t tests = 256;  // random words of training length per hypothesis, and more for one that looks right
};

// The machine that agrees with the network on all test words. Where the limits are reached without one (a
// network that is now and then wrong is no small automaton), the smallest machine met on the way that errs on
// at most one answer in a thousand, or at most three times as often as the best: up to the right one every
// state helps much, beyond it hardly any.
// None where the first is too large. Minimal; outputs of letters that are not asked about are 0.
std::optional<automata::Dfa> learn_by_queries(theory::Recogniser& network, const Words& words,
                                              const QueryOptions& options, int64_t* asked = nullptr);

}  // namespace signet::analysis
