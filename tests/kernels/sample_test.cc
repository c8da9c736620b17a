#include "signet/kernels/sample/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "signet/base/rng.h"

namespace signet::kernels {
namespace {

std::vector<double> frequencies(const SampleRule& rule, const std::vector<float>& logits) {
  constexpr int64_t kRows = 20'000;
  const auto classes = static_cast<int64_t>(logits.size());
  std::vector<float> rows;
  for (int64_t r = 0; r < kRows; ++r) rows.insert(rows.end(), logits.begin(), logits.end());
  std::vector<int64_t> positions(kRows, 5);
  std::vector<int32_t> tokens(kRows), ids(kRows);
  sample({rule, kRows, classes, rows.data(), classes, positions.data(), tokens.data(), ids.data()}, Cpu{});
  EXPECT_EQ(tokens, ids);
  EXPECT_EQ(positions, std::vector<int64_t>(kRows, 6));
  std::vector<double> counts(logits.size());
  for (const int32_t id : ids) counts[static_cast<size_t>(id)] += 1.0 / kRows;
  return counts;
}

TEST(Sample, FollowsTheProbabilitiesAndTheBounds) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.1f), std::log(0.3f), std::log(0.1f)};
  const auto near = [&](const SampleRule& rule, const std::vector<double>& right) {
    const auto found = frequencies(rule, logits);
    for (size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(found[i], right[i], 0.02) << i;
  };
  near({1, 0, 1, 7}, {0.5, 0.1, 0.3, 0.1});
  near({0, 0, 1, 7}, {1, 0, 0, 0});
  near({1, 1, 1, 7}, {1, 0, 0, 0});
  near({1, 2, 1, 7}, {0.625, 0, 0.375, 0});
  near({1, 0, 0.75, 7}, {0.625, 0, 0.375, 0});
  near({1, 0, 0.85, 7}, {0.5, 0.1, 0.3, 0.1});  // as likely as the last one
  near({1, 2, 0.6, 7}, {1, 0, 0, 0});           // of what top_k leaves
  near({0.5, 0, 1, 7}, {0.25 / 0.36, 0.01 / 0.36, 0.09 / 0.36, 0.01 / 0.36});
}

TEST(Sample, TellsOfLogitsThatAreNoNumbers) {
  for (const float broken : {std::nanf(""), INFINITY}) {
    const std::vector<float> logits = {0, broken, -INFINITY, -INFINITY};
    int64_t positions[2] = {};
    int32_t tokens[2] = {}, ids[2] = {};
    sample({{}, 2, 2, logits.data(), 2, positions, tokens, ids}, Cpu{});
    for (int row = 0; row < 2; ++row) {
      EXPECT_EQ(tokens[row], 0);
      EXPECT_EQ(ids[row], -1);
    }
  }
}

// Noise that cannot win is not computed: the tokens are those of the formula.
TEST(Sample, DrawsTheTokenWithTheHighestScore) {
  constexpr int64_t kRows = 40, kClasses = 3001;
  Rng rng(3);
  std::vector<float> logits;
  for (int64_t i = 0; i < kRows * kClasses; ++i) logits.push_back(static_cast<float>(rng.normal() * 3));
  for (const float temperature : {0.3f, 1.0f, 20.0f}) {
    const SampleRule rule{temperature, 0, 1, 9};
    std::vector<int64_t> positions(kRows, 7);
    std::vector<int32_t> tokens(kRows), ids(kRows), right;
    for (int64_t row = 0; row < kRows; ++row) {
      const float* const own = &logits[row * kClasses];
      const float largest = *std::max_element(own, own + kClasses);
      std::vector<float> scores;
      for (int64_t token = 0; token < kClasses; ++token)
        scores.push_back((own[token] - largest) / temperature +
                         gumbel(sample_words(rule.seed, row, 7, token / 4).words[token % 4]));
      right.push_back(static_cast<int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin()));
    }
    sample({rule, kRows, kClasses, logits.data(), kClasses, positions.data(), tokens.data(), ids.data()},
           Cpu{});
    EXPECT_EQ(ids, right) << temperature;
  }
}

}  // namespace
}  // namespace signet::kernels
