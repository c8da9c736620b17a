// How the CPU version cuts its work: an item is a head of up to kTile sequences; `parts` ranges of items run
// in parallel, each with `part_size` elements of scratch. The workspace, from a cache line on: the recurrent
// matrices with padded rows, then the parts.
#pragma once

#include "signet/kernels/gated_rnn/gated_rnn.h"
#include "signet/kernels/workspace.h"

namespace signet::kernels {

struct GatedRnnPlan {
  static constexpr int64_t kTile = 8;
  GatedRnnShape shape;  // strides filled in
  int64_t padded = 0;   // units of a head, a whole number of vectors in every instruction set
  int64_t tiles = 0, parts = 1;

  int64_t items() const { return tiles * shape.heads; }
  int64_t matrices_size() const { return 4 * shape.heads * shape.width * padded; }
  // Four planes of the state or its gradient and four gates, [kTile, padded] each.
  int64_t part_size() const { return 8 * kTile * padded; }
  int64_t workspace_size() const { return matrices_size() + parts * part_size() + kAlignmentSlack; }
};

GatedRnnPlan gated_rnn_plan(const GatedRnnShape& shape);

}  // namespace signet::kernels
