// signet solve: what it says and writes when it succeeds, when theory forbids it, and when time runs out.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "signet/base/files.h"
#include "support/command.h"
#include "support/process.h"
#include "support/small_run.h"
#include "support/temporary_directory.h"

namespace signet::cli {
namespace {

using nlohmann::ordered_json;
using test::run_signet;

constexpr const char* kFiles = " --out runs --page page.html -o exact.safetensors --quiet";

TEST(Solve, FromALanguageToAProof) {
  const test::TemporaryDirectory directory;
  const auto solved = run_signet(std::string("solve '(aa)*' --json") + kFiles, directory.path());
  ASSERT_EQ(solved.exit_code, 0) << solved.err;
  EXPECT_EQ(solved.err, "") << "it was to be quiet";
  const auto out = ordered_json::parse(solved.out);
  EXPECT_TRUE(out["proved"]);
  EXPECT_EQ(out["attempts"].back()["sequence_accuracy"], 1.0);
  EXPECT_EQ(run_signet("verify exact.safetensors", directory.path()).exit_code, 0);
  const std::string page = test::read_text(directory / "page.html");
  EXPECT_NE(page.find("Proof"), std::string::npos);
  EXPECT_NE(page.find("<td class=\"words\">automaton right"), std::string::npos)
      << "a sentence in a table has several lines, or it is cut off";
}

TEST(Solve, WhatTheoryForbidsIsTrainedOnRequestAndFails) {
  const test::TemporaryDirectory directory;
  const std::string forbidden =
      "solve --language parity --model mamba --eigenvalues=0,1 --budget 0.001 --json";
  const auto refused = run_signet(forbidden + kFiles, directory.path());
  EXPECT_EQ(refused.exit_code, 4) << refused.err;
  EXPECT_FALSE(exists(directory / "runs"));
  EXPECT_NE(ordered_json::parse(refused.out)["witness"], nullptr);

  const auto failed = run_signet(forbidden + " --anyway" + kFiles, directory.path());
  EXPECT_EQ(failed.exit_code, 4) << failed.err;
  const auto out = ordered_json::parse(failed.out);
  EXPECT_FALSE(out["proved"]);
  ASSERT_EQ(out["attempts"].size(), 1u) << "the budget was used up";
  const auto& attempt = out["attempts"][0];
  EXPECT_LT(attempt["steps"], 300) << "cut off behind a checkpoint";
  EXPECT_LT(attempt["sequence_accuracy"], 0.5) << "measured all the same";
  EXPECT_FALSE(exists(directory / "exact.safetensors"));
  EXPECT_NE(test::read_text(directory / "page.html").find("Not solved"), std::string::npos);
}

// Half-way to a language of 24 states a network is no small automaton, and finding that out takes long.
TEST(Solve, WhatIsFarFromTheLanguageIsNotAskedFurther) {
  const test::TemporaryDirectory directory;
  const auto failed =
      run_signet(std::string("solve --group S4 --budget 0.001 --json") + kFiles, directory.path());
  EXPECT_EQ(failed.exit_code, 4) << failed.err;
  const auto out = ordered_json::parse(failed.out);
  EXPECT_EQ(out["method"], nullptr);
  const std::string outcome = out["attempts"][0]["outcome"];
  EXPECT_NE(outcome.find("of its answers are right at training length"), std::string::npos) << outcome;
}

TEST(Solve, TheorySaysNothingAboutAModelOutsideItsClasses) {
  const test::TemporaryDirectory directory;
  const auto tried = run_signet(
      std::string("solve '(aa)*' --model transformer --budget 0.001 --json") + kFiles, directory.path());
  const auto out = ordered_json::parse(tried.out);
  EXPECT_EQ(out["target"], nullptr);
  EXPECT_EQ(out["possible"], nullptr);
  EXPECT_NE(test::read_text(directory / "page.html").find("no class of networks for transformer"),
            std::string::npos);
}

TEST(Solve, ReplacesNothing) {
  const test::TemporaryDirectory directory;
  test::write_text(directory / "page.html", "mine");
  const auto result = run_signet(std::string("solve '(aa)*'") + kFiles, directory.path());
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("page.html"), std::string::npos) << result.err;
  EXPECT_EQ(test::read_text(directory / "page.html"), "mine");
  EXPECT_EQ(list_directory(directory.path()).size(), 1u);
}

std::string network_of(const test::TemporaryDirectory& directory) {
  return test::read_text(directory / "exact.safetensors");
}

TEST(Solve, KilledOrStoppedItGoesOnToTheSameBits) {
  const test::TemporaryDirectory whole, directory;
  const std::string command = std::string("solve '(aa)*'") + kFiles;
  ASSERT_EQ(run_signet(command, whole.path()).exit_code, 0);
  const std::string metrics = directory / "runs/attempt-1/metrics.jsonl", log = directory / "log";
  std::string begun;
  size_t lines = 12;  // of ten updates each: behind the first checkpoint, which is written meanwhile
  const auto saved = [&] {
    const std::filesystem::path checkpoints = directory / "runs/attempt-1/checkpoints";
    std::error_code absent;
    return std::any_of(std::filesystem::directory_iterator(checkpoints, absent), {}, [](const auto& entry) {
      return entry.path().filename().string().starts_with("step-");
    });
  };
  for (const int signal : {SIGKILL, SIGTERM}) {
    test::Process process(
        {"/bin/sh", "-c", "cd '" + directory.path() + "' && exec '" SIGNET_BINARY "' " + command}, log);
    const bool reached = process.until([&] {
      const std::string text = exists(metrics) ? test::read_text(metrics) : "";
      return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) >= lines && saved();
    });
    process.signal(signal);
    ASSERT_EQ(process.wait(), signal == SIGKILL ? 128 + SIGKILL : 75) << test::read_text(log);
    ASSERT_TRUE(reached) << test::read_text(log);
    const std::string text = test::read_text(metrics), first = text.substr(0, text.find('\n'));
    if (begun.empty()) begun = first;
    EXPECT_EQ(first, begun) << "it was begun anew: the times are others";
    lines += 4;
  }
  EXPECT_NE(test::read_text(log).find("the same command goes on"), std::string::npos) << test::read_text(log);
  EXPECT_FALSE(exists(directory / "exact.safetensors"));

