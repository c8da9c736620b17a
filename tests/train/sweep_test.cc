#include "signet/train/sweep.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "signet/base/files.h"
#include "signet/train/results.h"
#include "signet/train/sweep_summary.h"
#include "support/small_run.h"
#include "support/temporary_directory.h"

namespace signet::train {
namespace {

using test::expect_error;
using test::read_text;
using test::TemporaryDirectory;
using test::write_text;

constexpr char kGrid[] = R"(
title: small
base:
  task: {name: parity}
  model: {width: 8, heads: 2, blocks: 1, conv: 0, mlp: 0}
  train: {steps: 12, batch: 8, max_length: 10, checkpoint_every: 5, validate_every: 0}
  eval: {samples: 24, min_length: 3, max_length: 20}
grid:
  range:
    positive [0,1]: {model.eigenvalues: [0, 1]}
    signed: {model.eigenvalues: [-1, 1], model: {beta_gain: 1}}
  train.lr: [1e-2, 1e-3]
  train.seed: [1, 2, 3]
)";

SweepPlan plan_of(const std::string& text) {
  return read_sweep(io::parse_yaml(text, "grid.yaml"), "grid.yaml");
}

std::vector<PlannedRun> planned(const SweepPlan& plan) { return chosen_runs(plan_runs(plan, false)); }

TEST(SweepPlan, IsTheProductOfItsAxes) {
  const auto plan = plan_of(kGrid);
  EXPECT_EQ(plan.title, "small");
  const auto runs = plan_runs(plan, false);
  ASSERT_EQ(runs.size(), 12u);
  EXPECT_EQ(runs[0].name, "positive_[0,1],lr=1e-2,seed=1");
  EXPECT_EQ(runs[1].name, "positive_[0,1],lr=1e-2,seed=2");
  EXPECT_EQ(runs[11].name, "signed,lr=1e-3,seed=3");
  EXPECT_EQ(runs[11].config.train.lr, 1e-3);
  EXPECT_EQ(runs[11].config.train.seed, 3);
  EXPECT_EQ(runs[11].config.model.eigenvalues, (std::vector<double>{-1, 1}));
  EXPECT_EQ(runs[0].config.model.eigenvalues, (std::vector<double>{0, 1}));
  EXPECT_EQ(runs[0].config.train.steps, 12);
  EXPECT_EQ(plan_runs(plan_of("base: {task: {name: parity}}"), false).size(), 1u);
}

TEST(SweepPlan, CanBeCutDown) {
  auto plan = plan_of(kGrid);
  keep_only(plan, "range=signed");
  keep_only(plan, "train.seed=3;1");
  EXPECT_EQ(planned(plan).size(), 4u);
  EXPECT_EQ(plan_runs(plan, false).size(), 12u) << "the others are planned, too";
  set_seeds(plan, 5);
  EXPECT_EQ(planned(plan).size(), 10u);
  for (const char* filter : {"range", "range=none", "colour=red", "train.seed=1;9", ""})
    expect_error([&] { keep_only(plan, filter); }, ErrorCode::kUsage, "--only");
  expect_error([&] { set_seeds(plan, 0); }, ErrorCode::kUsage, "--seeds");
  add_seeds(plan, {"9", "1"});
  EXPECT_EQ(planned(plan).size(), 10u);
  EXPECT_EQ(plan_runs(plan, false).size(), 2 * 2 * 6u);
}

// What is chosen may need a setting that others lack, but a directory belongs to one run of the whole grid.
TEST(SweepPlan, FaultsOfRunsThatAreNotChosen) {
  auto plan =
      plan_of("base: {task: {name: parity}}\ngrid: {m: {lstm: {model.architecture: lstm}, delta: {}}}");
  plan.last = {"model.beta_gain=1"};
  expect_error([&] { plan_runs(plan, false); }, ErrorCode::kUsage, "run lstm: ");
  keep_only(plan, "m=delta");
  const auto runs = plan_runs(plan, false);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_NE(runs[0].missing.find("run lstm: "), std::string::npos) << runs[0].missing;
  EXPECT_FALSE(runs[0].chosen);
  EXPECT_TRUE(runs[1].chosen && runs[1].missing.empty());

  for (const auto& [settings, expected] :
       {std::pair{"a b: {train.lr: 1e-3}, a_b: {train.lr: 1e-2}", "two runs of the grid have the name 'a_b'"},
        {"a: {train.lr: 1e-3}, b: {train.lr: 1e-3}, a_b: {train.lr: 1e-2}", "a and b have the same"}}) {
    auto twice = plan_of(fmt::format("base: {{task: {{name: parity}}}}\ngrid: {{m: {{{}}}}}", settings));
    keep_only(twice, "m=a_b");
    expect_error([&] { plan_runs(twice, false); }, ErrorCode::kBadInput, expected);
  }
  // The command line may make one of two that nobody chose, but not of two that are chosen.
  auto sizes = plan_of(
      "base: {task: {name: parity}}\ngrid: {size: {small: {model.width: 8, model.heads: 1}, "
      "large: {model.width: 16, model.heads: 1}}}");
  sizes.last = {"model.width=4"};
  expect_error([&] { plan_runs(sizes, false); }, ErrorCode::kUsage, "have the same configuration");
  keep_only(sizes, "size=large");
  const auto one = plan_runs(sizes, false);
  EXPECT_NE(one[0].missing.find("large and small have the same"), std::string::npos) << one[0].missing;
  EXPECT_TRUE(one[1].chosen && one[1].missing.empty());

  auto skipped = plan_of(
      "base: {task: {name: parity}}\ngrid: {train.seed: [1, 2]}\n"
      "overrides: [{when: {train.seed: [1]}, skip: true}]");
  keep_only(skipped, "train.seed=1");
  expect_error([&] { plan_runs(skipped, false); }, ErrorCode::kBadInput, "is skipped");
}

// Names in any script stay apart, and are read on the disk as in the file.
TEST(SweepPlan, NamesOfRunsKeepTheirLetters) {
  const auto runs = plan_runs(
      plan_of("base: {task: {name: parity}}\ngrid: {m: {α: {train.seed: 1}, β γ/δ: {train.seed: 2}}}"),
      false);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].name, "α");
  EXPECT_EQ(runs[1].name, "β_γ_δ");
}

