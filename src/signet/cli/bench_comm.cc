#include "signet/cli/bench_comm.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/bench/comm_bench.h"

namespace signet::cli {
namespace {

void print_comm(const comm::Communicator& ranks, const std::vector<bench::CollectiveReport>& reports,
                double copy) {
  fmt::print("{} ranks over {}; a copy in memory moves {:.1f} GB/s\n\n", ranks.size(), ranks.name(),
             copy / 1e9);
  fmt::print("{:24} {:>12} {:>8} {:>12} {:>8} {:>8}\n", "collective", "bytes", "check", "median us", "GB/s",
             "of copy");
  for (const auto& r : reports)
    fmt::print("{:24} {:12} {:>8} {:12.1f} {:8.2f} {:7.0f}%\n", r.name, r.bytes,
               r.correct ? "right" : "WRONG", r.seconds * 1e6, r.moved / r.seconds / 1e9,
               100 * r.moved / r.seconds / copy);
}
void print_comm_json(const comm::Communicator& ranks, const std::vector<bench::CollectiveReport>& reports,
                     double copy) {
  nlohmann::ordered_json all = {{"version", SIGNET_VERSION},
                                {"ranks", ranks.size()},
                                {"library", ranks.name()},
                                {"copy_gbytes_per_second", copy / 1e9},
                                {"collectives", nlohmann::ordered_json::array()}};
  for (const auto& r : reports)
    all["collectives"].push_back({{"collective", r.name},
                                  {"bytes", r.bytes},
                                  {"correct", r.correct},
                                  {"median_us", r.seconds * 1e6},
                                  {"gbytes_per_second", r.moved / r.seconds / 1e9}});
  fmt::print("{}\n", all.dump(2));
}

int run_comm(comm::Communicator* ranks, bool json) {
  if (!ranks)
    fail(ErrorCode::kUsage, "bench comm needs several ranks: start it with mpirun -n 2 signet bench comm");
  const double copy = bench::copy_rate();
  const auto reports = bench::bench_collectives(*ranks);
  const bool correct =
      std::all_of(reports.begin(), reports.end(), [](const auto& report) { return report.correct; });
  if (ranks->root()) json ? print_comm_json(*ranks, reports, copy) : print_comm(*ranks, reports, copy);
  return correct ? 0 : static_cast<int>(ErrorCode::kCheckFailed);
}

}  // namespace

int bench_comm(bool json) {
  return comm::on_ranks(comm::launch(), "command: signet bench comm",
                        [&](comm::Communicator* ranks) { return run_comm(ranks, json); });
}

}  // namespace signet::cli
