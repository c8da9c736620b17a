// One run trained by several processes, started by mpirun.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "signet/base/files.h"
#include "signet/base/version.h"
#include "signet/comm/launch.h"
#include "support/command.h"
#include "support/mpi.h"
#include "support/process.h"
#include "support/text_file.h"

namespace signet {
namespace {

using Json = nlohmann::json;
using test::mpirun;
using test::read_text;
using test::run_command;

class MpiTrain : public test::Mpi {
 protected:
  // A small run that any number of updates continues alike: nothing depends on the last one.
  static std::string settings(const std::string& more = "") {
    return " --recipe paper --set model.width=16 --set model.heads=2 --set model.blocks=1 --set "
           "train.batch=24 "
           "--set train.max_length=12 --set train.schedule=constant --set train.warmup=0 --set train.lr=3e-3 "
           "--set train.clip=0.5 --set train.weight_decay=0.1 --set train.validate_every=0 "
           "--set eval.samples=8 --set eval.min_length=3 --set eval.max_length=12 --quiet " +
           more;
  }
  static std::string signet(int ranks) {
    return (ranks > 1 ? mpirun(ranks) : std::string()) + "'" SIGNET_BINARY "' ";
  }
  void train(int ranks, const std::string& out, int steps, const std::string& more = "",
             const std::string& task = "parity") {
    const auto result = run_command(signet(ranks) + "train " + task + settings(more) + " --steps " +
                                    std::to_string(steps) + " --out " + (folder_ / out));
    ASSERT_EQ(result.exit_code, 0) << ranks << " ranks: " << result.err;
  }
  void resume(int ranks, const std::string& out, int steps) {
    const auto result = run_command(signet(ranks) + "train --quiet --resume " + (folder_ / out) +
                                    " --steps " + std::to_string(steps));
    ASSERT_EQ(result.exit_code, 0) << ranks << " ranks: " << result.err;
  }
  std::string file(const std::string& out, int step, const std::string& name) const {
    return read_file(folder_ / out + "/checkpoints/step-" + std::to_string(step) + "/" + name, 1 << 24);
  }
  void expect_same_bits(const std::string& a, const std::string& b, int step) const {
    for (const char* name : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_TRUE(file(a, step, name) == file(b, step, name)) << name << " of " << a << " and " << b;
  }
  std::vector<double> losses(const std::string& out) const {
    std::vector<double> all;
    for_each_line(InputFile(folder_ / out + "/metrics.jsonl"), [&](const std::string& line) {
      const auto object = Json::parse(line);
      if (object.contains("loss")) all.push_back(object["loss"]);
    });
    return all;
  }
  // A run by two ranks that would not end, once it has saved; `variables` are set for it. Gives rank 1.
  pid_t begin_endless(std::optional<test::Process>& ranks, const std::string& out,
                      const std::string& variables = "") {
    ranks.emplace(std::vector<std::string>{"/bin/sh", "-c",
                                           "exec env " + variables + signet(2) + "train parity" +
                                               settings(" --set train.checkpoint_every=5") +
                                               " --steps 1000000 --out " + out},
                  folder_ / "log");
    EXPECT_TRUE(ranks->until([&] { return exists(out + "/checkpoints/step-10"); }))
        << read_text(folder_ / "log");
    return process_of(out, 1);
  }
  // The process of one rank of this test's run.
  static pid_t process_of(const std::string& out, int rank) {
    for (const auto& name : list_directory("/proc")) {
      if (name.find_first_not_of("0123456789") != name.npos) continue;
      std::string command, variables;
      try {
        command = read_file("/proc/" + name + "/cmdline", 1 << 20);
        if (command.rfind(SIGNET_BINARY, 0) != 0 || command.find(out) == command.npos) continue;
        variables = std::string(1, '\0') + read_file("/proc/" + name + "/environ", 1 << 20);
      } catch (const Error&) {  // it has ended meanwhile
        continue;
      }
      const std::string wanted =
          std::string(1, '\0') + "OMPI_COMM_WORLD_RANK=" + std::to_string(rank) + std::string(1, '\0');
      if (variables.find(wanted) != variables.npos) return std::stoi(name);
    }
    return 0;
  }
};

TEST_F(MpiTrain, FollowsOneRankAndTheSameNumberGivesTheSameBits) {
  const std::string gentle = " --set train.lr=3e-4";  // where rounding does not grow to differences one sees
  train(1, "one", 200, gentle);
  train(2, "two", 200, gentle);
  train(2, "again", 200, gentle);
  expect_same_bits("two", "again", 200);
  EXPECT_EQ(losses("two"), losses("again"));
  const auto one = losses("one"), two = losses("two");
  ASSERT_EQ(one.size(), 20u);
  ASSERT_EQ(two.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(two[i], one[i], 2e-5 * one[i]) << "line " << i;
}

// The noise of a row is the same whoever has it, and however long the other rows there are.
TEST_F(MpiTrain, NoiseDoesNotKnowHowManyRanksThereAre) {
  const std::string noisy =
      " --set model.blocks=2 --set train.max_length=24 --set train.lr=3e-4 --set train.noise=0.5";
  train(1, "one", 20, noisy);
  train(3, "three", 20, noisy);
  const auto one = losses("one"), three = losses("three");
  ASSERT_EQ(one.size(), 2u);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(three.at(i), one[i], 1e-6 * one[i]) << "line " << i;
}

// Clipping, decay and both optimisers, on numbers of ranks that divide neither groups nor parameters.
TEST_F(MpiTrain, TheExactReductionGivesTheBitsOfOneRank) {
  for (const std::string optimizer : {"adamw", "muon"}) {
    const std::string more =
        " --set train.exact_reduction=true --set train.min_length=3 --set train.optimizer=" + optimizer;
    train(1, "one-" + optimizer, 20, more, "S3");
    for (const int ranks : {3, 4}) {
      const std::string out = optimizer + std::to_string(ranks);
      train(ranks, out, 20, more, "S3");
      expect_same_bits("one-" + optimizer, out, 20);
      EXPECT_EQ(losses("one-" + optimizer), losses(out));
    }
  }
}

// After twelve updates without success all ranks begin anew from the same other weights.
TEST_F(MpiTrain, ARunThatBeginsAnewDoesSoOnAllRanks) {
  const std::string more =
      " --set train.exact_reduction=true --set train.restart=12 --set train.stop_at=1 --set "
      "train.validate_every=6 --set train.validate_samples=8";
  train(1, "one", 20, more);
  train(2, "two", 20, more);
  expect_same_bits("one", "two", 20);
}

TEST_F(MpiTrain, ACheckpointGoesOnOnAnyNumberOfRanks) {
  const std::string more = " --set train.exact_reduction=true";
  train(1, "one", 60, more);
  train(1, "many", 10, more);
  int steps = 10;
  for (const int ranks : {3, 2, 1, 4, 8}) resume(ranks, "many", steps += 10);
  expect_same_bits("one", "many", 60);
  EXPECT_EQ(losses("one"), losses("many"));
}

TEST_F(MpiTrain, TextIsSharedToo) {
  const std::string data = folder_ / "text";
  ASSERT_EQ(run_command("'" SIGNET_BINARY "' train --help | '" SIGNET_BINARY
                        "' tokenize - --format lines --tokenizer bytes --held-out 0.2 -o " +
                        data)
                .exit_code,
            0);
  for (const int ranks : {1, 2}) {
    const auto result = run_command(
        signet(ranks) + "train --data " + data +
        " --preset deltanet-10m --set model.width=16 --set model.blocks=1 --set model.heads=1 --set "
        "data.context=32 --set data.packed=false --set train.batch=4 --set train.warmup=2 --set "
        "train.exact_reduction=true --set eval.samples=4 --set train.validate_samples=4 --set "
        "train.validate_every=5 --steps 10 --quiet --json --out " +
        (folder_ / std::to_string(ranks)));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(Json::parse(result.out)["steps"], 10) << "one rank speaks for all";
  }
  expect_same_bits("1", "2", 10);
}

// A model whose blocks are large enough to be sent by themselves: the bits are those of one rank, and
// gradients are on their way while backward goes on.
TEST_F(MpiTrain, GradientsAreSentWhileBackwardGoesOn) {
  const std::string more =
      " --set model.width=176 --set model.heads=1 --set model.blocks=3 --set train.exact_reduction=true ";
  train(1, "one", 6, more);
  train(3, "three", 6, more);
  expect_same_bits("one", "three", 6);
  const std::string trace = folder_ / "trace.json";
  train(2, "two", 6, more + "--trace " + trace);
  expect_same_bits("one", "two", 6);
  struct Span {
    int rank;
    double begin, end;
  };
  std::vector<Span> passes, sums;
  const auto object = Json::parse(read_file(trace, 1 << 24));
  for (const auto& event : object["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const std::string name = event["name"];
    const Span span{event["pid"], event["ts"], event["ts"].get<double>() + event["dur"].get<double>()};
    if (name == "forward and backward") passes.push_back(span);
    if (name.rfind("reduce-scatter of segment ", 0) == 0 && name.back() != '0') sums.push_back(span);
  }
  for (const int rank : {0, 1}) {
    int overlapping = 0;
    for (const auto& sum : sums)
      for (const auto& pass : passes)
        overlapping +=
            sum.rank == rank && pass.rank == rank && sum.begin > pass.begin && sum.begin < pass.end;
    EXPECT_GT(overlapping, 0) << "of rank " << rank << " with " << sums.size() << " sums";
  }
}

// The same path on two machines, and other text behind it.
TEST_F(MpiTrain, RanksThatSeeOtherDataAreRefused) {
  for (const std::string rank : {"0", "1"}) {
    make_directory(folder_ / rank);
    ASSERT_EQ(run_command("'" SIGNET_BINARY "' " + std::string(rank == "0" ? "train" : "eval") +
                          " --help | '" SIGNET_BINARY
                          "' tokenize - --format lines --tokenizer bytes --held-out 0.2 -o " +
                          (folder_ / rank) + "/text")
                  .exit_code,
              0);
  }
  const auto result =
      run_command(mpirun(2) + "sh -c 'cd \"" + folder_.path() +
                  "/$OMPI_COMM_WORLD_RANK\" && exec \"" SIGNET_BINARY
                  "\" train --data /proc/self/cwd/text --preset deltanet-10m --set model.width=16 --set "
                  "model.blocks=1 --set model.heads=1 "
                  "--set data.context=32 --set train.batch=4 --steps 2 --quiet --out " +
                  (folder_ / "run") + "'");
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_NE(result.err.find("rank 1 on " + comm::host_name() + " has '/proc/self/cwd/text: data of "),
            std::string::npos)
      << result.err;
}

// The same path, too, on disks that the machines do not share: before anything is trained.
TEST_F(MpiTrain, ADirectoryThatNotAllRanksSeeIsRefused) {
  for (const std::string rank : {"0", "1"}) make_directory(folder_ / rank);
  const auto result = run_command("SIGNET_PATIENCE=3 " + mpirun(2) + "sh -c 'cd \"" + folder_.path() +
                                  "/$OMPI_COMM_WORLD_RANK\" && exec \"" SIGNET_BINARY "\" train parity" +
                                  settings() + " --steps 5 --out run'");
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_NE(result.err.find("rank 1 on " + comm::host_name() + ": the run directory run here is not that of"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(list_directory(folder_ / "0" + "/run"), std::vector<std::string>{".lock"});
}

TEST_F(MpiTrain, WhatDiffersBetweenRanksIsNamed) {
  const std::string out = folder_ / "run";
  const auto seeds = run_command(mpirun(2) + "sh -c 'exec \"" SIGNET_BINARY "\" train parity" + settings() +
                                 " --steps 5 --out " + out + " --seed 1$OMPI_COMM_WORLD_RANK'");
  EXPECT_EQ(seeds.exit_code, 2) << seeds.err;
  EXPECT_NE(seeds.err.find("rank 1 on " + comm::host_name() + " has 'train.seed: 11', and rank 0"),
            std::string::npos)
      << seeds.err;
  const auto batch =
      run_command(signet(4) + "train parity" + settings(" --set train.batch=25") + " --out " + out);
  EXPECT_EQ(batch.exit_code, 2) << batch.err;
  EXPECT_NE(batch.err.find("train.batch = 25 cannot be shared by 4 ranks"), std::string::npos) << batch.err;
  const std::string line = " '" SIGNET_BINARY "' train parity" + settings() + " --steps 5 --out " + out;
  const auto command = run_command(mpirun(1) + line + " : -n 1 " + line + " --dry-run");
  EXPECT_EQ(command.exit_code, 2) << command.err;
  EXPECT_NE(command.err.find("has 'command: signet train --dry-run', and rank 0"), std::string::npos)
      << command.err;
  for (const auto& result : {seeds, batch, command})
    EXPECT_EQ(result.err.find("signet: rank"), result.err.rfind("signet: rank"))
        << "told once: " << result.err;
}

TEST_F(MpiTrain, AProgramBuiltFromOtherSourcesIsRefused) {
  if (!*kCommit) GTEST_SKIP() << "built where git did not know the commit";
  std::string program = read_file(SIGNET_BINARY, 1 << 28);
  const size_t commit = program.find(kCommit);
  ASSERT_NE(commit, std::string::npos);
  program[commit] = program[commit] == '0' ? '1' : '0';
  const std::string other = folder_ / "other";
  write_file_atomic(other, program);
  ASSERT_EQ(::chmod(other.c_str(), 0755), 0);
  const std::string line = " train parity" + settings() + " --steps 5 --out " + (folder_ / "run");
  const auto result =
      run_command("SIGNET_MPI_PLUGIN='" + parent_directory(SIGNET_BINARY) + "/libsignet_mpi.so' " +
                  mpirun(1) + "'" SIGNET_BINARY "'" + line + " : -n 1 " + other + line);
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_NE(result.err.find("has 'version: " SIGNET_VERSION " " + program.substr(commit, 12)),
            std::string::npos)
      << result.err;
}

TEST_F(MpiTrain, TwoRanksPlanHalfOfTheOptimiser) {
  const std::string plan = "train parity --set model.width=256 --set train.batch=24 --dry-run --json";
  const auto one = run_command(signet(1) + plan), two = run_command(signet(2) + plan);
  ASSERT_EQ(two.exit_code, 0) << two.err;
  const auto a = Json::parse(one.out)["memory"], b = Json::parse(two.out)["memory"];
  EXPECT_EQ(b["ranks"], 2);
  EXPECT_NEAR(b["optimizer"].get<double>() / a["optimizer"].get<double>(), 0.5, 0.01);
}

// The ranks end at once, and the run goes on alone from its last checkpoint.
TEST_F(MpiTrain, AKilledRankEndsAllAndTheRunGoesOn) {
  const std::string out = folder_ / "killed";
  std::optional<test::Process> ranks;
  const pid_t victim = begin_endless(ranks, out);
  ASSERT_GT(victim, 0);
  ::kill(victim, SIGKILL);
  EXPECT_NE(ranks->wait(), 0);
  const int64_t saved = std::stoll(list_directory(out + "/checkpoints").back().substr(5));
  resume(1, "killed", static_cast<int>(saved) + 5);
}

// A rank that hangs is named by the one that waits for it; no process is left.
TEST_F(MpiTrain, ARankThatHangsIsNamed) {
  const std::string out = folder_ / "slow";
  std::optional<test::Process> ranks;
  const pid_t victim = begin_endless(ranks, out, "SIGNET_PATIENCE=1 ");
  ASSERT_GT(victim, 0);
  ::kill(victim, SIGSTOP);
  EXPECT_EQ(ranks->wait(), 75) << read_text(folder_ / "log");
  const std::string log = read_text(folder_ / "log"), host = comm::host_name();
  EXPECT_NE(log.find("rank 0 on " + host + " heard nothing from rank 1 on " + host), std::string::npos)
      << log;
  EXPECT_EQ(process_of(out, 0), 0);
  EXPECT_EQ(process_of(out, 1), 0);
}

// The second rank may write no large files: the save fails there, all end with its error, and the checkpoint
// before stays the last.
TEST_F(MpiTrain, AFullDiskOnOneRankEndsAllWithItsError) {
  train(2, "run", 10);
  const std::string out = folder_ / "run";
  const auto result =
      run_command(mpirun(2) +
                  "sh -c 'trap \"\" XFSZ; test $OMPI_COMM_WORLD_RANK = 0 || ulimit -f 4; exec "
                  "\"" SIGNET_BINARY "\" train --quiet --steps 20 --resume " +
                  out + "'");
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_NE(result.err.find("rank 1 on " + comm::host_name()), std::string::npos) << result.err;
  EXPECT_EQ(list_directory(out + "/checkpoints"), std::vector<std::string>{"step-10"});
  resume(1, "run", 20);
}

TEST_F(MpiTrain, ALossThatIsNotFiniteStopsAllWithAWord) {
  const auto result =
      run_command(signet(2) + "train parity" +
                  settings(" --set train.lr=10 --set train.weight_decay=10 --set train.clip=0") +
                  " --steps 200 --out " + (folder_ / "run"));
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_NE(result.err.find("not both finite (first on rank "), std::string::npos) << result.err;
}

// What Slurm sends before the time is over: all ranks save and stop at the same update.
TEST_F(MpiTrain, ASignalToOneRankSavesAndStopsAll) {
  const std::string out = folder_ / "stopped";
  test::Process ranks(
      {"/bin/sh", "-c",
       "exec env " + signet(2) + "train parity" + settings() + " --steps 1000000 --out " + out},
      folder_ / "log");
  ASSERT_TRUE(ranks.until([&] {
    return exists(out + "/metrics.jsonl") && InputFile(out + "/metrics.jsonl").size() > 0;
  })) << read_text(folder_ / "log");
  const pid_t rank = process_of(out, 1);
  ASSERT_GT(rank, 0);
  ::kill(rank, SIGUSR1);
  EXPECT_EQ(ranks.wait(), 75) << read_text(folder_ / "log");
  EXPECT_EQ(list_directory(out + "/checkpoints").size(), 1u);
}

}  // namespace
}  // namespace signet