TEST(SweepPlan, BadInput) {
  const auto refuse = [](const std::string& text, const std::string& expected) {
    SCOPED_TRACE(text);
    expect_error([&] { plan_runs(plan_of(text), false); }, ErrorCode::kBadInput, expected);
  };
  const std::string base = "base: {task: {name: parity}}\n";
  refuse("gird: {}", "did you mean 'grid'");
  refuse("[1, 2]", "a sweep has the keys");
  refuse(base + "grid: [1]", "map of axes");
  refuse(base + "grid: {train.seed: []}", "no values");
  refuse(base + "grid: {train.seed: 3}", "list of values");
  refuse(base + "grid: {seed: [1, 2]}", "one key such as train.seed");
  refuse(base + "grid: {train.sede: [1]}", "train.seed");
  refuse(base + "grid: {train.seed: [one]}", "train.seed");
  refuse(base + "grid: {train.seed: [{a: 1}]}", "needs a value");
  refuse(base + "grid: {train.seed: [1, 1]}", "two runs");
  refuse(base + "grid: {m: {a b: {train.seed: 1}, a/b: {train.seed: 2}}}", "two runs");
  refuse(base + "grid: {m: {mamba: {model.architecture: mamba, model.heads: 2}}}", "run mamba");
  refuse(base + "grid: {m: {x: {model.architecture: mmaba}}}", "did you mean 'mamba'");
  refuse(base + "grid: {task.name: [pairty]}", "did you mean 'parity'");
  refuse("grid: {train.seed: [1]}", "no task given");
  refuse(base + "horizon: -1", "whole number");
  refuse("base: {task: {name: modular-arithmetic}}\nhorizon: 2", "least length of modular-arithmetic, 3");
  refuse(base + "grid: {m: {a: {train.batch: 8}, b: {train: {batch: 8}}}}",
         "a and b have the same configuration");
  for (const char* grid : {"grid: {train.device: [cpu, cuda]}", "grid: {m: {gpu: {train: {device: cuda}}}}"})
    refuse(base + grid, "all runs of a sweep are where --device says");
  refuse("base: {task: {name: parity}, train: {device: cuda}}", "leave the key out");
  refuse(base + "grid: {m: {" + std::string(300, 'x') + ": {train.seed: 1}}}", "longer than");
  std::string hundred = "[0";
  for (int i = 1; i < 100; ++i) hundred += ", " + std::to_string(i);
  hundred += "]";
  refuse(base + "grid: {train.seed: " + hundred + ", train.batch: " + hundred + ", train.steps: " + hundred +
             "}",
         "more than 10000 runs");
}

