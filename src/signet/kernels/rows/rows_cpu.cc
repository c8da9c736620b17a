#include "signet/kernels/rows/rows.h"

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void copy_rows(const CopyRows<T>& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const T* x = p.x + (p.x_index ? p.x_index[r] : r) * p.x_stride;
    T* y = p.y + (p.y_index ? p.y_index[r] : r) * p.y_stride;
    vector_loop<T>(p.width, [&](int64_t i, auto n) {
      const Vec<T> v = load(x + i, n);
      store(y + i, p.add ? load(y + i, n) + v : v, n);
    });
  }
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(copy_rows, CopyRows)
