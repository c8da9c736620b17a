// Word problems of groups, against permutations multiplied one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "signet/base/error.h"
#include "signet/tasks/registry.h"

namespace signet::tasks {
namespace {

using Row = std::vector<int>;

// All permutations of n points in lexicographic order: the published ids.
std::vector<Row> permutations(int n) {
  Row p(n);
  std::iota(p.begin(), p.end(), 0);
  std::vector<Row> all;
  do all.push_back(p);
  while (std::next_permutation(p.begin(), p.end()));
  return all;
}
Row after(const Row& p, const Row& q) {  // p(q(i))
  Row r(p.size());
  for (size_t i = 0; i < p.size(); ++i) r[i] = p[q[i]];
  return r;
}
int moved(const Row& p) {
  int count = 0;
  for (size_t i = 0; i < p.size(); ++i) count += p[i] != static_cast<int>(i);
  return count;
}

TEST(GroupWord, S5IsThePublishedTask) {
  const auto all = permutations(5);
  const auto task = make_task("S5");
  EXPECT_EQ(task->vocabulary(), 127);
  EXPECT_EQ(task->classes(), 127);
  EXPECT_EQ(task->pad(), 120);
  EXPECT_EQ(task->token_names()[121], "BOS");
  EXPECT_EQ(task->token_names()[0], "()");
  EXPECT_TRUE(task->dense());
  EXPECT_EQ(task->train_lengths().max, 32);
  EXPECT_EQ(task->test_lengths().min, 500);
  for (uint64_t index = 0; index < 20; ++index) {
    const Sample s = make_sample(*task, 3, Split::kTest, index, {100, 100});
    ASSERT_EQ(s.tokens.size(), 101u);
    EXPECT_EQ(s.size, 100);
    EXPECT_EQ(s.tokens[0], 121);
    EXPECT_EQ(s.targets[0], 121);
    Row product = all[0];
    for (size_t t = 1; t < s.tokens.size(); ++t) {
      product = after(product, all[s.tokens[t]]);
      ASSERT_EQ(all[s.targets[t]], product) << t;
    }
  }
}

TEST(GroupWord, LettersAreThoseOfThePaper) {
  const auto all = permutations(5);
  const struct {
    const char* name;
    int most;
    size_t letters;
  } variants[] = {{"S5:swaps", 2, 11}, {"S5:swaps+3cycles", 3, 31}};
  for (const auto& v : variants) {
    SCOPED_TRACE(v.name);
    const auto task = make_task(v.name);
    EXPECT_EQ(task->vocabulary(), 127);
    std::set<int32_t> expected = {121}, seen;
    for (size_t i = 0; i < all.size(); ++i)
      if (moved(all[i]) <= v.most) expected.insert(static_cast<int32_t>(i));
    EXPECT_EQ(expected.size(), v.letters + 1);
    const Sample s = make_sample(*task, 1, Split::kTrain, 0, {2000, 2000});
    seen.insert(s.tokens.begin(), s.tokens.end());
    EXPECT_EQ(seen, expected);
    const auto inputs = task->input_tokens();
    EXPECT_EQ(std::set<int32_t>(inputs.begin(), inputs.end()), expected);
    EXPECT_EQ(std::set<int32_t>(s.targets.begin(), s.targets.end()).size(), 121u) << "all of S5 and BOS";
  }
}

// "shifted right by n - 1 with zeros in front": the product up to an element is due on the last token of its
// group.
TEST(GroupWord, SeveralTokensPerElement) {
  const struct {
    const char* name;
    int order, tokens;
  } variants[] = {{"Z60:2tokens", 60, 2}, {"Z60:3tokens", 60, 3}, {"Z7:5tokens", 7, 5}};
  for (const auto& v : variants) {
    SCOPED_TRACE(v.name);
    const auto task = make_task(v.name);
    EXPECT_EQ(task->vocabulary(), v.order + 8);
    EXPECT_EQ(task->pad(), v.order + 1);
    EXPECT_EQ(task->train_lengths().min, 64);
    for (int64_t size : {1, 2, 7, 64}) {
      const Sample s = make_sample(*task, 1, Split::kTrain, 5, {size, size});
      std::vector<int> products;
      int sum = 0;
      for (int64_t i = 0; i < size; i += v.tokens)
        products.push_back(sum = (sum + s.tokens[1 + i]) % v.order);
      for (int64_t i = 0; i < size; ++i) {
        if (i % v.tokens) {
          EXPECT_EQ(s.tokens[1 + i], v.order);
        }
        const int64_t shifted = i - (v.tokens - 1);
        EXPECT_EQ(s.targets[1 + i], shifted < 0 ? 0 : products[shifted / v.tokens]) << i;
      }
    }
  }
}

TEST(GroupWord, OtherGroups) {
  EXPECT_EQ(make_task("Z60")->token_names()[17], "17");
  EXPECT_EQ(make_task("A5")->vocabulary(), 67);
  EXPECT_EQ(make_task("A5")->chance(), 1.0 / 60);
  EXPECT_EQ(make_task("Z1")->chance(), 0);  // accuracy scaled by a chance of 1 would be no number
  EXPECT_EQ(make_task("A4xZ5")->vocabulary(), 67);
  EXPECT_EQ(make_task("Z1000")->vocabulary(), 1007);
  EXPECT_EQ(make_task("SL(2,3):standard")->input_tokens().size(), 4u);  // two generators, identity, BOS
  EXPECT_EQ(make_task("S5:3cycles+swaps+3cycles")->name(), "S5:3cycles+swaps");
  EXPECT_EQ(make_task("S5:all:1tokens")->name(), "S5");
  // Associativity and the identity hold whatever the group: the target after x y z is that after x and (y z).
  for (const char* name : {"Q8", "Z2wrS3", "PSL(2,7)"}) {
    const auto task = make_task(name);
    const Sample s = make_sample(*task, 1, Split::kTrain, 0, {400, 400});
    std::set<int32_t> seen(s.targets.begin() + 1, s.targets.end());
    EXPECT_LE(seen.size(), static_cast<size_t>(task->vocabulary() - 7));
    EXPECT_GE(seen.size(), 8u);
  }
}

TEST(GroupWord, BadNames) {
  const std::pair<const char*, const char*> cases[] = {
      {"S7", "5040 elements; the limit is 1000"},
      {"S5:swap", "did you mean 'swaps'"},
      {"S5:0tokens", "1 to 64"},
      {"S5:99999tokens", "1 to 64"},
      {"S5:tokens", "unknown letters 'tokens'"},
      {"S5:swaps:swaps", "GROUP[:LETTERS][:Ntokens]"},
      {"S5:a:b:c", "GROUP[:LETTERS][:Ntokens]"},
      {"S5:", "unknown letters ''"},
      {"S5:3cycles", "do not generate"},
      {"A5:swaps", "do not generate"},
      {"X5", "unknown group"},
      {"S", "unknown group"},
      {"S99999999999999999999", "unknown group"},
      {"S50", "elements; the limit is 1000"},
      {"Parity", "did you mean 'parity'"},
  };
  for (const auto& [name, expected] : cases) {
    try {
      make_task(name);
      ADD_FAILURE() << name << " was made";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage) << name;
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << name << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace signet::tasks
