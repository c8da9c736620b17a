// A few vectors of columns of a row-major state [rows, columns], for the recurrences that keep a panel of
// columns in L1. Include after simd.h.
#pragma once

#ifndef SIGNET_ISA
#error "include signet/base/isa_target.h and signet/base/simd.h before signet/kernels/columns.h"
#endif

namespace signet::kernels::SIGNET_ISA {

template <class T, int NV>
struct Columns {
  Vec<T> v[NV];
};

// `count` columns from p, the rest zero.
template <class T, int NV>
SIGNET_INLINE Columns<T, NV> load_columns(const T* p, int64_t count) {
  Columns<T, NV> columns;
  for (int c = 0; c < NV; ++c) {
    const int64_t left = count - c * kLanes<T>;
    columns.v[c] = left >= kLanes<T> ? load(p + c * kLanes<T>)
                   : left > 0        ? load_n(p + c * kLanes<T>, static_cast<int>(left))
                                     : Vec<T>{};
  }
  return columns;
}
template <class T, int NV>
SIGNET_INLINE void store_columns(T* p, const Columns<T, NV>& columns, int64_t count) {
  for (int c = 0; c < NV; ++c) {
    const int64_t left = count - c * kLanes<T>;
    if (left >= kLanes<T>) {
      store(p + c * kLanes<T>, columns.v[c]);
    } else if (left > 0) {
      store_n(p + c * kLanes<T>, columns.v[c], static_cast<int>(left));
    }
  }
}

// Rows taken together, so that enough independent sums hide the latency of a multiply-add.
constexpr int kRows = 4;

}  // namespace signet::kernels::SIGNET_ISA
