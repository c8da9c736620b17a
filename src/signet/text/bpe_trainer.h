// New byte-level BPE vocabularies: text is cut into words as GPT-2 cuts them, and the pair of neighbours that
// occurs most often becomes a token, again and again. Ties go to the pair with the smaller ids, so that the
// result depends on the text alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "signet/text/byte_level_bpe.h"

namespace signet::text {

class WordCounts {
 public:
  WordCounts();
  void add(std::string_view text);
  void add(const WordCounts& other);
  const std::unordered_map<std::string, int64_t>& words() const { return words_; }

 private:
  static constexpr size_t kMaxWord = 256;  // longer ones are no words, and teach nothing
  WordPattern pattern_;
  WordMatcher matcher_;
  std::string repaired_;
  std::unordered_map<std::string, int64_t> words_;
};

// `vocabulary` ids: <|endoftext|>, the 256 bytes, and merges of pairs that occur twice or more. Fewer when
// the text has no more. `progress` (may be null) hears how many ids there are.
ByteLevelSpec train_bpe(const WordCounts& counts, int64_t vocabulary,
                        const std::function<void(int64_t)>& progress = nullptr);

}  // namespace signet::text
