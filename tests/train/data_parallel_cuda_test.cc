// Ranks whose gradients and weights lie on GPUs: as threads of this process on one GPU, through host memory;
// and one rank by itself through NCCL where its plugin is built.
#include <cstdlib>

#include "signet/base/files.h"
#include "signet/comm/device_collectives.h"
#include "signet/train/data_parallel.h"
#include "signet/train/step_engine.h"
#include "support/check.h"
#include "support/cuda.h"
#include "support/thread_ranks.h"

namespace signet::train {
namespace {

struct Trained {
  std::vector<double> losses;
  std::vector<float> weights;
};

// Twelve updates on one of several ranks, or alone.
Trained train_on(comm::Communicator* ranks, Precision precision, const std::string& optimizer) {
  const OpenDevice device = open_device("cuda");
  RunConfig config = resolve_config(
      {.task = "parity",
       .architecture = "deltanet",
       .set = {"model.width=64", "model.heads=2", "model.blocks=2", "model.mlp=64", "train.batch=24",
               "train.clip=0.5", "train.weight_decay=0.1", "train.optimizer=" + optimizer}});
  const auto task = config.task.make();
  const models::Model model(config.model, task->vocabulary(), task->classes());
  std::vector<float> weights(static_cast<size_t>(model.parameters().size()));
  model.parameters().initialize(3, DType::kF32, weights.data());
  std::unique_ptr<DataParallel> parallel;
  if (ranks) parallel = std::make_unique<DataParallel>(*ranks, model.parameters(), config.train);
  const auto rule = make_optimizer(model.parameters(), DType::kF32, config.train.optimizer_options(), device,
                                   parallel ? &parallel->shard() : nullptr);
  StepOptions options{DType::kF32, precision};
  options.micro_batch = 5;  // several passes, one exchange
  const auto engine = make_step_engine(device, model, options, weights.data(), *rule, parallel.get());
  const comm::Range rows = parallel ? parallel->rows() : comm::Range{0, config.train.batch};
  Trained trained;
  for (int64_t step = 1; step <= 12; ++step) {
    tasks::Batch batch;
    tasks::make_batch(*task, 1, tasks::Split::kTrain,
                      static_cast<uint64_t>(step * config.train.batch + rows.begin), rows.size(), {3, 40},
                      batch);
    batch.first_row = rows.begin;
    if (parallel) parallel->agree(batch, 0, true);
    engine->submit(batch, 1e-3, step);
    trained.losses.push_back(engine->collect().batch.loss);
  }
  engine->to_host();
  trained.weights = weights;
  return trained;
}

std::vector<Trained> train_on_threads(int ranks, Precision precision, const std::string& optimizer) {
  std::vector<Trained> all(static_cast<size_t>(ranks));
  test::on_threads(ranks, [&](comm::Communicator& c) {
    all[static_cast<size_t>(c.rank())] = train_on(&c, precision, optimizer);
  });
  return all;
}

TEST(DataParallelCuda, RanksThroughHostMemoryFollowOne) {
  SIGNET_NEEDS_GPU();
  ::setenv("SIGNET_NCCL_PLUGIN", "none", 1);
  for (const std::string optimizer : {"adamw", "muon"}) {
    const Trained one = train_on(nullptr, Precision::kFp32, optimizer);
    for (const int ranks : {2, 3}) {
      const auto all = train_on_threads(ranks, Precision::kFp32, optimizer);
      for (const auto& rank : all) {
        EXPECT_EQ(rank.weights, all[0].weights) << "all ranks have all weights";
        EXPECT_EQ(rank.losses, all[0].losses);
      }
      for (size_t i = 0; i < one.losses.size(); ++i)
        EXPECT_NEAR(all[0].losses[i], one.losses[i], 2e-4 * one.losses[i])
            << optimizer << ", " << ranks << " ranks, update " << i + 1;
      EXPECT_EQ(train_on_threads(ranks, Precision::kFp32, optimizer)[0].weights, all[0].weights)
          << "the same bits again";
    }
  }
}

// The whole path of several ranks with one: the same numbers as without it.
TEST(DataParallelCuda, OneRankThroughNcclComputesWhatNoneDoes) {
  SIGNET_NEEDS_GPU();
  const std::string plugin = parent_directory(SIGNET_BINARY) + "/libsignet_nccl.so";
  if (!exists(plugin)) GTEST_SKIP() << "this build has no NCCL plugin";
  ::setenv("SIGNET_NCCL_PLUGIN", plugin.c_str(), 1);
  test::on_threads(1, [](comm::Communicator& c) {
    const OpenDevice device = open_device("cuda");
    const Device& where = device;
    const auto collectives = comm::open_device_collectives(c, where);
    ASSERT_EQ(collectives->name(), "NCCL");
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      const Trained one = train_on(nullptr, precision, "adamw"), same = train_on(&c, precision, "adamw");
      EXPECT_EQ(same.losses, one.losses);
      EXPECT_EQ(same.weights, one.weights);
    }
  });
}

}  // namespace
}  // namespace signet::train
