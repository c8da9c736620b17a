// The sizes of the gated linear recurrence asked alike on both devices: mLSTM runs on it, too.
#pragma once

#include "signet/kernels/gated_linear/gated_linear.h"

namespace signet::capi {

template <class T>
int64_t gated_linear_saved(const kernels::GatedLinearShape& s, kernels::GatedLinearAlgorithm, Cpu) {
  return kernels::gated_linear_saved_size(s);
}
template <class T>
int64_t gated_linear_scratch(const kernels::GatedLinearShape& s, kernels::GatedLinearAlgorithm, Cpu) {
  return kernels::gated_linear_workspace_size(s);
}
template <class T>
int64_t gated_linear_saved(const kernels::GatedLinearShape& s, kernels::GatedLinearAlgorithm a, Cuda device) {
  return kernels::gated_linear_saved_size<T>(s, a, device);
}
template <class T>
int64_t gated_linear_scratch(const kernels::GatedLinearShape& s, kernels::GatedLinearAlgorithm a,
                             Cuda device) {
  return kernels::gated_linear_workspace_size<T>(s, a, device);
}

}  // namespace signet::capi
