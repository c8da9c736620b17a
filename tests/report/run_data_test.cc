#include "signet/report/run_data.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/fixture_runs.h"
#include "signet/base/error.h"
#include "signet/models/registry.h"
#include "support/temporary_directory.h"

namespace signet::report {
namespace {

namespace fs = std::filesystem;
using test::write_text;

bool noted(const RunData& run, const std::string& piece) {
  for (const auto& note : run.notes)
    if (note.find(piece) != note.npos) return true;
  return false;
}

TEST(Wilson, StaysAmongShares) {
  for (double n = 1; n < 3000; ++n) {
    EXPECT_GE(wilson(0, n).low, 0) << n;
    EXPECT_LE(wilson(1, n).high, 1) << n;
  }
  EXPECT_NEAR(wilson(1, 20).low, 0.83887, 1e-5);
  EXPECT_NEAR(wilson(0.3, 50).high, 0.43749, 1e-4);
}

TEST(RunData, ReadsAWholeRun) {
  test::TemporaryDirectory directory;
  auto results = test::fixture_results({});
  results["far"] = {{{"length", 10000}, {"accuracy", 1.0}, {"samples", 64}},
                    {{"length", 1000}, {"accuracy", 1.0}, {"samples", 64}}};
  results["horizon"] = {{"length", 1000000}, {"threshold", 0.9}, {"reached_limit", true}, {"samples", 64}};
  test::write_fixture_run(directory / "run", {}, results);
  const RunData run = read_run(directory / "run", models::architecture_title);
  EXPECT_TRUE(run.notes.empty()) << run.notes.front();
  EXPECT_EQ(run.name, "run");
  EXPECT_EQ(run.task, "parity");
  EXPECT_EQ(run.seed, "1");
  EXPECT_EQ(run.eigenvalue_low, -1);
  EXPECT_EQ(run.train_high, 40);
  EXPECT_EQ(run.by_length.size(), 217u);
  EXPECT_EQ(run.far.front().length, 1000);  // sorted
  EXPECT_TRUE(run.horizon_held);
  EXPECT_EQ(run.horizon_samples, 64);
  EXPECT_EQ(run.spectra.size(), 8u);
  EXPECT_EQ(run.loss.size(), 500u);
  EXPECT_EQ(run.training_accuracy.size(), 10u);
  EXPECT_EQ(run_label(run), "DeltaNet [−1, 1]");
  EXPECT_EQ(read_run(directory / "run/").name, "run");
}

TEST(RunData, ScalesByChance) {
  RunData run;
  run.chance = 0.2;
  EXPECT_DOUBLE_EQ(run.scaled(1), 1);
  EXPECT_DOUBLE_EQ(run.scaled(0.2), 0);
  run.chance = kUnknown;
  EXPECT_DOUBLE_EQ(run.scaled(0.7), 0.7);
}

TEST(RunData, PoolsBySamples) {
  const std::vector<AccuracyPoint> rows = {{10, 1, 30}, {20, 0.5, 10}, {30, kUnknown, 99}, {40, 0, kUnknown}};
  const auto pooled = pool(rows, 0, 3);
  EXPECT_DOUBLE_EQ(pooled.accuracy, 35.0 / 40);
  EXPECT_DOUBLE_EQ(pooled.length, 12.5);
  EXPECT_DOUBLE_EQ(pooled.samples, 40);
  EXPECT_DOUBLE_EQ(pool(rows, 3, 4).samples, 1);
  EXPECT_TRUE(std::isnan(pool(rows, 2, 3).accuracy));
  EXPECT_TRUE(std::isnan(pool(rows, 0, 0).accuracy));
}

TEST(RunData, NotARunDirectory) {
  test::TemporaryDirectory directory;
  write_text(directory / "file", "text");
  for (const std::string& path : {directory / "missing", directory / "file", directory.path()}) {
    try {
      read_run(path);
      ADD_FAILURE() << path << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadInput);
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
    }
  }
}

TEST(RunData, AFolderStandsForTheRunsInIt) {
  test::TemporaryDirectory directory;
  write_text(directory / "runs/b/config.yaml", "");
  write_text(directory / "runs/a/metrics.jsonl", "");
  write_text(directory / "runs/notes/text", "");
  write_text(directory / "runs/deep/er/config.yaml", "");
  const auto found = find_runs(directory / "runs");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].filename(), "a");
  EXPECT_EQ(found[1].filename(), "b");
  EXPECT_EQ(find_runs(directory / "runs/a").size(), 1u);
  EXPECT_THROW(find_runs(directory / "runs/notes"), Error);
  EXPECT_THROW(find_runs(directory / "runs/notes/text"), Error);
  EXPECT_THROW(find_runs(directory / "missing"), Error);
}

