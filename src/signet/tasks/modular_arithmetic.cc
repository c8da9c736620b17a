// Arithmetic modulo 5, the answer due on '=' (Deletang et al., ICLR 2023; rows as in Beck et al., NeurIPS
// 2024, and Grazzi et al., ICLR 2025).
//
// Without brackets: "d o d o ... d =" with uniform digits and operators; '*' binds tighter than '+' and '-'.
// With brackets:    G(n) '=' where G writes a fully bracketed expression of exactly n tokens.
#include <algorithm>
#include <memory>

#include "signet/automata/explore.h"
#include "signet/tasks/task.h"

namespace signet::tasks {
namespace {

constexpr int32_t kModulus = 5;

enum Operator : int32_t { kPlus, kMinus, kTimes };

int32_t apply(int32_t op, int32_t left, int32_t right) {
  if (op == kTimes) return left * right % kModulus;
  return (left + (op == kPlus ? right : kModulus - right)) % kModulus;
}

// Ids: 0 pad, 1 '+', 2 '-', 3 '*', 4 '=', 5..9 the digits.
class ModularArithmetic final : public Task {
 public:
  std::string name() const override { return "modular-arithmetic"; }
  std::vector<std::string> token_names() const override {
    return {"pad", "+", "-", "*", "=", "0", "1", "2", "3", "4"};
  }
  std::vector<int32_t> answers() const override { return ids(kFirstDigit, kModulus); }
  double chance() const override { return 1.0 / kModulus; }
  int64_t min_size() const override { return 3; }

  // Sizes are odd: an expression of size - 2 tokens, '=', the answer.
  int64_t draw_size(Rng& rng, LengthRange range) const override {
    return 2 * rng.between((range.min + 1) / 2, (range.max + 1) / 2) - 1;
  }
  void fill(Rng& rng, int64_t size, int32_t* tokens, int32_t* targets) const override {
    // The value so far is total (sign) product, where product is still open for '*'.
    int32_t product = static_cast<int32_t>(rng.below(kModulus)), total = 0, sign = kPlus;
    tokens[0] = kFirstDigit + product;
    for (int64_t i = 1; i < size - 2; i += 2) {
      const int32_t draw = static_cast<int32_t>(rng.below(3 * kModulus));
      const int32_t op = draw / kModulus, digit = draw % kModulus;
      tokens[i] = kFirstOperator + op;
      tokens[i + 1] = kFirstDigit + digit;
      if (op == kTimes) {
        product = apply(kTimes, product, digit);
      } else {
        total = apply(sign, total, product);
        sign = op;
        product = digit;
      }
    }
    tokens[size - 2] = kEquals;
    targets[0] = kFirstDigit + apply(sign, total, product);
  }
  // State: what is due (a digit, an operator, nothing).
  std::optional<automata::Dfa> form() const override {
    enum { kDigit, kOperator, kOver };
    const auto step = [](const auto& state, int32_t letter) -> automata::Transition {
      const int32_t token = kFirstOperator + letter;
      if (state[0] == kDigit && token >= kFirstDigit) return {{kOperator}, kNotDue};
      if (state[0] == kOperator && token < kEquals) return {{kDigit}, kNotDue};
      if (state[0] == kOperator && token == kEquals) return {{kOver}, kDue};
      return {state, kNever};
    };
    return automata::explore(letters(), {kDigit}, step);
  }
  // State: what is due (a digit, an operator, nothing: the expression is over or wrong), the total, its sign
  // before the open product, the product, and the operator before the digit that is due.
  std::optional<automata::Dfa> machine() const override {
    enum { kDigit, kOperator, kOver };
    const auto step = [](const auto& state, int32_t letter) -> automata::Transition {
      const int32_t due = state[0], total = state[1], sign = state[2], product = state[3], before = state[4];
      const int32_t token = kFirstOperator + letter, digit = token - kFirstDigit;
      if (due == kDigit && digit >= 0) {
        if (before == kTimes) return {{kOperator, total, sign, apply(kTimes, product, digit), 0}, 0};
        return {{kOperator, total, before, digit, 0}, 0};
      }
      if (due == kOperator && token < kEquals) {
        if (letter == kTimes) return {{kDigit, total, sign, product, kTimes}, 0};
        return {{kDigit, apply(sign, total, product), kPlus, 0, letter}, 0};
      }
      const bool ends = due == kOperator && token == kEquals;
      return {{kOver, 0, 0, 0, 0}, ends ? kFirstDigit + apply(sign, total, product) : 0};
    };
    return automata::explore(letters(), {kDigit, 0, kPlus, 0, kPlus}, step);
  }

