// Byte pair encoding of one word: its bytes, and then, again and again, the neighbours that merge with the
// lowest rank, the leftmost first.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace signet::text {

// The printable characters under which byte-level BPE writes the 256 bytes in its files.
const std::array<std::string, 256>& byte_symbols();
// Those characters back to bytes; false when the text has another character.
bool bytes_of_symbols(std::string_view symbols, std::string& bytes);

class BpeMerges {
 public:
  BpeMerges(const std::array<int32_t, 256>& bytes, size_t merges);
  // In the order of their ranks; a pair that is given again has the last one.
  void add(int32_t left, int32_t right, int32_t merged);
  // Words that are tokens as they are, whatever the merges say.
  void add_whole(const std::string& word, int32_t id) { whole_.emplace(word, id); }
  void encode(std::string_view word, std::vector<int32_t>& out) const;  // appends

 private:
  struct Merge {
    int32_t rank = kNoRank, merged = -1;
  };
  static constexpr int32_t kNoRank = 0x7fffffff;
  struct Slot {
    uint64_t pair = ~uint64_t{0};
    Merge merge;
  };
  Merge find(int32_t left, int32_t right) const;
  void merge_short(std::vector<int32_t>& ids, size_t begin) const;
  void merge_long(std::vector<int32_t>& ids, size_t begin) const;

  std::array<int32_t, 256> bytes_;
  int32_t count_ = 0;
  int shift_;  // of the hash of a pair
  std::vector<Slot> slots_;
  std::unordered_map<std::string, int32_t> whole_;
};

// Words met before and their ids. Forgets everything when it is full.
class WordCache {
 public:
  WordCache();
  void encode(const BpeMerges& merges, std::string_view word, std::vector<int32_t>& out);

 private:
  static constexpr size_t kMaxWord = 48, kSlots = 1 << 17;
  struct Slot {
    uint64_t hash = 0;
    uint32_t text = 0, ids = 0;  // where they begin
    uint16_t bytes = 0, count = 0;
  };
  std::vector<Slot> slots_;
  std::string text_;
  std::vector<int32_t> ids_;
  size_t used_ = 0;
};

}  // namespace signet::text
