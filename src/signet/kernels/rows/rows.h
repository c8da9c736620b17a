// Rows copied or added: y = x, or y += x. x, y [rows, width] with strides in elements.
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
};

template <class T>
void copy_rows(const CopyRows<T>& p, Cpu);
template <class T>
void copy_rows(const CopyRows<T>& p, Cuda);

}  // namespace signet::kernels
