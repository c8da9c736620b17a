// One token of the diagonal recurrence in one fixed order of operations on every processor (compare
// delta_rule_step.h): real gates, and complex ones as pairs (re, im), each a scaled rotation of the plane.
//
//   real:     h[i] = a[i] * h[i] + b[i]
//   complex:  re' = (a.re * re - a.im * im) + b.re,   im' = (a.re * im + a.im * re) + b.im
//
// Every h[i] is rounded to the type once (base/rounding.h).
#pragma once

#include "signet/base/rounding.h"

namespace signet::kernels {

template <class Type>
inline void diagonal_scan_step(const typename Type::Value* a, const typename Type::Value* b, int channels,
                               typename Type::Value* h) {
  for (int i = 0; i < channels; ++i) h[i] = Type::round(a[i] * h[i] + b[i]);
}

template <class Type>
inline void complex_scan_step(const typename Type::Value* a, const typename Type::Value* b, int channels,
                              typename Type::Value* h) {
  for (int i = 0; i + 1 < channels; i += 2) {
    const auto re = h[i], im = h[i + 1];
    h[i] = Type::round((a[i] * re - a[i + 1] * im) + b[i]);
    h[i + 1] = Type::round((a[i] * im + a[i + 1] * re) + b[i + 1]);
  }
}

}  // namespace signet::kernels
