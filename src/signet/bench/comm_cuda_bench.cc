#ifdef SIGNET_WITH_CUDA

#include <algorithm>

#include "signet/bench/comm_bench.h"
#include "signet/comm/device_collectives.h"

namespace signet::bench {

DeviceCollectiveReports bench_device_collectives(comm::Communicator& ranks, const Device& device) {
  const auto collectives = comm::open_device_collectives(ranks, device);
  DeviceCollectiveReports all;
  all.library = collectives->name();
  const auto wait = [&](int64_t number) {
    collectives->wait_for(number);
    synchronize(device);
  };
  double sums[8];
  std::fill(sums, sums + 8, ranks.rank() + 1.0);
  const DeviceBuffer few(DeviceKind::kCuda, sizeof sums);
  copy_to_device(device, few.data(), sums, sizeof sums);
  wait(collectives->begin_all_reduce(few.as<double>(), 8));
  copy_to_host(device, sums, few.data(), sizeof sums);
  const double expected = ranks.size() * (ranks.size() + 1) / 2.0;
  const bool right = std::all_of(sums, sums + 8, [&](double sum) { return sum == expected; });
  all.reports.push_back(
      {"all-reduce of 8 numbers", sizeof sums, sizeof sums, on_all_ranks(ranks, right),
       median_of_slowest(ranks, [&] { wait(collectives->begin_all_reduce(few.as<double>(), 8)); })});
  // Odd sizes: nothing divides evenly.
  for (const int64_t elements : {1009, 262'147, 4'194'319, 67'108'879}) {
    const int64_t bytes = elements * int64_t{sizeof(float)};
    const double share = static_cast<double>(ranks.size() - 1) / ranks.size() * static_cast<double>(bytes);
    const DeviceBuffer data(DeviceKind::kCuda, bytes);
    std::vector<comm::Range> parts;
    std::vector<SignetPiece> pieces;
    for (int r = 0; r < ranks.size(); ++r) {
      parts.push_back(comm::share_of(elements, r, ranks.size()));
      pieces.push_back(
          {data.as<float>() + parts.back().begin, parts.back().size() * int64_t{sizeof(float)}, r});
    }
    std::vector<float> host(static_cast<size_t>(elements));
    // right(i, rank that has it) is what element i must be behind `run`.
    const auto add = [&](const char* name, const comm::Range& seen, auto run, auto right) {
      for (int64_t i = 0; i < elements; ++i)
        host[static_cast<size_t>(i)] = collective_element(i, ranks.rank());
      copy_to_device(device, data.data(), host.data(), bytes);
      synchronize(device);
      run();
      copy_to_host(device, host.data(), data.data(), bytes);
      bool correct = true;
      for (int r = 0; r < ranks.size(); ++r)
        for (int64_t i = std::max(seen.begin, parts[static_cast<size_t>(r)].begin);
             i < std::min(seen.end, parts[static_cast<size_t>(r)].end); ++i)
          correct &= host[static_cast<size_t>(i)] == right(i, r);
      all.reports.push_back(
          {name, bytes, share, on_all_ranks(ranks, correct), median_of_slowest(ranks, run)});
    };
    add(
        "reduce-scatter", parts[static_cast<size_t>(ranks.rank())],
        [&] { wait(collectives->begin_reduce_scatter(data.as<float>(), parts)); },
        [&](int64_t i, int) {
          float sum = 0;
          for (int r = 0; r < ranks.size(); ++r) sum += collective_element(i, r);
          return sum;
        });
    add(
        "all-gather", {0, elements}, [&] { wait(collectives->begin_all_gather(pieces)); },
        [&](int64_t i, int r) { return collective_element(i, r); });
    if (elements < 67'108'879) continue;
    const DeviceBuffer copy(DeviceKind::kCuda, bytes);
    const double seconds = median_of_slowest(ranks, [&] {
      copy_within(device, copy.data(), data.data(), bytes);
      synchronize(device);
    });
    all.copy_rate = 2.0 * static_cast<double>(bytes) / seconds;
  }
  return all;
}

}  // namespace signet::bench

#endif
