// Random words for tasks over automata, letter by letter in constant time, at any length.
#pragma once

#include <cstdint>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/base/rng.h"

namespace signet::tasks {

// Words whose prefixes are in the language about as often as not. Uniform letters where they already give
// between a quarter and three quarters of positive prefixes. Otherwise the walk takes turns (of eight letters
// or more on average): it goes where it likes, or by a shortest way to a state inside the language and stays
// near, or outside. It keeps out of states from which only one of the two can still be reached, in half of
// the words for ever; in the other half from a uniform position of the first half on it heads for the label
// it does not have, by whatever way. In a quarter of those the letter at that position is any, so that every
// transition occurs: of (ab)+ no other word begins with b. What the language itself forbids (a finite one
// has few positive prefixes) cannot be balanced.
class BalancedWalk {
 public:
  explicit BalancedWalk(const automata::Dfa& dfa);

  bool uniform() const { return uniform_; }
  void fill(Rng& rng, int64_t length, int32_t* letters) const;

 private:
  struct Choices {  // letters per state
    std::vector<int32_t> begin = {0}, letters;
    // The next state's: those of its letters whose target is wanted.
    template <class Wanted>
    void add(const std::vector<int32_t>& row, const Wanted& wanted) {
      for (size_t a = 0; a < row.size(); ++a)
        if (wanted(row[a])) letters.push_back(static_cast<int32_t>(a));
      begin.push_back(static_cast<int32_t>(letters.size()));
    }
    int32_t draw(Rng& rng, int32_t state) const {
      const auto count = static_cast<uint32_t>(begin[state + 1] - begin[state]);
      return letters[begin[state] + (count == 1 ? 0 : static_cast<int32_t>(rng.below(count)))];
    }
  };
  bool uniform_walk_is_balanced(const automata::Dfa& dfa) const;

  int32_t letters_ = 0, start_ = 0;
  std::vector<int32_t> delta_;  // [state, letter]
  std::vector<bool> accept_;
  std::vector<bool> open_;  // both labels can still be reached
  // Letters that stay open; of those, the nearest to a label; of all, the nearest to a label.
  Choices keep_, towards_[2], straight_[2];
  uint32_t turn_ = 8;  // letters, on average
  bool uniform_ = true;
};

// Words of the language of an exact length: at each position uniform among the letters after which a word of
// that length can still be completed. For automata of a few states.
class LanguageWalk {
 public:
  // Throws kBadInput when the lengths of the language repeat only after thousands of letters.
  explicit LanguageWalk(const automata::Dfa& dfa);

  bool has(int64_t length) const { return completes(length, start_); }
  // The length nearest to `length` in [low, high] that has words; 0 when there is none.
  int64_t nearest(int64_t length, int64_t low, int64_t high) const;
  void fill(Rng& rng, int64_t length, int32_t* letters) const;

 private:
  // Whether some word of `length` letters leads from the state into the language.
  bool completes(int64_t length, int32_t state) const {
    const auto rows = static_cast<int64_t>(completes_.size());
    if (length >= rows) length = rows - period_ + (length - rows) % period_;
    return completes_[length][state];
  }

  int32_t letters_ = 0, start_ = 0;
  std::vector<std::vector<int32_t>> delta_;
  std::vector<std::vector<bool>> completes_;  // by length; the last `period_` rows repeat for ever
  int64_t period_ = 1;
};

}  // namespace signet::tasks
