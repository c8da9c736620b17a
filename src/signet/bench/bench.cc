#include "signet/bench/bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "signet/base/thread_pool.h"
#include "signet/kernels/probe/probe.h"

namespace signet::bench {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Timing measure(const std::function<void()>& run, double seconds) {
  run();
  std::vector<double> times;
  const double end = now() + seconds;
  double before = now();
  do {
    run();
    const double after = now();
    times.push_back(after - before);
    before = after;
  } while (before < end || times.size() < 3);
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2], static_cast<int64_t>(times.size())};
}

Ceilings measure_ceilings(double seconds) {
  const int64_t threads = thread_count(), repeats = 200000;
  std::vector<float> sinks(static_cast<size_t>(threads) * 64);
  const Timing multiply_add = measure(
      [&] {
        parallel_parts(threads, threads, [&](int64_t part, int64_t, int64_t) {
          kernels::multiply_add_probe(kernels::MultiplyAddProbe<float>{repeats, &sinks[part * 64]}, Cpu{});
        });
      },
      seconds);
  const int64_t size = int64_t{128} << 20;
  const auto from = std::make_unique<char[]>(size), to = std::make_unique<char[]>(size);
  const Timing copy = measure(
      [&] {
        parallel_for(size, 1 << 20, [&](int64_t begin, int64_t end) {
          std::memcpy(to.get() + begin, from.get() + begin, static_cast<size_t>(end - begin));
        });
      },
      seconds);
  const double flops =
      static_cast<double>(threads * repeats * kernels::multiply_add_probe_flops<float>(Cpu{}));
  const int64_t links = 1'000'000;
  const Timing chain = measure(
      [&] {
        float x = sinks[0];
        for (int64_t i = 0; i < links; ++i) x = x + 1;
        sinks[0] = x;
      },
      seconds);
  return {flops / multiply_add.best, 2.0 * static_cast<double>(size) / copy.best, links / chain.best};
}

Report run_case(const Operator& op, const Case& c, double seconds) {
  const Workload workload = c.prepare();
  Report report{op.name,
                c.name,
                workload.error(),
                workload.tolerance,
                workload.flops,
                workload.bytes,
                workload.items,
                workload.chain,
                workload.item,
                false,
                {}};
  report.correct = report.error <= report.tolerance;  // false for NaN
  if (report.correct) report.timing = measure(workload.run, seconds);
  return report;
}

}  // namespace signet::bench