// A run that cannot be trained where the sweep is fails before any is; the table of those that are done needs
// no device.
TEST(SweepPlan, PrecisionIsCheckedAgainstTheDevice) {
  auto plan = plan_of("base: {task: {name: parity}}\ngrid: {train.precision: [fp32, bf16]}");
  expect_error([&] { plan_runs(plan, false); }, ErrorCode::kBadInput, "run precision=bf16: train.precision");
  for (const char* device : {"cuda", "cuda:1", ""}) {
    plan.device = device;
    EXPECT_EQ(plan_runs(plan, false).size(), 2u);
  }
}

// Else one run would count as several.
TEST(SweepPlan, AnAxisCannotBeSetAside) {
  auto plan = plan_of(kGrid);
  plan.last = {"train.seed=7"};
  expect_error([&] { plan_runs(plan, false); }, ErrorCode::kUsage, "train.seed is an axis");
  plan.last = {"model.eigenvalues=0,1"};
  plan.axes[0].values[1].set.pop_back();
  expect_error([&] { plan_runs(plan, false); }, ErrorCode::kUsage, "have the same configuration");
  plan.last = {"train.batch=4"};
  EXPECT_EQ(plan_runs(plan, false).size(), 12u);
}

// The message and the exit code say whether the command line or the file is to be mended.
TEST(SweepPlan, FaultsAreNamedWhereTheyStand) {
  const std::string base = "base: {task: {name: parity}}\n";
  const auto refuse = [](const std::string& text, const std::vector<std::string>& last, ErrorCode code,
                         const std::string& expected) {
    SCOPED_TRACE(expected);
    auto plan = plan_of(text);
    plan.last = last;
    expect_error([&] { plan_runs(plan, false); }, code, expected);
  };
  const std::string typo = "grid.yaml: run sed=1: unknown key 'train.sed' (did you mean 'train.seed'?)";
  refuse(base + "grid: {train.sed: [1]}", {}, ErrorCode::kBadInput, typo);
  refuse(base + "grid: {train.sed: [1]}", {"train.steps=-3"}, ErrorCode::kBadInput, typo);
  refuse(base, {"train.steps=-3"}, ErrorCode::kUsage, "--set train.steps=-3: run run: train.steps must be");
  refuse(base, {"train.batch=8", "train.sed=1"}, ErrorCode::kUsage,
         "--set train.batch=8 --set train.sed=1: run run: unknown key 'train.sed'");
  refuse(base, {"steps"}, ErrorCode::kUsage, "'steps' must look like section.key=value");
  // Without it the file lacks a task, which is not what is wrong.
  refuse("base: {train: {batch: 4}}", {"task.name=parity", "train.steps=-3"}, ErrorCode::kUsage,
         "train.steps must be");
  refuse("base: {train: {batch: 4}}", {"train.steps=3"}, ErrorCode::kBadInput, "grid.yaml: run run: no task");
}

TEST(SweepPlan, NamesOfItsOwnFilesAreNotThoseOfRuns) {
  const auto runs =
      plan_runs(plan_of("base: {task: {name: parity}}\ngrid: {m: {summary.json: {}, report.html: "
                        "{train.seed: 2}, .lock: {train.seed: 3}}}"),
                false);
  EXPECT_EQ(runs[0].name, "_summary.json");
  EXPECT_EQ(runs[1].name, "_report.html");
  EXPECT_EQ(runs[2].name, "_.lock");
}

