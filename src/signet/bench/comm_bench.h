// Collectives between ranks: each is checked on numbers whose sums are exact, then timed on all ranks at
// once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "signet/comm/communicator.h"

namespace signet::bench {

struct CollectiveReport {
  std::string name;
  int64_t bytes = 0;  // of the whole buffer
  double moved = 0;   // bytes that a rank must send at least
  bool correct = false;
  double seconds = 0;  // median over the repetitions of the slowest rank
};

// Every rank of `ranks` calls it and gets the same reports.
std::vector<CollectiveReport> bench_collectives(comm::Communicator& ranks);

// Bytes per second of a copy within this machine's memory, one rank alone (read and written).
double copy_rate();

}  // namespace signet::bench
