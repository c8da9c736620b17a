// signet sweep and signet reproduce through the real program: stopped, killed, shared and cut down.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "signet/train/experiment.h"
#include "support/command.h"
#include "support/process.h"
#include "support/temporary_directory.h"

namespace signet::cli {
namespace {

using nlohmann::ordered_json;
using test::Process;
using test::read_text;
using test::run_signet;
using test::TemporaryDirectory;
using test::write_text;

constexpr char kGrid[] = R"(
base:
  task: {name: parity}
  model: {width: 8, heads: 2, blocks: 1, conv: 0, mlp: 0}
  train: {steps: 400, batch: 8, max_length: 10, checkpoint_every: 20, validate_every: 0}
  eval: {samples: 24, min_length: 3, max_length: 20}
grid: {model.eigenvalues: [[0, 1], [-1, 1]], train.seed: [1, 2]}
)";

// What a sweep found, times aside.
ordered_json scores(const std::string& directory) {
  auto summary = ordered_json::parse(read_text(directory + "/summary.json"));
  summary.erase("provenance");
  for (auto* list : {&summary["groups"], &summary["runs"]})
    for (auto& entry : *list) entry.erase("seconds");
  return summary;
}

TEST(SweepVerb, TableJsonAndPage) {
  TemporaryDirectory directory;
  write_text(directory / "grid.yaml", kGrid);
  const auto listed = run_signet("sweep grid.yaml --dry-run", directory.path());
  EXPECT_EQ(listed.out,
            "eigenvalues=[0,1],seed=1\neigenvalues=[0,1],seed=2\neigenvalues=[-1,1],seed=1\n"
            "eigenvalues=[-1,1],seed=2\n");
  const auto result = run_signet("sweep grid.yaml --set train.steps=5 --json", directory.path());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto json = ordered_json::parse(result.out);
  ASSERT_EQ(json["groups"].size(), 2u);
  EXPECT_EQ(json["groups"][0]["seeds"], 2);
  EXPECT_EQ(json["runs"][3]["state"], "done");
  EXPECT_EQ(json["runs"][2]["values"], (ordered_json{{"model.eigenvalues", "[-1,1]"}, {"train.seed", "1"}}));
  const std::string page = read_text(directory / "runs/grid/report.html");
  EXPECT_NE(page.find("</html>"), std::string::npos);
  EXPECT_NE(page.find("median"), std::string::npos);
  EXPECT_EQ(run_signet("sweep grid.yaml --set train.steps=5", directory.path()).err,
            "runs/grid: 0 of 4 runs left\n");
  const auto changed = run_signet("sweep grid.yaml --set train.steps=6", directory.path());
  EXPECT_EQ(changed.exit_code, 3);
  EXPECT_NE(changed.err.find("train.steps was 5, now 6"), std::string::npos) << changed.err;
  EXPECT_EQ(run_signet("sweep absent.yaml", directory.path()).exit_code, 3);
  EXPECT_EQ(run_signet("sweep grid.yaml --only seed=1", directory.path()).exit_code, 2);
  EXPECT_EQ(run_signet("sweep grid.yaml --jobs 0", directory.path()).exit_code, 2);
  EXPECT_EQ(run_signet("sweep grid.yaml --out other --device gpu", directory.path()).exit_code, 2);
}

TEST(SweepVerb, ARunKeepsItsPage) {
  TemporaryDirectory directory;
  write_text(directory / "grid.yaml", kGrid);
  for (const char* name : {"config.yaml", "metrics.jsonl"})
    write_text(directory / (std::string("run/") + name), "");
  const auto refused = run_signet("sweep grid.yaml --out run --set train.steps=5", directory.path());
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.err.find("run is a run"), std::string::npos) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(directory / "run/summary.json"));
}

