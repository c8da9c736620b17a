// The factor that keeps a state's size (dense_recurrence.h), on the CPU and the GPU alike.
#pragma once

#include <algorithm>
#include <cmath>

#include "signet/base/host_device.h"

namespace signet::kernels {

// s_t, from the largest magnitude in H_{t-1}.
template <class T>
SIGNET_HOST_DEVICE T state_factor(T largest) {
  constexpr T kFar = T(1 << 16);
  if ((largest >= 1 / kFar && largest <= kFar) || largest == 0 || !std::isfinite(largest)) return T(1);
  return std::ldexp(T(1), std::clamp(-std::ilogb(largest), -100, 100));  // a power of 2 that T has
}

}  // namespace signet::kernels