TEST(SweepPlan, MissingArchitecturesAreNamedWhereThatIsAllowed) {
  const auto plan = plan_of(
      "base: {task: {name: parity}}\ngrid: {m: {a: {model.architecture: no-such, model.x: 1}, b: {}}}");
  const auto runs = plan_runs(plan, true);
  EXPECT_NE(runs[0].missing.find("no-such"), std::string::npos);
  EXPECT_TRUE(runs[1].missing.empty());
  expect_error([&] { plan_runs(plan, false); }, ErrorCode::kBadInput, "no-such");
}

TEST(Sweep, RunsEverythingOnceAndSummarises) {
  TemporaryDirectory directory;
  const auto plan = plan_of(kGrid);
  const auto runs = plan_runs(plan, false);
  const auto first = run_sweep(directory / "out", plan, runs, {2, "cpu", true});
  for (size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(first[i].state, RunOutcome::kDone) << first[i].message;
    EXPECT_FALSE(first[i].reused);
    EXPECT_TRUE(exists(directory / "out" + ("/" + runs[i].name) + "/results.json"));
  }
  // Alone and among others, a run has the same bits.
  auto alone = io::RunDirectory::create(directory / "alone", false);
  train(runs[7].config, alone, false, {true, "", {}});
  EXPECT_EQ(test::model_bytes(directory / "alone", 12),
            test::model_bytes(directory / "out" + ("/" + runs[7].name), 12));

  const auto again = run_sweep(directory / "out", plan, runs, {2, "cpu", true});
  for (const auto& outcome : again) EXPECT_TRUE(outcome.reused);
  const auto summary = summarize(directory / "out", plan, runs, again);
  EXPECT_EQ(summary.axes, std::vector<std::string>{"range"});
  ASSERT_EQ(summary.groups.size(), 2u);
  for (const auto& group : summary.groups) {
    EXPECT_EQ(group.runs.size(), 3u);
    std::vector<double> scores;
    for (size_t i : group.runs) {
      scores.push_back(summary.runs[i].score);
      EXPECT_EQ(runs[i].config.train.lr, std::stod(group.rate));
    }
    EXPECT_EQ(group.best, *std::max_element(scores.begin(), scores.end()));
    EXPECT_EQ(group.median, median_of(scores));
    EXPECT_EQ(summary.runs[group.best_run].score, group.best);
    EXPECT_GT(group.seconds, 0);
  }
  const auto json = summary_json(summary);
  EXPECT_EQ(json["groups"].size(), 2u);
  EXPECT_EQ(json["groups"][0]["range"], "positive [0,1]");
  EXPECT_EQ(json["runs"].size(), 12u);
}

TEST(Sweep, UnfinishedRunsResumeAndForeignOnesAreRefused) {
  TemporaryDirectory directory;
  auto plan = plan_of(kGrid);
  keep_only(plan, "train.lr=1e-2");
  keep_only(plan, "range=signed");
  const auto runs = planned(plan);
  run_sweep(directory / "whole", plan, runs, {1, "cpu", true});
  run_sweep(directory / "cut", plan, runs, {1, "cpu", true});
  // As a kill leaves them: one without results and its last checkpoint, one before its first line.
  const std::string cut = directory / "cut/" + runs[0].name;
  remove_tree(cut + "/results.json");
  remove_tree(cut + "/checkpoints/step-12");
  remove_tree(directory / "cut/" + runs[1].name);
  make_directories(directory / "cut/" + runs[1].name);
  const auto outcomes = run_sweep(directory / "cut", plan, runs, {1, "cpu", true});
  EXPECT_FALSE(outcomes[0].reused);
  EXPECT_FALSE(outcomes[1].reused);
  EXPECT_TRUE(outcomes[2].reused);
  for (const auto& run : runs)
    EXPECT_EQ(test::model_bytes(directory / "cut/" + run.name, 12),
              test::model_bytes(directory / "whole/" + run.name, 12));

  auto other = runs;
  other[1].config.train.batch = 9;
  expect_error(
      [&] {
        run_sweep(directory / "cut", plan, other, {1, "cpu", true});
      },
      ErrorCode::kBadInput, "train.batch was 8, now 9");
  const DirectoryLock lock(directory / "cut");
  expect_error([&] { run_sweep(directory / "cut", plan, runs, {1, "cpu", true}); }, ErrorCode::kFailure, "");
}