TEST(SweepVerb, StoppedAndKilledSweepsGoOn) {
  TemporaryDirectory directory;
  write_text(directory / "grid.yaml", kGrid);
  ASSERT_EQ(run_signet("sweep grid.yaml --out whole --quiet", directory.path()).exit_code, 0);
  const std::string first = directory / "cut/eigenvalues=[0,1],seed=1/checkpoints/step-20";
  const std::string second = directory / "cut/eigenvalues=[-1,1],seed=1/checkpoints/step-20";
  const std::vector<std::string> command = {SIGNET_BINARY, "sweep", directory / "grid.yaml", "--out",
                                            directory / "cut"};
  {
    Process sweep(command, directory / "log1");
    ASSERT_TRUE(sweep.until([&] { return std::filesystem::exists(first); })) << read_text(directory / "log1");
    const auto other = run_signet("sweep grid.yaml --out cut", directory.path());
    EXPECT_EQ(other.exit_code, 1) << "two sweeps share a directory: " << other.err;
    sweep.signal(SIGTERM);
    EXPECT_EQ(sweep.wait(), 75);
    EXPECT_NE(read_text(directory / "log1").find("the same command goes on"), std::string::npos);
  }
  {
    Process sweep(command, directory / "log2");
    if (sweep.until([&] { return std::filesystem::exists(second); })) sweep.signal(SIGKILL);
    sweep.wait();
  }
  const auto last = run_signet("sweep grid.yaml --out cut", directory.path());
  EXPECT_EQ(last.exit_code, 0) << last.err;
  EXPECT_EQ(scores(directory / "cut"), scores(directory / "whole"));
}

// docs/sweep.md: --only chooses what is trained, and no result is lost from the summary by it.
TEST(SweepVerb, APartIsSummedUpWithWhatWasDoneBefore) {
  TemporaryDirectory directory;
  write_text(directory / "grid.yaml", kGrid);
  const auto sweep = [&](const std::string& options) {
    const auto result =
        run_signet("sweep grid.yaml --quiet --set train.steps=2 " + options, directory.path());
    EXPECT_EQ(result.exit_code, 0) << options << result.err;
    return result.out;
  };
  const auto names = [&] {
    std::vector<std::string> list;
    const auto summary = ordered_json::parse(read_text(directory / "runs/grid/summary.json"));
    for (const auto& run : summary["runs"]) list.push_back(run["name"]);
    return list;
  };
  using Names = std::vector<std::string>;
  const Names two = {"eigenvalues=[0,1],seed=1", "eigenvalues=[0,1],seed=2"},
              three = {two[0], two[1], "eigenvalues=[-1,1],seed=2"},
              four = {two[0], two[1], "eigenvalues=[-1,1],seed=1", three[2]},
              five = {two[0], two[1], "eigenvalues=[0,1],seed=3", four[2], four[3]};
  sweep("--only 'model.eigenvalues=[0,1]'");
  EXPECT_EQ(names(), two);
  sweep("--only 'model.eigenvalues=[-1,1]' --only train.seed=2");
  EXPECT_EQ(names(), three) << "in the order of the grid";
  const auto json = ordered_json::parse(sweep("--only train.seed=1 --json"));
  EXPECT_EQ(names(), four);
  EXPECT_EQ(json["groups"][0]["seeds"], 2);
  sweep("--seeds 3 --only train.seed=3 --only 'model.eigenvalues=[0,1]'");
  EXPECT_EQ(names(), five);
  sweep("--seeds 1");
  EXPECT_EQ(names(), five) << "also seeds that the file does not have";
  sweep("");
  EXPECT_EQ(names(), five);
  // With --done it chooses what is shown.
  const auto shown = ordered_json::parse(sweep("--done --only train.seed=1 --json"));
  EXPECT_EQ(shown["runs"].size(), 2u);
  EXPECT_EQ(names(), five);
  // Runs with other settings are another sweep's.
  const std::string other = "sweep grid.yaml --quiet --only train.seed=4 --seeds 4 --set train.steps=3";
  const auto refused = run_signet(other, directory.path());
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.err.find("train.steps was 2, now 3"), std::string::npos) << refused.err;
  EXPECT_EQ(names(), five);
  EXPECT_FALSE(std::filesystem::exists(directory / "runs/grid/eigenvalues=[0,1],seed=4"));
  EXPECT_EQ(run_signet(other + " --force", directory.path()).exit_code, 0);
  EXPECT_EQ(names(), (Names{"eigenvalues=[0,1],seed=4", "eigenvalues=[-1,1],seed=4"}));
}

