// Training and evaluation through the real program when things go wrong: signals, kill -9, a second process,
// damaged or foreign files, a full disk, a directory that vanishes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "signet/base/files.h"
#include "signet/io/json.h"
#include "support/command.h"
#include "support/process.h"
#include "support/small_run.h"
#include "support/temporary_directory.h"
#include "support/unprivileged.h"

namespace signet::train {
namespace {

using test::metrics_of;
using test::model_bytes;
using test::Process;
using test::run_command;
using test::run_signet;
using test::TemporaryDirectory;

const char* const kSmall =
    " --set model.width=8 --set model.heads=2 --set model.blocks=1 --set model.conv=0 --set model.mlp=0"
    " --set train.batch=8 --set train.max_length=10 --set eval.samples=32 --set eval.max_length=30"
    " --set eval.min_length=3 --set train.validate_samples=16 --recipe paper --quiet";
// About two milliseconds per step: long enough to be hit by a signal.
const char* const kSlow =
    " --set model.width=32 --set model.heads=2 --set model.blocks=1 --set train.batch=32 --set model.mlp=32"
    " --set eval.samples=32 --set eval.max_length=41 --set train.validate_every=25"
    " --set train.validate_samples=16 --set train.checkpoint_every=20 --recipe paper --quiet";

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> result = {SIGNET_BINARY};
  for (std::string word; stream >> word;) result.push_back(word);
  return result;
}

size_t lines_in(const std::string& path) {
  const std::string text = test::read_text(path);
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "text: " << text << "\nlacks: " << part;
}

TEST(TrainFault, StoppedBySignalsAndKilledItResumesToTheSameBits) {
  TemporaryDirectory directory;
  const std::string whole = directory / "whole", run = directory / "run", log = directory / "log";
  const auto expected = run_signet(std::string("train parity --steps 120") + kSlow + " --out " + whole);
  ASSERT_EQ(expected.exit_code, 0) << expected.err;
  const struct {
    int signal, exit_code;
    size_t lines;  // of metrics.jsonl, before it is sent
  } stops[] = {{SIGTERM, 75, 2}, {SIGINT, 130, 5}, {SIGKILL, 128 + SIGKILL, 8}, {SIGHUP, 75, 11}};
  bool first = true;
  for (const auto& stop : stops) {
    SCOPED_TRACE(stop.signal);
    Process process(words((first ? std::string("train parity --steps 120") + kSlow + " --out "
                                 : "train --quiet --resume ") +
                          run),
                    log);
    first = false;
    const bool reached = process.until([&] { return lines_in(run + "/metrics.jsonl") >= stop.lines; });
    process.signal(stop.signal);
    const int code = process.wait();
    ASSERT_TRUE(reached) << test::read_text(log);
    EXPECT_EQ(code, stop.exit_code) << test::read_text(log);
    if (stop.signal != SIGKILL) {
      const std::string text = test::read_text(log);
      expect_contains(text, "--resume " + run);
      EXPECT_LT(text.find(": stopping after the work at hand"), text.find("saved at step")) << text;
    }
    EXPECT_FALSE(exists(run + "/results.json"));
  }
  const auto last = run_signet("train --quiet --resume " + run);
  EXPECT_EQ(last.exit_code, 0) << last.err;
  EXPECT_EQ(model_bytes(run, 120), model_bytes(whole, 120));
  EXPECT_EQ(metrics_of(run), metrics_of(whole));
}

// It saves after every update, so most kills fall into a save.
TEST(TrainFault, KilledWhileSavingACompleteCheckpointIsAlwaysThere) {
  TemporaryDirectory directory;
  const std::string whole = directory / "whole", run = directory / "run", log = directory / "log";
  const std::string options = std::string("train parity --steps 400") + kSmall +
                              " --set train.checkpoint_every=1 --set train.validate_every=0 --out ";
  ASSERT_EQ(run_signet(options + whole).exit_code, 0);
  unsigned state = 12345;
  for (int kill = 0; kill < 12; ++kill) {
    const bool fresh = !exists(run + "/config.yaml");
    Process process(words(fresh ? options + run : "train --quiet --resume " + run), log);
    state = state * 1103515245 + 12345;
    std::this_thread::sleep_for(std::chrono::microseconds(4000 + (state >> 16) % 30000));
    process.signal(SIGKILL);
    const int code = process.wait();
    EXPECT_TRUE(code == 128 + SIGKILL || code == 0) << test::read_text(log);
  }
  const auto last =
      run_signet(exists(run + "/config.yaml") ? "train --quiet --resume " + run : options + run);
  EXPECT_EQ(last.exit_code, 0) << last.err;
  EXPECT_EQ(model_bytes(run, 400), model_bytes(whole, 400));
  EXPECT_EQ(metrics_of(run), metrics_of(whole));
}

TEST(TrainFault, ThreadsFromTheEnvironmentChangeNoBit) {
  TemporaryDirectory directory;
  for (const char* threads : {"1", "2", "3"}) {
    const auto result =
        run_command(std::string("SIGNET_THREADS=") + threads + " '" SIGNET_BINARY "' train parity" + kSmall +
                    " --steps 12 --out " + (directory / threads));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(model_bytes(directory / threads, 12), model_bytes(directory / "1", 12)) << threads;
    EXPECT_EQ(metrics_of(directory / threads), metrics_of(directory / "1")) << threads;
  }
}

class FinishedRun : public testing::Test {
 protected:
  void SetUp() override {
    const auto result = run_signet(std::string("train parity --steps 6") + kSmall + " --out " + run_);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  // The same tree, byte for byte, as it was after SetUp.
  std::string fingerprint() const {
    return run_command("find " + run_ + " -type f ! -name .lock -exec sha256sum {} + | sort").out;
  }
  TemporaryDirectory directory_;
  const std::string run_ = directory_ / "run";
};

// Short of address space, libraries of products and threads crash, abort or hang.
TEST(TrainFault, LittleAddressSpaceEndsWithTheCodeForIt) {
  TemporaryDirectory directory;
  struct Limit {
    int threads, kilobytes, code;
  };
  for (const auto& [threads, kilobytes, code] :
       {Limit{1, 110'000, 6}, {1, 200'000, 6}, {1, 300'000, 6}, {8, 700'000, 6}, {8, 2'000'000, 0}})
    for (const std::string& arguments :
         {std::string("info"),
          std::string("train parity --steps 2 --force") + kSmall + " --out " + (directory / "run"),
          std::string("factor '[[0,1],[1,0]]'")}) {
      const auto result = run_command("ulimit -v " + std::to_string(kilobytes) +
                                      "; SIGNET_THREADS=" + std::to_string(threads) +
                                      " timeout 20 '" SIGNET_BINARY "' " + arguments);
      EXPECT_EQ(result.exit_code, code)
          << kilobytes << " " << threads << " " << arguments << ": " << result.err;
      if (code) {
        expect_contains(result.err, "ulimit -v");
      }
    }
}

TEST_F(FinishedRun, CanBeLengthened) {
  const auto longer = run_signet("train --quiet --steps 9 --resume " + run_);
  ASSERT_EQ(longer.exit_code, 0) << longer.err;
  expect_contains(longer.out, "after 9 steps");
  expect_contains(test::read_text(run_ + "/config.yaml"), "steps: 9\n");
  const std::string before = fingerprint();
  const auto shorter = run_signet("train --quiet --steps 8 --resume " + run_);
  EXPECT_EQ(shorter.exit_code, 2);
  expect_contains(shorter.err, "9 updates already");
  EXPECT_EQ(fingerprint(), before);
  // Where the learning rate does not depend on the number of updates, it is the run that had them all along.
  const std::string constant =
      std::string(kSmall) + " --set train.schedule=constant --set train.warmup=2 --out ";
  const std::string whole = directory_ / "whole", part = directory_ / "part";
  ASSERT_EQ(run_signet("train parity --steps 9" + constant + whole).exit_code, 0);
  ASSERT_EQ(run_signet("train parity --steps 4" + constant + part).exit_code, 0);
  ASSERT_EQ(run_signet("train --quiet --steps 9 --resume " + part).exit_code, 0);
  EXPECT_EQ(model_bytes(part, 9), model_bytes(whole, 9));
  EXPECT_EQ(test::read_text(part + "/config.yaml"), test::read_text(whole + "/config.yaml"));
}

TEST_F(FinishedRun, RemembersItsDeviceAndSaysWhenItStartsOver) {
  ASSERT_EQ(run_command("sed -i 's/device: cpu/device: cuda:7/' " + run_ + "/config.yaml").exit_code, 0);
  const auto elsewhere = run_signet("train --quiet --resume " + run_);
  EXPECT_EQ(elsewhere.exit_code, 2) << "neither this build nor this machine has an eighth GPU";
  const auto moved = run_signet("train --resume " + run_ + " --device cpu");
  EXPECT_EQ(moved.exit_code, 0) << moved.err;
  expect_contains(moved.err, "the run was on cuda:7; it goes on on cpu");
  expect_contains(test::read_text(run_ + "/config.yaml"), "device: cpu\n");
  EXPECT_EQ(run_signet("train --resume " + run_ + " --device cuda:x").exit_code, 2);
  ASSERT_EQ(run_command("rm -r " + run_ + "/checkpoints").exit_code, 0);
  const auto again = run_signet("train --resume " + run_);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  expect_contains(again.err, "no checkpoint any more: starting over from the first update");
  expect_contains(again.err, "first update");
}

// Results of a former life are kept, but are not those of a run that begins anew.
TEST_F(FinishedRun, BegunAnewItIsNotDoneByWhatItHadBefore) {
  const std::string results = test::read_text(run_ + "/results.json"),
                    metrics = test::read_text(run_ + "/metrics.jsonl");
  run_command("sed -i 's/checkpoint_every: .*/checkpoint_every: 0/' " + run_ + "/config.yaml");
  std::filesystem::remove_all(run_ + "/checkpoints");
  for (const std::string steps : {"100000000", "200000000"}) {
    Process again({SIGNET_BINARY, "train", "--quiet", "--steps", steps, "--resume", run_},
                  directory_ / "log");
    ASSERT_TRUE(
        again.until([&] { return test::read_text(run_ + "/config.yaml").find(steps) != std::string::npos; }));
    again.signal(SIGKILL);
    again.wait();
    ASSERT_FALSE(std::filesystem::exists(run_ + "/checkpoints"));
    const auto listed = nlohmann::json::parse(run_signet("list --json " + run_).out)["runs"][0];
    EXPECT_EQ(listed["state"], "stopped");
    EXPECT_TRUE(listed["score"].is_null()) << listed;
    EXPECT_EQ(test::read_text(run_ + "/results.former.json"), results) << "and stays in the next life";
    EXPECT_EQ(test::read_text(run_ + "/metrics.former.jsonl"), metrics);
  }
  ASSERT_EQ(run_signet("train parity --force --steps 1" + std::string(kSmall) + " --out " + run_).exit_code,
            0);
  EXPECT_FALSE(std::filesystem::exists(run_ + "/results.former.json"));
}

TEST_F(FinishedRun, ResultsAndPagesSayWhereTheyComeFrom) {
  const auto results = io::read_json_file(run_ + "/results.json");
  const auto& made = results.at("provenance");
  for (const char* key : {"signet", "date", "host", "device"})
    EXPECT_FALSE(made.at(key).get<std::string>().empty()) << key;
  EXPECT_TRUE(made.at("commit").is_string());
  const std::string command = made.at("command");
  EXPECT_EQ(command.rfind("signet train parity --steps 6 --set model.width=8", 0), 0u) << command;
  const std::string page = directory_ / "page.html";
  ASSERT_EQ(run_signet("report " + run_ + " -o " + page).exit_code, 0);
  const std::string html = test::read_text(page);
  expect_contains(html, "signet train parity --steps 6");
  expect_contains(html, "signet report " + run_);
  // An evaluation that is saved in the place of the run's own leaves that its origin.
  ASSERT_EQ(run_signet("eval " + run_ + " --lengths 5:9 --samples 8 --save --quiet").exit_code, 0);
  const auto saved = io::read_json_file(run_ + "/results.json");
  EXPECT_EQ(saved.at("final").at("provenance"), made);
  expect_contains(saved.at("provenance").at("command"), "signet eval");
}

TEST_F(FinishedRun, IsNotOverwrittenWithoutForce) {
  const std::string before = fingerprint();
  const auto refused = run_signet(std::string("train parity --steps 3") + kSmall + " --out " + run_);
  EXPECT_EQ(refused.exit_code, 3);
  expect_contains(refused.err, "--force");
  expect_contains(refused.err, "--resume");
  EXPECT_EQ(fingerprint(), before);
  test::write_text(run_ + "/notes.txt", "mine");
  const auto forced = run_signet(std::string("train parity --steps 3") + kSmall + " --force --out " + run_);
  EXPECT_EQ(forced.exit_code, 0) << forced.err;
  EXPECT_EQ(list_directory(run_ + "/checkpoints"), std::vector<std::string>{"step-3"});
  EXPECT_EQ(test::read_text(run_ + "/notes.txt"), "mine");
}

TEST_F(FinishedRun, ASecondProcessIsRefused) {
  const std::string before = fingerprint();
  {
    const auto owner = io::RunDirectory::open_for_resume(run_);
    for (const std::string& how : {"train --quiet --resume " + run_, std::string("train parity --steps 3") +
                                                                         kSmall + " --force --out " + run_}) {
      const auto second = run_signet(how);
      EXPECT_NE(second.exit_code, 0);
      expect_contains(second.err, run_);
    }
    EXPECT_EQ(fingerprint(), before);
    EXPECT_EQ(run_signet("eval --quiet --samples 8 " + run_).exit_code, 0) << "reading needs no lock";
  }
  EXPECT_EQ(run_signet("train --quiet --resume " + run_).exit_code, 0) << "the lock goes with its owner";
}

TEST_F(FinishedRun, EvalSaysWhatWasPromised) {
  const auto result = run_signet("eval --json --quiet --lengths 5:20 --samples 50 " + run_);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::ordered_json::parse(result.out);
  for (const char* key :
       {"task", "model", "eigenvalues", "scaled_accuracy", "accuracy", "samples", "by_length"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["task"], "parity");
  EXPECT_EQ(json["model"], "deltanet");
  EXPECT_EQ(json["eigenvalues"].dump(), "[-1.0,1.0]");
  EXPECT_EQ(json["samples"], 50);
  int64_t samples = 0;
  double correct = 0;
  for (const auto& entry : json["by_length"]) {
    EXPECT_EQ(entry.size(), 4u);
    EXPECT_TRUE(entry["length"].get<int64_t>() >= 5 && entry["length"].get<int64_t>() <= 20);
    samples += entry["samples"].get<int64_t>();
    correct += entry["accuracy"].get<double>() * entry["samples"].get<double>();
  }
  EXPECT_EQ(samples, 50);
  EXPECT_NEAR(json["accuracy"].get<double>(), correct / 50, 1e-12);
  EXPECT_NEAR(json["scaled_accuracy"].get<double>(), 2 * correct / 50 - 1, 1e-12);
  // The same again, but for when it was said.
  auto again = nlohmann::ordered_json::parse(
      run_signet("eval --json --quiet --lengths 5:20 --samples 50 " + run_).out);
  again["provenance"]["date"] = json["provenance"]["date"];
  EXPECT_EQ(again.dump(), json.dump());
}

TEST_F(FinishedRun, EvalOfTheTestLengthsRepeatsTheResultsOfTraining) {
  const auto result = run_signet("eval --json --quiet --samples 32 " + run_);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto again = nlohmann::ordered_json::parse(result.out);
  const auto stored = nlohmann::ordered_json::parse(test::read_text(run_ + "/results.json"));
  for (const char* key : {"accuracy", "loss", "by_length"}) EXPECT_EQ(again[key], stored[key]) << key;
}

TEST_F(FinishedRun, EvalRefusesWhatItCannotDo) {
  const struct {
    std::string arguments;
    int exit_code;
    std::string part;
  } cases[] = {{"--lengths 9:5 " + run_, 2, "smaller first"},
               {"--lengths 0 " + run_, 2, "--lengths"},
               {"--lengths 1:2:3 " + run_, 2, "--lengths"},
               {"--lengths x " + run_, 2, "--lengths"},
               {"--lengths 99999999999 " + run_, 2, "--lengths"},
               {"--samples 0 " + run_, 2, "--samples"},
               {"--horizon 0 " + run_, 2, "--horizon"},
               {"--lenghts 5 " + run_, 2, "--lengths"},
               {directory_ / "nowhere", 3, "nowhere"},
               {"", 2, "RUN"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.arguments);
    const auto result = run_signet("eval --quiet " + c.arguments);
    EXPECT_EQ(result.exit_code, c.exit_code) << result.err;
    expect_contains(result.err, c.part);
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(FinishedRun, ACheckpointOfAnotherModelIsNamed) {
  const std::string path = run_ + "/config.yaml";
  std::string text = test::read_text(path);
  const size_t at = text.find("width: 8");
  ASSERT_NE(at, std::string::npos) << text;
  test::write_text(path, text.substr(0, at) + "width: 16" + text.substr(at + 8));
  for (const std::string verb : {"eval --quiet ", "train --quiet --resume "}) {
    const auto result = run_signet(verb + run_);
    EXPECT_EQ(result.exit_code, 3) << result.err;
    expect_contains(result.err, "embedding.weight");
    expect_contains(result.err, "16");
  }
}

TEST_F(FinishedRun, WithoutACompleteCheckpointEvalSaysSo) {
  const std::string path = run_ + "/checkpoints/step-6/model.safetensors";
  std::string bytes = test::read_text(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  test::write_text(path, bytes);
  const auto result = run_signet("eval --quiet " + run_);
  EXPECT_EQ(result.exit_code, 3);
  expect_contains(result.err, "no complete checkpoint");
  expect_contains(result.err, "step-6");
}

TEST_F(FinishedRun, ResumeTakesNoOtherConfiguration) {
  for (const char* option : {"--seed 4", "--model mamba", "--set train.lr=1", "parity"}) {
    const auto result = run_signet(std::string("train ") + option + " --resume " + run_);
    EXPECT_EQ(result.exit_code, 2) << option;
  }
}

// Far lengths in constant memory: 100 times the length, the same peak but for the tokens themselves.
TEST_F(FinishedRun, MemoryDoesNotGrowWithTheLength) {
  auto peak = [&](const std::string& length) {
    Process process(words("eval --quiet --samples 2 --lengths " + length + " " + run_), directory_ / "log");
    EXPECT_EQ(process.wait(), 0);
    return process.peak_kilobytes();
  };
  const int64_t near = peak("2000"), far = peak("200000");
  EXPECT_LT(far - near, 2 * 200000 * 4 / 1024 + 4096) << near << " kB against " << far << " kB";
}

TEST(TrainFault, WrongNamesAreAnsweredWithTheNearest) {
  const struct {
    const char* arguments;
    int exit_code;
    const char* part;
  } cases[] = {{"train pariti", 2, "parity"},
               {"train parity --model detlanet", 2, "deltanet"},
               {"train parity --set train.stesp=3", 2, "train.steps"},
               {"train parity --set model.widht=3", 2, "model.width"},
               {"train parity --stpes 3", 2, "--steps"},
               {"train parity --eigenvalues=0,3", 2, "eigenvalues"},
               {"train", 2, "parity"},
               {"train --resume nowhere", 3, "nowhere"},
               {"train parity --config nowhere.yaml", 3, "nowhere.yaml"},
               {"train parity --recipe paper --set model.width=9 --set model.heads=2", 2, "model.heads"},
               {"demo --stesp 3", 2, "--steps"}};
  TemporaryDirectory directory;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.arguments);
    const auto result = run_signet(c.arguments, directory.path());
    EXPECT_EQ(result.exit_code, c.exit_code) << result.err;
    expect_contains(result.err, c.part);
  }
  EXPECT_TRUE(list_directory(directory.path()).empty()) << "a refused command leaves nothing behind";
}

TEST(TrainFault, ADivergingRunStopsWithItsOwnExitCode) {
  TemporaryDirectory directory;
  const std::string run = directory / "run";
  const auto result = run_signet(std::string("train parity --steps 300") + kSmall +
                                 " --set train.lr=10 --set train.schedule=constant --set train.warmup=0"
                                 " --set train.weight_decay=10 --set train.checkpoint_every=5 --out " +
                                 run);
  EXPECT_EQ(result.exit_code, 5) << result.err;
  expect_contains(result.err, "finite");
  EXPECT_FALSE(list_directory(run + "/checkpoints").empty());
  EXPECT_FALSE(exists(run + "/results.json"));
}

TEST(TrainFault, AFullDiskEndsTheRunWithExitCode6) {
  TemporaryDirectory directory;
  const std::string run = directory / "run";
  // No file above 4 KiB; without the trap the kernel would end the process instead of failing the write.
  const auto result = run_command("trap '' XFSZ; ulimit -f 8; '" SIGNET_BINARY "' train parity --steps 6" +
                                  std::string(kSmall) + " --set model.width=64 --out " + run);
  EXPECT_EQ(result.exit_code, 6) << result.err;
  expect_contains(result.err, run);
}

TEST(TrainFault, ADirectoryThatVanishesEndsTheRun) {
  TemporaryDirectory directory;
  const std::string run = directory / "run", log = directory / "log";
  Process process(words(std::string("train parity --steps 20000") + kSlow + " --out " + run), log);
  ASSERT_TRUE(process.until([&] { return lines_in(run + "/metrics.jsonl") >= 1; })) << test::read_text(log);
  // Until it is gone: a save of the other process may still put something in.
  for (std::error_code error; exists(run);) std::filesystem::remove_all(run, error);
  EXPECT_EQ(process.wait(), 6) << test::read_text(log);
  expect_contains(test::read_text(log), "vanished");
}

TEST(TrainFault, AReadOnlyDirectoryIsRefused) {
  TemporaryDirectory directory;
  const std::string locked = directory / "locked";
  make_directory(locked);
  ::chmod(locked.c_str(), 0555);
  ::chmod(directory.path().c_str(), 0755);
  const test::Unprivileged user;
  test::expect_bad_input([&] { io::RunDirectory::create(locked + "/run", false); }, locked);
  test::expect_bad_input([&] { io::RunDirectory::create(locked, true); }, locked);
}

TEST(Demo, RunsAllFourAndWritesThePage) {
  TemporaryDirectory directory;
  const auto result = run_signet("demo --quiet --json --steps 2 --samples 40 --out runs --report page.html",
                                 directory.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::ordered_json::parse(result.out);
  ASSERT_EQ(json["runs"].size(), 4u);
  std::vector<std::string> seen;
  for (const auto& run : json["runs"]) {
    seen.push_back(run["model"].get<std::string>() + run["eigenvalues"].dump());
    EXPECT_EQ(run["samples"], 40);
    EXPECT_EQ(run["far"].size(), 2u);
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"deltanet[0.0,1.0]", "deltanet[-1.0,1.0]", "mamba[0.0,1.0]",
                                            "mamba[-1.0,1.0]"}));
  expect_contains(test::read_text(directory / "page.html"), "</html>");
}

}  // namespace
}  // namespace signet::train
