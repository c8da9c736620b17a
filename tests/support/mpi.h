// Tests that start several processes of the program by mpirun. Skipped, with a word, where there is none.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "signet/base/files.h"
#include "support/command.h"
#include "support/temporary_directory.h"

namespace signet::test {

// mpirun may be started by root in a container, and takes more ranks than cores. OpenMPI leaves memory
// behind, in modules that it has closed: a sanitizer does not look for leaks in ranks.
inline std::string mpirun(int ranks) {
  return "ASAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun "
         "--oversubscribe --mca "
         "btl_vader_single_copy_mechanism none -n " +
         std::to_string(ranks) + " ";
}

class Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (run_command("command -v mpirun").exit_code != 0)
      GTEST_SKIP() << "no mpirun here (apt-get install openmpi-bin libopenmpi-dev)";
    if (!exists(parent_directory(SIGNET_BINARY) + "/libsignet_mpi.so"))
      GTEST_SKIP() << "this build has no MPI plugin (libopenmpi-dev was missing)";
  }
  TemporaryDirectory folder_;
};

}  // namespace signet::test