// docs/sweep.md: seeds that an earlier call has added stay in the summary.
TEST(SweepVerb, SeedsOfAnEarlierCallStayInTheSummary) {
  TemporaryDirectory directory;
  const std::string base =
      "base: {task: {name: parity}, model: {width: 8, heads: 2, blocks: 1}, train: {steps: 1, batch: 4}, "
      "eval: {samples: 8}}\n";
  write_text(directory / "plain.yaml", base + "grid: {train.lr: [1e-3, 1e-2]}\n");
  write_text(directory / "seeded.yaml", base + "grid: {train.seed: [1]}\n");
  const auto sweep = [&](const std::string& arguments) {
    return run_signet("sweep " + arguments + " --quiet", directory.path());
  };
  const auto names = [&](const std::string& sweep) {
    std::vector<std::string> list;
    const auto summary = scores(directory / "runs/" + sweep);
    for (const auto& run : summary["runs"]) list.push_back(run["name"]);
    return list;
  };
  using Names = std::vector<std::string>;
  const Names without = {"lr=1e-3", "lr=1e-2"},
              with = {"lr=1e-3,seed=1", "lr=1e-3,seed=2", "lr=1e-2,seed=1", "lr=1e-2,seed=2"};
  ASSERT_EQ(sweep("plain.yaml --seeds 2").exit_code, 0);
  const auto refused = sweep("plain.yaml");
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.err.find("give --seeds N"), std::string::npos) << refused.err;
  EXPECT_EQ(sweep("plain.yaml --seeds 1").exit_code, 0);
  EXPECT_EQ(names("plain"), with);
  EXPECT_EQ(sweep("plain.yaml --force").exit_code, 0);
  EXPECT_EQ(names("plain"), without);
  const auto reverse = sweep("plain.yaml --seeds 2");
  EXPECT_EQ(reverse.exit_code, 3);
  EXPECT_NE(reverse.err.find("leave out --seeds"), std::string::npos) << reverse.err;
  EXPECT_EQ(names("plain"), without);

  // --force may be for another file; it replaces the summary of another sweep only.
  ASSERT_EQ(sweep("seeded.yaml --seeds 2").exit_code, 0);
  EXPECT_EQ(sweep("seeded.yaml --seeds 1 --force").exit_code, 0);
  EXPECT_EQ(names("seeded"), (Names{"seed=1", "seed=2"}));
  write_text(directory / "runs/seeded/summary.json", "by hand");
  EXPECT_EQ(sweep("seeded.yaml").exit_code, 3);
  EXPECT_EQ(sweep("seeded.yaml --force").exit_code, 0);
  EXPECT_EQ(names("seeded"), Names{"seed=1"});
}

// Every process of a launch has a GPU of its own: before it takes its runs it must not have opened another.
TEST(SweepVerb, LooksForFilesInTheWayWithoutADevice) {
  TemporaryDirectory directory;
  write_text(directory / "grid.yaml", kGrid);
  write_text(directory / "mine/summary.csv", "by hand");
  for (const std::string command : {"sweep grid.yaml", "reproduce table3 --quick"}) {
    const auto refused = run_signet(command + " --device cuda --export mine --quiet", directory.path());
    const std::string expected = "mine/summary.csv exists";
    EXPECT_EQ(refused.exit_code, 3) << command;
    EXPECT_NE(refused.err.find(expected), std::string::npos) << refused.err;
  }
  const std::string second =
      "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=1 '" SIGNET_BINARY "' ";
  const auto other = test::run_command(second + "sweep grid.yaml --set train.steps=2 --quiet --export mine",
                                       directory.path());
  EXPECT_EQ(other.exit_code, 0) << "the first process writes the files: " << other.err;
  EXPECT_EQ(read_text(directory / "mine/summary.csv"), "by hand");
}