TEST(RunData, TornAndMalformedLinesAreSkipped) {
  test::TemporaryDirectory directory;
  write_text(directory / "metrics.jsonl",
             "{\"step\":1,\"loss\":0.7}\n\nnot json\n{\"step\":2,\"loss\":null}\n[1]\n{\"loss\":1}\n"
             "{\"step\":3,\"loss\":1e999}\n{\"step\":4,\"loss\":0.5}\n{\"step\":5,\"lo");
  const RunData run = read_run(directory.path());
  ASSERT_EQ(run.loss.size(), 3u);
  EXPECT_TRUE(std::isnan(run.loss[1].y));
  EXPECT_EQ(run.loss[2].x, 4);
  EXPECT_TRUE(noted(run, "5 malformed lines"));
  EXPECT_TRUE(noted(run, "not finished"));
}

TEST(RunData, AnUnfinishedRunIsNamedByItsConfiguration) {
  test::TemporaryDirectory directory;
  write_text(
      directory / "config.yaml",
      "task:\n  name: parity\nmodel:\n  architecture: mamba\n  eigenvalues: [-1, 1]\ntrain:\n  seed: 7\n");
  RunData run = read_run(directory.path(), models::architecture_title);
  EXPECT_EQ(run.task, "parity");
  EXPECT_EQ(run_label(run), "Mamba [−1, 1]");
  EXPECT_EQ(run_label(read_run(directory.path())), "mamba [−1, 1]");
  EXPECT_EQ(run.seed, "7");
  EXPECT_FALSE(run.finished());
  write_text(directory / "config.yaml", "a: *b\n");
  EXPECT_TRUE(noted(read_run(directory.path()), "config.yaml"));
}

TEST(RunData, AnUnfinishedRunOnTextIsOneOnText) {
  test::TemporaryDirectory directory;
  write_text(directory / "run/config.yaml", "data:\n  paths: [\"a\"]\nmodel:\n  architecture: gla\n");
  const RunData run = read_run(directory / "run");
  EXPECT_EQ(run.task, "text");
  EXPECT_TRUE(run.text);
  EXPECT_FALSE(run.finished());
}

TEST(RunData, HostileResultsBecomeNotes) {
  test::TemporaryDirectory directory;
  const std::string deep(2'000'000, '[');
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), deep,
                                  std::string("\xff\xfe"), std::string("nul")}) {
    write_text(directory / "results.json", text);
    const RunData run = read_run(directory.path());
    EXPECT_TRUE(noted(run, "results.json")) << text.substr(0, 20);
    EXPECT_FALSE(run.finished());
  }
  // Right syntax, wrong types everywhere.
  write_text(
      directory / "results.json",
      R"({"task":[1],"model":{"a":1},"eigenvalues":["x",2],"train_lengths":[1],"chance":1,"accuracy":"1",
                 "by_length":[1,null,{"length":"x"},{"length":5},[]],"far":{},"horizon":[1],
                 "spectra":[1,{"block":-1e300,"head":1e300,"token":7,"values":[null,"x",0.5]}]})");
  const RunData run = read_run(directory.path());
  EXPECT_EQ(run.task, "");
  EXPECT_TRUE(std::isnan(run.chance));
  for (const char* key : {"task is no text", "model is no text", "eigenvalues is no pair of numbers",
                          "train_lengths is no pair of numbers", "accuracy is no number", "far is no list",
                          "horizon is no object", "4 rows of by_length without a length"})
    EXPECT_TRUE(noted(run, key)) << key;
  ASSERT_EQ(run.by_length.size(), 1u);
  EXPECT_TRUE(std::isnan(run.by_length[0].accuracy));
  EXPECT_EQ(run.spectra.back().head, -1);
  EXPECT_EQ(run.spectra.back().values, std::vector<double>{0.5});
}