TEST(Sweep, AFailureIsOneRunsOwn) {
  TemporaryDirectory directory;
  const auto plan = plan_of(R"(
base:
  task: {name: parity}
  model: {width: 8, heads: 2, blocks: 1, conv: 0, mlp: 0}
  train: {steps: 30, batch: 8, max_length: 10, validate_every: 0, warmup: 0}
  eval: {samples: 24, min_length: 3, max_length: 20}
grid: {train.lr: [10, 1e-3], train.weight_decay: [10, 0]}
horizon: 300
horizon_samples: 8
)");
  const auto runs = planned(plan);
  const auto outcomes = run_sweep(directory / "out", plan, runs, {2, "cpu", true});
  EXPECT_EQ(outcomes[0].state, RunOutcome::kFailed) << "every update multiplies its weights by -99";
  EXPECT_EQ(outcomes[3].state, RunOutcome::kDone) << outcomes[3].message;
  const auto summary = summarize(directory / "out", plan, runs, outcomes);
  EXPECT_GT(summary.runs[3].horizon, 0);
  EXPECT_GT(summary.runs[3].flops, 0);
  for (size_t i = 0; i < outcomes.size(); ++i)
    if (outcomes[i].state == RunOutcome::kFailed) {
      EXPECT_EQ(outcomes[i].exit_code, static_cast<int>(ErrorCode::kNumerical));
    }
}

TEST(Sweep, ResultsThatAreNotOursAreNamed) {
  TemporaryDirectory directory;
  auto plan = plan_of(kGrid);
  keep_only(plan, "train.lr=1e-2");
  keep_only(plan, "range=signed");
  const auto runs = planned(plan);
  const auto outcomes = run_sweep(directory / "out", plan, runs, {1, "cpu", true});
  const std::string path = directory / "out/" + runs[1].name + "/results.json";
  const double score = read_results(path).score;
  for (
      const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
          {"{}", "'dense' is missing"},
          {"[1]", "must be an object"},
          {R"({"dense": 1})", "'dense' must be true or false"},
          {R"({"dense": false})", "'scaled_accuracy' is missing"},
          {R"({"dense": true, "sequence_accuracy": "all"})", "'sequence_accuracy' must be a number"},
          {R"({"dense": true, "sequence_accuracy": 1, "samples": 0.5})", "'samples' must be a whole number"},
          {R"({"dense": false, "scaled_accuracy": 1, "samples": 8})", "'accuracy' is missing"},
          {R"({"dense": true, "sequence_accuracy": 1, "samples": 8, "seconds": []})",
           "'seconds' must be a number"},
          {R"({"dense": true, "sequence_accuracy": 1, "samples": 8, "seconds": 1, "horizon": 7})",
           "horizon must be an object"},
          {R"({"dense": true, "sequence_accuracy": 1, "samples": 8, "seconds": 1, "horizon": {"length": 1.5}})",
           "'length' must be a whole number"}}) {
    SCOPED_TRACE(text);
    write_text(path, text);
    expect_error(
        [&] {
          run_sweep(directory / "out", plan, runs, {1, "cpu", true});
        },
        ErrorCode::kBadInput, part);
    expect_error([&] { summarize(directory / "out", plan, runs, outcomes); }, ErrorCode::kBadInput, path);
    expect_error([&] { summarize(directory / "out", plan, runs, outcomes); }, ErrorCode::kBadInput,
                 "; remove that file, and the run is measured again");
  }
  remove_tree(path);
  run_sweep(directory / "out", plan, runs, {1, "cpu", true});
  EXPECT_EQ(nlohmann::ordered_json::parse(read_text(path))["scaled_accuracy"], score);
}

// Writes a horizon into the results of a run, as if it had been searched before.
void set_horizon(const std::string& run, const nlohmann::ordered_json& horizon) {
  auto results = nlohmann::ordered_json::parse(read_text(run + "/results.json"));
  results["horizon"] = horizon;
  write_text(run + "/results.json", results.dump());
}

