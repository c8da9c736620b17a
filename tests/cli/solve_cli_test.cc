// signet solve: what it says and writes when it succeeds, when theory forbids it, and when time runs out.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "signet/base/files.h"
#include "support/command.h"
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

TEST(Solve, ReplacesNothing) {
  const test::TemporaryDirectory directory;
  test::write_text(directory / "page.html", "mine");
  const auto result = run_signet(std::string("solve '(aa)*'") + kFiles, directory.path());
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("page.html"), std::string::npos) << result.err;
  EXPECT_EQ(test::read_text(directory / "page.html"), "mine");
  EXPECT_EQ(list_directory(directory.path()).size(), 1u);
}

// A solve that was killed left an attempt; to train that on would not go on with the rest.
TEST(Solve, AnEarlierAttemptIsNoRunToResume) {
  test::TemporaryDirectory directory;
  test::write_text(directory / "runs/solve/attempt-1/config.yaml", "task: {name: parity}\n");
  const auto result = run_signet("solve --language parity", directory.path());
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("give --force to begin anew"), std::string::npos) << result.err;
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