TEST(RunData, TestedLengthsAreNotThoseAlongTheSequences) {
  test::TemporaryDirectory directory;
  auto results = test::fixture_results({});
  const auto read = [&] {
    test::write_fixture_run(directory / "run", {}, results);
    return read_run(directory / "run");
  };
  EXPECT_EQ(read().test_low, 40);  // of a run that does not say: those that have an accuracy
  EXPECT_EQ(read().test_high, 256);
  results["dense"] = true;
  EXPECT_TRUE(std::isnan(read().test_low));
  results["lengths"] = {51, 300};
  EXPECT_EQ(read().test_low, 51);
  EXPECT_EQ(read().test_high, 300);
}

// Of 8 sequences 4 are wrong from the second position on, 2 from the third, 2 are right.
TEST(RunData, ReachIsHowFarSequencesAreRight) {
  test::TemporaryDirectory directory;
  auto results = test::fixture_results({});
  const auto reach = [&] {
    test::write_fixture_run(directory / "run", {}, results);
    return read_run(directory / "run").reach();
  };
  EXPECT_TRUE(std::isnan(reach().mean)) << "answers, not sequences";
  results["dense"] = true;
  EXPECT_TRUE(std::isnan(reach().mean)) << "not from the first position on";
  const auto row = [](int length, double accuracy, int samples) {
    return nlohmann::json{{"length", length}, {"sequence_accuracy", accuracy}, {"samples", samples}};
  };
  results["by_length"] = {row(1, 1.0, 8), row(2, 0.5, 8), row(3, 0.25, 8)};
  const double mean = (4 * 1 + 2 * 2 + 2 * 3) / 8.0 / 3, square = (4 * 1 + 2 * 4 + 2 * 9) / 8.0 / 9;
  EXPECT_NEAR(reach().mean, mean, 1e-15);
  EXPECT_NEAR(reach().error, std::sqrt((square - mean * mean) / 8), 1e-15);
  results["by_length"] = {row(1, 1.0, 8), row(2, 0.5, 7)};
  EXPECT_TRUE(std::isnan(reach().mean)) << "sequences of several lengths";
}

TEST(RunData, EveryKeyOfAWrongTypeIsNamed) {
  test::TemporaryDirectory directory;
  const std::pair<const char*, nlohmann::json> kWrong[] = {
      {"scaled_accuracy", "abc"}, {"by_length", 5}, {"samples", true}, {"steps", "1"},
      {"seconds", {1}},           {"dense", 1},     {"spectra", "x"}};
  for (const auto& [key, value] : kWrong) {
    auto results = test::fixture_results({});
    results[key] = value;
    test::write_fixture_run(directory / "run", {}, results);
    const RunData run = read_run(directory / "run");
    ASSERT_EQ(run.notes.size(), 1u) << key;
    EXPECT_EQ(run.notes[0].rfind(std::string("results.json: ") + key + " is no ", 0), 0u) << run.notes[0];
    results[key] = nullptr;  // not known
    test::write_fixture_run(directory / "run", {}, results);
    EXPECT_TRUE(read_run(directory / "run").notes.empty()) << key;
  }
}

TEST(RunData, LongFilesAreBounded) {
  test::TemporaryDirectory directory;
  write_text(directory / "config.yaml", std::string((1 << 20) + 10, 'x'));
  write_text(directory / "metrics.jsonl", std::string(6 << 20, 'y') + "\n{\"step\":1,\"loss\":1}\n");
  const RunData run = read_run(directory.path());
  EXPECT_TRUE(run.config.empty());
  EXPECT_TRUE(noted(run, "config.yaml"));
  EXPECT_TRUE(noted(run, "1 malformed line "));
  EXPECT_EQ(run.loss.size(), 1u);
}

}  // namespace
}  // namespace signet::report
