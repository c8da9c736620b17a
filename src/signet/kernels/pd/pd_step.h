// One token of a recurrence whose gate is a column-one-hot matrix (PD-SSM, arXiv 2509.22284, with D = 1):
//
//   h'[j] = sum over i with target[i] = j of h[i]      added in the order of i, rounded after each addition
//
// target [channels] with values in [0, channels), or -1 for a zero column. `scratch` has `channels` elements.
#pragma once

#include <cstdint>

#include "signet/base/rounding.h"

namespace signet::kernels {

template <class Type>
inline void pd_step(const int32_t* target, int channels, typename Type::Value* h,
                    typename Type::Value* scratch) {
  for (int j = 0; j < channels; ++j) scratch[j] = 0;
  for (int i = 0; i < channels; ++i)
    if (target[i] >= 0) scratch[target[i]] = Type::round(scratch[target[i]] + h[i]);
  for (int j = 0; j < channels; ++j) h[j] = scratch[j];
}

}  // namespace signet::kernels
