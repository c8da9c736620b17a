// Row gather and its transpose.
//   gather        y[r] = table[index[r]]
//   scatter_add   dtable[index[r]] += dy[r]     in the order of r: the same bits every time
// Rows have `width` elements and strides. Indices are trusted: the caller has checked them.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"
#include "signet/tensor/reduce.h"

namespace signet::kernels {

template <class T>
struct Gather {
  int64_t rows = 0, width = 0;
  const Accumulator<T>* table = nullptr;
  int64_t table_stride = 0;
  const int32_t* index = nullptr;
  T* y = nullptr;
  int64_t y_stride = 0;
};

template <class T>
struct ScatterAdd {
  int64_t rows = 0, width = 0;
  const T* dy = nullptr;
  int64_t dy_stride = 0;
  const int32_t* index = nullptr;
  Accumulator<T>* dtable = nullptr;
  int64_t table_stride = 0;
  int64_t table_rows = 0;               // GPU only: how many rows the table has,
  Accumulator<T>* workspace = nullptr;  // and [scatter_add_workspace_size]
  ColumnSums* later = nullptr;          // GPU only: takes the last sums over rows (null: done at once)
};

template <class T>
void gather(const Gather<T>& p, Cpu);
template <class T>
void scatter_add(const ScatterAdd<T>& p, Cpu);

// On the GPU: float and bf16. scatter_add sums ranges of r in order, then the ranges in order; rows of large
// tables are sorted by entry first, so that time is linear in them (sorted_scatter.cuh).
int64_t scatter_add_workspace_size(int64_t rows, int64_t width, int64_t table_rows, Cuda);
template <class T>
void gather(const Gather<T>& p, Cuda);
template <class T>
void scatter_add(const ScatterAdd<T>& p, Cuda);

// y [rows, width] = 1 where index[r] is the column, else 0; width a multiple of 8. Into a table of middle
// size bf16 rows are added fastest as the product y^T dy, which is exact but for the order of sums.
struct OneHot {
  int64_t rows = 0, width = 0;
  const int32_t* index = nullptr;
  bf16* y = nullptr;
};
void one_hot(const OneHot& p, Cuda);
// Whether scatter_add itself is fast for a table of so many rows and columns.
bool scatters_fast(int64_t table_rows, int64_t width);

void gather_reference(const Gather<double>& p);
void scatter_add_reference(const ScatterAdd<double>& p);

}  // namespace signet::kernels
