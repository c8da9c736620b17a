#include "signet/kernels/selective_scan/selective_scan.h"

#include <algorithm>

#include "signet/base/thread_pool.h"
#include "signet/kernels/selective_scan/selective_scan_plan.h"

namespace signet::kernels {
namespace {

constexpr int64_t kChunk = 64;  // tokens between two saved states

}  // namespace

SelectiveScanPlan selective_scan_plan(const SelectiveScanShape& shape) {
  SelectiveScanPlan plan;
  plan.shape = with_strides(shape);
  plan.chunk = kChunk;
  plan.chunks = std::max<int64_t>(1, (shape.time + kChunk - 1) / kChunk);
  plan.channels_padded = padded(shape.channels);
  const int64_t blocks = std::max<int64_t>(1, plan.channels_padded / kPadding);
  const int64_t rows = std::max<int64_t>(1, shape.batch);
  const int64_t wanted = (parts_of(rows * blocks) + rows - 1) / rows;  // groups: enough for the parts
  plan.group_channels = (blocks + wanted - 1) / wanted * kPadding;
  plan.groups = std::max<int64_t>(1, (plan.channels_padded + plan.group_channels - 1) / plan.group_channels);
  plan.parts = parts_of(plan.items());
  // Backward, per part: sums of dA [states, channels], of dD and dbias [channels]; the gradient of the state
  // and the first state [states, channels]; for one vector of channels of one chunk, rows, and steps and sums
  // of state indices. Forward needs less.
  const int64_t tokens = std::max<int64_t>(1, std::min(kChunk, shape.time));
  const int64_t chunk = SelectiveScanPlan::kRows + SelectiveScanPlan::kStates * SelectiveScanPlan::kSteps +
                        shape.states * SelectiveScanPlan::kSums;
  plan.part_size = 3 * plan.state_size() + 2 * plan.channels_padded + chunk * tokens * kPadding;
  return plan;
}

int64_t selective_scan_saved_size(const SelectiveScanShape& shape, Cpu) {
  const SelectiveScanPlan plan = selective_scan_plan(shape);
  return shape.batch * (plan.chunks - 1) * plan.state_size();
}

int64_t selective_scan_workspace_size(const SelectiveScanShape& shape, Cpu) {
  return selective_scan_plan(shape).workspace_size();
}

}  // namespace signet::kernels
