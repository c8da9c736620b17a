// Numbers 0, 1, 2, ... for things that their owner keeps, found again by hash: open addressing over the
// numbers alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace signet::automata {

class Numbering {
 public:
  // The number of the thing with this hash that `same(number)` recognises, -1 when there is none.
  template <class Same>
  int32_t find(uint64_t hash, const Same& same) const {
    if (slots_.empty()) return -1;
    for (size_t at = hash & mask(); slots_[at] >= 0; at = (at + 1) & mask())
      if (hashes_[static_cast<size_t>(slots_[at])] == hash && same(slots_[at])) return slots_[at];
    return -1;
  }

  // Gives the next number to a thing that find() has not found.
  int32_t add(uint64_t hash) {
    const auto number = static_cast<int32_t>(hashes_.size());
    hashes_.push_back(hash);
    if (2 * hashes_.size() > slots_.size()) {
      slots_.assign(std::max<size_t>(16, 4 * slots_.size()), -1);
      for (int32_t i = 0; i < number; ++i) place(i);
    }
    place(number);
    return number;
  }

 private:
  size_t mask() const { return slots_.size() - 1; }
  void place(int32_t number) {
    size_t at = hashes_[static_cast<size_t>(number)] & mask();
    while (slots_[at] >= 0) at = (at + 1) & mask();
    slots_[at] = number;
  }

  std::vector<int32_t> slots_;  // a power of 2 of them, at most half of them taken; -1 is free
  std::vector<uint64_t> hashes_;
};

}  // namespace signet::automata
