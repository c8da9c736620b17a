#include "signet/tasks/task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "signet/base/error.h"
#include "signet/base/thread_pool.h"
#include "signet/tasks/registry.h"

namespace signet::tasks {
namespace {

struct ThreadCount {
  explicit ThreadCount(int threads) : before(thread_count()) { set_thread_count(threads); }
  ~ThreadCount() { set_thread_count(before); }
  int before;
};

// Every position is scored: the parity so far.
class RunningParity final : public Task {
 public:
  std::string name() const override { return "running-parity"; }
  std::vector<std::string> token_names() const override { return {"pad", "0", "1"}; }
  std::vector<std::string> class_names() const override { return {"0", "1"}; }
  double chance() const override { return 0.5; }
  bool dense() const override { return true; }
  void fill(Rng& rng, int64_t size, int32_t* tokens, int32_t* targets) const override {
    int32_t state = 0;
    for (int64_t i = 0; i < inputs(size); ++i) {
      const int32_t bit = static_cast<int32_t>(rng.below(2));
      tokens[i] = 1 + bit;
      targets[i] = state ^= bit;
    }
  }
};

TEST(Task, BatchRowsAreTheSamples) {
  for (const auto& entry : tasks()) {
    SCOPED_TRACE(entry.name);
    const auto task = entry.make();
    Batch batch;
    make_batch(*task, 7, Split::kTrain, 1000, 33, {3, 40}, batch);
    ASSERT_EQ(batch.rows, 33);
    ASSERT_EQ(batch.tokens.size(), static_cast<size_t>(33 * batch.time));
    const bool dense = task->dense();
    EXPECT_EQ(batch.dense, dense);
    ASSERT_EQ(batch.targets.size(), dense ? batch.tokens.size() : 33u);
    EXPECT_EQ(batch.time, *std::max_element(batch.lengths.begin(), batch.lengths.end()));
    EXPECT_LE(batch.time, task->max_inputs({3, 40}));
    for (int64_t row = 0; row < 33; ++row) {
      const Sample sample = make_sample(*task, 7, Split::kTrain, 1000 + row, {3, 40});
      EXPECT_EQ(batch.sizes[row], sample.size);
      ASSERT_EQ(batch.lengths[row], static_cast<int64_t>(sample.tokens.size()));
      if (!dense) {
        EXPECT_EQ(batch.targets[row], sample.targets[0]);
      }
      for (int64_t t = 0; t < batch.time && dense; ++t)
        ASSERT_EQ(batch.targets[row * batch.time + t],
                  t < batch.lengths[row] ? sample.targets[t] : kNotScored);
      for (int64_t t = 0; t < batch.time; ++t)
        ASSERT_EQ(batch.tokens[row * batch.time + t],
                  t < batch.lengths[row] ? sample.tokens[t] : task->pad());
    }
  }
}

TEST(Task, ThreadCountDoesNotMatter) {
  const auto task = make_task("modular-arithmetic-brackets");
  Batch one, three;
  {
    ThreadCount threads(1);
    make_batch(*task, 3, Split::kTest, 5, 301, {40, 256}, one);
  }
  {
    ThreadCount threads(3);
    make_batch(*task, 3, Split::kTest, 5, 301, {40, 256}, three);
  }
  EXPECT_EQ(one.tokens, three.tokens);
  EXPECT_EQ(one.targets, three.targets);
  EXPECT_EQ(one.sizes, three.sizes);
}

TEST(Task, ReusedMemoryLeavesNoTrace) {
  const auto task = make_task("parity");
  Batch used, fresh;
  make_batch(*task, 1, Split::kTrain, 0, 64, {200, 256}, used);
  make_batch(*task, 1, Split::kTrain, 0, 5, {3, 9}, used);
  make_batch(*task, 1, Split::kTrain, 0, 5, {3, 9}, fresh);
  EXPECT_EQ(used.tokens, fresh.tokens);
  EXPECT_EQ(used.targets, fresh.targets);
  EXPECT_EQ(used.lengths, fresh.lengths);
}

TEST(Task, SplitsSeedsAndIndicesDiffer) {
  const auto task = make_task("parity");
  std::set<std::vector<int32_t>> seen;
  int made = 0;
  for (uint64_t seed : {0u, 1u, 2u})
    for (Split split : {Split::kTrain, Split::kValidation, Split::kTest})
      for (uint64_t index = 0; index < 50; ++index, ++made)
        seen.insert(make_sample(*task, seed, split, index, {101, 101}).tokens);
  EXPECT_EQ(static_cast<int>(seen.size()), made);
}

TEST(Task, StreamsOfSplitsAreDisjointAndBounded) {
  // The first block of a generator identifies its stream.
  auto first = [](Rng rng) { return rng.next_u64(); };
  const uint64_t last = (uint64_t{1} << 62) - 1;
  std::set<uint64_t> words;
  for (Split split : {Split::kTrain, Split::kValidation, Split::kTest})
    for (uint64_t index : {uint64_t{0}, last}) words.insert(first(sample_rng(1, split, index)));
  words.insert(first(Rng(1, 0)));
  words.insert(first(Rng(1, last)));
  EXPECT_EQ(words.size(), 8u);
  EXPECT_THROW(sample_rng(1, Split::kTrain, last + 1), Error);
}

TEST(Task, DenseTargetsArePadded) {
  const RunningParity task;
  Batch batch;
  make_batch(task, 1, Split::kTrain, 0, 20, {2, 12}, batch);
  ASSERT_EQ(batch.targets.size(), static_cast<size_t>(batch.rows * batch.time));
  for (int64_t row = 0; row < batch.rows; ++row) {
    int32_t state = 0;
    for (int64_t t = 0; t < batch.time; ++t) {
      const int64_t at = row * batch.time + t;
      if (t < batch.lengths[row]) state ^= batch.tokens[at] - 1;
      EXPECT_EQ(batch.targets[at], t < batch.lengths[row] ? state : kNotScored);
    }
  }
  make_batch(task, 1, Split::kTrain, 0, 20, {2, 2}, batch);
  EXPECT_EQ(batch.time, 1);
  EXPECT_TRUE(batch.dense) << "also where there are no more targets than rows";
}

TEST(Task, EmptyBatch) {
  Batch batch;
  make_batch(*make_task("parity"), 1, Split::kTrain, 0, 0, {3, 40}, batch);
  EXPECT_EQ(batch.time, 0);
  EXPECT_TRUE(batch.tokens.empty());
  EXPECT_THROW(make_batch(*make_task("parity"), 1, Split::kTrain, 0, -1, {3, 40}, batch), Error);
}

TEST(Task, LengthsAreChecked) {
  for (const auto& entry : tasks()) {
    SCOPED_TRACE(entry.name);
    const auto task = entry.make();
    const int64_t least = task->min_size();
    EXPECT_NO_THROW(make_sample(*task, 1, Split::kTrain, 0, {least, least}));
    EXPECT_THROW(task->check({least - 1, 40}), Error);
    EXPECT_THROW(task->check({41, 40}), Error);
    EXPECT_THROW(task->check({3, kMaxSize + 1}), Error);
    EXPECT_THROW(task->check({-5, -2}), Error);
    EXPECT_NO_THROW(task->check(task->train_lengths()));
    EXPECT_NO_THROW(task->check(task->test_lengths()));
  }
}

TEST(Task, TokensStayInsideTheInputAlphabet) {
  for (const auto& entry : tasks()) {
    SCOPED_TRACE(entry.name);
    const auto task = entry.make();
    const auto allowed = task->input_tokens();
    const int64_t classes = task->classes();
    std::set<int32_t> seen;
    Batch batch;
    make_batch(*task, 11, Split::kValidation, 0, 400, {3, 60}, batch);
    for (int64_t row = 0; row < batch.rows; ++row) {
      for (int64_t t = 0; t < batch.lengths[row]; ++t) seen.insert(batch.tokens[row * batch.time + t]);
      const int64_t answers = task->dense() ? batch.lengths[row] : 1,
                    first = row * (task->dense() ? batch.time : 1);
      for (int64_t i = first; i < first + answers; ++i) {
        ASSERT_GE(batch.targets[i], task->dense() ? kNotScored : 0);
        ASSERT_LT(batch.targets[i], classes);
      }
    }
    EXPECT_EQ(seen, std::set<int32_t>(allowed.begin(), allowed.end()));
    EXPECT_EQ(task->token_names()[task->pad()], "pad");
  }
}

TEST(Task, AnswersAreTheTargets) {
  for (const char* name : {"parity", "even-pairs", "cycle-navigation:3", "modular-arithmetic",
                           "modular-arithmetic-brackets", "modular-arithmetic-brackets-no-mult", "S3:swaps",
                           "Z4:2tokens", "flip-flop", "bounded-dyck:2,3", "sarrof:D2", "language:parity"}) {
    const auto task = make_task(name);
    const size_t lead = task->pad() > 0 && task->dense() ? 1 : 0;  // BOS of groups, which has no answer
    std::set<int32_t> targets;
    for (uint64_t i = 0; i < 200; ++i) {
      const Sample sample = make_sample(*task, 1, Split::kTrain, i, {6, 40});
      for (size_t t = lead; t < sample.targets.size(); ++t)
        if (sample.targets[t] != kNotScored) targets.insert(sample.targets[t]);
    }
    const auto answers = task->answers();
    EXPECT_EQ(std::vector<int32_t>(targets.begin(), targets.end()), answers) << name;
  }
}

TEST(Registry, NamesAgreeAndTyposAreNamed) {
  for (const auto& entry : tasks()) EXPECT_EQ(entry.make()->name(), entry.name);
  EXPECT_EQ(task_names().size(), tasks().size());
  try {
    make_task("modular-arithmetik");
    FAIL() << "an unknown task was made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("did you mean 'modular-arithmetic'"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace signet::tasks