TEST(Sweep, HorizonsAreSearchedAgainWhenThePlanAsksForMore) {
  TemporaryDirectory directory;
  auto plan = plan_of(kGrid);
  for (const char* filter : {"train.lr=1e-2", "range=signed", "train.seed=3"}) keep_only(plan, filter);
  const auto runs = planned(plan);
  const std::string out = directory / "out", run = out + "/" + runs[0].name;
  run_sweep(out, plan, runs, {1, "cpu", true});
  plan.horizon_samples = 8;
  const struct {
    const char* found;
    int64_t horizon;
    bool enough;
  } cases[] = {
      {R"({"length": 40, "reached_limit": true, "limit": 40, "samples": 8, "seed": 3})", 40, true},
      {R"({"length": 40, "reached_limit": true, "limit": 40, "samples": 8, "seed": 3})", 41, false},
      {R"({"length": 20, "reached_limit": true, "limit": 40, "samples": 8, "seed": 3})", 40, true},
      {R"({"length": 40, "reached_limit": true, "samples": 8})", 40, true},
      {R"({"length": 40, "reached_limit": true, "samples": 8})", 41, false},
      {R"({"length": 12, "reached_limit": false, "limit": 40, "samples": 8, "seed": 3})", 99, true},
      {R"({"length": 12, "reached_limit": false, "limit": 40, "samples": 9, "seed": 3})", 40, false},
      {R"({"length": 12, "reached_limit": false, "limit": 40, "samples": 8, "seed": 2})", 40, false}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.found << " for " << c.horizon);
    set_horizon(run, nlohmann::ordered_json::parse(c.found));
    plan.horizon = c.horizon;
    const auto outcomes = run_sweep(out, plan, runs, {1, "cpu", true});
    EXPECT_EQ(outcomes[0].state, RunOutcome::kDone) << outcomes[0].message;
    EXPECT_EQ(outcomes[0].reused, c.enough);
    const auto horizon = nlohmann::ordered_json::parse(read_text(run + "/results.json"))["horizon"];
    if (c.enough) {
      EXPECT_EQ(horizon.dump(), nlohmann::ordered_json::parse(c.found).dump());
    } else {
      EXPECT_EQ(horizon["limit"], c.horizon);
      EXPECT_EQ(horizon["samples"], 8);
      EXPECT_EQ(horizon["seed"], 3);
    }
  }
  const DirectoryLock lock(run);
  plan.horizon_samples = 7;
  const auto outcomes = run_sweep(out, plan, runs, {1, "cpu", true});
  EXPECT_EQ(outcomes[0].state, RunOutcome::kFailed);
  EXPECT_NE(outcomes[0].message.find("in use"), std::string::npos) << outcomes[0].message;
}

TEST(SweepSummary, AMedianHorizonIsABoundWhereRunsHeldToTheirLimit) {
  TemporaryDirectory directory;
  auto plan = plan_of(kGrid);
  for (const char* filter : {"train.lr=1e-2", "range=signed"}) keep_only(plan, filter);
  plan.title = "caf\xe9";
  const auto runs = planned(plan);
  const auto outcomes = run_sweep(directory / "out", plan, runs, {2, "cpu", true});
  const struct {
    int64_t lengths[3];
    bool held[3];
    double median;
    bool bound;
  } cases[] = {{{10, 20, 20}, {false, true, true}, 20, true},
               {{10, 12, 20}, {false, false, true}, 12, false},
               {{20, 20, 20}, {false, true, false}, 20, false},
               {{20, 20, 20}, {true, true, true}, 20, true}};
  for (const auto& c : cases) {
    for (size_t i = 0; i < 3; ++i)
      set_horizon(directory / "out/" + runs[i].name,
                  {{"length", c.lengths[i]}, {"reached_limit", c.held[i]}, {"samples", 8}});
    const auto summary = summarize(directory / "out", plan, runs, outcomes);
    EXPECT_EQ(summary.groups[0].horizon_median, c.median);
    EXPECT_EQ(summary.groups[0].horizon_held, c.bound);
    const auto json = summary_json(summary);
    EXPECT_EQ(json["groups"][0]["horizon_reached_limit"], c.bound);
    EXPECT_EQ(nlohmann::ordered_json::parse(json.dump())["title"], "caf\\xe9");
  }
}

