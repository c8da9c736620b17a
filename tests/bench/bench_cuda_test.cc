#include <gtest/gtest.h>

#include "signet/bench/bench.h"
#include "support/cuda.h"

namespace signet::bench {
namespace {

// What is timed with both passes, against the reference: forward and every gradient. Whole updates have tests
// of their own.
TEST(BenchCuda, EveryCaseIsRight) {
  SIGNET_NEEDS_GPU();
  const OpenDevice device = open_device("cuda");
  for (const Operator& op : operators()) {
    const std::string name = op.name;
    if (name == "train" || name == "table3") continue;
    for (const Case& c : op.on(device)) {
      if (c.name.find(" fwd ") != std::string::npos) continue;  // the same check as with gradients
      const Workload w = c.prepare();
      EXPECT_LE(w.error(), w.tolerance) << name << ": " << c.name;
    }
  }
}

}  // namespace
}  // namespace signet::bench