 private:
  static std::vector<std::string> letters() { return {"+", "-", "*", "=", "0", "1", "2", "3", "4"}; }
  static constexpr int32_t kFirstOperator = 1, kEquals = 4, kFirstDigit = 5;
};

// Ids: 0..4 the digits, 5 '+', 6 '-', 7 '*', 8 '(', 9 ')', 10 '=', 11 pad. A row of size N holds an
// expression of N - 3 tokens, '=' and the answer.
class ModularArithmeticBrackets final : public Task {
 public:
  explicit ModularArithmeticBrackets(bool multiplication) : operators_(multiplication ? 3 : 2) {}

  std::string name() const override {
    return operators_ == 3 ? "modular-arithmetic-brackets" : "modular-arithmetic-brackets-no-mult";
  }
  std::vector<std::string> token_names() const override {
    return {"0", "1", "2", "3", "4", "+", "-", "*", "(", ")", "=", "pad"};
  }
  std::vector<int32_t> input_tokens() const override {
    if (operators_ == 3) return Task::input_tokens();
    return {0, 1, 2, 3, 4, 5, 6, 8, 9, 10};
  }
  std::vector<int32_t> answers() const override { return ids(0, kModulus); }
  double chance() const override { return 1.0 / kModulus; }
  int32_t pad() const override { return 11; }
  int64_t min_size() const override { return 1; }

  // Sizes below 5 become 5, which makes "-d" three times as likely as any other expression length in 3..40.
  int64_t draw_size(Rng& rng, LengthRange range) const override {
    return std::max<int64_t>(rng.between(range.min, range.max), kSmallest);
  }
  int64_t inputs(int64_t size) const override { return std::max(size, kSmallest) - 2; }

  // G(1) = d, G(2) = -d, G(3) = (d), G(4) = (-d), G(n) = ( G(l) o G(n-l-3) ) with l uniform in 1..n-4.
  // The pending parts wait on a stack of our own: nesting can be as deep as n / 4.
  void fill(Rng& rng, int64_t size, int32_t* tokens, int32_t* targets) const override {
    struct Part {
      enum { kExpression, kOperator, kClose } kind;
      int32_t value;  // length, operator, operator
    };
    std::vector<Part> pending = {{Part::kExpression, static_cast<int32_t>(inputs(size) - 1)}};
    std::vector<int32_t> values;
    while (!pending.empty()) {
      const Part part = pending.back();
      pending.pop_back();
      if (part.kind == Part::kOperator) {
        *tokens++ = kFirstOperator + part.value;
      } else if (part.kind == Part::kClose) {
        *tokens++ = kClose;
        const int32_t right = values.back();
        values.pop_back();
        values.back() = apply(part.value, values.back(), right);
      } else if (part.value >= 5) {
        const int32_t left = 1 + static_cast<int32_t>(rng.below(part.value - 4));
        const int32_t op = static_cast<int32_t>(rng.below(operators_));
        *tokens++ = kOpen;
        pending.push_back({Part::kClose, op});
        pending.push_back({Part::kExpression, part.value - left - 3});
        pending.push_back({Part::kOperator, op});
        pending.push_back({Part::kExpression, left});
      } else {
        const bool bracketed = part.value >= 3, negative = part.value % 2 == 0;
        const int32_t digit = static_cast<int32_t>(rng.below(kModulus));
        if (bracketed) *tokens++ = kOpen;
        if (negative) *tokens++ = kFirstOperator + kMinus;
        *tokens++ = digit;
        if (bracketed) *tokens++ = kClose;
        values.push_back(negative ? apply(kMinus, 0, digit) : digit);
      }
    }
    *tokens = kEquals;
    targets[0] = values.back();
  }

 private:
  static constexpr int64_t kSmallest = 5;
  static constexpr int32_t kFirstOperator = 5, kOpen = 8, kClose = 9, kEquals = 10;
  uint32_t operators_;
};

}  // namespace

std::unique_ptr<Task> make_modular_arithmetic() { return std::make_unique<ModularArithmetic>(); }
std::unique_ptr<Task> make_modular_arithmetic_brackets() {
  return std::make_unique<ModularArithmeticBrackets>(true);
}
std::unique_ptr<Task> make_modular_arithmetic_brackets_no_mult() {
  return std::make_unique<ModularArithmeticBrackets>(false);
}

}  // namespace signet::tasks
