// Collectives between ranks: each is checked on numbers whose sums are exact, then timed on all ranks at
// once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "signet/comm/communicator.h"
#include "signet/tensor/device.h"

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

#ifdef SIGNET_WITH_CUDA
// The same between GPUs, beside a copy within one of them.
struct DeviceCollectiveReports {
  std::string library;
  std::vector<CollectiveReport> reports;
  double copy_rate = 0;
};
DeviceCollectiveReports bench_device_collectives(comm::Communicator& ranks, const Device& device);
#endif

// What both are made of. Element i of rank r: small whole numbers, so that every sum is exact.
inline float collective_element(int64_t i, int rank) { return static_cast<float>(i % 1021 + rank); }
// The median over repetitions of the time that the slowest rank took.
double median_of_slowest(comm::Communicator& ranks, const std::function<void()>& run);
bool on_all_ranks(comm::Communicator& ranks, bool correct);

}  // namespace signet::bench
