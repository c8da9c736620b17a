#include "signet/train/config.h"

#include <cmath>

#include "signet/tasks/registry.h"
#include "support/small_run.h"
#include "support/temporary_directory.h"

namespace signet::train {
namespace {

using test::expect_error;
using test::TemporaryDirectory;
using test::write_text;

TrainConfig schedule(int64_t steps, int64_t warmup) {
  TrainConfig config;
  config.steps = steps;
  config.warmup = warmup;
  config.lr = 2;
  config.min_lr_ratio = 0.1;
  return config;
}

TEST(TrainConfig, LearningRateWarmsUpThenFollowsACosine) {
  const TrainConfig config = schedule(110, 10);
  EXPECT_DOUBLE_EQ(config.lr_at(1), 0.2);
  EXPECT_DOUBLE_EQ(config.lr_at(5), 1);
  EXPECT_DOUBLE_EQ(config.lr_at(10), 2);
  EXPECT_DOUBLE_EQ(config.lr_at(60), 2 * (0.1 + 0.9 * 0.5));  // half-way
  EXPECT_DOUBLE_EQ(config.lr_at(35), 2 * (0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5))));
  EXPECT_NEAR(config.lr_at(110), 0.2, 1e-15);
  EXPECT_NEAR(config.lr_at(1000), 0.2, 1e-15);  // never up again
  for (int64_t step = 11; step <= 110; ++step) EXPECT_LT(config.lr_at(step), config.lr_at(step - 1));
}

TEST(TrainConfig, LearningRateStaysThenGoesDownLinearly) {
  TrainConfig config = schedule(100, 10);
  config.schedule = "wsd";
  config.decay_share = 0.2;
  EXPECT_DOUBLE_EQ(config.lr_at(5), 1);
  for (int64_t step : {10, 50, 80}) EXPECT_DOUBLE_EQ(config.lr_at(step), 2);
  EXPECT_DOUBLE_EQ(config.lr_at(90), 2 * (0.1 + 0.9 * 0.5));
  EXPECT_DOUBLE_EQ(config.lr_at(100), 0.2);
  EXPECT_DOUBLE_EQ(config.lr_at(1000), 0.2);
  config.decay_share = 0;
  EXPECT_DOUBLE_EQ(config.lr_at(99), 2);
}

TEST(TrainConfig, LearningRateAtTheEdges) {
  EXPECT_DOUBLE_EQ(schedule(100, -1).lr_at(10), 2);  // a tenth of the steps
  EXPECT_DOUBLE_EQ(schedule(100, -1).lr_at(5), 1);
  EXPECT_NEAR(schedule(1, 0).lr_at(1), 0.2, 1e-15);  // one step: already the end of the cosine
  EXPECT_NEAR(schedule(5, -1).lr_at(5), 0.2, 1e-15);
  EXPECT_DOUBLE_EQ(schedule(10, 20).lr_at(10), 1);  // a warm-up longer than the run
  TrainConfig constant = schedule(100, 10);
  constant.schedule = "constant";
  EXPECT_DOUBLE_EQ(constant.lr_at(5), 1);
  EXPECT_DOUBLE_EQ(constant.lr_at(99), 2);
  TrainConfig attempts = schedule(400, 10);
  attempts.stop_at = 1, attempts.validate_every = 50;
  attempts.restart = 100;  // four attempts, each with the schedule of a run of that many updates
  for (int64_t step : {1, 10, 50, 100})
    for (int64_t begin : {0, 100, 300})
      EXPECT_DOUBLE_EQ(attempts.lr_at(begin + step), schedule(100, 10).lr_at(step));
}

