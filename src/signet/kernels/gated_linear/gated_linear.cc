#include "signet/kernels/gated_linear/gated_linear.h"

#include <algorithm>

#include "signet/base/error.h"
#include "signet/base/thread_pool.h"
#include "signet/kernels/gated_linear/gated_linear_plan.h"

namespace signet::kernels {
namespace {

// What Chunk in gated_linear_chunked_cpu.cc takes; the recurrent form needs less.
int64_t chunk_size(const GatedLinearPlan& plan) {
  const int64_t c = GatedLinearPlan::kChunk, dk = plan.dk_padded, dv = plan.dv_padded;
  return c * (11 * dk + 4 * dv) + 2 * c * c + 4 * dk * dv + 2 * dk;
}

}  // namespace

GatedLinearPlan gated_linear_plan(const GatedLinearShape& shape) {
  GatedLinearPlan plan;
  plan.shape = with_strides(shape);
  if (plan.shape.heads % std::max<int64_t>(1, plan.shape.groups) != 0)
    fail(ErrorCode::kUsage, "gated linear recurrence: {} heads cannot share queries and keys in {} groups",
         plan.shape.heads, plan.shape.groups);
  plan.chunks = std::max<int64_t>(1, (shape.time + GatedLinearPlan::kChunk - 1) / GatedLinearPlan::kChunk);
  plan.dk_padded = padded(shape.dk);
  plan.dv_padded = padded(shape.dv);
  plan.parts = parts_of(shape.batch * shape.heads);
  plan.part_size = padded(chunk_size(plan));
  return plan;
}

template <class T>
int64_t gated_linear_saved_size(const GatedLinearShape& shape, GatedLinearAlgorithm, Cpu) {
  const GatedLinearPlan plan = gated_linear_plan(shape);
  return shape.batch * shape.heads * (plan.chunks - 1) * plan.state_size();
}

template <class T>
int64_t gated_linear_workspace_size(const GatedLinearShape& shape, GatedLinearAlgorithm, Cpu) {
  const GatedLinearPlan plan = gated_linear_plan(shape);
  return plan.parts * plan.part_size + kAlignmentSlack;
}

template int64_t gated_linear_saved_size<float>(const GatedLinearShape&, GatedLinearAlgorithm, Cpu);
template int64_t gated_linear_saved_size<double>(const GatedLinearShape&, GatedLinearAlgorithm, Cpu);
template int64_t gated_linear_workspace_size<float>(const GatedLinearShape&, GatedLinearAlgorithm, Cpu);
template int64_t gated_linear_workspace_size<double>(const GatedLinearShape&, GatedLinearAlgorithm, Cpu);

}  // namespace signet::kernels
