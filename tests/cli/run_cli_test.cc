// signet train and signet eval on runs that are there already: what they refuse, keep and change.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "signet/base/files.h"
#include "signet/cli/sweep_output.h"
#include "signet/train/results.h"
#include "support/command.h"
#include "support/small_run.h"
#include "support/temporary_directory.h"

namespace signet::cli {
namespace {

using nlohmann::ordered_json;
using test::read_text;
using test::run_signet;
using test::write_text;

void expect_refused(const test::CommandResult& result, int exit_code, const std::string& part) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_NE(result.err.find(part), std::string::npos) << result.err << "\nlacks: " << part;
  EXPECT_EQ(result.out, "");
}

class TrainedRun : public testing::Test {
 protected:
  void SetUp() override { test::train_small(run_, {"train.steps=3"}); }
  ordered_json results() const { return ordered_json::parse(read_text(path_)); }

  test::TemporaryDirectory directory_;
  const std::string run_ = directory_ / "run", path_ = run_ + "/results.json";
};

TEST_F(TrainedRun, ResumeRefusesWhatItWouldNotDo) {
  const std::string before = read_text(path_);
  for (const char* option : {"--force", "--dry-run", "--list-keys", "--recipe paper", "--seed 2"})
    expect_refused(run_signet(std::string("train ") + option + " --resume " + run_), 2,
                   std::string(option).substr(0, 6));
  expect_refused(run_signet("train parity --resume " + run_), 2, "leave out 'parity'");
  expect_refused(run_signet("train --resume ''", directory_.path()), 2, "--resume: the value is empty");
  EXPECT_EQ(read_text(path_), before);
  EXPECT_EQ(list_directory(directory_.path()), std::vector<std::string>{"run"});
}

TEST_F(TrainedRun, ResumeSaysWhatWasChangedInItsConfiguration) {
  const std::string config = run_ + "/config.yaml";
  EXPECT_EQ(run_signet("train --quiet --steps 4 --resume " + run_).err, "");
  std::string text = read_text(config);
  const size_t at = text.find("name: parity");
  ASSERT_NE(at, text.npos);
  test::write_text(config, text.replace(at, 12, "name: even-pairs"));
  const auto changed = run_signet("train --quiet --resume " + run_);
  EXPECT_EQ(changed.exit_code, 0);
  EXPECT_NE(changed.err.find("after step 4 (task.name was parity, is even-pairs)"), std::string::npos)
      << changed.err;
}

TEST_F(TrainedRun, ASecondNameOfARunIsNoSecondRun) {
  std::filesystem::create_directory_symlink(run_, directory_ / "link");
  const auto result = run_signet("report run link . run/../run -o page.html --json", directory_.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(ordered_json::parse(result.out)["runs"].size(), 1u) << result.out;
}

// A limit on the size of files is told as a full disk is, with the run as it was.
TEST_F(TrainedRun, ALimitOnFileSizesIsTold) {
  const std::string before = read_text(path_);
  const auto result =
      test::run_command("ulimit -f 1; '" SIGNET_BINARY "' eval --save --quiet --samples 400 " + run_);
  expect_refused(result, 6, "ulimit -f");
  EXPECT_EQ(read_text(path_), before);
}

// Whoever asks may wait for the answer before asking on.
TEST(Run, AnswersALineBeforeTheNextIsThere) {
  const test::TemporaryDirectory directory;
  ASSERT_EQ(run_signet("compile --language parity -o model", directory.path()).exit_code, 0);
  const auto asked = test::run_command("bash -c 'coproc \"" SIGNET_BINARY
                                       "\" run model; for word in 1 11; do echo $word >&${COPROC[1]}; "
                                       "read -t 20 answer <&${COPROC[0]} || exit 9; echo \"$answer\"; done'",
                                       directory.path());
  EXPECT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_EQ(asked.out, "accepted\t1\nrejected\t11\n");
}

// A trained network rounds otherwise where a word is cut: it is cut at the same letters however it comes, one
// by one over a pipe or behind another word of a file.
TEST_F(TrainedRun, AnswersDoNotDependOnHowAWordArrives) {
  std::string word;
  for (int i = 0; i < 600; ++i) word += i % 3 ? "0" : "1";
  const auto whole = run_signet("run --json " + run_ + " " + word);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_NE(whole.out.find("probabilities"), std::string::npos);
  const std::string slowly = "(printf " + word.substr(0, 590) + "; sleep 0.1; printf '" + word.substr(590) +
                             "\n') | '" + SIGNET_BINARY + "' run --json " + run_;
  EXPECT_EQ(test::run_command(slowly).out, whole.out);
  const std::string before((1 << 16) - 591, '1');  // a read of the file ends in the word
  write_text(directory_ / "words", before + "\n" + word + "\n");
  const std::string both = run_signet("run --json " + run_ + " --file " + (directory_ / "words")).out;
  EXPECT_EQ(both.substr(both.find('\n') + 1), whole.out);
}

// What a message says to type can be pasted.
TEST(Train, HintsQuoteTheDirectory) {
  const test::TemporaryDirectory directory;
  for (const char* name : {"my run", "runs/parity-deltanet-[-1,1]-1"}) {
    test::train_small(directory / name, {"train.steps=1"});
    expect_refused(run_signet(std::string("train parity --out '") + name + "'", directory.path()), 3,
                   std::string("`signet train --resume '") + name + "'`");
  }
}

TEST_F(TrainedRun, SavedEvaluationsLeaveTheScoreOfTheRunAlone) {
  const auto before = train::read_results(path_);
  ASSERT_EQ(run_signet("eval --quiet --save --lengths 3:5 --samples 7 --horizon 20 " + run_).exit_code, 0);
  EXPECT_EQ(results()["samples"], 7);
  EXPECT_EQ(results()["horizon"]["limit"], 20);
  EXPECT_EQ(results()["horizon"]["samples"], 7);
  EXPECT_EQ(results()["horizon"]["seed"], 1);
  ASSERT_EQ(run_signet("eval --quiet --save --lengths 3:6 --samples 9 " + run_).exit_code, 0);
  for (int again : {1, 2})
    ASSERT_EQ(run_signet("eval --quiet --save --lengths 50 --samples 5 " + run_).exit_code, 0) << again;
  EXPECT_EQ(results()["samples"], 9);
  ASSERT_EQ(results()["far"].size(), 1u);
  EXPECT_EQ(results()["far"][0]["length"], 50);
  EXPECT_EQ(train::read_results(path_).score, before.score);
}

// by_length goes along the sequences there: its lengths are not those that were tested.
TEST(DenseRun, WhatIsPrintedNamesTheLengthsOfTheSequences) {
  const test::TemporaryDirectory directory;
  const std::string run = directory / "run";
  const auto trained =
      run_signet("train S3:swaps --quiet --steps 1 --out " + run +
                 test::as_options({"model.width=8", "model.heads=2", "model.mlp=0", "train.batch=4",
                                   "eval.samples=4", "eval.min_length=12", "eval.max_length=12"}));
  EXPECT_NE(trained.out.find(" on length 12 after 1 step,"), std::string::npos) << trained.out;
  const auto one = run_signet("eval --quiet --samples 4 --lengths 9 " + run);
  EXPECT_NE(one.out.find(" step 1, length 9\n"), std::string::npos) << one.out;
  const auto several = run_signet("eval --quiet --samples 99 --lengths 9:10 " + run);
  EXPECT_NE(several.out.find(" step 1, lengths 9 to 10\n"), std::string::npos) << several.out;
  ASSERT_EQ(run_signet("report " + run + " -o " + (directory / "page.html")).exit_code, 0);
  EXPECT_NE(read_text(directory / "page.html").find(" at length 12 (trained on "), std::string::npos);
}

TEST_F(TrainedRun, AnEvaluationOfOneLengthNamesIt) {
  const auto result = run_signet("eval --quiet --samples 4 --lengths 9 " + run_);
  EXPECT_NE(result.out.find(" step 3, length 9\n"), std::string::npos) << result.out;
}

TEST(DenseRun, TheLengthSavedIsThatOfTheSamples) {
  const test::TemporaryDirectory directory;
  const std::string run = directory / "run";
  const auto trained = run_signet(
      "train bounded-dyck --quiet --steps 1 --out " + run +
      test::as_options({"model.width=8", "model.heads=2", "model.mlp=0", "train.batch=4",
                        "train.max_length=8", "eval.samples=4", "eval.min_length=2", "eval.max_length=8"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  ASSERT_EQ(run_signet("eval --quiet --save --lengths 41 --samples 5 " + run).exit_code, 0);
  const auto far = ordered_json::parse(read_text(run + "/results.json"))["far"];
  ASSERT_EQ(far.size(), 1u);
  EXPECT_EQ(far[0]["length"], 40);
}

TEST_F(TrainedRun, SaveNamesWhatItCannotAddTo) {
  const std::string save = "eval --quiet --save --lengths 9 --samples 4 " + run_;
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "must hold an object"},
           {"{", "results.json:1"},
           {R"({"far": 7})", "'far' must be a list"},
           {R"({"far": [7]})", "far must be an object"},
           {R"({"far": [{"length": "9"}]})", "'length' must be a whole number"}}) {
    SCOPED_TRACE(text);
    write_text(path_, text);
    const auto result = run_signet(save);
    expect_refused(result, 3, part);
    expect_refused(result, 3, path_);
    EXPECT_EQ(read_text(path_), text);
  }
  remove_tree(path_);
  expect_refused(run_signet(save), 3, "train --resume " + run_);
}

TEST_F(TrainedRun, SaveAddsNothingToTheResultsOfOtherWeights) {
  auto earlier = results();
  earlier["steps"] = 2;  // as of a run that was lengthened and stopped
  write_text(path_, earlier.dump());
  for (const char* lengths : {"9", "3:5"})
    expect_refused(
        run_signet(std::string("eval --quiet --save --samples 4 --lengths ") + lengths + " " + run_), 3,
        "is of step 2, and the newest checkpoint of step 3");
  EXPECT_EQ(results(), earlier);
}

TEST_F(TrainedRun, SaveNeedsTheRunForItself) {
  const DirectoryLock training(run_);
  const std::string before = read_text(path_);
  expect_refused(run_signet("eval --quiet --save --samples 4 " + run_), 1, "in use");
  EXPECT_EQ(read_text(path_), before);
  EXPECT_EQ(run_signet("eval --quiet --samples 4 " + run_).exit_code, 0) << "looking at it does not";
}

// A Transformer keeps so many tokens and no more; the message names the key that says how many.
TEST(MixedRun, LengthsBeyondTheMemoryAreRefusedAtOnce) {
  const test::TemporaryDirectory directory;
  const std::string run = directory / "run";
  ASSERT_EQ(
      run_signet("train parity --model deltanet+transformer --quiet --steps 1 --out " + run +
                 " --set model.width=8 --set train.batch=2 --set eval.samples=2 --set eval.max_length=40"
                 " --set model.transformer.max_length=48")
          .exit_code,
      0);
  EXPECT_EQ(run_signet("eval --quiet --samples 2 --lengths 48 " + run).exit_code, 0);
  expect_refused(run_signet("eval --quiet --samples 2 --lengths 40:60 " + run), 2,
                 "train with model.transformer.max_length = ");
}

TEST(Train, NamesNoOptionThatItLacks) {
  for (const char* task :
       {"--regex '(a|b)*a(a|b){40}'", "--regex 'a{20000}'", "--regex '@'", "language:mod:20000"}) {
    const auto refused = run_signet(std::string("train --dry-run ") + task);
    EXPECT_NE(refused.exit_code, 0) << task;
    EXPECT_EQ(refused.err.find("--"), std::string::npos) << refused.err;
  }
}

TEST_F(TrainedRun, AHorizonBelowTheLeastLengthIsRefusedAtOnce) {
  expect_refused(run_signet("eval --quiet --samples 4 --horizon 1 " + run_), 2, "--horizon 1");
}

TEST(TrainVerb, NamedOptionsWinOverSet) {
  const auto result = run_signet(
      "train parity --eigenvalues=0,1 --set model.eigenvalues=-1,1 --steps 5 --set train.steps=6 --dry-run");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("eigenvalues: [0, 1]"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("steps: 5"), std::string::npos) << result.out;
}

TEST(SweepOutput, ALimitIsNotShownAsAHorizon) {
  train::SweepSummary summary;
  summary.runs.resize(1);
  train::GroupSummary group;
  group.runs = {0};
  group.horizon_median = 5000;
  for (const bool held : {false, true}) {
    group.horizon_held = held;
    summary.groups = {group};
    const auto table = summary_table(summary);
    const auto column = std::find(table.header.begin(), table.header.end(), "horizon") - table.header.begin();
    EXPECT_EQ(table.rows[0][static_cast<size_t>(column)].text, held ? ">5000" : "5000");
  }
}

}  // namespace
}  // namespace signet::cli