TEST(TrainConfig, CurriculumGrowsToTheFullLengthAndNeverBeyond) {
  TrainConfig config;
  config.curriculum = 100;
  const tasks::LengthRange full{3, 43};
  EXPECT_EQ(config.lengths_at(1, full).max, 4);
  EXPECT_EQ(config.lengths_at(50, full).max, 13);
  EXPECT_EQ(config.lengths_at(99, full).max, 42);
  EXPECT_EQ(config.lengths_at(100, full).max, 43);
  EXPECT_EQ(config.lengths_at(5000, full).max, 43);
  for (int64_t step = 1; step < 120; ++step) {
    EXPECT_EQ(config.lengths_at(step, full).min, 3);
    EXPECT_LE(config.lengths_at(step, full).max, 43);
    EXPECT_LE(config.lengths_at(step, full).max, config.lengths_at(step + 1, full).max);
    EXPECT_EQ(config.lengths_at(step, {7, 7}).max, 7) << "one length is all there is";
  }
  config.restart = 200, config.stop_at = 1, config.validate_every = 50;
  for (int64_t step : {1, 50, 100, 200})
    EXPECT_EQ(config.lengths_at(step + 600, full).max, config.lengths_at(step, full).max);
  config.restart = config.curriculum = 0;
  EXPECT_EQ(config.lengths_at(1, full).max, 43);
}

// Whatever the curriculum offers, every task has samples there.
TEST(TrainConfig, EveryTaskCanDrawFromTheCurriculum) {
  TrainConfig config;
  config.curriculum = 60;
  for (const auto& name : tasks::task_names()) {
    SCOPED_TRACE(name);
    const auto task = tasks::make_task(name);
    tasks::Batch batch;
    for (int64_t step = 1; step <= 60; ++step) {
      const auto range = config.lengths_at(step, task->train_lengths());
      tasks::make_batch(*task, 1, tasks::Split::kTrain, static_cast<uint64_t>(step) * 4, 4, range, batch);
      // With brackets the smallest expression takes 5.
      for (int32_t size : batch.sizes) EXPECT_LE(size, std::max<int64_t>(range.max, 5));
    }
  }
}

TEST(RunConfig, LaterSourcesWin) {
  TemporaryDirectory directory;
  const std::string file = directory / "run.yaml";
  write_text(file,
             "task: {name: parity}\nmodel: {architecture: mamba, width: 24}\ntrain: {lr: 0.5, batch: 3}\n");
  const auto from_file = resolve_config({file, "", "", {}});
  EXPECT_EQ(from_file.task.name, "parity");
  EXPECT_EQ(from_file.model.architecture, "mamba");
  EXPECT_EQ(from_file.model.width, 24);
  EXPECT_EQ(from_file.train.lr, 0.5);
  const auto set = resolve_config({file, "even-pairs", "", {"train.lr=0.25", "train.lr=0.125"}});
  EXPECT_EQ(set.task.name, "even-pairs");
  EXPECT_EQ(set.train.lr, 0.125);
  EXPECT_EQ(set.train.batch, 3);
}

TEST(RunConfig, WhatIsWrittenReadsBackTheSame) {
  TemporaryDirectory directory;
  for (const char* architecture : {"deltanet", "mamba"}) {
    auto config = resolve_config({"", "parity", architecture, {"train.lr=0.1", "train.temperature=1.7"}});
    write_text(directory / "config.yaml", config.to_yaml());
    auto again = resolve_config({directory / "config.yaml", "", "", {}});
    EXPECT_EQ(again.to_yaml(), config.to_yaml());
    EXPECT_EQ(again.train.lr, 0.1);
  }
}

TEST(RunConfig, WrongNamesAreAnsweredWithTheNearest) {
  expect_error([] { resolve_config({"", "pairty", "", {}}); }, ErrorCode::kUsage, "parity");
  expect_error([] { resolve_config({"", "parity", "deltnet", {}}); }, ErrorCode::kUsage, "deltanet");
  expect_error(
      [] {
        resolve_config({"", "parity", "", {"train.learning=1"}});
      },
      ErrorCode::kUsage, "train.learning");
  expect_error(
      [] {
        resolve_config({"", "parity", "", {"train.btach=1"}});
      },
      ErrorCode::kUsage, "train.batch");
  expect_error(
      [] {
        resolve_config({"", "parity", "mamba", {"model.heads=2"}});
      },
      ErrorCode::kUsage, "model.heads");
  expect_error([] { resolve_config({}); }, ErrorCode::kUsage, "no task given");
}

