// Where mLSTM's numbers come to their ends, on the CPU and the GPU alike. NaN stays NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "signet/base/host_device.h"
#include "signet/kernels/mlstm/mlstm.h"

namespace signet::kernels {

// e^-m, the normaliser's lower bound, never 0: a memory that has cancelled to nothing reads 0, not 0 / 0.
template <class T>
SIGNET_HOST_DEVICE T least_normaliser(T m) {
  return std::max(std::exp(-m), std::numeric_limits<T>::min());
}

// Of f. What does not fit becomes the largest number: infinity times a shut gate's slope 0 is NaN.
template <class T>
SIGNET_HOST_DEVICE T forget_gradient(T dgate, T m_before, T m) {
  constexpr T kMost = std::numeric_limits<T>::max();
  return std::clamp(dgate * std::exp(std::min(m_before - m, T(kMaxLogRatio))), -kMost, kMost);
}

}  // namespace signet::kernels
