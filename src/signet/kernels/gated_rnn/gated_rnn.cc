#include "signet/kernels/gated_rnn/gated_rnn.h"

#include "signet/base/thread_pool.h"
#include "signet/kernels/gated_rnn/gated_rnn_plan.h"

namespace signet::kernels {

GatedRnnPlan gated_rnn_plan(const GatedRnnShape& shape) {
  GatedRnnPlan plan;
  plan.shape = with_strides(shape);
  plan.padded = padded(shape.width);
  plan.tiles = (shape.batch + GatedRnnPlan::kTile - 1) / GatedRnnPlan::kTile;
  plan.parts = parts_of(plan.items());
  return plan;
}

int64_t gated_rnn_workspace_size(const GatedRnnShape& shape, Cpu) {
  return gated_rnn_plan(shape).workspace_size();
}

}  // namespace signet::kernels