// The exit code says whether the command line or the file is to be mended.
TEST(RunConfig, WrongNamesInAFileAreTheFilesFault) {
  TemporaryDirectory directory;
  const std::string file = directory / "run.yaml";
  write_text(file, "task: {name: pairty}\n");
  expect_error([&] { resolve_config({file, "", "", {}}); }, ErrorCode::kBadInput, "parity");
  EXPECT_EQ(resolve_config({file, "parity", "", {}}).task.name, "parity") << "the command line wins";
  expect_error([&] { resolve_config({file, "pairty", "", {}}); }, ErrorCode::kUsage, "parity");
  write_text(file, "task: {name: parity}\nmodel: {architecture: deltnet}\n");
  expect_error([&] { resolve_config({file, "", "", {}}); }, ErrorCode::kBadInput, "deltanet");
  expect_error(
      [&] {
        resolve_config({file, "", "", {"model.architecture=mmaba"}});
      },
      ErrorCode::kUsage, "mamba");
  write_text(file, "task: {name: 'S99'}\n");
  expect_error([&] { resolve_config({file, "", "", {}}); }, ErrorCode::kBadInput, "S99");
}

// So does what is wrong as a whole: the one that is wrong without the other has the fault.
TEST(RunConfig, FaultsOfAFileNameIt) {
  TemporaryDirectory directory;
  const std::string file = directory / "run.yaml";
  for (const char* text :
       {"", "[]", "task: parity\n", "train: {steps: 3}\n", "model: {width: 8}\n",
        "base: {task: {name: parity}}\ngrid: {train.seed: [1, 2]}\n",
        "task: {name: parity}\ntrain: {max_length: 1}\n", "task: {name: parity}\ntrain: {dataset: 3}\n",
        "task: {name: parity}\nmodel: {eigenvalues: [1, -1]}\n",
        "task: {name: parity}\nmodel: {heads: 3}\n"}) {
    SCOPED_TRACE(text);
    write_text(file, text);
    expect_error([&] { resolve_config({file, "", "", {}}); }, ErrorCode::kBadInput, "run.yaml");
    // A setting that mends nothing does not move the fault.
    expect_error([&] { resolve_config({file, "", "", {"train.seed=2"}}); }, ErrorCode::kBadInput, "run.yaml");
  }
  EXPECT_NO_THROW(resolve_config({file, "", "", {"model.heads=4"}}));
  write_text(file, "task: {name: parity}\n");
  for (const char* assignment : {"train.max_length=1", "model.eigenvalues=1,-1", "train.nosuch=3"}) {
    SCOPED_TRACE(assignment);
    expect_error([&] { resolve_config({file, "", "", {assignment}}); }, ErrorCode::kUsage, "");
    expect_error([&] { resolve_config({"", "parity", "", {assignment}}); }, ErrorCode::kUsage, "");
  }
}

TEST(RunConfig, AnAutomatonIsPartOfTheConfiguration) {
  TemporaryDirectory directory;
  const std::string file = directory / "config.yaml";
  const std::string dfa = R"({"alphabet":["a","b"],"start":0,"accept":[1],"delta":[[1,0],[0,1]]})";
  for (const std::vector<std::string>& set :
       {std::vector<std::string>{"task.regex=(ab|ba)*", "task.alphabet=abc"},
        {"task.regex=a\\*'\"#: b", "task.targets=state"},
        {"task.dfa=" + dfa, "task.targets=state"}}) {
    auto config = resolve_config({"", "automaton", "", set});
    write_text(file, config.to_yaml());
    auto again = resolve_config({file, "", "", {}});
    EXPECT_EQ(again.to_yaml(), config.to_yaml());
    const auto one = config.task.make(), two = again.task.make();
    EXPECT_EQ(one->classes(), two->classes());
    EXPECT_EQ(tasks::make_sample(*one, 1, tasks::Split::kTest, 0, {9, 9}).targets,
              tasks::make_sample(*two, 1, tasks::Split::kTest, 0, {9, 9}).targets);
  }
  for (const char* text :
       {"task: {name: automaton}", "task: {name: automaton, regex: '((('}",
        "task: {name: automaton, dfa: '[[[['}", "task: {name: automaton, regex: a, dfa: '{}'}",
        "task: {name: parity, regex: a}", "task: {name: automaton, regex: a, targets: both}",
        "task: {name: automaton, regex: '(a|b){99999}'}"}) {
    SCOPED_TRACE(text);
    write_text(file, text);
    expect_error([&] { resolve_config({file, "", "", {}}); }, ErrorCode::kBadInput, "");
  }
}

