// Rows copied or added: y[j] = x[i], or y[j] += x[i], where i and j are the row itself or an index, each at
// most once in y. x, y [rows, width] with strides in elements; on the GPU a null x stands for zeros.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"

namespace signet::kernels {

template <class T>
struct CopyRows {
  int64_t rows = 0, width = 0;
  const T* x = nullptr;
  int64_t x_stride = 0;
  T* y = nullptr;
  int64_t y_stride = 0;
  bool add = false;
  const int32_t* x_index = nullptr;
  const int32_t* y_index = nullptr;
};

template <class T>
void copy_rows(const CopyRows<T>& p, Cpu);

// On the GPU: float and bf16.
template <class T>
void copy_rows(const CopyRows<T>& p, Cuda);

}  // namespace signet::kernels
