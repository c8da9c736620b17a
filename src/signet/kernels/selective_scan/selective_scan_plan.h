// How the CPU selective scan cuts its work and its memory; the same for every instruction set.
//
// Inside the kernel channels are the fastest dimension, padded to whole vectors: a state is [states,
// channels], saved is the state before every chunk of time but the first, [B, chunks-1, states, channels].
// The work is cut into items, one per batch row and group of channels (more than one group only when there
// are fewer rows than threads), shared among `parts` ranges with `part_size` elements of the workspace each.
#pragma once

#include "signet/kernels/selective_scan/selective_scan.h"
#include "signet/kernels/workspace.h"

namespace signet::kernels {

struct SelectiveScanPlan {
  SelectiveScanShape shape;  // strides filled in
  int64_t chunk = 0, chunks = 0;
  int64_t channels_padded = 0;
  int64_t groups = 1, group_channels = 0;
  int64_t parts = 1, part_size = 0;
  // State indices that go through a chunk together.
  static constexpr int kStates = 4;
  // Vectors that backward keeps for one vector of channels: of a token; of a token and a state index at work;
  // of a token and any state index.
  static constexpr int64_t kRows = 8, kSteps = 2, kSums = 2;

  int64_t state_size() const { return shape.states * channels_padded; }
  int64_t chunk_begin(int64_t i) const { return i * chunk; }
  int64_t chunk_end(int64_t i) const { return i + 1 == chunks ? shape.time : (i + 1) * chunk; }
  int64_t items() const { return shape.batch * groups; }
  int64_t saved_offset(int64_t batch, int64_t i) const {
    return (batch * (chunks - 1) + i - 1) * state_size();
  }

  // The workspace, from a cache line on: the rates [states, channels]; the parts; per item, when there is
  // more than one group, its sums of dB and dC, [time, states] each.
  int64_t parts_offset() const { return state_size(); }
  int64_t group_sums_offset() const { return parts_offset() + parts * part_size; }
  int64_t group_sums_size() const { return groups > 1 ? 2 * shape.time * shape.states : 0; }
  int64_t workspace_size() const {
    return group_sums_offset() + items() * group_sums_size() + kAlignmentSlack;
  }
};

SelectiveScanPlan selective_scan_plan(const SelectiveScanShape& shape);

}  // namespace signet::kernels
