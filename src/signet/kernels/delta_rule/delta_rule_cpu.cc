#include "signet/kernels/delta_rule/delta_rule_plan.h"

#include "signet/base/isa_target.h"

#include "signet/kernels/delta_rule/delta_rule_cpu.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void delta_rule_forward(const DeltaRuleForward<T>& p) {
  const DeltaRulePlan plan = delta_rule_plan(p.shape, p.algorithm);
  return p.algorithm == DeltaRuleAlgorithm::kChunked ? delta_rule_chunked_forward(p, plan)
                                                     : delta_rule_recurrent_forward(p, plan);
}

template <class T>
void delta_rule_backward(const DeltaRuleBackward<T>& p) {
  const DeltaRulePlan plan = delta_rule_plan(p.shape, p.algorithm);
  return p.algorithm == DeltaRuleAlgorithm::kRecurrent ? delta_rule_recurrent_backward(p, plan)
                                                       : delta_rule_chunked_backward(p, plan);
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(delta_rule_forward, DeltaRuleForward)
SIGNET_ISA_DISPATCH(delta_rule_backward, DeltaRuleBackward)
