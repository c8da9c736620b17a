// Words u v^n w: a network that forgets does so while one thing happens again and again, which random words
// hardly ever do. All short u, v and w are tried, v repeated for a long time, w after 1, 2, 4, 8, .. times.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "signet/automata/dfa.h"

namespace signet::theory {

inline constexpr int64_t kPumpedPiece = 2;  // the most letters of u, v and w

// Where letters lead in an automaton of the words that there are: `after(at, letter)`, -1 where none goes on
// so.
struct PumpedWords {
  using Word = std::vector<automata::Letter>;
  using State = automata::State;
  using After = std::function<State(State at, automata::Letter letter)>;
  std::vector<std::pair<Word, Word>> pairs;  // u, v, where v can be repeated for ever
  std::vector<Word> ends;                    // w
  bool all = true;                           // there are no other short ones

  PumpedWords(State states, automata::Letter letters, State start, After after)
      : start_(start), after_(std::move(after)) {
    constexpr size_t kMostPairs = 512, kMostEnds = 64, kMostWords = 4096;
    std::vector<Word> words = {{}};  // short ones first
    std::vector<std::vector<State>> from(1);
    for (State q = 0; q < states; ++q) from[0].push_back(q);
    for (size_t i = 0; i < words.size() && static_cast<int64_t>(words[i].size()) < kPumpedPiece; ++i) {
      all &= words.size() < kMostWords;
      for (automata::Letter a = 0; a < letters && words.size() < kMostWords; ++a) {
        std::vector<State> to;
        for (const State q : from[i])
          if (const State next = after_(q, a); next >= 0) to.push_back(next);
        if (to.empty()) continue;
        std::sort(to.begin(), to.end());
        to.erase(std::unique(to.begin(), to.end()), to.end());
        words.push_back(words[i]);
        words.back().push_back(a);
        from.push_back(std::move(to));
      }
    }
    all &= words.size() <= kMostEnds + 1;
    for (size_t i = 1; i < std::min(words.size(), kMostEnds + 1); ++i) ends.push_back(words[i]);
    for (int64_t both = 1; both <= 2 * kPumpedPiece; ++both)
      for (const Word& u : words) {
        const State at = after_word(start_, u);
        if (at < 0) continue;
        for (const Word& v : words) {
          if (v.empty() || static_cast<int64_t>(u.size() + v.size()) != both || !repeats(at, v, states))
            continue;
          if (pairs.size() == kMostPairs) {
            all = false;
            return;
          }
          pairs.emplace_back(u, v);
        }
      }
  }

  // After "random words": what else was tried.
  std::string text() const {
    if (pairs.empty()) return "";
    return fmt::format(
        " and words u v^n w (u, v, w of up to {} letters{})", kPumpedPiece,
        all ? "" : fmt::format("; {} of the pairs u, v and {} of the w", pairs.size(), ends.size()));
  }

  // The shortest wrong word found among those of at most `longest` letters; of v about `letters` are fed in
  // all. A stream has reset(), mark() and back() to the mark, and feed(letters, n), which gives the index of
  // the first letter that is answered wrongly.
  template <class Stream>
  std::optional<Word> find_wrong(Stream& stream, int64_t letters, int64_t longest) const {
    std::optional<Word> worst;
    constexpr int64_t kLeast = 1024;
    for (const auto& [u, v] : pairs) {
      const auto size = static_cast<int64_t>(v.size());
      stream.reset();
      Word word;
      const auto wrong = [&](const Word& more) {
        const auto at = stream.feed(more.data(), static_cast<int64_t>(more.size()));
        if (!at) return false;
        const auto length = static_cast<int64_t>(word.size()) + *at + 1;
        if (length <= longest) {
          worst = word;
          worst->insert(worst->end(), more.begin(), more.begin() + *at + 1);
          longest = length - 1;
        }
        return true;
      };
      if (!u.empty() && wrong(u)) continue;
      word = u;
      State at = after_word(start_, u);
      const int64_t most = std::max(kLeast, letters / static_cast<int64_t>(pairs.size())) / size;
      for (int64_t n = 0, next = 1; n < most && static_cast<int64_t>(word.size()) < longest;) {
        Word piece;
        for (; n < next; ++n) piece.insert(piece.end(), v.begin(), v.end());
        if (wrong(piece)) break;
        word.insert(word.end(), piece.begin(), piece.end());
        at = after_word(at, piece);
        stream.mark();
        for (const Word& w : ends) {
          bool goes_on = true;  // only repeats v
          for (size_t i = 0; i < w.size(); ++i) goes_on &= w[i] == v[i % v.size()];
          if (goes_on || after_word(at, w) < 0) continue;
          wrong(w);
          stream.back();
        }
        next = std::min(most, 2 * n);
      }
    }
    return worst;
  }

 private:
  // -1 where a letter may not come.
  State after_word(State at, const Word& word) const {
    for (size_t i = 0; i < word.size() && at >= 0; ++i) at = after_(at, word[i]);
    return at;
  }
  // Whether v can come again and again: that often, it is in a loop.
  bool repeats(State at, const Word& v, State states) const {
    for (State n = 0; n < states && at >= 0; ++n) at = after_word(at, v);
    return at >= 0;
  }
  State start_;
  After after_;
};

}  // namespace signet::theory
