// Products of small matrices that stay in the caches, where a BLAS call costs more than its work:
//
//   C = init + sum over terms of A B
//
// A [m, k] has any two strides, B [k, n] and C [m, n] have row strides. A tile of C stays in registers
// through all terms. n is rounded up to whole vectors: rows of B, init and C have room for them. A may be
// triangular: only where it can be nonzero is multiplied. Include after simd.h.
#pragma once

#ifndef SIGNET_ISA
#error "include signet/base/isa_target.h and signet/base/simd.h before signet/kernels/small_matrix.h"
#endif

namespace signet::kernels::SIGNET_ISA {

// The nonzeros of a matrix: all; row i in columns < i * ratio + offset (lower); or the transpose of that
// (upper). Rectangular bands (ratio > 1) are those of tokens against sub-steps.
struct Band {
  enum Kind { kFull, kLower, kUpper } kind = kFull;
  int64_t ratio = 1, offset = 0;

  int64_t row_end(int64_t row, int64_t columns) const {  // lower
    return kind == kLower && row * ratio + offset < columns ? row * ratio + offset : columns;
  }
  int64_t row_begin(int64_t row) const {  // upper
    return kind == kUpper && row >= offset ? (row - offset) / ratio + 1 : 0;
  }
};

template <class T>
struct Term {
  const T* a = nullptr;
  int64_t a_row = 0, a_column = 1;
  const T* b = nullptr;
  int64_t b_row = 0;
  int64_t k = 0;
  Band band = {};
  T scale = 1;  // multiplies the sum of this term and those before it
};

// Most rows of a tile, two vectors wide: the sums take half the registers.
constexpr int kTileRows = SIGNET_VECTOR_BYTES == 64 ? 8 : 4;

// sums += A B over rows [row, row + MR) of A and the NV vectors of columns at b.
template <class T, int MR, int NV>
SIGNET_INLINE void add_term(const Term<T>& term, int64_t row, int64_t column, Vec<T> (&sums)[MR][NV]) {
  const int64_t begin = term.band.row_begin(row), end = term.band.row_end(row + MR - 1, term.k);
  const T* a = term.a + row * term.a_row + begin * term.a_column;
  const T* b = term.b + begin * term.b_row + column;
  const int64_t a_row = term.a_row;
  for (int64_t k = begin; k < end; ++k, a += term.a_column, b += term.b_row) {
    Vec<T> bs[NV];
    for (int c = 0; c < NV; ++c) bs[c] = load(b + c * kLanes<T>);
#pragma GCC unroll 8
    for (int r = 0; r < MR; ++r) {
      const Vec<T> x = splat(a[r * a_row]);
#pragma GCC unroll 2
      for (int c = 0; c < NV; ++c) sums[r][c] += x * bs[c];
    }
  }
  if (term.scale != T(1)) {
    for (auto& each : sums)
      for (auto& v : each) v *= term.scale;
  }
}

template <class T>
struct MatrixSum {
  int64_t m = 0, n = 0;
  const Term<T>* terms = nullptr;
  int count = 0;
  const T* init = nullptr;  // null: zero
  int64_t init_row = 0;
  T* c = nullptr;
  int64_t c_row = 0;
  Band result = {};  // full, or lower: the rest of each row becomes zero
};

template <class T>
IntVec<T> lane_numbers() {
  IntVec<T> lanes{};
  for (int i = 0; i < kLanes<T>; ++i) lanes[i] = i;
  return lanes;
}

template <class T, int MR, int NV>
void sum_tile(const MatrixSum<T>& p, int64_t row, int64_t column) {
  Vec<T> sums[MR][NV];
  const int64_t end = p.result.row_end(row + MR - 1, p.n);
#pragma GCC unroll 8
  for (int r = 0; r < MR; ++r)
#pragma GCC unroll 2
    for (int c = 0; c < NV; ++c) sums[r][c] = Vec<T>{};
  if (column < end)
    for (int i = 0; i < p.count; ++i) add_term<T, MR, NV>(p.terms[i], row, column, sums);
#pragma GCC unroll 8
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < NV; ++c) {
      const int64_t at = column + c * kLanes<T>;
      Vec<T> v = sums[r][c];
      if (p.init) v += load(p.init + (row + r) * p.init_row + at);
      if (p.result.kind == Band::kLower) {
        const int64_t left = p.result.row_end(row + r, p.n) - at;
        if (left < kLanes<T>) {
          using Lane = std::remove_reference_t<decltype(IntVec<T>{}[0])>;
          v = select<T>(lane_numbers<T>() < static_cast<Lane>(left), v, Vec<T>{});
        }
      }
      store(p.c + (row + r) * p.c_row + at, v);
    }
  }
}

