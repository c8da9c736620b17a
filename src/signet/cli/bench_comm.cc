#include "signet/cli/bench_comm.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/bench/comm_bench.h"
#include "signet/cli/print_as_json.h"
#include "signet/io/provenance.h"

namespace signet::cli {
namespace {

void print_comm(int ranks, const std::string& library, const std::vector<bench::CollectiveReport>& reports,
                double copy) {
  fmt::print("{} ranks over {}; a copy in memory moves {:.1f} GB/s\n\n", ranks, library, copy / 1e9);
  fmt::print("{:24} {:>12} {:>8} {:>12} {:>8} {:>8}\n", "collective", "bytes", "check", "median us", "GB/s",
             "of copy");
  for (const auto& r : reports)
    fmt::print("{:24} {:12} {:>8} {:12.1f} {:8.2f} {:7.0f}%\n", r.name, r.bytes,
               r.correct ? "right" : "WRONG", r.seconds * 1e6, r.moved / r.seconds / 1e9,
               100 * r.moved / r.seconds / copy);
}
void print_comm_json(int ranks, const std::string& library,
                     const std::vector<bench::CollectiveReport>& reports, double copy, const Device& device) {
  nlohmann::ordered_json all = {{"provenance", io::provenance(device)},
                                {"ranks", ranks},
                                {"library", library},
                                {"copy_gbytes_per_second", copy / 1e9},
                                {"collectives", nlohmann::ordered_json::array()}};
  for (const auto& r : reports)
    all["collectives"].push_back({{"collective", r.name},
                                  {"bytes", r.bytes},
                                  {"correct", r.correct},
                                  {"median_us", r.seconds * 1e6},
                                  {"gbytes_per_second", r.moved / r.seconds / 1e9}});
  print_as_json(all);
}

int run_comm(comm::Communicator* ranks, const std::string& device_name, bool json) {
  if (!ranks)
    fail(ErrorCode::kUsage, "bench comm needs several ranks: start it with mpirun -n 2 signet bench comm");
  const OpenDevice device = open_device(comm::local_device(comm::launch(), device_name));
  std::string library = ranks->name();
  std::vector<bench::CollectiveReport> reports;
  double copy = 0;
  if (!device.cuda()) {
    copy = bench::copy_rate();
    reports = bench::bench_collectives(*ranks);
  }
#ifdef SIGNET_WITH_CUDA
  if (device.cuda()) {
    auto found = bench::bench_device_collectives(*ranks, device);
    library = found.library, reports = std::move(found.reports), copy = found.copy_rate;
  }
#endif
  const bool correct =
      std::all_of(reports.begin(), reports.end(), [](const auto& report) { return report.correct; });
  if (ranks->root() && json)
    print_comm_json(ranks->size(), library, reports, copy, device);
  else if (ranks->root())
    print_comm(ranks->size(), library, reports, copy);
  return correct ? 0 : static_cast<int>(ErrorCode::kCheckFailed);
}

}  // namespace

int bench_comm(const std::string& device, bool json) {
  return comm::on_ranks(comm::launch(), "command: signet bench comm --device " + device,
                        [&](comm::Communicator* ranks) { return run_comm(ranks, device, json); });
}

}  // namespace signet::cli
