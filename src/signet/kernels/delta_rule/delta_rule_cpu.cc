#include "signet/kernels/delta_rule/delta_rule_plan.h"

#include "signet/base/isa_target.h"

#include "signet/kernels/delta_rule/delta_rule_cpu.h"

namespace signet::kernels::SIGNET_ISA {

// Forward: matrix products pay for a single chunk that starts from nothing, and for a large state; the
// recurrence is faster for a few steps and for a small state carried over many. Backward: the recurrence
// would sum along rows.
template <class T>
bool chunked_is_faster(const DeltaRuleForward<T>& p, const DeltaRulePlan& plan) {
  constexpr int64_t kFewSteps = 16, kLargeWidth = 64;
  if (plan.shape.time * plan.shape.factors < kFewSteps) return false;
  return (plan.chunks == 1 && !p.initial_state && !p.final_state) || plan.shape.dk >= kLargeWidth;
}

// A gate per channel does not come out of K K^T as a factor.
bool chunked_covers(const DeltaRuleShape& shape) { return shape.gate_channels <= 1; }

template <class T>
void delta_rule_forward(const DeltaRuleForward<T>& p) {
  check_offsets(p.shape);
  const DeltaRulePlan plan = delta_rule_plan(p.shape, p.algorithm);
  const bool chunked =
      chunked_covers(p.shape) && (p.algorithm == DeltaRuleAlgorithm::kChunked ||
                                  (p.algorithm == DeltaRuleAlgorithm::kAuto && chunked_is_faster(p, plan)));
  return chunked ? delta_rule_chunked_forward(p, plan) : delta_rule_recurrent_forward(p, plan);
}

template <class T>
void delta_rule_backward(const DeltaRuleBackward<T>& p) {
  check_offsets(p.shape);
  const DeltaRulePlan plan = delta_rule_plan(p.shape, p.algorithm);
  return p.algorithm != DeltaRuleAlgorithm::kRecurrent && chunked_covers(p.shape)
             ? delta_rule_chunked_backward(p, plan)
             : delta_rule_recurrent_backward(p, plan);
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(delta_rule_forward, DeltaRuleForward)
SIGNET_ISA_DISPATCH(delta_rule_backward, DeltaRuleBackward)
