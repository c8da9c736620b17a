#include "signet/kernels/dense_recurrence/dense_recurrence.h"

#include "signet/kernels/dense_recurrence/dense_recurrence_plan.h"

namespace signet::kernels {

int64_t dense_recurrence_workspace_size(const DenseRecurrenceShape& shape, Cpu) {
  return DenseRecurrencePlan(shape).workspace_size();
}

}  // namespace signet::kernels
