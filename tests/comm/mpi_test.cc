// Sweeps and collectives of several processes, started by mpirun.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "signet/base/files.h"
#include "support/command.h"
#include "support/mpi.h"
#include "support/process.h"
#include "support/text_file.h"

namespace signet {
namespace {

using test::Mpi;
using test::mpirun;

TEST_F(Mpi, CollectivesOfTwoAndFourRanksAreRight) {
  for (const int ranks : {2, 4}) {
    const auto result = test::run_command(mpirun(ranks) + "'" SIGNET_BINARY "' bench comm --json");
    ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    const auto report = nlohmann::json::parse(result.out);
    EXPECT_EQ(report["ranks"], ranks);
    for (const auto& collective : report["collectives"]) EXPECT_TRUE(collective["correct"]) << collective;
  }
}

std::string grid(const test::TemporaryDirectory& folder, const std::string& more = "") {
  const std::string path = folder / "grid.yaml";
  write_file_atomic(path,
                    "base: {task: {name: parity}, model: {width: 8, heads: 2, blocks: 1, conv: 0, mlp: 0}, "
                    "train: {steps: 30, batch: 8, max_length: 10" +
                        more +
                        "}, eval: {samples: 32, min_length: 3, max_length: 20}}\ngrid: {model.eigenvalues: "
                        "[[0,1], [-1,1]], "
                        "train.seed: [1, 2, 3]}\n");
  return path;
}

TEST_F(Mpi, RanksShareTheRunsOfASweepAndGiveItsTable) {
  const std::string out = folder_ / "shared", alone = folder_ / "alone";
  const std::string file = grid(folder_);
  const auto shared =
      test::run_command(mpirun(3) + "'" SIGNET_BINARY "' sweep " + file + " --jobs 1 --json --out " + out);
  ASSERT_EQ(shared.exit_code, 0) << shared.err;
  const auto one = test::run_command("'" SIGNET_BINARY "' sweep " + file + " --jobs 1 --json --out " + alone);
  ASSERT_EQ(one.exit_code, 0) << one.err;
  auto a = nlohmann::json::parse(test::read_text(out + "/summary.json"));
  auto b = nlohmann::json::parse(test::read_text(alone + "/summary.json"));
  ASSERT_EQ(a["runs"].size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(a["runs"][i]["name"], b["runs"][i]["name"]);
    EXPECT_EQ(a["runs"][i]["score"], b["runs"][i]["score"]);
  }
  const auto table = test::run_command(mpirun(2) + "'" SIGNET_BINARY "' sweep " + file + " --out " + out);
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_NE(table.out.find("page: "), std::string::npos) << table.out;
  EXPECT_EQ(table.out.find('\033'), std::string::npos) << "no colours in a file: " << table.out;
}

// A run that diverges is tried by one rank and reported by all; the next launch tries it again.
TEST_F(Mpi, AFailedRunIsTriedOnceALaunch) {
  const std::string out = folder_ / "failed", file = grid(folder_, ", lr: 10, weight_decay: 10, warmup: 0");
  const auto result =
      test::run_command(mpirun(2) + "'" SIGNET_BINARY "' sweep " + file + " --jobs 1 --out " + out);
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_NE((result.out + result.err).find("not both finite"), std::string::npos) << result.out << result.err;
}

// mpirun ends all ranks when one is killed; the same sweep goes on, on fewer.
TEST_F(Mpi, ASweepGoesOnAfterARankWasKilled) {
  const std::string out = folder_ / "killed",
                    file = grid(folder_, ", checkpoint_every: 5, validate_every: 5");
  const std::string command = mpirun(2) + "'" SIGNET_BINARY "' sweep " + file +
                              " --set train.steps=400 --jobs 1 --quiet --out " + out;
  {
    test::Process ranks({"/bin/sh", "-c", "exec env " + command}, folder_ / "log");
    const auto a_run_was_saved = [&] {
      if (!is_directory(out)) return false;
      for (const auto& name : list_directory(out))
        if (is_directory(out + "/" + name + "/checkpoints") &&
            !list_directory(out + "/" + name + "/checkpoints").empty() &&
            !exists(out + "/" + name + "/results.json"))
          return true;
      return false;
    };
    ASSERT_TRUE(ranks.until(a_run_was_saved)) << test::read_text(folder_ / "log");
    pid_t victim = 0;
    for (const auto& name : list_directory(out + "/.claims")) {
      const std::string holder = test::read_text(out + "/.claims/" + name + "/.lock");
      if (holder.rfind("pid ", 0) == 0) victim = std::stoi(holder.substr(4));
    }
    ASSERT_GT(victim, 0);
    ::kill(victim, SIGKILL);
    EXPECT_NE(ranks.wait(), 0);
  }
  const auto rest = test::run_command("'" SIGNET_BINARY "' sweep " + file +
                                      " --set train.steps=400 --quiet --json --out " + out);
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(nlohmann::json::parse(rest.out)["runs"].size(), 6u);
}

}  // namespace
}  // namespace signet
