#include "signet/kernels/workspace.h"

#include "signet/base/thread_pool.h"
#include "signet/kernels/attention/attention.h"
#include "signet/kernels/delta_rule/delta_rule.h"
#include "signet/kernels/dense_recurrence/dense_recurrence.h"
#include "signet/kernels/gated_linear/gated_linear.h"
#include "signet/kernels/gated_rnn/gated_rnn.h"
#include "signet/kernels/pd/pd_scan.h"
#include "signet/kernels/selective_scan/selective_scan.h"
#include "support/check.h"

namespace signet::kernels {
namespace {

std::map<std::string, int64_t> workspaces() {
  const int64_t batch = 64, time = 16, heads = 2, width = 16;
  DeltaRuleShape delta{batch, time, heads, width, width};
  GatedRnnShape rnn;
  rnn.batch = batch, rnn.time = time, rnn.heads = heads, rnn.width = width;
  return {
      {"delta rule", delta_rule_workspace_size<float>(delta, DeltaRuleAlgorithm::kAuto, Cpu{})},
      {"gated linear", gated_linear_workspace_size<float>({batch, time, heads, width, width},
                                                          GatedLinearAlgorithm::kAuto, Cpu{})},
      {"gated RNN", gated_rnn_workspace_size(rnn, Cpu{})},
      {"attention", attention_workspace_size({batch, time, heads, width}, Cpu{})},
      {"PD", pd_scan_workspace_size({batch, time, heads, width}, Cpu{})},
      {"dense", dense_recurrence_workspace_size({batch, time, heads, width}, Cpu{})},
      {"selective scan", selective_scan_workspace_size({batch, time, width, 4}, Cpu{})},
  };
}

// Parts that run one after the other share one scratch.
TEST(Workspace, DoesNotGrowWithTheThreadsWhereWorkRunsInPlace) {
  const int before = thread_count();
  set_thread_count(1);
  const auto alone = workspaces();
  set_thread_count(32);
  const auto beside = workspaces();
  const InPlace here;
  const auto in_place = workspaces();
  for (const auto& [name, size] : alone) {
    EXPECT_GT(beside.at(name), size) << name;
    EXPECT_EQ(in_place.at(name), size) << name;
  }
  set_thread_count(before);
}

}  // namespace
}  // namespace signet::kernels