  test::write_text(directory / "runs/.tmp-1-0", "half of a");  // by a kill within a write
  const auto last = run_signet(command, directory.path());
  ASSERT_EQ(last.exit_code, 0) << last.err;
  EXPECT_FALSE(exists(directory / "runs/.tmp-1-0"));
  EXPECT_EQ(test::read_text(metrics).substr(0, begun.size()), begun);
  EXPECT_EQ(test::metrics_of(directory / "runs/attempt-1"), test::metrics_of(whole / "runs/attempt-1"));
  EXPECT_EQ(network_of(directory), network_of(whole));
}

TEST(Solve, AFinishedOneSaysSoAndWritesItsFilesAgain) {
  const test::TemporaryDirectory directory;
  const std::string command = std::string("solve '(aa)*'") + kFiles;
  const auto first = run_signet(command + " --json", directory.path());
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const std::string network = network_of(directory);
  const auto trained = std::filesystem::last_write_time(directory / "runs/attempt-1/results.json");
  EXPECT_NE(run_signet(command, directory.path()).out.find("solved before: "), std::string::npos);
  EXPECT_EQ(run_signet(command + " --json", directory.path()).out, first.out);
  // As if it had been killed before the files were written, or before it had said that it is done.
  std::filesystem::remove(directory / "exact.safetensors");
  EXPECT_EQ(run_signet(command, directory.path()).exit_code, 0);
  EXPECT_EQ(network_of(directory), network);
  std::filesystem::remove(directory / "runs/solve.json");
  const auto again = run_signet(command, directory.path());
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NE(again.out.find("attempt 1: "), std::string::npos) << "looked at again";
  EXPECT_EQ(network_of(directory), network);
  EXPECT_EQ(std::filesystem::last_write_time(directory / "runs/attempt-1/results.json"), trained)
      << "no run was trained again";
}

