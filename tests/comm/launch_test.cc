#include "signet/comm/launch.h"

#include <gtest/gtest.h>

#include <map>

#include "signet/base/error.h"

namespace signet::comm {
namespace {

Launch read(const std::map<std::string, std::string>& variables) {
  return read_launch([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string refusal(const std::map<std::string, std::string>& variables) {
  try {
    read(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(Launch, ByHandIsAlone) {
  const Launch launch = read({});
  EXPECT_TRUE(launch.alone());
  EXPECT_EQ(launch.launcher, "");
}

TEST(Launch, OpenMpi) {
  const Launch launch = read({{"OMPI_COMM_WORLD_RANK", "3"},
                              {"OMPI_COMM_WORLD_SIZE", "8"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"PMIX_NAMESPACE", "77"}});
  EXPECT_EQ(launch.launcher, "mpirun");
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.size, 8);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.job, "77");
}

// A batch script of Slurm is one process whatever its job has; a step that srun started is many.
TEST(Launch, Slurm) {
  std::map<std::string, std::string> batch{
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "42"}};
  EXPECT_TRUE(read(batch).alone());
  batch["SLURM_STEP_NUM_TASKS"] = "16";
  batch["SLURM_STEP_ID"] = "2";
  batch["SLURM_PROCID"] = "15";
  const Launch step = read(batch);
  EXPECT_EQ(step.launcher, "srun");
  EXPECT_EQ(step.rank, 15);
  EXPECT_EQ(step.size, 16);
  EXPECT_EQ(step.job, "42.2");
}

// torchrun that srun started, one per machine: the inner launcher counts.
TEST(Launch, TorchrunWithinSlurm) {
  const Launch launch = read({{"SLURM_STEP_NUM_TASKS", "2"},
                              {"SLURM_PROCID", "1"},
                              {"TORCHELASTIC_RUN_ID", "job"},
                              {"RANK", "9"},
                              {"WORLD_SIZE", "16"},
                              {"LOCAL_RANK", "1"},
                              {"MASTER_ADDR", "node0"},
                              {"MASTER_PORT", "29500"}});
  EXPECT_EQ(launch.launcher, "torchrun");
  EXPECT_EQ(launch.rank, 9);
  EXPECT_EQ(launch.size, 16);
  EXPECT_EQ(launch.address, "node0");
  EXPECT_EQ(launch.port, 29500);
}

// torchrun keeps its own store at MASTER_PORT and says so: the ranks meet beside it.
TEST(Launch, TheStoreOfTorchrunKeepsItsPort) {
  const Launch launch = read({{"TORCHELASTIC_RUN_ID", "job"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                              {"RANK", "0"},
                              {"WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "node0"},
                              {"MASTER_PORT", "29500"}});
  EXPECT_EQ(launch.port, 29501);
}

TEST(Launch, IncompleteOrContradictoryVariablesAreRefusedByName) {
  EXPECT_NE(refusal({{"OMPI_COMM_WORLD_SIZE", "2"}}).find("OMPI_COMM_WORLD_RANK"), std::string::npos);
  EXPECT_NE(refusal({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "2"}}).find("from 0 to 1"),
            std::string::npos);
  EXPECT_NE(refusal({{"WORLD_SIZE", "two"}, {"RANK", "0"}}).find("WORLD_SIZE"), std::string::npos);
  EXPECT_NE(refusal({{"WORLD_SIZE", "2"}, {"RANK", "0"}}).find("MASTER_ADDR"), std::string::npos);
  EXPECT_NE(refusal({{"WORLD_SIZE", "0"}, {"RANK", "0"}}).find("WORLD_SIZE"), std::string::npos);
}

}  // namespace
}  // namespace signet::comm
