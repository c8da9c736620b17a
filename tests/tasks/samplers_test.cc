// What the samplers write, checked by hand, by evaluators of another kind, and by counting.
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <map>

#include "signet/tasks/registry.h"

namespace signet::tasks {
namespace {

using Tokens = std::vector<int32_t>;

std::string text(const Task& task, const Tokens& tokens) {
  const auto names = task.token_names();
  std::string joined;
  for (int32_t id : tokens) joined += names[id];
  return joined;
}

// Recursive descent over the text of an expression, in plain integers and with the usual precedence.
class Evaluator {
 public:
  explicit Evaluator(std::string text) : text_(std::move(text)) {}
  int64_t value() {
    const int64_t v = sum();
    EXPECT_EQ(at_, text_.size()) << text_;
    return ((v % 5) + 5) % 5;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  int64_t sum() {
    int64_t v = term();
    while (peek() == '+' || peek() == '-') {
      const bool plus = text_[at_++] == '+';
      const int64_t right = term();
      v = (plus ? v + right : v - right) % 5;
    }
    return v;
  }
  int64_t term() {
    int64_t v = factor();
    while (peek() == '*') {
      ++at_;
      v = v * factor() % 5;
    }
    return v;
  }
  int64_t factor() {
    if (peek() == '-') {
      ++at_;
      return -factor();
    }
    if (peek() == '(') {
      ++at_;
      const int64_t v = sum();
      EXPECT_EQ(peek(), ')') << text_;
      ++at_;
      return v;
    }
    EXPECT_TRUE(peek() >= '0' && peek() <= '4') << text_ << " at " << at_;
    return text_[at_++] - '0';
  }
  std::string text_;
  size_t at_ = 0;
};

TEST(Evaluator, HandChecked) {
  EXPECT_EQ(Evaluator("2-3-3*2").value(), 3);  // the published example
  EXPECT_EQ(Evaluator("1+2*3*4-4").value(), 1);
  EXPECT_EQ(Evaluator("-1").value(), 4);
  EXPECT_EQ(Evaluator("((-2)*(3+-4))").value(), 2);
}

// Pearson's statistic of counts against equal (or given relative) frequencies.
double chi_square(const std::map<int64_t, int64_t>& counts, const std::map<int64_t, double>& weights) {
  double total = 0, weight = 0, statistic = 0;
  for (const auto& [key, count] : counts) {
    EXPECT_TRUE(weights.count(key)) << "impossible value " << key;
    total += static_cast<double>(count);
  }
  for (const auto& [key, w] : weights) weight += w;
  for (const auto& [key, w] : weights) {
    const double expected = total * w / weight;
    const auto found = counts.find(key);
    const double d = (found == counts.end() ? 0 : static_cast<double>(found->second)) - expected;
    statistic += d * d / expected;
  }
  return statistic;
}

// A bound that a right sampler passes for any seed: five standard deviations above the mean.
double bound(size_t cells) {
  const double freedom = static_cast<double>(cells) - 1;
  return freedom + 5 * std::sqrt(2 * freedom);
}

std::map<int64_t, double> equal(int64_t low, int64_t high, int64_t step = 1) {
  std::map<int64_t, double> weights;
  for (int64_t v = low; v <= high; v += step) weights[v] = 1;
  return weights;
}

std::map<int64_t, int64_t> size_counts(const Task& task, LengthRange range, int64_t samples) {
  std::map<int64_t, int64_t> counts;
  Batch batch;
  make_batch(task, 5, Split::kTrain, 0, samples, range, batch);
  for (int32_t size : batch.sizes) ++counts[size];
  return counts;
}

TEST(Parity, AnswerCountsOnes) {
  const auto task = make_task("parity");
  EXPECT_EQ(task->vocabulary(), 3);
  EXPECT_EQ(task->pad(), 0);
  EXPECT_EQ(task->chance(), 0.5);
  for (int64_t size : {2, 3, 32, 33, 34, 40, 65, 256})
    for (uint64_t index = 0; index < 30; ++index) {
      const Sample s = make_sample(*task, 1, Split::kTest, index, {size, size});
      ASSERT_EQ(static_cast<int64_t>(s.tokens.size()), size - 1);
      ASSERT_EQ(s.size, size);
      int ones = 0;
      for (int32_t id : s.tokens) ones += id == 2;
      ASSERT_EQ(s.targets[0], 1 + ones % 2);
    }
}

TEST(Parity, SizesAndBitsAreUniform) {
  const auto task = make_task("parity");
  const auto sizes = equal(3, 40);
  EXPECT_LT(chi_square(size_counts(*task, {3, 40}, 40000), sizes), bound(sizes.size()));
  // Bits per position and neighbouring pairs, past the word boundary at 32.
  std::map<int64_t, int64_t> pairs, answers;
  Batch batch;
  make_batch(*task, 9, Split::kTrain, 0, 4000, {41, 41}, batch);
  std::vector<int64_t> ones(40);
  for (int64_t row = 0; row < batch.rows; ++row) {
    ++answers[batch.targets[row]];
    const int32_t* bits = batch.tokens.data() + row * batch.time;
    for (int64_t t = 0; t < 40; ++t) ones[t] += bits[t] == 2;
    for (int64_t t = 1; t < 40; ++t) ++pairs[bits[t - 1] * 10 + bits[t]];
  }
  for (int64_t t = 0; t < 40; ++t) EXPECT_NEAR(static_cast<double>(ones[t]), 2000, 5 * std::sqrt(1000.0));
  EXPECT_LT(chi_square(pairs, {{11, 1}, {12, 1}, {21, 1}, {22, 1}}), bound(4));
  EXPECT_LT(chi_square(answers, {{1, 1}, {2, 1}}), bound(2));
}

TEST(EvenPairs, AnswerComparesTheEnds) {
  const auto task = make_task("even-pairs");
  for (int64_t size : {2, 3, 4, 33, 100})
    for (uint64_t index = 0; index < 30; ++index) {
      const Sample s = make_sample(*task, 1, Split::kTest, index, {size, size});
      ASSERT_EQ(s.targets[0], s.tokens.front() == s.tokens.back() ? 1 : 2);
    }
}

TEST(CycleNavigation, AnswerIsThePosition) {
  const auto task = make_task("cycle-navigation");
  EXPECT_EQ(task->vocabulary(), 10);
  std::map<int64_t, int64_t> steps;
  for (int64_t size : {2, 3, 17, 256})
    for (uint64_t index = 0; index < 100; ++index) {
      const Sample s = make_sample(*task, 1, Split::kTest, index, {size, size});
      int64_t position = 0;
      for (int32_t id : s.tokens) {
        position += id == 2 ? 1 : id == 3 ? -1 : 0;
        ++steps[id];
      }
      ASSERT_EQ(s.targets[0], 4 + ((position % 6) + 6) % 6);
    }
  EXPECT_LT(chi_square(steps, equal(1, 3)), bound(3));
}

TEST(ModularArithmetic, PublishedIdsAndOddSizes) {
  const auto task = make_task("modular-arithmetic");
  EXPECT_EQ(task->vocabulary(), 10);
  EXPECT_EQ(task->chance(), 0.2);
  EXPECT_EQ(text(*task, {7, 2, 8, 2, 8, 3, 7, 4}), "2-3-3*2=");
  const auto train = equal(3, 39, 2), test = equal(39, 255, 2);
  EXPECT_LT(chi_square(size_counts(*task, {3, 40}, 20000), train), bound(train.size()));
  EXPECT_LT(chi_square(size_counts(*task, {40, 256}, 20000), test), bound(test.size()));
  EXPECT_EQ(make_sample(*task, 1, Split::kTest, 0, {100, 100}).size, 99);
  EXPECT_EQ(make_sample(*task, 1, Split::kTest, 0, {101, 101}).size, 101);
}

TEST(ModularArithmetic, AnswersAgreeWithTheEvaluator) {
  const auto task = make_task("modular-arithmetic");
  std::map<int64_t, int64_t> digits, operators;
  for (LengthRange range : {LengthRange{3, 3}, {3, 40}, {40, 256}})
    for (uint64_t index = 0; index < 300; ++index) {
      const Sample s = make_sample(*task, 2, Split::kTrain, index, range);
      ASSERT_EQ(static_cast<int64_t>(s.tokens.size()), s.size - 1);
      std::string row = text(*task, s.tokens);
      ASSERT_EQ(row.back(), '=');
      row.pop_back();
      ASSERT_EQ(s.targets[0], 5 + Evaluator(row).value()) << row;
      for (size_t i = 0; i < row.size(); ++i) ++(i % 2 ? operators : digits)[row[i]];
    }
  EXPECT_LT(chi_square(digits, equal('0', '4')), bound(5));
  EXPECT_LT(chi_square(operators, {{'+', 1}, {'-', 1}, {'*', 1}}), bound(3));
}

TEST(ModularArithmeticBrackets, PublishedIdsAndSizes) {
  const auto task = make_task("modular-arithmetic-brackets");
  EXPECT_EQ(task->vocabulary(), 12);
  EXPECT_EQ(task->pad(), 11);
  EXPECT_EQ(text(*task, {8, 8, 6, 2, 9, 7, 3, 9, 10}), "((-2)*3)=");
  auto train = equal(5, 40), test = equal(40, 256);
  train[5] = 3;
  EXPECT_LT(chi_square(size_counts(*task, {3, 40}, 40000), train), bound(train.size()));
  EXPECT_LT(chi_square(size_counts(*task, {40, 256}, 40000), test), bound(test.size()));
}

TEST(ModularArithmeticBrackets, AnswersAgreeWithTheEvaluator) {
  for (const char* name : {"modular-arithmetic-brackets", "modular-arithmetic-brackets-no-mult"}) {
    const auto task = make_task(name);
    const bool times = std::string(name) == "modular-arithmetic-brackets";
    bool seen = false;
    for (LengthRange range : {LengthRange{1, 5}, {6, 6}, {7, 7}, {8, 8}, {3, 40}, {40, 256}})
      for (uint64_t index = 0; index < 200; ++index) {
        const Sample s = make_sample(*task, 2, Split::kTrain, index, range);
        std::string row = text(*task, s.tokens);
        ASSERT_EQ(static_cast<int64_t>(row.size()), s.size - 2);
        ASSERT_EQ(row.back(), '=');
        row.pop_back();
        ASSERT_EQ(s.targets[0], Evaluator(row).value()) << row;
        seen |= row.find('*') != std::string::npos;
      }
    EXPECT_EQ(seen, times);
  }
}

// Expressions of five tokens are exactly "(d o d)", all equally likely; of six, "(-d o d)" or "(d o -d)".
TEST(ModularArithmeticBrackets, SmallExpressionsFollowTheGrammar) {
  const auto task = make_task("modular-arithmetic-brackets");
  std::map<std::string, int64_t> five, six;
  for (uint64_t index = 0; index < 15000; ++index) {
    ++five[text(*task, make_sample(*task, 4, Split::kTrain, index, {8, 8}).tokens)];
    if (index < 3000) {
      const std::string row = text(*task, make_sample(*task, 4, Split::kTrain, index, {9, 9}).tokens);
      ++six[row[1] == '-' ? "left" : "right"];
    }
  }
  EXPECT_EQ(five.size(), 75u);
  double statistic = 0;
  for (const auto& [row, count] : five) {
    EXPECT_EQ(row.front(), '(');
    statistic += (count - 200.0) * (count - 200.0) / 200.0;
  }
  EXPECT_LT(statistic, bound(75));
  EXPECT_NEAR(static_cast<double>(six["left"]), 1500, 5 * std::sqrt(750.0));
}

TEST(Samplers, AMillionTokensIsQuick) {
  for (const auto& entry : tasks()) {
    const auto task = entry.make();
    const std::clock_t start = std::clock();  // of the processor: other programs may be at work
    const Sample s = make_sample(*task, 1, Split::kTest, 0, {1'000'001, 1'000'001});
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_GE(s.tokens.size(), 999'999u);
    EXPECT_LT(seconds, 1.0) << entry.name;  // generous: a hundredth of it is usual
    std::printf("%-36s %6.0f million tokens/s\n", entry.name, 1e-6 * s.tokens.size() / seconds);
  }
}

}  // namespace
}  // namespace signet::tasks