// A record that says "proved" is no proof of the network beside it.
TEST(Solve, AFinishedOneIsProvedAgain) {
  const test::TemporaryDirectory directory;
  const std::string command = std::string("solve '(aa)*'") + kFiles;
  ASSERT_EQ(run_signet(command, directory.path()).exit_code, 0);
  ASSERT_EQ(run_signet("compile 'a*' -o runs/exact.safetensors --force", directory.path()).exit_code, 0);
  std::filesystem::remove(directory / "exact.safetensors");
  const auto other = run_signet(command, directory.path());
  EXPECT_EQ(other.exit_code, 3);
  EXPECT_NE(other.err.find("runs/exact.safetensors is not the proved network"), std::string::npos)
      << other.err;
  EXPECT_FALSE(exists(directory / "exact.safetensors"));

  ASSERT_EQ(run_signet(command + " --force", directory.path()).exit_code, 0);
  auto record = ordered_json::parse(test::read_text(directory / "runs/solve.json"));
  record["said"].erase("proof");
  test::write_text(directory / "runs/solve.json", record.dump());
  const auto incomplete = run_signet(command, directory.path());
  EXPECT_EQ(incomplete.exit_code, 3);
  EXPECT_NE(incomplete.err.find("runs/solve.json"), std::string::npos) << incomplete.err;
}

TEST(Solve, OtherSettingsAreRefusedWithWhatToDo) {
  const test::TemporaryDirectory directory;
  ASSERT_EQ(run_signet(std::string("solve '(aa)*'") + kFiles, directory.path()).exit_code, 0);
  const std::pair<const char*, const char*> others[] = {
      {"'(aa)*' --seed 2", "train.seed was 1, now 2"},
      {"'(aa)*' --model mamba", "model.architecture"},
      {"'(aa)*' --dtype bf16", "--dtype was fp32, now bf16"},
      {"'(aaa)*'", "of (aa)*, and this is (aaa)*"}};
  for (const auto& [arguments, changed] : others) {
    const auto result = run_signet(std::string("solve ") + arguments + kFiles, directory.path());
    EXPECT_EQ(result.exit_code, 3) << arguments;
    for (const char* part : {changed, "runs holds another solve", "--force to begin anew", "another --out"})
      EXPECT_NE(result.err.find(part), std::string::npos) << part << ": " << result.err;
  }
  const auto anew =
      run_signet(std::string("solve '(aa)*' --seed 2 --force --json") + kFiles, directory.path());
  ASSERT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_EQ(ordered_json::parse(anew.out)["attempts"][0]["seed"], 2);
}

TEST(Solve, ALargerBudgetGoesOn) {
  const test::TemporaryDirectory directory;
  const auto with_budget = [&](const std::string& minutes) {
    const auto result =
        run_signet("solve --language parity --model mamba --eigenvalues=0,1 --anyway --json --budget " +
                       minutes + kFiles,
                   directory.path());
    EXPECT_EQ(result.exit_code, 4) << result.err;
    return ordered_json::parse(result.out)["attempts"];
  };
  const auto first = with_budget("0.001");
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(with_budget("0.001"), first) << "there is no time left";
  const double longer = 2 * first[0]["seconds"].get<double>() / 60 + 0.005;  // as slow as this build is
  EXPECT_GT(with_budget(fmt::format("{}", longer))[0]["steps"], first[0]["steps"]);
}

// Every tool that looks at a run, given something else.
TEST(Solve, WhatIsNoRunIsRefused) {
  const test::TemporaryDirectory directory;
  make_directories(directory / "empty");
  for (const char* verb : {"extract", "crystallise", "verify", "check"}) {
    const auto result = run_signet(std::string(verb) + " empty", directory.path());
    EXPECT_EQ(result.exit_code, 3) << verb;
    EXPECT_NE(result.err.find("not a run directory"), std::string::npos) << verb << ": " << result.err;
  }
  const auto large = run_signet(std::string("solve --group S10") + kFiles, directory.path());
  EXPECT_EQ(large.exit_code, 3);
  EXPECT_NE(large.err.find("3628800 elements"), std::string::npos) << large.err;
  EXPECT_EQ(list_directory(directory.path()).size(), 1u) << "nothing was written";
}

}  // namespace
}  // namespace signet::cli
