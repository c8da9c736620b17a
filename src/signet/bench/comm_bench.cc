#include "signet/bench/comm_bench.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "signet/base/clock.h"

namespace signet::bench {
namespace {

constexpr int kRepetitions = 9;

class Buffers {
 public:
  Buffers(comm::Communicator& ranks, int64_t elements) : ranks_(ranks), data_(static_cast<size_t>(elements)) {
    for (int r = 0; r < ranks.size(); ++r) parts_.push_back(comm::share_of(elements, r, ranks.size()));
    mine_ = parts_[static_cast<size_t>(ranks.rank())];
    out_.resize(static_cast<size_t>(mine_.size()));
    fill();
  }
  void fill() {
    for (size_t i = 0; i < data_.size(); ++i)
      data_[i] = collective_element(static_cast<int64_t>(i), ranks_.rank());
  }
  void reduce_scatter() { ranks_.reduce_scatter(data_.data(), parts_, out_.data()); }
  bool reduced() const {
    for (int64_t i = 0; i < mine_.size(); ++i) {
      float sum = 0;
      for (int r = 0; r < ranks_.size(); ++r) sum += collective_element(mine_.begin + i, r);
      if (out_[static_cast<size_t>(i)] != sum) return false;
    }
    return true;
  }
  void all_gather() { ranks_.all_gather(data_.data(), parts_); }
  bool gathered() const {
    for (int r = 0; r < ranks_.size(); ++r)
      for (int64_t i = parts_[static_cast<size_t>(r)].begin; i < parts_[static_cast<size_t>(r)].end; ++i)
        if (data_[static_cast<size_t>(i)] != collective_element(i, r)) return false;
    return true;
  }
  void broadcast() { ranks_.broadcast(data_.data(), static_cast<int64_t>(data_.size() * sizeof(float))); }
  bool is_root_s() const {
    for (size_t i = 0; i < data_.size(); ++i)
      if (data_[i] != collective_element(static_cast<int64_t>(i), 0)) return false;
    return true;
  }

 private:
  comm::Communicator& ranks_;
  std::vector<float> data_, out_;
  std::vector<comm::Range> parts_;
  comm::Range mine_;
};

}  // namespace

double median_of_slowest(comm::Communicator& ranks, const std::function<void()>& run) {
  std::vector<double> times;
  for (int i = 0; i < kRepetitions; ++i) {
    ranks.barrier();
    const double begin = seconds_now();
    run();
    std::vector<double> all(static_cast<size_t>(ranks.size()), 0.0);
    all[static_cast<size_t>(ranks.rank())] = seconds_now() - begin;
    ranks.all_reduce(all.data(), ranks.size());
    times.push_back(*std::max_element(all.begin(), all.end()));
  }
  std::nth_element(times.begin(), times.begin() + kRepetitions / 2, times.end());
  return times[kRepetitions / 2];
}

bool on_all_ranks(comm::Communicator& ranks, bool correct) {
  double wrong = correct ? 0 : 1;
  ranks.all_reduce(&wrong, 1);
  return wrong == 0;
}

std::vector<CollectiveReport> bench_collectives(comm::Communicator& ranks) {
  std::vector<CollectiveReport> reports;
  reports.push_back({"barrier", 0, 0, true, median_of_slowest(ranks, [&] { ranks.barrier(); })});
  double sums[8] = {};
  for (double& sum : sums) sum = ranks.rank() + 1;
  ranks.all_reduce(sums, 8);
  const double expected = ranks.size() * (ranks.size() + 1) / 2.0;
  reports.push_back(
      {"all-reduce of 8 numbers", sizeof sums, sizeof sums,
       on_all_ranks(ranks, std::all_of(sums, sums + 8, [&](double s) { return s == expected; })),
       median_of_slowest(ranks, [&] { ranks.all_reduce(sums, 8); })});
  // One odd size: nothing divides evenly.
  for (const int64_t elements : {1009, 262'147, 4'194'319}) {
    Buffers buffers(ranks, elements);
    const int64_t bytes = elements * int64_t{sizeof(float)};
    const double share = static_cast<double>(ranks.size() - 1) / ranks.size() * static_cast<double>(bytes);
    const auto add = [&](const char* name, double moved, auto run, auto right) {
      buffers.fill();
      run();
      const bool correct = on_all_ranks(ranks, right());
      reports.push_back({name, bytes, moved, correct, median_of_slowest(ranks, run)});
    };
    add(
        "reduce-scatter", share, [&] { buffers.reduce_scatter(); }, [&] { return buffers.reduced(); });
    add(
        "all-gather", share, [&] { buffers.all_gather(); }, [&] { return buffers.gathered(); });
    add(
        "broadcast", static_cast<double>(bytes), [&] { buffers.broadcast(); },
        [&] { return buffers.is_root_s(); });
  }
  return reports;
}

double copy_rate() {
  const std::vector<char> from(64 << 20, 1);
  std::vector<char> to(from.size());
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double begin = seconds_now();
    std::memcpy(to.data(), from.data(), from.size());
    best = std::min(best, seconds_now() - begin);
  }
  return 2.0 * static_cast<double>(from.size()) / best;
}

}  // namespace signet::bench
