// Codes remembered by the bit pattern of a state. An exact network has few states, so the search for the
// nearest code word happens once for each. Bounded: a full table is emptied, and patterns come back as they
// are met again.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

namespace signet::theory {

template <class Value>
class CodeLookup {
 public:
  explicit CodeLookup(int32_t numbers)
      : bytes_(static_cast<size_t>(numbers) * sizeof(Value)), words_((bytes_ + 7) / 8), key_(words_) {
    clear(64);
  }
  size_t words() const { return words_; }
  size_t patterns() const { return used_; }

  // `search(state)` is asked on a pattern that is not known. kWords is 0, or words() where zeros follow the
  // state up to a whole word.
  template <size_t kWords, class Search>
  int64_t code(const Value* state, Search&& search) {
    const size_t words = kWords ? kWords : words_;
    uint64_t fixed[kWords ? kWords : 1];
    uint64_t* key = kWords ? fixed : key_.data();
    if constexpr (kWords == 0) key[words - 1] = 0;
    std::memcpy(key, state, kWords ? kWords * sizeof(uint64_t) : bytes_);
    uint64_t hash = 0;
    for (size_t i = 0; i < words; ++i) hash += key[i] * (0x9E3779B97F4A7C15u + 0x632BE59BD9B4E018u * i);
    for (size_t slot = hash >> shift_;; slot = (slot + 1) & mask_) {
      const int64_t code = codes_[slot];
      if (code == kEmpty) return insert(slot, key, search(state));
      bool same = true;
      for (size_t i = 0; i < words; ++i) same &= keys_[slot * words + i] == key[i];
      if (same) return code;
    }
  }

 private:
  static constexpr size_t kMaxBytes = size_t{64} << 20;
  static constexpr int64_t kEmpty = -2;  // codes are -1 (none) or more

  void clear(size_t slots) {
    mask_ = slots - 1;
    shift_ = 64 - std::countr_zero(slots);
    used_ = 0;
    keys_.assign(slots * words_, 0);
    codes_.assign(slots, kEmpty);
  }
  int64_t insert(size_t slot, const uint64_t* key, int64_t code) {
    const size_t slots = codes_.size();
    if (++used_ * 2 > slots) {
      clear(slots * 4 * words_ * sizeof(uint64_t) <= kMaxBytes ? slots * 4 : slots);
      return code;
    }
    std::copy(key, key + words_, keys_.begin() + static_cast<std::ptrdiff_t>(slot * words_));
    codes_[slot] = code;
    return code;
  }

  size_t bytes_, words_;
  size_t mask_ = 0, used_ = 0;
  int shift_ = 0;
  std::vector<uint64_t> key_, keys_;
  std::vector<int64_t> codes_;
};

}  // namespace signet::theory