// docs/cli.md: what takes longer than two seconds says what it is at.
TEST(SweepVerb, SaysHowManyRunsThereAreAndHowFarTheyHaveCome) {
  TemporaryDirectory directory;
  write_text(directory / "grid.yaml", kGrid);
  const std::string out = directory / "out", log = directory / "log";
  {
    Process sweep({SIGNET_BINARY, "sweep", directory / "grid.yaml", "--out", out, "--jobs", "2", "--set",
                   "train.steps=1000000"},
                  log);
    ASSERT_TRUE(sweep.until([&] { return read_text(log).find("at work") != std::string::npos; }))
        << read_text(log);
    sweep.signal(SIGTERM);
    EXPECT_EQ(sweep.wait(), 75);
    const std::string text = read_text(log);
    EXPECT_EQ(text.rfind(out + ": 4 runs, 2 at a time\nsteps ", 0), 0u) << text;
    EXPECT_NE(text.find("/4000000  "), std::string::npos) << text;
    EXPECT_NE(text.find("  0 of 4 runs done, 2 at work  "), std::string::npos) << text;
  }
  const auto quiet = run_signet("sweep grid.yaml --set train.steps=2 --quiet", directory.path());
  EXPECT_EQ(quiet.exit_code, 0);
  EXPECT_EQ(quiet.err, "");
  const auto few = run_signet("sweep grid.yaml --set train.steps=2 --jobs 3 --seeds 3", directory.path());
  EXPECT_EQ(few.err.rfind("runs/grid: 2 of 6 runs left, 2 at a time\n", 0), 0u) << few.err;
}

TEST(ReproduceVerb, EveryExperimentAndProtocolIsSound) {
  TemporaryDirectory directory;
  for (const auto& name : train::experiment_names()) {
    const auto experiment = train::read_experiment(name);
    EXPECT_FALSE(experiment.title.empty());
    EXPECT_FALSE(experiment.citation.empty());
    for (const auto& protocol : train::protocols_of(experiment)) {
      SCOPED_TRACE(name + " " + protocol);
      const auto plan = train::experiment_plan(experiment, protocol);
      const auto runs = train::plan_runs(plan, true);
      EXPECT_FALSE(runs.empty());
      // Whatever was published is about points of some grid, and so are the claims.
      for (const auto& [version, rows] : experiment.published) {
        if (version != protocol) continue;
        for (const auto& [model, cells] : rows)
          for (const auto& [task, value] : cells) {
            for (const auto& [axis, wanted] : {std::pair{"model", model}, {"task", task}}) {
              const auto* found = plan.axis(axis);
              ASSERT_NE(found, nullptr);
              EXPECT_TRUE(std::any_of(found->values.begin(), found->values.end(),
                                      [&, &w = wanted](const auto& v) { return v.name == w; }))
                  << wanted;
            }
            if (!value.curve.empty()) {
              EXPECT_EQ(value.curve.size() + 1, experiment.bins.size());
            }
          }
      }
    }
  }
  const auto listed = run_signet("reproduce table3 --dry-run");
  EXPECT_EQ(listed.exit_code, 0);
  EXPECT_NE(listed.out.find("parity,DeltaNet_[-1,1],lr=1e-3,seed=2\n"), std::string::npos) << listed.out;
  EXPECT_EQ(run_signet("reproduce table4").exit_code, 2);
  EXPECT_EQ(run_signet("reproduce table3 --protocol late").exit_code, 2);
  EXPECT_EQ(run_signet("reproduce table3 --quick --protocol final").exit_code, 2);
}

// docs/sweep.md: --export looks for what is in the way before the text is read, which is not there.
TEST(ReproduceVerb, LooksForFiguresOfTextInTheWay) {
  TemporaryDirectory directory;
  for (const char* mine :
       {"DeltaNet-1M-position-code.csv", "Mamba-1M-position-english.svg", "eigenvalues.tex"}) {
    const std::string path = directory / "figures/" + mine;
    write_text(path, "by hand");
    const auto refused = run_signet("reproduce lm --quick --export figures", directory.path());
    EXPECT_EQ(refused.exit_code, 3) << mine << ": " << refused.err;
    EXPECT_NE(refused.err.find(mine), std::string::npos) << refused.err;
    std::filesystem::remove(path);
  }
}

// The whole way at a size that learns nothing.
// docs/formats.md: exit code 2, and the experiment's file is not to blame.
TEST(ReproduceVerb, WrongSettingsAreFaultsOfTheCommandLine) {
  const auto result = run_signet("reproduce table3 --quick --dry-run --set train.steps=-3");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err.rfind("signet: --set train.steps=-3: run ", 0), 0u) << result.err;
}

