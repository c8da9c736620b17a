#include "signet/comm/launch.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::comm {
namespace {

constexpr int kMaxRanks = 1 << 20;

// The variables of one launcher.
struct Launcher {
  const char* name;
  const char* present;  // counts as used when this one is set
  const char *rank, *size, *local_rank;
  std::array<const char*, 2> job;  // joined; null or absent ones are left out
};
// Inner launchers first: torchrun may be started by srun. A batch script of Slurm has SLURM_PROCID too, but
// only a step that srun started has SLURM_STEP_NUM_TASKS.
constexpr Launcher kLaunchers[] = {
    {"torchrun",
     "TORCHELASTIC_RUN_ID",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {"mpirun",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"mpiexec", "PMI_SIZE", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", {}},
    {"srun",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    {"torchrun", "WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", {"MASTER_ADDR", "MASTER_PORT"}},
};

}  // namespace

Launch read_launch(const std::function<const char*(const char*)>& variable) {
  const auto number = [&](const Launcher& from, const char* name, int least, int most) {
    const char* text = variable(name);
    if (!text)
      fail(ErrorCode::kUsage, "{} is set but {} is not: start with {}, or unset {}", from.present, name,
           from.name, from.present);
    const int64_t value = parse_int(text, name);
    if (value < least || value > most)
      fail(ErrorCode::kUsage, "{}={} must be a number from {} to {}", name, value, least, most);
    return static_cast<int>(value);
  };
  for (const Launcher& from : kLaunchers) {
    if (!variable(from.present)) continue;
    Launch launch;
    launch.launcher = from.name;
    launch.size = number(from, from.size, 1, kMaxRanks);
    launch.rank = number(from, from.rank, 0, launch.size - 1);
    // MPICH's own starter does not say it; one process per machine is then assumed.
    if (variable(from.local_rank)) launch.local_rank = number(from, from.local_rank, 0, launch.size - 1);
    for (const char* part : from.job)
      if (const char* text = part ? variable(part) : nullptr)
        launch.job += (launch.job.empty() ? "" : ".") + std::string(text);
    if (std::strcmp(from.name, "torchrun") == 0) {
      const char* address = variable("MASTER_ADDR");
      launch.address = address ? address : "";
      if (launch.size > 1) {
        if (launch.address.empty())
          fail(ErrorCode::kUsage, "WORLD_SIZE is {} but MASTER_ADDR is not set: start with torchrun",
               launch.size);
        launch.port = number(from, "MASTER_PORT", 1, 65534);
        // torchrun itself may listen there.
        const char* taken = variable("TORCHELASTIC_USE_AGENT_STORE");
        if (taken && std::strcmp(taken, "True") == 0) ++launch.port;
      }
    }
    return launch;
  }
  return {};
}

const Launch& launch() {
  static const Launch found = read_launch([](const char* name) { return std::getenv(name); });
  return found;
}

std::string local_device(const Launch& launch, const std::string& device) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const bool chosen = launch.alone() || device != "cuda" || (visible && !std::strchr(visible, ','));
  return chosen ? device : fmt::format("cuda:{}", launch.local_rank);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return printable(name.data(), 64);
}

}  // namespace signet::comm
