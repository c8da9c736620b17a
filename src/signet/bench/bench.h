// Benchmarks of operators: each case is checked against the fp64 reference first, then timed, and its rates
// are put next to ceilings measured in the same run. The sizes of an operator are a list beside its kernel,
// kernels/<name>/<name>_cases.h, which every test over sizes of models reads as well. To add an operator
// write that list, <name>_bench.cc with a function that makes cases of it, and one line in registry.cc.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "signet/tensor/device.h"

namespace signet::bench {

// The arithmetic that a case's flops are made of: which ceiling holds for them.
enum class Passes { kForward, kBoth };
enum class Math { kFp32, kTf32, kBf16 };

// A prepared case, holding its memory.
struct Workload {
  double flops = 0;  // that the mathematics needs, a multiply-add counting two
  Math math = Math::kFp32;
  double bytes = 0;  // that must move at least: every input and output once
  // Where a rate of items says more: how many there are and what they are called, and how many operations
  // must wait for the one before.
  double items = 0, chain = 0;
  const char* item = "";
  std::function<double()> error;  // relative error against the fp64 reference
  double tolerance = 0;
  std::function<void()> run;
  double units = 1;  // of what is counted and timed, in one run
};

// What is timed, made when it is first used: a case can be checked without.
template <class T>
class Later {
 public:
  explicit Later(std::function<std::shared_ptr<T>()> make) : make_(std::move(make)) {}
  T* operator->() const {
    if (!*made_) *made_ = make_();
    return made_->get();
  }

 private:
  std::function<std::shared_ptr<T>()> make_;
  std::shared_ptr<std::shared_ptr<T>> made_ = std::make_shared<std::shared_ptr<T>>();
};
template <class T, class... Arguments>
Later<T> later(const Arguments&... arguments) {
  return Later<T>([=] { return std::make_shared<T>(arguments...); });
}

// A benchmark, and a test: tests/bench checks every case against the reference, and times none.
struct Case {
  std::string name;
  std::function<Workload()> prepare;
};

// What a CPU takes of sizes for a GPU: about ten thousand tokens and four heads, the widths as they are.
inline void cut_for_cpu(int64_t& batch, int64_t& time, int64_t& heads) {
  time = std::min<int64_t>(time, 2048), heads = std::min<int64_t>(heads, 4);
  batch = std::clamp<int64_t>(10'000 / time, 1, batch);
}
// Cases that differ in what was cut are one.
inline std::vector<Case> without_repetitions(std::vector<Case> cases) {
  std::vector<Case> different;
  for (Case& each : cases)
    if (std::none_of(different.begin(), different.end(), [&](const Case& c) { return c.name == each.name; }))
      different.push_back(std::move(each));
  return different;
}

struct Operator {
  const char* name;
  const char* summary;
  std::vector<Case> (*cases)();                              // on the CPU; null: none
  std::vector<Case> (*cuda_cases)(const Device&) = nullptr;  // on the GPU; null: none

  std::vector<Case> on(const Device& device) const {
    if (device.cuda()) return cuda_cases ? cuda_cases(device) : std::vector<Case>{};
    return cases ? cases() : std::vector<Case>{};
  }
};

const std::vector<Operator>& operators();

struct Timing {
  double best = 0, median = 0;  // seconds per run
  int64_t runs = 0;
};
// Runs to warm up, then for about `seconds`. On the GPU each run ends when its kernels have.
Timing measure(const std::function<void()>& run, double seconds, const Device& device = {});

// On the CPU, with all threads: fp32 multiply-adds in registers, and a copy far larger than the caches (read
// and write); with one: fp32 operations each of which waits for the one before. On the GPU: large matrix
// products in each arithmetic, and the copy.
struct Ceilings {
  double flops_per_second = 0, bytes_per_second = 0, chained_per_second = 0;
  double tf32_per_second = 0, bf16_per_second = 0;  // GPU only
  double rate(Math math) const {
    return math == Math::kTf32 ? tf32_per_second : math == Math::kBf16 ? bf16_per_second : flops_per_second;
  }
  // The least time for the work: the longer of its arithmetic and its bytes.
  double floor(double flops, double bytes, Math math) const;
};
Ceilings measure_ceilings(double seconds, const Device& device = {});
// One of its rates alone; the CPU has fp32.
double measure_rate(Math math, double seconds, const Device& device = {});

struct Report {
  std::string op, name;
  double error = 0, tolerance = 0, flops = 0, bytes = 0, items = 0, chain = 0;
  const char* item = "";
  Math math = Math::kFp32;
  bool correct = false;
  Timing timing;  // only when correct
};
Report run_case(const Operator& op, const Case& c, double seconds, const Device& device = {});

}  // namespace signet::bench
