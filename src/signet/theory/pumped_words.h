// Words u v^n w: a network that forgets does so while one thing happens again and again, which random words
// hardly ever do. All short u, v and w are tried, v repeated for a long time, w after 1, 2, 4, 8, .. times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "signet/automata/dfa.h"

namespace signet::theory {

inline constexpr int64_t kPumpedPiece = 2;  // the most letters of u, v and w

// `allows(previous, next)`: which letters may follow each other; previous is -1 at the start of a word.
struct PumpedWords {
  using Word = std::vector<automata::Letter>;
  std::vector<std::pair<Word, Word>> pairs;  // u, v
  std::vector<Word> ends;                    // w

  PumpedWords(automata::Letter letters,
              const std::function<bool(automata::Letter, automata::Letter)>& allows) {
    constexpr size_t kMostPairs = 512, kMostEnds = 64;
    std::vector<Word> words = {{}};  // short ones first
    for (size_t i = 0; i < words.size() && words.size() < 4096; ++i)
      for (automata::Letter a = 0; a < letters; ++a) {
        if (static_cast<int64_t>(words[i].size()) == kPumpedPiece) break;
        if (!words[i].empty() && !allows(words[i].back(), a)) continue;
        words.push_back(words[i]);
        words.back().push_back(a);
      }
    for (size_t i = 1; i < std::min(words.size(), kMostEnds + 1); ++i) ends.push_back(words[i]);
    for (int64_t both = 1; both <= 2 * kPumpedPiece; ++both)
      for (const Word& u : words)
        for (const Word& v : words) {
          if (v.empty() || static_cast<int64_t>(u.size() + v.size()) != both) continue;
          if (!allows(-1, u.empty() ? v[0] : u[0]) || (!u.empty() && !allows(u.back(), v[0])) ||
              !allows(v.back(), v[0]))
            continue;
          if (pairs.size() < kMostPairs) pairs.emplace_back(u, v);
        }
    allows_ = allows;
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
      Word word = u;
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
      word.clear();
      if (!u.empty() && wrong(u)) continue;
      word = u;
      const int64_t most = std::max(kLeast, letters / static_cast<int64_t>(pairs.size())) / size;
      for (int64_t n = 0, next = 1; n < most && static_cast<int64_t>(word.size()) < longest;) {
        Word piece;
        for (; n < next; ++n) piece.insert(piece.end(), v.begin(), v.end());
        if (wrong(piece)) break;
        word.insert(word.end(), piece.begin(), piece.end());
        stream.mark();
        for (const Word& w : ends) {
          bool goes_on = true;  // only repeats v
          for (size_t i = 0; i < w.size(); ++i) goes_on &= w[i] == v[i % v.size()];
          if (goes_on || !allows_(v.back(), w[0])) continue;
          wrong(w);
          stream.back();
        }
        next = std::min(most, 2 * n);
      }
    }
    return worst;
  }

 private:
  std::function<bool(automata::Letter, automata::Letter)> allows_;
};

}  // namespace signet::theory
