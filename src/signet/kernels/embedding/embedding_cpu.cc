#include "signet/kernels/embedding/embedding.h"

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void gather(const Gather<T>& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    __builtin_memcpy(p.y + r * p.y_stride, p.table + p.index[r] * p.table_stride,
                     sizeof(T) * static_cast<size_t>(p.width));
  }
}

template <class T>
void scatter_add(const ScatterAdd<T>& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const T* from = p.dy + r * p.dy_stride;
    T* to = p.dtable + p.index[r] * p.table_stride;
    vector_loop<T>(p.width,
                   [&](int64_t i, auto n) { store(to + i, load(to + i, n) + load(from + i, n), n); });
  }
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(gather, Gather)
SIGNET_ISA_DISPATCH(scatter_add, ScatterAdd)
