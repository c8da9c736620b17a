// What the searches share: records of equal size kept once each, and the words that lead to them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "signet/theory/network.h"

namespace signet::theory {

using Word = std::vector<automata::Letter>;

// Numbered in the order of arrival.
class RecordSet {
 public:
  explicit RecordSet(size_t bytes) : bytes_(bytes) { slots_.assign(1024, -1); }

  // The record's number, and whether it is new.
  std::pair<int32_t, bool> insert(const void* record) {
    if (static_cast<size_t>(count_) * 2 > slots_.size()) grow();
    const char* first = static_cast<const char*>(record);
    const size_t mask = slots_.size() - 1;
    for (size_t slot = hash(first) & mask;; slot = (slot + 1) & mask) {
      if (slots_[slot] < 0) {
        arena_.insert(arena_.end(), first, first + bytes_);
        slots_[slot] = count_;
        return {count_++, true};
      }
      if (std::memcmp(at(slots_[slot]), first, bytes_) == 0) return {slots_[slot], false};
    }
  }
  const char* at(int32_t index) const { return arena_.data() + static_cast<size_t>(index) * bytes_; }
  int32_t size() const { return count_; }

  // How many records fit into the memory that a search may take, `wanted` at most.
  static int64_t most(int64_t wanted, size_t bytes) {
    constexpr int64_t kMaxBytes = int64_t{512} << 20;
    return std::min(wanted, kMaxBytes / static_cast<int64_t>(std::max<size_t>(bytes, 1)));
  }

 private:
  uint64_t hash(const char* record) const {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes_; i += 4) {
      uint32_t word = 0;
      std::memcpy(&word, record + i, std::min<size_t>(4, bytes_ - i));
      h = (h ^ word) * 0x9E3779B97F4A7C15u;
      h ^= h >> 32;
    }
    return h;
  }
  void grow() {
    slots_.assign(slots_.size() * 4, -1);
    const size_t mask = slots_.size() - 1;
    for (int32_t i = 0; i < count_; ++i) {
      size_t slot = hash(at(i)) & mask;
      while (slots_[slot] >= 0) slot = (slot + 1) & mask;
      slots_[slot] = i;
    }
  }

  size_t bytes_;
  int32_t count_ = 0;
  std::vector<char> arena_;
  std::vector<int32_t> slots_;
};

// A breadth-first search's way back to the start.
struct SearchTree {
  std::vector<int32_t> parent = {-1};
  std::vector<automata::Letter> letter = {-1};
  std::vector<int32_t> depth = {0};

  void add(int32_t from, automata::Letter s) {
    parent.push_back(from);
    letter.push_back(s);
    depth.push_back(depth[from] + 1);
  }
  Word word(int32_t from, automata::Letter last) const {
    Word w = {last};
    for (int32_t i = from; parent[i] >= 0; i = parent[i]) w.push_back(letter[i]);
    std::reverse(w.begin(), w.end());
    return w;
  }
};

}  // namespace signet::theory
