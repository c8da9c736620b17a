// Benchmarks of operators: each case is checked against the fp64 reference first, then timed, and its rates
// are put next to ceilings measured in the same run. To add an operator write <name>_bench.cc with a function
// that lists its cases, and one line in registry.cc.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace signet::bench {

// A prepared case, holding its memory.
struct Workload {
  double flops = 0;               // that the mathematics needs, a multiply-add counting two
  double bytes = 0;               // that must move at least: every input and output once
  // Where a rate of items says more: how many there are and what they are called, and how many operations
  // must wait for the one before.
  double items = 0, chain = 0;
  const char* item = "";
  std::function<double()> error;  // relative error against the fp64 reference
  double tolerance = 0;
  std::function<void()> run;
};

struct Case {
  std::string name;
  std::function<Workload()> prepare;
};

struct Operator {
  const char* name;
  const char* summary;
  std::vector<Case> (*cases)();
};

const std::vector<Operator>& operators();

struct Timing {
  double best = 0, median = 0;  // seconds per run
  int64_t runs = 0;
};
// Runs once to warm up, then for about `seconds`.
Timing measure(const std::function<void()>& run, double seconds);

// With all threads: fp32 multiply-adds in registers, and a copy far larger than the caches (read and write).
// With one: fp32 operations each of which waits for the one before.
struct Ceilings {
  double flops_per_second = 0, bytes_per_second = 0, chained_per_second = 0;
};
Ceilings measure_ceilings(double seconds);

struct Report {
  std::string op, name;
  double error = 0, tolerance = 0, flops = 0, bytes = 0, items = 0, chain = 0;
  const char* item = "";
  bool correct = false;
  Timing timing;  // only when correct
};
Report run_case(const Operator& op, const Case& c, double seconds);

}  // namespace signet::bench
