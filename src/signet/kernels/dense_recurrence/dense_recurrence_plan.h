// How the CPU version cuts its work: an item is one head of one sequence; `parts` ranges of items run in
// parallel, each with kMatrices padded matrices of scratch.
#pragma once

#include "signet/base/thread_pool.h"
#include "signet/kernels/dense_recurrence/dense_recurrence.h"
#include "signet/kernels/workspace.h"

namespace signet::kernels {

struct DenseRecurrencePlan {
  static constexpr int64_t kMatrices = 4;
  int64_t padded, items, parts;

  explicit DenseRecurrencePlan(const DenseRecurrenceShape& s)
      : padded((s.n + 15) / 16 * 16), items(s.batch * s.heads), parts(parts_of(items)) {}
  // A matrix of n rows; its transpose is written in whole vectors of rows, so room is for `padded` of them.
  int64_t matrix() const { return padded * padded; }
  int64_t workspace_size() const { return parts * kMatrices * matrix() + kAlignmentSlack; }
};

}  // namespace signet::kernels
