// The forms behind gated_linear_forward and gated_linear_backward, per instruction set. Include after
// isa_target.h. Backward is chunked in every case: it never divides, so it has no need of another form.
#pragma once

#include "signet/kernels/gated_linear/gated_linear.h"
#include "signet/kernels/gated_linear/gated_linear_plan.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void gated_linear_recurrent_forward(const GatedLinearForward<T>& p, const GatedLinearPlan& plan);
template <class T>
void gated_linear_chunked_forward(const GatedLinearForward<T>& p, const GatedLinearPlan& plan);
template <class T>
void gated_linear_chunked_backward(const GatedLinearBackward<T>& p, const GatedLinearPlan& plan);

}  // namespace signet::kernels::SIGNET_ISA
