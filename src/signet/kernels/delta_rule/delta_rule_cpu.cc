#include "signet/kernels/delta_rule/delta_rule_plan.h"

#include "signet/base/isa_target.h"

#include "signet/kernels/delta_rule/delta_rule_cpu.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void delta_rule_forward(const DeltaRuleForward<T>& p) {
  delta_rule_recurrent_forward(p, delta_rule_plan(p.shape, p.algorithm));
}

template <class T>
void delta_rule_backward(const DeltaRuleBackward<T>& p) {
  delta_rule_recurrent_backward(p, delta_rule_plan(p.shape, p.algorithm));
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(delta_rule_forward, DeltaRuleForward)
SIGNET_ISA_DISPATCH(delta_rule_backward, DeltaRuleBackward)
