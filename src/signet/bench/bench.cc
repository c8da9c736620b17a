#include "signet/bench/bench.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "signet/base/clock.h"
#include "signet/base/thread_pool.h"
#include "signet/kernels/probe/probe.h"

namespace signet::bench {

#ifdef SIGNET_WITH_CUDA
Timing measure_cuda(const std::function<void()>& run, double seconds, const Device& device);
Ceilings measure_cuda_ceilings(double seconds, const Device& device);
double measure_cuda_rate(Math math, double seconds, const Device& device);
#else
static Timing measure_cuda(const std::function<void()>&, double, const Device&) { return {}; }
static Ceilings measure_cuda_ceilings(double, const Device&) { return {}; }
static double measure_cuda_rate(Math, double, const Device&) { return 0; }
#endif

Timing measure(const std::function<void()>& run, double seconds, const Device& device) {
  if (device.cuda()) return measure_cuda(run, seconds, device);
  run();
  std::vector<double> times;
  const double end = seconds_now() + seconds;
  double before = seconds_now();
  do {
    run();
    const double after = seconds_now();
    times.push_back(after - before);
    before = after;
  } while (before < end || times.size() < 3);
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2], static_cast<int64_t>(times.size())};
}

double Ceilings::floor(double flops, double bytes, Math math) const {
  return std::max(rate(math) > 0 ? flops / rate(math) : 0,
                  bytes_per_second > 0 ? bytes / bytes_per_second : 0);
}

double measure_rate(Math math, double seconds, const Device& device) {
  if (device.cuda()) return measure_cuda_rate(math, seconds, device);
  const int64_t threads = thread_count(), repeats = 200000;
  std::vector<float> sinks(static_cast<size_t>(threads) * 64);
  const Timing multiply_add = measure(
      [&] {
        parallel_parts(threads, threads, [&](int64_t part, int64_t, int64_t) {
          kernels::multiply_add_probe(kernels::MultiplyAddProbe<float>{repeats, &sinks[part * 64]}, Cpu{});
        });
      },
      seconds);
  return static_cast<double>(threads * repeats * kernels::multiply_add_probe_flops<float>(Cpu{})) /
         multiply_add.best;
}

Ceilings measure_ceilings(double seconds, const Device& device) {
  if (device.cuda()) return measure_cuda_ceilings(seconds, device);
  const int64_t size = int64_t{128} << 20;
  const auto from = std::make_unique<char[]>(size), to = std::make_unique<char[]>(size);
  const Timing copy = measure(
      [&] {
        parallel_for(size, 1 << 20, [&](int64_t begin, int64_t end) {
          std::memcpy(to.get() + begin, from.get() + begin, static_cast<size_t>(end - begin));
        });
      },
      seconds);
  const int64_t links = 1'000'000;
  volatile float sink = 0;
  const Timing chain = measure(
      [&] {
        float x = sink;
        for (int64_t i = 0; i < links; ++i) x = x + 1;
        sink = x;
      },
      seconds);
  Ceilings ceilings;
  ceilings.flops_per_second = measure_rate(Math::kFp32, seconds, device);
  ceilings.bytes_per_second = 2.0 * static_cast<double>(size) / copy.best;
  ceilings.chained_per_second = links / chain.best;
  return ceilings;
}

Report run_case(const Operator& op, const Case& c, double seconds, const Device& device) {
  const Workload w = c.prepare();
  Report report;
  report.op = op.name, report.name = c.name, report.error = w.error(), report.tolerance = w.tolerance;
  report.flops = w.flops, report.bytes = w.bytes, report.math = w.math;
  report.items = w.items, report.chain = w.chain, report.item = w.item;
  report.correct = report.error <= report.tolerance;  // false for NaN
  if (!report.correct) return report;
  report.timing = measure(w.run, seconds, device);
  report.timing.best /= w.units;
  report.timing.median /= w.units;
  return report;
}

}  // namespace signet::bench
