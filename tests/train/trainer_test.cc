// Whole runs: reproducible to the bit, resumable to the bit, and able to learn.
#include "signet/train/trainer.h"

#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <filesystem>

#include "signet/base/files.h"
#include "signet/base/isa.h"
#include "signet/base/thread_pool.h"
#include "signet/train/evaluator.h"
#include "signet/train/optimizers/optimizer.h"
#include "signet/train/pending_save.h"
#include "signet/train/run.h"
#include "signet/train/step_engine.h"
#include "support/check.h"
#include "support/small_run.h"
#include "support/temporary_directory.h"

namespace signet::train {
namespace {

using nlohmann::ordered_json;
using test::metrics_of;
using test::model_bytes;
using test::resume_small;
using test::TemporaryDirectory;
using test::train_small;

ordered_json without_time(ordered_json result) {
  for (const char* key : {"seconds", "provenance"}) result.erase(key);
  return result;
}

TEST(Trainer, SameSeedSameBitsOtherSeedOtherBits) {
  TemporaryDirectory directory;
  const auto first = train_small(directory / "a");
  const auto again = train_small(directory / "b");
  const auto other = train_small(directory / "c", {"train.seed=2"});
  EXPECT_EQ(without_time(first), without_time(again));
  EXPECT_EQ(metrics_of(directory / "a"), metrics_of(directory / "b"));
  ASSERT_FALSE(model_bytes(directory / "a", 40).empty());
  EXPECT_EQ(model_bytes(directory / "a", 40), model_bytes(directory / "b", 40));
  EXPECT_NE(model_bytes(directory / "a", 40), model_bytes(directory / "c", 40));
  EXPECT_NE(metrics_of(directory / "a"), metrics_of(directory / "c"));
}

TEST(Trainer, BeginsWithTheWeightsOfAnotherRun) {
  TemporaryDirectory directory;
  train_small(directory / "a");
  const std::string from = "train.from=" + (directory / "a");
  train_small(directory / "b", {from, "train.steps=0", "train.seed=5"});
  EXPECT_EQ(model_bytes(directory / "b", 0), model_bytes(directory / "a", 40));
  // Stopped before its first checkpoint it begins there again.
  const auto whole = train_small(directory / "c", {from, "train.steps=5", "train.checkpoint_every=0"});
  std::filesystem::remove(directory / "c/results.json");
  std::filesystem::remove_all(directory / "c/checkpoints");
  EXPECT_EQ(without_time(resume_small(directory / "c")), without_time(whole));
  try {
    train_small(directory / "d", {from, "model.width=16"});
    FAIL() << "took over parameters of other shapes";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("other parameters"), std::string::npos);
  }
}

// Its weights are nowhere else, so that they are there again before anything can be lost.
TEST(Trainer, ARunMayTakeThePlaceOfTheOneItBeginsFrom) {
  TemporaryDirectory directory;
  const std::string run = directory / "run", from = "train.from=" + run;
  train_small(run);
  const std::string before = model_bytes(run, 40);
  {
    auto opened = io::RunDirectory::create(run, true);
    TrainOptions options{true, "", {}};
    options.on_step = [](int64_t, double) { throw Error(ErrorCode::kFailure, "stop here"); };
    EXPECT_THROW(train(test::small_config({from, "train.steps=5"}), opened, false, options), Error);
  }
  EXPECT_EQ(model_bytes(run, 0), before);
  EXPECT_FALSE(exists(run + "/results.json"));
  EXPECT_EQ(resume_small(run)["steps"], 5);
}

TEST(Trainer, WhereItsWeightsCannotBeSavedTheRunThatItBeginsFromStays) {
  TemporaryDirectory directory;
  const std::string run = directory / "run";
  train_small(run);
  const std::string before = model_bytes(run, 40), results = test::read_text(run + "/results.json");
  struct rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto ignored = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {2000, limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(
      {
        auto opened = io::RunDirectory::create(run, true);
        train(test::small_config({"train.from=" + run, "train.steps=5"}), opened, false, {true, "", {}});
      },
      Error);
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::signal(SIGXFSZ, ignored);
  EXPECT_EQ(model_bytes(run, 40), before);
  EXPECT_EQ(test::read_text(run + "/results.json"), results);
  EXPECT_EQ(resume_small(run)["steps"], 40);
}

// No noise is today's run to the bit; noise is in the updates alone: after none of them nothing has changed.
TEST(Trainer, NoiseIsPartOfTrainingAlone) {
  TemporaryDirectory directory;
  const auto run = [&](const char* name, const std::vector<std::string>& set) {
    return without_time(train_small(directory / name, set));
  };
  EXPECT_EQ(run("plain", {}), run("silent", {"train.noise=0"}));
  EXPECT_EQ(model_bytes(directory / "plain", 40), model_bytes(directory / "silent", 40));
  EXPECT_EQ(run("noisy", {"train.noise=0.5"}), run("again", {"train.noise=0.5"}));
  EXPECT_EQ(model_bytes(directory / "noisy", 40), model_bytes(directory / "again", 40));
  EXPECT_NE(model_bytes(directory / "noisy", 40), model_bytes(directory / "plain", 40));
  EXPECT_EQ(run("start", {"train.steps=0"}), run("noisy start", {"train.steps=0", "train.noise=0.5"}));
}

// An attempt begins as a run does: the moments are gone, and so are the steps that they were corrected for.
TEST(Trainer, StartingOverMovesAsANewRun) {
  const auto config = test::small_config({"train.clip=0.3"});
  struct Training {
    train::Run run;
    std::unique_ptr<Optimizer> optimizer;
    std::unique_ptr<StepEngine> engine;
    explicit Training(const RunConfig& config)
        : run(config),
          optimizer(make_optimizer(run.model().parameters(), run.dtype(), config.train.optimizer_options())),
          engine(make_step_engine({}, run.model(), config.step_options({}), run.weights(), *optimizer)) {}
    void step(int64_t number) {
      tasks::Batch batch;
      tasks::make_batch(run.task(), 1, tasks::Split::kTrain, 0, 8, {3, 9}, batch);
      engine->submit(batch, 1e-3, number);
      EXPECT_TRUE(engine->collect().updated);
    }
    std::vector<float> weights() {
      const auto* const first = static_cast<const float*>(run.weights());
      return {first, first + run.model().parameters().size()};
    }
  };
  Training fresh(config), used(config);
  const auto start = fresh.weights();
  for (int64_t number = 1; number <= 9; ++number) used.step(number);
  EXPECT_NE(used.weights(), start);
  std::copy(start.begin(), start.end(), static_cast<float*>(used.run.weights()));
  used.optimizer->start_over(9);
  for (int64_t number = 1; number <= 3; ++number) {
    fresh.step(number), used.step(9 + number);
    EXPECT_EQ(fresh.weights(), used.weights()) << number;
  }
}

TEST(Trainer, TheNumberOfThreadsChangesNoBit) {
  TemporaryDirectory directory;
  const int before = thread_count();
  const std::vector<std::string> set = {"train.clip=0.5", "model.mlp=16", "model.conv=4", "train.steps=12",
                                        "train.noise=0.1"};
  for (int threads : {1, 2, 3}) {
    set_thread_count(threads);
    train_small(directory / std::to_string(threads), set);
  }
  set_thread_count(before);
  for (const char* threads : {"2", "3"}) {
    SCOPED_TRACE(threads);
    EXPECT_EQ(model_bytes(directory / threads, 12), model_bytes(directory / "1", 12));
    EXPECT_EQ(metrics_of(directory / threads), metrics_of(directory / "1"));
  }
}

// A solved attempt is not thrown away where the next one begins, also by a run that goes on just there.
TEST(Trainer, AnAttemptThatIsSolvedGoesOn) {
  TemporaryDirectory directory;
  const std::string run = directory / "run";
  const auto solved = without_time(train_small(
      run,
      {"task.regex=(a|b)*b", "train.lr=3e-2", "train.batch=32", "train.steps=100", "train.restart=20",
       "train.validate_every=20", "train.checkpoint_every=20", "train.stop_at=1"},
      kAutomatonTask));
  EXPECT_TRUE(solved["stopped_early"].get<bool>());
  EXPECT_EQ(solved["steps"], 40);
  const std::string weights = model_bytes(run, 40);
  std::filesystem::remove_all(run + "/checkpoints/step-40");
  EXPECT_EQ(without_time(resume_small(run)), solved);
  EXPECT_EQ(model_bytes(run, 40), weights);
}

// What the validations of an attempt reached counts no more in the next one. At a learning rate of 0 each has
// the score of its start.
TEST(Trainer, ANewAttemptHasReachedNothing) {
  TemporaryDirectory directory;
  int most = 0;  // validations in a row that reached stop_at
  for (const char* seed : {"2", "3", "6", "8"}) {
    const std::string run = directory / seed;
    const auto guessed = train_small(
        run, {"train.lr=0", "train.batch=2", "train.steps=40", "train.restart=2", "train.validate_every=2",
              "train.stop_at=1e-9", "train.validate_samples=17", std::string("train.seed=") + seed});
    EXPECT_FALSE(guessed["stopped_early"].get<bool>()) << seed;
    int in_a_row = 0;
    for (const auto& line : metrics_of(run)) {
      if (!line.contains("eval")) continue;
      in_a_row = line["eval"]["scaled_accuracy"] >= 1e-9 ? in_a_row + 1 : 0;
      most = std::max(most, in_a_row);
    }
  }
  EXPECT_GE(most, 2) << "else this shows nothing";
}

// As after kill -9: only the checkpoints up to some step are there, metrics.jsonl has run ahead.
TEST(Trainer, ResumesFromEveryCheckpointToTheSameBits) {
  namespace fs = std::filesystem;
  for (const auto& set :
       {std::vector<std::string>{"train.clip=0.3", "train.weight_decay=0.1"},
        std::vector<std::string>{"train.dtype=float64", "train.curriculum=30"},
        std::vector<std::string>{"train.restart=14", "train.curriculum=10", "train.stop_at=1",
                                 "train.validate_every=20"},
        std::vector<std::string>{"train.noise=0.2", "model.blocks=2", "train.moments=bf16"}}) {
    TemporaryDirectory directory;
    const std::string whole = directory / "whole";
    const auto expected = train_small(whole, set);
    ASSERT_EQ(list_directory(whole + "/checkpoints").size(), 6u);  // 7, 14, 21, 28, 35 and the last
    for (int64_t last : {0, 7, 14, 21, 35, 40}) {
      SCOPED_TRACE(last);
      const std::string part = directory / ("part-" + std::to_string(last));
      fs::copy(whole, part, fs::copy_options::recursive);
      for (int64_t step : {7, 14, 21, 28, 35, 40})
        if (step > last) fs::remove_all(part + "/checkpoints/step-" + std::to_string(step));
      fs::remove(part + "/results.json");
      std::ofstream(part + "/metrics.jsonl", std::ios::app) << "{\"step\":";  // a torn line
      EXPECT_EQ(without_time(resume_small(part)), without_time(expected));
      EXPECT_EQ(model_bytes(part, 40), model_bytes(whole, 40));
      EXPECT_EQ(metrics_of(part), metrics_of(whole));
      EXPECT_TRUE(exists(part + "/results.json"));
    }
  }
}

TEST(Trainer, ADamagedCheckpointIsPassedOver) {
  TemporaryDirectory directory;
  const std::string run = directory / "run";
  train_small(run);
  const std::string expected = model_bytes(run, 40);
  for (int64_t step : {40, 35}) {
    const std::string path = run + "/checkpoints/step-" + std::to_string(step) + "/optimizer.safetensors";
    std::string bytes = test::read_text(path);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 16);
    test::write_text(path, bytes);
  }
  resume_small(run);
  EXPECT_EQ(model_bytes(run, 40), expected);
}

// The weights are whole, so the run goes on; its curves are not.
TEST(Trainer, MetricsThatAreMissingOrMalformedAreNoticed) {
  TemporaryDirectory directory;
  const std::string run = directory / "run", metrics = run + "/metrics.jsonl";
  train_small(run, {"train.steps=20"});
  const std::string whole = test::read_text(metrics);
  const auto said = [&](const std::string& text) {
    test::write_text(metrics, text);
    testing::internal::CaptureStderr();
    resume_small(run);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said(whole), "");
  EXPECT_EQ(said(whole + "what came after the checkpoint\n"), "");
  const std::string garbled = "x\n{}\n" + whole.substr(whole.find('\n') + 1) + std::string(whole.size(), ' ');
  EXPECT_NE(said(garbled).find("malformed line"), std::string::npos);
  EXPECT_NE(said(whole.substr(0, whole.find('\n') + 1)).find("lines up to step 20 are missing"),
            std::string::npos);
  EXPECT_NE(said("").find("are missing"), std::string::npos);
}

TEST(Trainer, ResultsSayOnWhatTheyWereMade) {
  TemporaryDirectory directory;
  const auto results = train_small(directory / "run", {"train.steps=1"});
  EXPECT_EQ(results["device"], "cpu");
  EXPECT_EQ(results["isa"], isa_name(current_isa()));
}

// All that training has made so far would be lost.
TEST(Trainer, CheckpointsOfWhichNoneCanBeReadAreNotReplaced) {
  TemporaryDirectory directory;
  const std::string run = directory / "run";
  train_small(run, {"train.keep=2"});
  const std::string expected = model_bytes(run, 40);
  for (const char* step : {"35", "40"}) {
    const std::string path = run + "/checkpoints/step-" + step + "/manifest.json";
    test::write_text(path, test::read_text(path) + " ");
  }
  test::expect_bad_input([&] { resume_small(run); }, "/checkpoints: this build can read none");
  EXPECT_EQ(list_directory(run + "/checkpoints"), (std::vector<std::string>{"step-35", "step-40"}));
  EXPECT_FALSE(metrics_of(run).empty());
  test::expect_bad_input([&] { Run::load(run); }, "no complete checkpoint that this build can read");
  std::filesystem::rename(run + "/checkpoints", run + "/broken");
  resume_small(run);
  EXPECT_EQ(model_bytes(run, 40), expected);
}

TEST(Trainer, AStateThatIsNotOursIsNamed) {
  TemporaryDirectory directory;
  const std::string path = directory / "run";
  train_small(path);
  train::Run run = train::Run::load(path);
  std::vector<float> moments(static_cast<size_t>(run.model().parameters().size()));
  io::Checkpoint checkpoint;
  checkpoint.step = 40;
  checkpoint.model = run.named(run.weights());
  checkpoint.optimizer = run.named(moments.data(), "m.");
  for (auto& buffer : run.named(moments.data(), "v.")) checkpoint.optimizer.push_back(buffer);
  for (const auto& [state, part] : std::vector<std::pair<std::string, std::string>>{
           {R"({"solved_in_a_row": "two"})", "'solved_in_a_row' must be a whole number"},
           {R"({"stopped_early": 1})", "'stopped_early' must be true or false"},
           {R"({"validation_due": null})", "'validation_due' must be true or false"},
           {R"({"seconds": [1]})", "'seconds' must be a number"},
           {R"({"tokens": 1e300})", "'tokens' must be a whole number"},
           {R"({"tokens": 9223372036854775807})", "'tokens' is out of range"},
           {R"({"metrics_bytes": -1})", "'metrics_bytes' is out of range"}}) {
    checkpoint.state = state;
    io::save_checkpoint(path, checkpoint, 1);
    test::expect_bad_input([&] { resume_small(path); }, "step-40/manifest.json: state: " + part);
  }
}

// `signet eval --save` adds to the results of a run; a resume that changes no weight keeps that.
TEST(Trainer, ResumingAFinishedRunKeepsWhatWasSaved) {
  TemporaryDirectory directory;
  const std::string run = directory / "run", path = run + "/results.json";
  train_small(run);
  auto results = ordered_json::parse(test::read_text(path));
  results["far"] = {{{"length", 1000}, {"accuracy", 0.5}}};
  results["horizon"] = {{"length", 12}, {"reached_limit", false}};
  test::write_text(path, results.dump());
  EXPECT_EQ(without_time(resume_small(run)), without_time(results));
  EXPECT_EQ(without_time(ordered_json::parse(test::read_text(path))), without_time(results));
  std::filesystem::remove_all(run + "/checkpoints/step-40");
  EXPECT_FALSE(resume_small(run).contains("horizon")) << "of weights that were made anew";
  for (const char* text : {"[]", "{\"far\": 1, \"horizon\": []}", "{"}) {
    test::write_text(path, text);
    EXPECT_FALSE(resume_small(run).contains("far")) << text;
  }
}

// The signal comes when the file named here is about to be written.
std::string signal_at;
int raise_signal(const char* call, const char* path, const char* to) {
  const std::string target = to ? to : path;
  const bool there = target.size() >= signal_at.size() &&
                     target.compare(target.size() - signal_at.size(), signal_at.size(), signal_at) == 0;
  if (there && (std::string(call) == "write" || std::string(call) == "rename")) ::raise(SIGTERM);
  return 0;
}
template <class Call>
void expect_stopped(const std::string& file, Call&& call, const std::string& part) {
  signal_at = file;
  set_file_fault_hook(raise_signal);
  test::expect_error(call, ErrorCode::kStopped, part);
  set_file_fault_hook(nullptr);
}

TEST(Trainer, AStoppedValidationIsMadeByTheRunThatGoesOn) {
  TemporaryDirectory directory;
  const std::vector<std::string> set = {"train.validate_every=10", "train.steps=20"};
  const std::string whole = directory / "whole", run = directory / "run [1]";
  train_small(whole, set);
  // The first line of metrics.jsonl is that of step 10, after which the run validates.
  expect_stopped(
      "metrics.jsonl", [&] { train_small(run, set); },
      "saved at step 10; go on with: signet train --resume '" + run + "'");
  EXPECT_EQ(metrics_of(run).size(), 1u);
  // The next one is that of the validation itself, then comes step 20, the last.
  expect_stopped(
      "metrics.jsonl", [&] { resume_small(run); }, "saved at step 10");
  EXPECT_EQ(metrics_of(run).size(), 2u);
  expect_stopped(
      "metrics.jsonl", [&] { resume_small(run); }, "saved at step 20");
  EXPECT_EQ(metrics_of(run).size(), 3u);
  EXPECT_FALSE(exists(run + "/results.json"));
  resume_small(run);
  EXPECT_EQ(metrics_of(run), metrics_of(whole));
  EXPECT_EQ(model_bytes(run, 20), model_bytes(whole, 20));
}

// Between two validations no more than the update in hand is waited for.
TEST(Trainer, AStoppedRunIsSavedAfterTheUpdateInHand) {
  TemporaryDirectory directory;
  const std::string run = directory / "run";
  expect_stopped(
      "metrics.jsonl",
      [&] {
        train_small(run, {"train.validate_every=0", "train.checkpoint_every=0"});
      },
      "saved at step 11");
  EXPECT_EQ(Run::load(run).step(), 11);
}

// An evaluation of minutes, were the signal not heeded.
TEST(Trainer, AStoppedEvaluationIsMadeByTheRunThatGoesOn) {
  TemporaryDirectory directory;
  const std::string run = directory / "my run";
  const std::vector<std::string> set = {"train.steps=3", "eval.samples=4096", "eval.max_length=20000",
                                        "eval.min_length=20000"};
  const auto begin = std::chrono::steady_clock::now();
  expect_stopped(
      "step-3", [&] { train_small(run, set); }, "signet train --resume '" + run + "'");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_FALSE(exists(run + "/results.json"));
  EXPECT_EQ(Run::load(run).step(), 3);
}

TEST(Trainer, MetricsSayWhatHappened) {
  TemporaryDirectory directory;
  train_small(directory / "run");
  const auto config = test::small_config();
  std::vector<int64_t> logged, validated;
  for (const auto& line : metrics_of(directory / "run")) {
    const auto step = line["step"].get<int64_t>();
    if (line.contains("eval")) {
      validated.push_back(step);
      EXPECT_EQ(line["eval"]["samples"], 16);
      continue;
    }
    logged.push_back(step);
    EXPECT_EQ(line["lr"].get<double>(), config.train.lr_at(step));
    EXPECT_GT(line["grad_norm"].get<double>(), 0);
    EXPECT_TRUE(std::isfinite(line["loss"].get<double>()));
  }
  EXPECT_EQ(logged, (std::vector<int64_t>{10, 20, 30, 40}));
  EXPECT_EQ(validated, (std::vector<int64_t>{9, 18, 27, 36}));
}

TEST(Trainer, ASaveThatNobodyEndsLeavesNothing) {
  TemporaryDirectory directory;
  const std::string run = directory / "run";
  train_small(run, {"train.steps=0"});
  train::Run loaded = train::Run::load(run);
  io::Checkpoint checkpoint;
  checkpoint.step = 7, checkpoint.model = loaded.named(loaded.weights()), checkpoint.state = "{}";
  { const PendingSave pending(run, checkpoint, 1, nullptr); }
  EXPECT_EQ(list_directory(run + "/checkpoints"), std::vector<std::string>{"step-0"});
}

TEST(Trainer, KeepsAsManyCheckpointsAsAsked) {
  TemporaryDirectory directory;
  train_small(directory / "two", {"train.keep=2"});
  EXPECT_EQ(list_directory(directory / "two/checkpoints"), (std::vector<std::string>{"step-35", "step-40"}));
  train_small(directory / "end", {"train.checkpoint_every=0"});
  EXPECT_EQ(list_directory(directory / "end/checkpoints"), (std::vector<std::string>{"step-40"}));
}

TEST(Trainer, TheSmallestRuns) {
  TemporaryDirectory directory;
  const auto nothing = train_small(directory / "none", {"train.steps=0"});
  EXPECT_EQ(nothing["steps"], 0);
  EXPECT_EQ(Run::load(directory / "none").step(), 0);  // can be evaluated like any other
  EXPECT_EQ(without_time(resume_small(directory / "none")), without_time(nothing));
  const auto one = train_small(directory / "one", {"train.steps=1", "train.batch=1", "train.max_length=3",
                                                   "train.dtype=float64", "eval.samples=1"});
  EXPECT_EQ(one["samples"], 1);
  EXPECT_EQ(Run::load(directory / "one").dtype(), DType::kF64);
}

TEST(Trainer, StopsWhenSolvedTwiceInARow) {
  TemporaryDirectory directory;
  // Any accuracy above that of wrong answers alone counts as solved.
  const auto result =
      train_small(directory / "run", {"train.stop_at=1e-9", "train.validate_every=1", "train.steps=4000",
                                      "train.validate_samples=64", "model.beta=hard", "train.batch=32"});
  EXPECT_TRUE(result["stopped_early"].get<bool>());
  const auto steps = result["steps"].get<int64_t>();
  EXPECT_LT(steps, 4000);
  EXPECT_GE(steps, 2);
  EXPECT_EQ(Run::load(directory / "run").step(), steps);
  EXPECT_EQ(without_time(resume_small(directory / "run")), without_time(result));  // and stays stopped
}

// Twice the limit of float in a weight makes the next loss infinite.
TEST(Trainer, ANonFiniteLossStopsBeforeTheUpdate) {
  TemporaryDirectory directory;
  const std::string path = directory / "run";
  train_small(path, {"train.keep=2"});
  std::filesystem::remove_all(path + "/checkpoints/step-40");
  {
    train::Run run = train::Run::load(path);
    ASSERT_EQ(run.step(), 35);
    auto* weights = static_cast<float*>(run.weights());
    weights[run.model().parameters().infos().back().offset] = std::numeric_limits<float>::infinity();
    std::vector<float> moments(static_cast<size_t>(run.model().parameters().size()));
    io::Checkpoint poisoned;
    poisoned.step = 35;
    poisoned.model = run.named(weights);
    poisoned.optimizer = run.named(moments.data(), "m.");
    for (auto& buffer : run.named(moments.data(), "v.")) poisoned.optimizer.push_back(buffer);
    io::save_checkpoint(path, poisoned, 2);
  }
  const std::string before = model_bytes(path, 35);
  test::expect_error([&] { resume_small(path); }, ErrorCode::kNumerical, "step 36");
  EXPECT_EQ(list_directory(path + "/checkpoints"), (std::vector<std::string>{"step-35"}));
  EXPECT_EQ(model_bytes(path, 35), before);
}

// Whoever resumes a run expects it to train, and may have it so.
TEST(Trainer, ARunThatStoppedEarlySaysSoAndGoesOnWhenAsked) {
  TemporaryDirectory directory;
  const std::string run = directory / "run";
  const auto first = train_small(
      run, {"model.width=16", "model.beta=hard", "model.output_norm=false", "model.eigenvalues=-1,1",
            "train.batch=64", "train.curriculum=100", "train.steps=2000", "train.validate_every=20",
            "train.beta2=0.99", "train.stop_at=0.5", "train.checkpoint_every=0"});
  ASSERT_TRUE(first["stopped_early"].get<bool>());
  const auto stopped = first["steps"].get<int64_t>();
  const auto resumed = [&](const std::vector<std::string>& set) {
    auto opened = io::RunDirectory::open_for_resume(run);
    ConfigSources sources{opened.config_path(), "", "", set};
    testing::internal::CaptureStderr();
    const auto result = train(resolve_config(sources), opened, true, {false, "", {}});
    return std::pair{result["steps"].get<int64_t>(), testing::internal::GetCapturedStderr()};
  };
  const auto [stayed, told] = resumed({"train.steps=3000"});
  EXPECT_EQ(stayed, stopped);
  EXPECT_NE(told.find("train.stop_at: 0 in its config.yaml trains on"), std::string::npos) << told;
  const std::string more = "train.steps=" + std::to_string(stopped + 10);
  EXPECT_EQ(resumed({more, "train.stop_at=0"}).first, stopped + 10);
}

// Learning itself, at a size that takes a second or two.
double scaled_after_training(const std::string& task, const std::vector<std::string>& set) {
  TemporaryDirectory directory;
  std::vector<std::string> all = {"model.width=16",
                                  "model.heads=2",
                                  "model.blocks=1",
                                  "model.conv=0",
                                  "model.mlp=0",
                                  "model.beta=hard",
                                  "model.output_norm=false",
                                  "train.batch=64",
                                  "train.lr=1e-2",
                                  "train.max_length=10",
                                  "train.curriculum=100",
                                  "train.steps=300",
                                  "train.validate_every=0",
                                  "eval.min_length=3",
                                  "eval.max_length=40",
                                  "eval.samples=512",
                                  "train.beta2=0.99"};
  all.insert(all.end(), set.begin(), set.end());
  auto run = io::RunDirectory::create(directory / "run", false);
  const auto config = resolve_config({"", task, "deltanet", all});
  return train(config, run, false, {true, "", {}})["scaled_accuracy"].get<double>();
}

TEST(Learning, DeltaNetWithNegativeEigenvaluesLearnsParity) {
  EXPECT_GE(scaled_after_training("parity", {"model.eigenvalues=-1,1"}), 0.99);
}

TEST(Learning, DeltaNetWithoutThemDoesNot) {
  EXPECT_LE(scaled_after_training("parity", {"model.eigenvalues=0,1"}), 0.6);
}

TEST(Learning, DeltaNetWithoutThemLearnsEvenPairs) {
  EXPECT_GE(scaled_after_training("even-pairs", {"model.eigenvalues=0,1"}), 0.9);
}

}  // namespace
}  // namespace signet::train
