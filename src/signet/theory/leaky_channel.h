// A scalar register over Z_m that keeps the digit before its last reset below the current one.
//
// A layer below needs the old value of a register as well as the new one, and a reset forgets it. So a reset
// does not multiply by 0 but by kLeak: h <- h/64 + digit. The leading digit of h is the new value and the
// second the old one, and what lies below shrinks by 64 at every reset: it stays under the decoding margin
// for ever, in every type. A digit j is the root of unity e^{2 pi i j/m}, a sign for m = 2; adding to it is a
// multiplication.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "signet/theory/compile.h"

namespace signet::theory {

inline constexpr double kLeak = 1.0 / 64;

struct Move {
  bool reset = false;
  int32_t amount = 0;  // the digit written, or added modulo the order
  bool operator<(const Move& other) const {
    return std::tie(reset, amount) < std::tie(other.reset, other.amount);
  }
};

// One scalar register over Z_order, with the digit before the last reset below the current one.
class LeakyChannel {
 public:
  LeakyChannel(int32_t order, bool householder) : order_(order) {
    block_.kind = householder  ? BlockKind::kHouseholder
                  : order == 2 ? BlockKind::kDiagonal
                               : BlockKind::kComplexDiagonal;
    block_.dim = order == 2 ? 1 : 2;
    for (int32_t now = 0; now < order; ++now)
      for (int32_t old = 0; old < order; ++old) {
        const auto code = code_word(now, old);
        block_.codes.insert(block_.codes.end(), code.begin(), code.end());
      }
    start(0);
  }
  int32_t order() const { return order_; }
  void start(int32_t digit) { block_.initial = code_word(digit, digit); }

  int32_t context(const Move& move) {
    const auto [it, fresh] = contexts_.emplace(move, block_.contexts);
    if (!fresh) return it->second;
    const auto digit_value = digit(move.amount);
    if (block_.kind == BlockKind::kHouseholder) {
      std::vector<Factor> factors;
      if (move.reset) factors.push_back({{1}, 1 - kLeak, digit_value[0]});
      if (!move.reset && move.amount) factors.push_back({{1}, 2, 0});
      add_householder_context(block_, factors);
    } else {
      std::vector<double> gate(digit_value.size(), 0.0), input = gate;
      if (move.reset) {
        gate[0] = kLeak;
        input = digit_value;
      } else {
        gate = digit_value;
      }
      add_diagonal_context(block_, gate, input);
    }
    return it->second;
  }
  Block finish() {
    context({});  // a channel that no letter uses still needs one
    if (block_.kind == BlockKind::kHouseholder) finish_householder(block_);
    return block_;
  }

 private:
  std::vector<double> digit(int32_t j) const {
    if (order_ == 2) return {j ? -1.0 : 1.0};
    const auto [re, im] = root_of_unity(j, order_);
    return {re, im};
  }
  std::vector<double> code_word(int32_t now, int32_t old) const {
    const double weight = block_.kind == BlockKind::kHouseholder ? 1 - kLeak : 1;
    auto code = digit(now);
    const auto below = digit(old);
    for (size_t i = 0; i < code.size(); ++i) code[i] = weight * (code[i] + kLeak * below[i]);
    return code;
  }

  int32_t order_;
  Block block_;
  std::map<Move, int32_t> contexts_;
};

}  // namespace signet::theory
