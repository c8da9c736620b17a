// The softmax of one row, for the CPU kernels that need it. Include after simd.h.
#pragma once

#include <algorithm>

namespace signet::kernels::SIGNET_ISA {

// y = softmax(x); may be in place.
template <class T>
void softmax_row(const T* x, int64_t n, T* y) {
  const T largest = *std::max_element(x, x + n);
  T total = 0;
  vector_loop<T>(n,
                 [&](int64_t i, auto count) { store(y + i, exp<T>(load(x + i, count) - largest), count); });
  for (int64_t i = 0; i < n; ++i) total += y[i];
  const T inverse = T(1) / total;
  vector_loop<T>(n, [&](int64_t i, auto count) { store(y + i, load(y + i, count) * inverse, count); });
}

template <class T>
T row_dot(const T* a, const T* b, int64_t n) {
  Vec<T> total{};
  vector_loop<T>(n, [&](int64_t i, auto count) { total += load(a + i, count) * load(b + i, count); });
  return sum<T>(total);
}

}  // namespace signet::kernels::SIGNET_ISA
