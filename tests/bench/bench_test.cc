#include "signet/bench/bench.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace signet::bench {
namespace {

TEST(Bench, OperatorsAndCasesHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Operator& op : operators()) {
    EXPECT_TRUE(names.insert(op.name).second) << op.name;
    if (!op.cases) {
      EXPECT_NE(op.cuda_cases, nullptr) << op.name;
      continue;
    }
    std::set<std::string> cases;
    for (const Case& c : op.cases()) EXPECT_TRUE(cases.insert(c.name).second) << op.name << ": " << c.name;
    EXPECT_FALSE(cases.empty()) << op.name;
  }
}

// What the reference says, of forward and of every gradient; nothing is timed. Whole updates and recognisers
// have tests of their own.
TEST(Bench, EveryCaseIsRight) {
  for (const Operator& op : operators()) {
    const std::string name = op.name;
    if (!op.cases || name == "train" || name == "recogniser") continue;
    for (const Case& c : op.cases()) {
      if (c.name.find(" fwd ") != std::string::npos) continue;  // the same check as with gradients
      const Workload w = c.prepare();
      EXPECT_LE(w.error(), w.tolerance) << op.name << ": " << c.name;
    }
  }
}

Report run_with_error(double error, int& runs) {
  const Case c{"case", [&] {
                 Workload w;
                 w.error = [error] { return error; };
                 w.tolerance = 1e-6;
                 w.run = [&runs] { ++runs; };
                 return w;
               }};
  return run_case({"operator", "", nullptr}, c, 0);
}

TEST(Bench, AWrongResultIsNotTimed) {
  for (double error :
       {1e-5, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    int runs = 0;
    const Report report = run_with_error(error, runs);
    EXPECT_FALSE(report.correct);
    EXPECT_EQ(runs, 0);
    EXPECT_EQ(report.timing.runs, 0);
  }
  int runs = 0;
  const Report report = run_with_error(1e-7, runs);
  EXPECT_TRUE(report.correct);
  EXPECT_EQ(runs, report.timing.runs + 1);  // and one to warm up
  EXPECT_GE(report.timing.runs, 3);
  EXPECT_LE(report.timing.best, report.timing.median);
}

TEST(Bench, CeilingsAreMeasured) {
  const Ceilings ceilings = measure_ceilings(0);
  EXPECT_GT(ceilings.flops_per_second, 1e8);
  EXPECT_GT(ceilings.bytes_per_second, 1e7);
}

}  // namespace
}  // namespace signet::bench