// Writes the score of a task that scores every position into the results of a run.
void set_score(const std::string& run, double score, int64_t samples) {
  auto results = nlohmann::ordered_json::parse(read_text(run + "/results.json"));
  results["dense"] = true;
  results["sequence_accuracy"] = score;
  results["samples"] = samples;
  write_text(run + "/results.json", results.dump());
}

// Two learning rates by three seeds, with scores of the test's choice.
TEST(SweepSummary, SurvivorsOfARateThatFailsDoNotCompete) {
  TemporaryDirectory directory;
  auto plan = plan_of(kGrid);
  keep_only(plan, "range=signed");
  const auto runs = planned(plan);
  ASSERT_EQ(runs.size(), 6u);
  const std::string out = directory / "out";
  const auto outcomes = run_sweep(out, plan, runs, {2, "cpu", true});
  const auto at_high = [&](size_t i) { return runs[i].config.train.lr == runs[0].config.train.lr; };
  for (size_t i = 0; i < runs.size(); ++i) set_score(out + "/" + runs[i].name, at_high(i) ? 0.5 : 0.25, 100);
  const auto chosen = [&](const std::vector<RunOutcome>& states) {
    const auto summary = summarize(out, plan, runs, states);
    EXPECT_EQ(summary.groups.size(), 1u);
    return summary.groups.at(0);
  };
  const auto whole = chosen(outcomes);
  EXPECT_EQ(std::stod(whole.rate), runs[0].config.train.lr);
  EXPECT_EQ(whole.best, 0.5);
  ASSERT_EQ(whole.rates.size(), 2u);
  EXPECT_EQ(whole.rates[0].median + whole.rates[1].median, 0.75);

  auto failed = outcomes;
  for (size_t i = 0; i < runs.size(); ++i)
    if (at_high(i) && i != whole.best_run) failed[i].state = RunOutcome::kFailed;
  const auto rest = chosen(failed);
  EXPECT_NE(std::stod(rest.rate), runs[0].config.train.lr);
  EXPECT_EQ(rest.best, 0.25);
  EXPECT_EQ(rest.failed, 2u);
  const auto json = summary_json(summarize(out, plan, runs, failed))["groups"][0];
  EXPECT_EQ(json["seeds"], 3);
  EXPECT_EQ(json["rates"].size(), 2u);
  EXPECT_EQ(json["rates"][0]["seeds"].get<int>() + json["rates"][1]["seeds"].get<int>(), 4);

  // With all of the other rate failed the survivor is what there is.
  for (size_t i = 0; i < runs.size(); ++i)
    if (!at_high(i)) failed[i].state = RunOutcome::kFailed;
  EXPECT_EQ(chosen(failed).best, 0.5);
}

TEST(Results, ScoresHaveTheStandardErrorOfTheirSequences) {
  TemporaryDirectory directory;
  const std::string path = directory / "results.json";
  const auto error = [&](const std::string& scores) {
    write_text(path, "{" + scores + R"(, "seconds": 1})");
    return read_results(path).error;
  };
  EXPECT_DOUBLE_EQ(error(R"("dense": true, "sequence_accuracy": 0.2, "samples": 100)"), 0.04);
  EXPECT_EQ(error(R"("dense": true, "sequence_accuracy": 1, "samples": 100)"), 0);
  // Guessing 0.2 of the answers: 0.6 is half of the way, and what is scaled by 1 / 0.8 errs as much more.
  EXPECT_NEAR(error(R"("dense": false, "scaled_accuracy": 0.5, "accuracy": 0.6, "samples": 2400)"), 0.0125,
              1e-15);
  EXPECT_EQ(error(R"("dense": false, "scaled_accuracy": 1, "accuracy": 1, "samples": 100)"), 0);
}

TEST(SweepSummary, MedianAndDeviation) {
  EXPECT_EQ(median_of({}), 0);
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(deviation_of({1, 1, 1}), 0);
  EXPECT_DOUBLE_EQ(deviation_of({0.1, 0.5, 0.6}), 0.1);
}

}  // namespace
}  // namespace signet::train
