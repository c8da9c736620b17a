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

// `count` columns of a matrix [rows, width], zero where there is none, to a panel [rows, NV vectors].
template <class T, int NV>
void read_panel(const T* from, int64_t rows, int64_t width, int64_t count, T* panel) {
  constexpr int64_t kWidth = NV * kLanes<T>;
  for (int64_t i = 0; i < rows; ++i) {
    const auto row = from ? load_columns<T, NV>(from + i * width, count) : Columns<T, NV>{};
    store_columns<T, NV>(panel + i * kWidth, row, kWidth);
  }
}
template <class T, int NV>
void write_panel(const T* panel, int64_t rows, int64_t width, int64_t count, T* to) {
  constexpr int64_t kWidth = NV * kLanes<T>;
  for (int64_t i = 0; i < rows; ++i)
    store_columns<T, NV>(to + i * width, load_columns<T, NV>(panel + i * kWidth, kWidth), count);
}

// Rows taken together, so that enough independent sums hide the latency of a multiply-add.
constexpr int kRows = 4;

// Calls row(i, i % kRows), which is always_inline, for the rows i in turn.
template <class Row>
SIGNET_INLINE void for_rows(int64_t rows, const Row& row) {
  int64_t i = 0;
  for (; i + kRows <= rows; i += kRows) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) row(i + r, r);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows - 1; ++r)
    if (i + r < rows) row(i + r, r);
}

template <class T, int NV>
SIGNET_INLINE Columns<T, NV> total(const Columns<T, NV> (&sums)[kRows]) {
  Columns<T, NV> t;
  for (int c = 0; c < NV; ++c) t.v[c] = (sums[0].v[c] + sums[1].v[c]) + (sums[2].v[c] + sums[3].v[c]);
  return t;
}

}  // namespace signet::kernels::SIGNET_ISA