TEST(ReproduceVerb, EndsWithAPageOfOwnAndPublishedFigures) {
  TemporaryDirectory directory;
  const std::string tiny =
      " --quick --set train.steps=2 --set train.batch=4 --set eval.samples=8 --set model.width=16 "
      "--only 'model=Transformer;Mamba [0,1];Mamba [-1,1];DeltaNet [0,1];DeltaNet [-1,1]'";
  const auto result = run_signet("reproduce table3 --out out --json" + tiny, directory.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = ordered_json::parse(result.out);
  EXPECT_EQ(json["protocol"], "quick");
  EXPECT_FALSE(json["groups"].empty());
  bool published = false;
  for (const auto& group : json["groups"])
    if (group["model"] == "DeltaNet [-1,1]" && group["task"] == "modular arithmetic")
      published = group.value("published", 0.0) == 0.971;
  EXPECT_TRUE(published);
  std::map<std::string, double> best;
  for (const auto& group : json["groups"])
    best[group["task"].get<std::string>() + group["model"].get<std::string>()] = group["best"];
  for (const auto& claim : json["claims"]) {
    const std::string task = claim["task"];
    const double lead =
        best.at(task + claim["above"].get<std::string>()) - best.at(task + claim["below"].get<std::string>());
    EXPECT_EQ(claim["lead"], lead) << claim;
    const double noise = std::max(0.001, claim["standard_error"].get<double>());
    EXPECT_EQ(claim["holds"], lead >= noise) << claim;
    EXPECT_EQ(claim["tie"], std::abs(lead) < noise) << claim;
  }
  EXPECT_NE(read_text(directory / "out/table3.html").find("0.971"), std::string::npos);
  // Another view of the same runs.
  const auto figure = run_signet("reproduce figure5 --out out" + tiny, directory.path());
  EXPECT_EQ(figure.exit_code, 0) << figure.err;
  EXPECT_NE(figure.err.find("0 of"), std::string::npos) << "runs were made twice: " << figure.err;
  EXPECT_NE(figure.out.find("12–14"), std::string::npos) << "lengths of the quick runs: " << figure.out;
  EXPECT_EQ(figure.out.find("published"), std::string::npos) << "which were not published: " << figure.out;
  const auto early = run_signet(
      "reproduce figure2 --protocol early --out early --only 'task=modular arithmetic' --only "
      "train.lr=1e-3 --seeds 1 --set train.steps=2 --set train.batch=4 --set eval.samples=8 "
      "--set model.width=16",
      directory.path());
  EXPECT_EQ(early.exit_code, 0) << early.err;
  EXPECT_NE(early.out.find("/ 0.57"), std::string::npos) << early.out;
  // Where curves of whole sequences are compared: by how far they are right.
  const auto curves = run_signet(
      "reproduce figure6 --quick --out curves --json --only 'task=1 token' --only 'model=Mamba [-1,1];Mamba "
      "[0,1]' "
      "--set train.steps=60 --set train.batch=32 --set eval.samples=64 --set model.width=16",
      directory.path());
  ASSERT_EQ(curves.exit_code, 0) << curves.err;
  const auto reach = [&](const std::string& range) {
    double sum = 0;
    const auto run = ordered_json::parse(
        read_text(directory / ("curves/1_token,Mamba_" + range + ",seed=1/results.json").c_str()));
    for (const auto& row : run["by_length"]) sum += row["sequence_accuracy"].get<double>();
    return sum / static_cast<double>(run["by_length"].size());
  };
  const auto compared = ordered_json::parse(curves.out)["claims"][0];
  EXPECT_NEAR(compared["lead"].get<double>(), reach("[-1,1]") - reach("[0,1]"), 1e-12) << compared;
  EXPECT_GT(compared["standard_error"].get<double>(), 0) << compared;
  const auto tenfold = run_signet(
      "reproduce tenfold --out ten --only 'task=Tomita 6' --seeds 1 --set train.steps=2", directory.path());
  EXPECT_EQ(tenfold.exit_code, 0) << tenfold.err;
  EXPECT_NE(tenfold.out.find("Theorem 2"), std::string::npos) << tenfold.out;

  const auto horizon = run_signet(
      "reproduce horizon --quick --seeds 2 --out $(printf 'caf\\351') --only task=parity --only "
      "'model=DeltaNet [-1,1];LSTM' "
      "--set train.steps=2 --set eval.samples=8",
      directory.path());
  EXPECT_EQ(horizon.exit_code, 0) << horizon.err;
  EXPECT_NE(horizon.out.find("training FLOPs"), std::string::npos) << horizon.out;
}

}  // namespace
}  // namespace signet::cli
