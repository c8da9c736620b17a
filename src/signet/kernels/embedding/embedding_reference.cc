#include "signet/kernels/embedding/embedding.h"

namespace signet::kernels {

void gather_reference(const Gather<double>& p) {
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t i = 0; i < p.width; ++i) p.y[r * p.y_stride + i] = p.table[p.index[r] * p.table_stride + i];
}

void scatter_add_reference(const ScatterAdd<double>& p) {
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t i = 0; i < p.width; ++i)
      p.dtable[p.index[r] * p.table_stride + i] += p.dy[r * p.dy_stride + i];
}

}  // namespace signet::kernels
