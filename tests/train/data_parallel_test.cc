// Ranks as threads of this process, on the CPU.
#include "signet/train/data_parallel.h"

#include <atomic>
#include <limits>

#include "signet/comm/background.h"
#include "signet/train/step_engine.h"
#include "support/check.h"
#include "support/thread_ranks.h"

namespace signet::train {
namespace {

RunConfig config() {
  return resolve_config({.task = "parity",
                         .architecture = "deltanet",
                         .set = {"model.width=32", "model.heads=2", "model.blocks=2", "model.mlp=32",
                                 "train.batch=12", "train.clip=0.5"}});
}

// A processor that computes wrongly: all ranks stop at the same update, none moves a weight, and all know
// whose it was.
TEST(DataParallel, NumbersThatAreNotFiniteOnOneRankStopAll) {
  for (const int bad : {0, 1, 2}) {
    test::on_threads(3, [&](comm::Communicator& ranks) {
      const RunConfig run = config();
      const auto task = run.task.make();
      const models::Model model(run.model, task->vocabulary(), task->classes());
      DataParallel parallel(ranks, model.parameters(), run.train);
      const auto optimizer = make_optimizer(model.parameters(), DType::kF32, run.train.optimizer_options(),
                                            {}, &parallel.shard());
      std::vector<float> weights(static_cast<size_t>(model.parameters().size()));
      model.parameters().initialize(3, DType::kF32, weights.data());
      const auto engine =
          make_step_engine({}, model, {DType::kF32, Precision::kFp32}, weights.data(), *optimizer, &parallel);
      for (int64_t step = 1; step <= 2; ++step) {
        tasks::Batch batch;
        const comm::Range rows = parallel.rows();
        tasks::make_batch(*task, 1, tasks::Split::kTrain,
                          static_cast<uint64_t>(step * run.train.batch + rows.begin), rows.size(), {3, 20},
                          batch);
        parallel.agree(batch, 0, true);
        if (step == 2 && ranks.rank() == bad)
          weights[weights.size() / 2] = std::numeric_limits<float>::infinity();
        const auto before = weights;
        engine->submit(batch, 1e-3, step);
        const StepResult result = engine->collect();
        EXPECT_EQ(result.updated, step == 1);
        if (step == 1) continue;
        EXPECT_EQ(result.bad_rank, bad);
        const Shard& mine = parallel.shard();
        for (const auto& range : mine.ranges)
          for (int64_t i = range.begin; i < range.end; ++i)
            ASSERT_EQ(weights[static_cast<size_t>(i)], before[static_cast<size_t>(i)]);
      }
    });
  }
}

// Where ranks pad to the longest row of all, what they add is not scored.
TEST(DataParallel, PaddingIsNotScored) {
  constexpr int64_t kTimes[] = {1, 3, 2};
  test::on_threads(3, [&](comm::Communicator& ranks) {
    RunConfig run = config();
    run.train.exact_reduction = true;
    const auto task = run.task.make();
    const models::Model model(run.model, task->vocabulary(), task->classes());
    DataParallel parallel(ranks, model.parameters(), run.train);
    tasks::Batch batch;
    batch.dense = true, batch.rows = 2, batch.time = kTimes[ranks.rank()];
    batch.tokens.assign(static_cast<size_t>(2 * batch.time), 1), batch.targets = batch.tokens;
    batch.lengths.assign(2, static_cast<int32_t>(batch.time));
    const auto sums = parallel.agree(batch, 0, true);
    EXPECT_EQ(sums.tokens, 12);
    EXPECT_EQ(batch.scored_of_all, 12);
    EXPECT_EQ(batch.time, 3);
    if (!ranks.root()) return;
    EXPECT_EQ(batch.tokens, (std::vector<int32_t>{1, 0, 0, 1, 0, 0}));
    constexpr int32_t kNone = tasks::kNotScored;
    EXPECT_EQ(batch.targets, (std::vector<int32_t>{1, kNone, kNone, 1, kNone, kNone}));
  });
}

TEST(Background, RunsInOrderAndThrowsWhereItIsWaitedFor) {
  comm::Background background;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) background.begin([&order, i] { order.push_back(i); });
  background.finish();
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  background.begin([] { fail(ErrorCode::kStopped, "gone"); });
  std::atomic<bool> ran = false;
  background.begin([&] { ran = true; });
  EXPECT_THROW(background.finish(), Error);
  EXPECT_FALSE(ran) << "what comes behind an error does not run";
  background.begin([&] { ran = true; });
  background.finish();
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace signet::train
