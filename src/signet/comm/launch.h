// Which of how many processes this is, read from the variables that launchers set: mpirun (Open MPI), srun
// (Slurm), mpiexec (MPICH, Intel MPI) and torchrun. Nothing is linked or started to find that out.
#pragma once

#include <functional>
#include <string>

namespace signet::comm {

struct Launch {
  int rank = 0, size = 1;
  int local_rank = 0;    // among the processes of this machine
  std::string launcher;  // "mpirun", "srun", "mpiexec" or "torchrun"; empty: started by hand
  std::string job;       // the same for all processes of one launch, another for the next one
  std::string address;   // of rank 0 and the port to meet at: torchrun's
  int port = 0;

  bool alone() const { return size == 1; }
};

// Throws kUsage for variables of a launcher that are incomplete or contradict each other. `variable` gives
// the value of a variable of the environment, or null.
Launch read_launch(const std::function<const char*(const char*)>& variable);

// Of this process.
const Launch& launch();

// Of several processes on a machine each takes a GPU of its own in place of "cuda", unless the launcher has
// left it only one.
std::string local_device(const Launch& launch, const std::string& device);

// This machine's name.
std::string host_name();

}  // namespace signet::comm
