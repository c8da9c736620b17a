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

// What a register is made of. The last three are signs only, written and held but never turned:
//   kGcs    hold h <- 3/4 h, write h <- h/4 +- 1/2: the sign is the digit, and right after a write
//           the sign of |h| - 1/2 tells the one before. In real numbers it is right for ever although
//           h tends to 0.
//   kElman, kSlstm   two units, (new, old): holding leads the first to one of two stable points, writing
//           pushes it over, and the second follows what the first was. Both points attract.
enum class RegisterKind { kDiagonal, kHouseholder, kGcs, kElman, kSlstm };

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
  LeakyChannel(int32_t order, RegisterKind kind) : order_(order), kind_(kind) {
    block_.kind = kind == RegisterKind::kHouseholder ? BlockKind::kHouseholder
                  : kind == RegisterKind::kElman     ? BlockKind::kElman
                  : kind == RegisterKind::kSlstm     ? BlockKind::kSlstm
                  : order == 2                       ? BlockKind::kDiagonal
                                                     : BlockKind::kComplexDiagonal;
    block_.dim = order == 2 && !is_cell(block_.kind) ? 1 : 2;
    if (kind == RegisterKind::kElman) block_.recurrent = {2, 0, 4, 0};
    if (kind == RegisterKind::kSlstm) block_.recurrent = {10, 0, 10, 0};
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
    if (is_cell(block_.kind)) {
      const bool elman = block_.kind == BlockKind::kElman;
      const double rest = elman ? 0 : -5, push = (elman ? 4 : 8) * digit_value[0];
      add_cell_context(block_, {rest + (move.reset ? push : 0), rest});
    } else if (kind_ == RegisterKind::kGcs) {
      add_diagonal_context(block_, {move.reset ? 0.25 : 0.75}, {move.reset ? 0.5 * digit_value[0] : 0});
    } else if (block_.kind == BlockKind::kHouseholder) {
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
    // Cells: where holding leads, which is near enough after a write; any point of the two basins would do.
    if (block_.kind == BlockKind::kElman) return {0.9575 * digit(now)[0], 0.9575 * digit(old)[0]};
    if (block_.kind == BlockKind::kSlstm)
      return {digit(now)[0] > 0 ? 0.9545 : 0.0069, digit(old)[0] > 0 ? 0.9545 : 0.0069};
    if (kind_ == RegisterKind::kGcs) return {digit(now)[0] / 2 + digit(old)[0] / 8};
    const double weight = block_.kind == BlockKind::kHouseholder ? 1 - kLeak : 1;
    auto code = digit(now);
    const auto below = digit(old);
    for (size_t i = 0; i < code.size(); ++i) code[i] = weight * (code[i] + kLeak * below[i]);
    return code;
  }

  int32_t order_;
  RegisterKind kind_;
  Block block_;
  std::map<Move, int32_t> contexts_;
};

}  // namespace signet::theory
