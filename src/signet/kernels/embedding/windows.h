// The windows of `taps` tokens that a causal convolution sees: there are few of a small vocabulary, and what
// depends on a window alone is computed once for each. A window at time t has min(t + 1, taps) tokens, since
// nothing precedes the sequence; the tokens of a window of l are the digits of its number, oldest first, and
// it has the place (sum of V^i, 0 < i < l) + number among all.
//
// All windows occur in `words`, the V^taps sequences of `taps` tokens: a window of l tokens as the first l of
// the word that goes on with token 0.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"

namespace signet::kernels {

struct TokenWindows {
  int64_t vocabulary = 0, taps = 1;

  int64_t words() const { return count(taps, taps); }
  int64_t windows() const { return count(1, taps); }

 private:
  // Sequences of `shortest` to `longest` tokens; a number beyond any use when there are very many.
  int64_t count(int64_t shortest, int64_t longest) const {
    constexpr int64_t kMany = int64_t{1} << 40;
    int64_t power = 1, total = 0;
    for (int64_t length = 1; length <= longest; ++length) {
      power = power > kMany / (vocabulary + 1) ? kMany : power * vocabulary;
      if (length >= shortest) total += power;
    }
    return total < kMany ? total : kMany;
  }
};

// GPU only. tokens [batch, time] in [0, vocabulary).
struct WindowTables {
  TokenWindows windows;
  int64_t batch = 0, time = 0;
  const int32_t* tokens = nullptr;
  int32_t* words = nullptr;   // [words, taps]: the tokens of every word
  int32_t* places = nullptr;  // [windows]: where in `words` a window ends
  int32_t* index = nullptr;   // [batch, time]: which window ends there
  // Packed sequences: of `tokens` and `index` there are packed_rows, and row r is at positions[r] of its own.
  const int32_t* positions = nullptr;
  int64_t packed_rows = 0;
  int64_t rows() const { return positions ? packed_rows : batch * time; }
};
void window_tables(const WindowTables& p, Cuda device);

}  // namespace signet::kernels
