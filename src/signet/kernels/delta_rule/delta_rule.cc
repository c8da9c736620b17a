#include "signet/kernels/delta_rule/delta_rule.h"

#include <algorithm>

#include "signet/base/thread_pool.h"
#include "signet/kernels/delta_rule/delta_rule_plan.h"

namespace signet::kernels {
namespace {

constexpr int64_t kChunkSteps = 64;  // sub-steps per chunk, at least one token
constexpr int64_t kPadding = 16;     // elements; a whole number of vectors in every instruction set

int64_t padded(int64_t n) { return (n + kPadding - 1) / kPadding * kPadding; }

}  // namespace

DeltaRulePlan delta_rule_plan(const DeltaRuleShape& shape, DeltaRuleAlgorithm) {
  DeltaRulePlan plan;
  plan.shape = with_strides(shape);
  plan.chunk_tokens = std::max<int64_t>(1, kChunkSteps / std::max<int64_t>(1, shape.factors));
  plan.chunks = std::max<int64_t>(1, (shape.time + plan.chunk_tokens - 1) / plan.chunk_tokens);
  plan.dk_padded = padded(shape.dk);
  plan.dv_padded = padded(shape.dv);
  plan.parts = std::max<int64_t>(1, std::min<int64_t>(thread_count(), shape.batch * shape.heads));
  // Backward: the state before every sub-step of a chunk, the one after it, its gradient; rows v - S^T k, de,
  // do.
  const int64_t steps = std::min(plan.chunk_tokens, shape.time) * shape.factors;
  plan.part_size = (steps + 2) * shape.dk * plan.dv_padded + (steps + 2) * plan.dv_padded;
  return plan;
}

int64_t delta_rule_saved_size(const DeltaRuleShape& shape, DeltaRuleAlgorithm algorithm) {
  const DeltaRulePlan plan = delta_rule_plan(shape, algorithm);
  return shape.batch * shape.heads * (plan.chunks - 1) * plan.state_size();
}

int64_t delta_rule_workspace_size(const DeltaRuleShape& shape, DeltaRuleAlgorithm algorithm) {
  const DeltaRulePlan plan = delta_rule_plan(shape, algorithm);
  return plan.parts * plan.part_size;
}

}  // namespace signet::kernels
