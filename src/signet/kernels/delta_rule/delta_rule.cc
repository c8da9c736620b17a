#include "signet/kernels/delta_rule/delta_rule.h"

#include <algorithm>

#include "signet/base/error.h"
#include "signet/base/thread_pool.h"
#include "signet/kernels/delta_rule/delta_rule_plan.h"

namespace signet::kernels {
namespace {

// Sub-steps per chunk, at least one token's. The chunked form spends time on pairs of sub-steps (C per
// sub-step) and on the state (dk dv): where the state is small, shorter chunks are faster, unless one chunk
// takes everything and there is no state before it.
constexpr int64_t kChunkSteps = 64, kChunkStepsSmallState = 32, kSmallState = 32L * 32;

// Backward: the state before every sub-step of a chunk (and before every token's decay) and after it, its
// gradient; rows v - S^T k, de, do. With a gate, three rows of dk.
int64_t recurrent_size(const DeltaRulePlan& plan) {
  const int64_t states = plan.most_steps() + (plan.shape.gated() ? plan.most_tokens() : 0) + 2;
  return states * plan.shape.dk * plan.dv_padded + (plan.most_steps() + 2) * plan.dv_padded +
         (plan.shape.gated() ? 3 * plan.dk_padded : 0);
}

// What Chunk in delta_rule_chunked_cpu.cc takes; it is enough for the recurrent forward, too.
int64_t chunked_size(const DeltaRulePlan& plan) {
  const int64_t steps = plan.most_steps(), widths = plan.dk_padded + plan.dv_padded;
  const int64_t gates = plan.shape.gated() ? (steps + 3 * plan.most_tokens() + 3) * plan.steps_padded +
                                                 5 * steps * plan.dk_padded
                                           : 0;
  return 2 * steps * plan.steps_padded + (widths + 2) * plan.steps_padded + 5 * steps * plan.dv_padded +
         3 * steps * plan.dk_padded + 4 * plan.dk_padded * plan.dv_padded + gates;
}

}  // namespace

DeltaRulePlan delta_rule_plan(const DeltaRuleShape& shape, DeltaRuleAlgorithm algorithm) {
  DeltaRulePlan plan;
  plan.shape = with_strides(shape);
  const bool one_chunk = shape.time * shape.factors <= kChunkSteps;
  const int64_t steps = shape.dk * shape.dv > kSmallState || one_chunk ? kChunkSteps : kChunkStepsSmallState;
  plan.chunk_tokens = std::max<int64_t>(1, steps / std::max<int64_t>(1, shape.factors));
  plan.chunks = plan.chunks_of(shape.time);
  if (shape.offsets) plan.places = shape.time / plan.chunk_tokens;
  plan.dk_padded = padded(shape.dk);
  plan.dv_padded = padded(shape.dv);
  plan.parts = parts_of(shape.batch * shape.heads);
  plan.steps_padded = padded(plan.most_steps());
  const bool recurrent = algorithm == DeltaRuleAlgorithm::kRecurrent || shape.gate_channels > 1;
  plan.part_size = padded(recurrent ? recurrent_size(plan) : chunked_size(plan));
  return plan;
}

void check_offsets(const DeltaRuleShape& shape) {
  if (!shape.offsets) return;
  for (int64_t b = 0; b < shape.batch; ++b)
    if (shape.offsets[b + 1] < shape.offsets[b])
      bad_input("delta rule: packed sequence {} would begin at token {} and end before token {}", b,
                shape.offsets[b], shape.offsets[b + 1]);
  if (shape.offsets[0] != 0 || shape.offsets[shape.batch] != shape.time)
    bad_input("delta rule: packed sequences must cover tokens 0 .. {}; they cover {} .. {}", shape.time,
              shape.offsets[0], shape.offsets[shape.batch]);
}

template <class T>
int64_t delta_rule_saved_size(const DeltaRuleShape& shape, DeltaRuleAlgorithm algorithm, Cpu) {
  const DeltaRulePlan plan = delta_rule_plan(shape, algorithm);
  const int64_t states = shape.offsets ? plan.places : shape.batch * (plan.chunks - 1);
  return states * shape.heads * plan.state_size();
}

template <class T>
int64_t delta_rule_workspace_size(const DeltaRuleShape& shape, DeltaRuleAlgorithm algorithm, Cpu) {
  const DeltaRulePlan plan = delta_rule_plan(shape, algorithm);
  return plan.parts * plan.part_size + kAlignmentSlack;
}

template int64_t delta_rule_saved_size<float>(const DeltaRuleShape&, DeltaRuleAlgorithm, Cpu);
template int64_t delta_rule_saved_size<double>(const DeltaRuleShape&, DeltaRuleAlgorithm, Cpu);
template int64_t delta_rule_workspace_size<float>(const DeltaRuleShape&, DeltaRuleAlgorithm, Cpu);
template int64_t delta_rule_workspace_size<double>(const DeltaRuleShape&, DeltaRuleAlgorithm, Cpu);

}  // namespace signet::kernels
