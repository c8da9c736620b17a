// The first step of byte-level BPE: text is cut into words, which merges never cross. Which cuts are made is
// said by regular expressions of the tokenizer's file, matched by PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace signet::text {

// Contractions, letters, numbers, other marks, each with the space before it, and blanks: GPT-2's.
inline constexpr char kGpt2Words[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// An expression; matches are words of their own, and so is what lies between them.
class WordPattern {
 public:
  // Throws kBadInput that names `where` when the expression is wrong.
  WordPattern(const std::string& expression, const std::string& where);
  ~WordPattern();
  WordPattern(WordPattern&&) noexcept;

 private:
  friend class WordMatcher;
  struct Code;
  std::unique_ptr<Code> code_;
};

// One thread's use of a pattern.
class WordMatcher {
 public:
  // Throws kFailure in a build without PCRE2, where tokenizers can be opened but encode nothing.
  explicit WordMatcher(const WordPattern& pattern);
  ~WordMatcher();
  WordMatcher(WordMatcher&&) noexcept;
  // The first match at or after `from` that is not empty: true and its bounds.
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end) const;

 private:
  struct Scratch;
  const WordPattern* pattern_;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace signet::text