// Runs of one title are one task on a page.
TEST(TaskConfig, TitlesTellAutomataApart) {
  const auto title = [](const std::vector<std::string>& set) {
    return resolve_config({"", "automaton", "", set}).task.title();
  };
  EXPECT_EQ(title({"task.regex=a*"}), "regex a*");
  EXPECT_EQ(title({"task.regex=(ba)*", "task.alphabet=ba"}), "regex (ba)*");
  EXPECT_EQ(title({"task.regex=a*", "task.alphabet=ab"}), "regex a* over ab");
  EXPECT_EQ(title({"task.regex=..", "task.alphabet=ab"}), "regex .. over ab");
  EXPECT_EQ(title({"task.regex=a*", "task.alphabet=abc", "task.targets=state"}), "regex a* over abc, states");
  const std::string even = R"({"alphabet":["a"],"start":0,"accept":[0],"delta":[[1],[0]]})",
                    odd = R"({"alphabet":["a"],"start":0,"accept":[1],"delta":[[1],[0]]})",
                    mealy = R"({"alphabet":["a"],"start":0,"output":[[0],[1]],"delta":[[1],[0]]})";
  EXPECT_EQ(title({"task.dfa=" + even}), "DFA 8b5aa8 (2 states, 1 letter)");
  EXPECT_EQ(title({"task.dfa=" + even}), title({"task.dfa= " + even})) << "however it is written";
  EXPECT_NE(title({"task.dfa=" + even}), title({"task.dfa=" + odd}));
  EXPECT_EQ(title({"task.dfa=" + mealy}).rfind("Mealy machine ", 0), 0u);
  EXPECT_EQ(title({"task.dfa=" + odd, "task.targets=state"}), title({"task.dfa=" + odd}) + ", states");
  EXPECT_EQ(resolve_config({"", "parity", "", {}}).task.title(), "parity");
}

TEST(RunConfig, WhatAModelCannotTakeIsRefusedBeforeTraining) {
  const auto with = [](const char* model, const char* set) {
    return resolve_config({"", "parity", model, {set}});
  };
  expect_error([&] { with("transformer", "model.max_length=64"); }, ErrorCode::kUsage,
               "model.max_length = 64");
  expect_error([&] { with("deltanet+transformer", "model.transformer.max_length=64"); }, ErrorCode::kUsage,
               "model.transformer.max_length = 64");
  EXPECT_NO_THROW(with("deltanet+transformer", "model.transformer.max_length=255"));
  EXPECT_NO_THROW(with("transformer", "model.max_length=255"));  // the answer is not fed
  expect_error(
      [] {
        resolve_config({"", "S3", "transformer", {"model.max_length=500"}});
      },
      ErrorCode::kUsage,
      "501");  // BOS is
  EXPECT_NO_THROW(resolve_config({"", "S3", "transformer", {"train.max_length=2000"}}));
  expect_error([&] { with("lstm", "model.eigenvalues=-1,1"); }, ErrorCode::kUsage, "lstm");
  for (const char* model : {"deltanet", "deltaproduct", "gated-deltanet", "gated-deltaproduct", "kda"})
    EXPECT_EQ(with(model, "train.noise=0.25").train.noise, 0.25);
  for (const char* model : {"mamba", "mlstm", "transformer"}) {
    expect_error([&] { with(model, "train.noise=0.25"); }, ErrorCode::kUsage,
                 "it is for deltanet, deltaproduct, gated-deltanet, gated-deltaproduct, kda, with");
    EXPECT_NO_THROW(with(model, "train.noise=0"));
  }
  expect_error(
      [] {
        resolve_config({"", "parity", "deltanet", {"train.noise=0.25", "model.output_norm=false"}});
      },
      ErrorCode::kUsage, "output_norm");
  for (const char* noise : {"train.noise=-0.1", "train.noise=nan", "train.noise=inf", "train.noise=1e9"})
    expect_error([&] { with("deltanet", noise); }, ErrorCode::kUsage, "train.noise");
  // Margins that nothing would read.
  for (const char* gate : {"model.beta=hard", "model.beta=fixed"})
    expect_error(
        [&] {
          resolve_config({"", "parity", "deltanet", {gate, "model.beta_margin=0.1"}});
        },
        ErrorCode::kUsage, "model.beta_margin");
  expect_error([&] { with("deltanet", "model.decay_margin=0.1"); }, ErrorCode::kUsage, "model.decay_margin");
  // A model without a range is written without one and reads back so.
  TemporaryDirectory directory;
  auto config = with("lstm", "model.width=8");
  write_text(directory / "lstm.yaml", config.to_yaml());
  EXPECT_TRUE(resolve_config({directory / "lstm.yaml", "", "", {}}).model.eigenvalues.empty());
}