// Calls f(std::integral_constant<int, rows>, first row) for blocks of kTileRows rows and one of the rest.
template <class F, int kRest = kTileRows - 1>
SIGNET_INLINE void for_rest_rows(int64_t rest, int64_t row, const F& f) {
  if constexpr (kRest > 0) {
    if (rest == kRest) return f(std::integral_constant<int, kRest>{}, row);
    for_rest_rows<F, kRest - 1>(rest, row, f);
  }
}
template <class F>
SIGNET_INLINE void for_row_blocks(int64_t m, const F& f) {
  int64_t row = 0;
  for (; row + kTileRows <= m; row += kTileRows) f(std::integral_constant<int, kTileRows>{}, row);
  for_rest_rows(m - row, row, f);
}
template <class F>
SIGNET_INLINE void for_row_blocks_backwards(int64_t m, const F& f) {
  int64_t row = m / kTileRows * kTileRows;
  for_rest_rows(m - row, row, f);
  while (row > 0) f(std::integral_constant<int, kTileRows>{}, row -= kTileRows);
}
// Calls f(std::integral_constant<int, vectors>, first column) for panels of two vectors and one of the rest.
template <class T, class F>
SIGNET_INLINE void for_column_panels(int64_t n, const F& f) {
  int64_t column = 0;
  for (; n - column > kLanes<T>; column += 2 * kLanes<T>) f(std::integral_constant<int, 2>{}, column);
  if (column < n) f(std::integral_constant<int, 1>{}, column);
}

template <class T>
void matrix_sum(const MatrixSum<T>& p) {
  for_column_panels<T>(p.n, [&](auto panel, int64_t column) {
    for_row_blocks(p.m, [&](auto rows, int64_t row) {
      if (panel() == 2 && p.result.row_end(row + rows() - 1, p.n) <= column + kLanes<T>) {
        // The second vector is zero: only the first is multiplied.
        sum_tile<T, rows(), 1>(p, row, column);
        sum_tile<T, rows(), 1>(p, row, column + kLanes<T>);
      } else {
        sum_tile<T, rows(), panel()>(p, row, column);
      }
    });
  });
}

// One step of the butterfly: swaps the off-diagonal kHalf x kHalf blocks of every 2 kHalf x 2 kHalf block.
template <class T, int kHalf>
SIGNET_INLINE void transpose_blocks(Vec<T> (&rows)[kLanes<T>]) {
  IntVec<T> low{}, high{};
  for (int i = 0; i < kLanes<T>; ++i) {
    low[i] = i & kHalf ? kLanes<T> + i - kHalf : i;
    high[i] = i & kHalf ? kLanes<T> + i : i + kHalf;
  }
  for (int i = 0; i < kLanes<T>; ++i) {
    if (i & kHalf) continue;
    const Vec<T> a = rows[i], b = rows[i + kHalf];
    rows[i] = __builtin_shuffle(a, b, low);
    rows[i + kHalf] = __builtin_shuffle(a, b, high);
  }
  if constexpr (kHalf > 1) transpose_blocks<T, kHalf / 2>(rows);
}

// to[n, to_row] = from[m, n]^T; to's rows are filled with zeros up to a whole number of vectors. Rows of
// `from` have room for whole vectors.
template <class T>
void transpose(const T* from, int64_t from_row, int64_t m, int64_t n, T* to, int64_t to_row) {
  for (int64_t i = 0; i < m; i += kLanes<T>) {
    for (int64_t j = 0; j < n; j += kLanes<T>) {
      Vec<T> rows[kLanes<T>];
      for (int r = 0; r < kLanes<T>; ++r)
        rows[r] = i + r < m ? load(from + (i + r) * from_row + j) : Vec<T>{};
      transpose_blocks<T, kLanes<T> / 2>(rows);
      for (int r = 0; r < kLanes<T>; ++r)
        if (j + r < n) store(to + (j + r) * to_row + i, rows[r]);
    }
  }
}

}  // namespace signet::kernels::SIGNET_ISA
