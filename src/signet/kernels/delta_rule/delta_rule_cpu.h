// The two algorithms behind delta_rule_forward and delta_rule_backward, per instruction set. Include after
// isa_target.h.
#pragma once

#include "signet/kernels/delta_rule/delta_rule.h"
#include "signet/kernels/delta_rule/delta_rule_plan.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void delta_rule_recurrent_forward(const DeltaRuleForward<T>& p, const DeltaRulePlan& plan);
template <class T>
void delta_rule_recurrent_backward(const DeltaRuleBackward<T>& p, const DeltaRulePlan& plan);
template <class T>
void delta_rule_chunked_forward(const DeltaRuleForward<T>& p, const DeltaRulePlan& plan);
template <class T>
void delta_rule_chunked_backward(const DeltaRuleBackward<T>& p, const DeltaRulePlan& plan);

}  // namespace signet::kernels::SIGNET_ISA