TEST(RunConfig, AbsurdValuesAreRefused) {
  for (const char* assignment : {"train.lr=nan",
                                 "train.lr=inf",
                                 "train.lr=-1",
                                 "train.steps=-1",
                                 "train.batch=0",
                                 "train.batch=1.5",
                                 "train.batch=99999999999999999999",
                                 "train.dtype=float16",
                                 "train.temperature=0",
                                 "train.eps=0",
                                 "train.eps=1e-21",
                                 "model.width=0",
                                 "model.width=-8",
                                 "model.eigenvalues=0,2",
                                 "model.eigenvalues=1",
                                 "model.eigenvalues=-1,0",
                                 "model.eigenvalues=nan,1",
                                 "model.blocks=100000",
                                 "train.keep=0",
                                 "train.schedule=linear",
                                 "train.lr",
                                 "=3",
                                 "train=3",
                                 "",
                                 "train.max_length=99999999999"}) {
    SCOPED_TRACE(assignment);
    const auto error = test::error_of([&] { resolve_config({"", "parity", "", {assignment}}); });
    ASSERT_TRUE(error);
    EXPECT_TRUE(error->code() == ErrorCode::kBadInput || error->code() == ErrorCode::kUsage) << error->what();
  }
  // Each alone is allowed, together they are not.
  EXPECT_TRUE(test::error_of([] {
    resolve_config({"", "parity", "", {"train.min_length=20", "train.max_length=10"}});
  }));
  EXPECT_TRUE(test::error_of([] { resolve_config({"", "parity", "", {"train.max_length=1"}}); }));
}

TEST(Config, PrecisionFollowsTheDeviceUnlessItIsGiven) {
  const Device cpu, gpu{DeviceKind::kCuda, nullptr};
  const auto with = [](const std::string& precision) {
    return resolve_config({"", "parity", "", {"train.precision=" + precision}});
  };
  EXPECT_EQ(with("auto").precision(cpu), Precision::kFp32);
  EXPECT_EQ(with("auto").precision(gpu), Precision::kTf32);
  EXPECT_EQ(with("fp32").precision(gpu), Precision::kFp32);
  EXPECT_EQ(with("tf32").precision(gpu), Precision::kTf32);
  EXPECT_EQ(with("bf16").precision(gpu), Precision::kBf16);
  EXPECT_STREQ(precision_name(Precision::kBf16), "bf16");
  for (const std::string precision : {"tf32", "bf16"})
    expect_error([&] { with(precision).precision(cpu); }, ErrorCode::kUsage, precision);
  EXPECT_TRUE(test::error_of([&] { with("fp16"); }));
}

}  // namespace
}  // namespace signet::train
