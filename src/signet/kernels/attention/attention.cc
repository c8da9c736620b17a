#include "signet/kernels/attention/attention.h"

#include "signet/base/thread_pool.h"
#include "signet/kernels/attention/attention_plan.h"

namespace signet::kernels {

AttentionPlan attention_plan(const AttentionShape& shape) {
  AttentionPlan plan;
  plan.shape = with_strides(shape);
  plan.padded = padded(shape.width);
  plan.parts = parts_of(plan.items());
  return plan;
}

int64_t attention_workspace_size(const AttentionShape& shape, Cpu) {
  return attention_plan(shape).workspace_size();
}

}  // namespace signet::kernels
