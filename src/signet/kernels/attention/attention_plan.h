// How the CPU version cuts its work: an item is one head of one sequence; `parts` ranges of items run in
// parallel, each with scratch for blocks of kBlock queries and keys. The workspace, from a cache line on:
// cosines and sines of the rotation, [keys, width / 2] each, then the parts.
#pragma once

#include "signet/kernels/attention/attention.h"
#include "signet/kernels/workspace.h"

namespace signet::kernels {

struct AttentionPlan {
  static constexpr int64_t kBlock = 64;
  // Blocks of rows [kBlock, padded] of a part, and of scores [kBlock, kBlock].
  static constexpr int64_t kRowBlocks = 9, kScoreBlocks = 2;
  AttentionShape shape;  // strides filled in
  int64_t padded = 0, parts = 1;

  int64_t items() const { return shape.batch * shape.heads; }
  int64_t angles_size() const { return shape.rotary_base > 0 ? shape.keys * shape.width : 0; }
  int64_t part_size() const { return kBlock * (kRowBlocks * padded + kScoreBlocks * kBlock + 2); }
  int64_t parts_offset() const { return (angles_size() + kCacheLine - 1) / kCacheLine * kCacheLine; }
  int64_t workspace_size() const { return parts_offset() + parts * part_size() + kAlignmentSlack; }
};

AttentionPlan attention_plan(const AttentionShape& shape);

}  // namespace signet::kernels
