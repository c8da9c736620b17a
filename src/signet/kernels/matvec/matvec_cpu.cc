#include "signet/kernels/matvec/matvec.h"

#include <algorithm>

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {

// An output is summed in the same order whichever outputs are made beside it. What lies as far behind the
// rows as they are long together comes next and is fetched meanwhile: by itself a core begins anew with every
// page.
template <class T, int kOuts>
SIGNET_INLINE void dot_products(const T* x, const T* const (&rows)[kOuts], int64_t in, T (&y)[kOuts]) {
  Vec<T> even[kOuts] = {}, odd[kOuts] = {};
  int64_t i = 0;
  for (; i + 2 * kLanes<T> <= in; i += 2 * kLanes<T>) {
    const Vec<T> a = load(x + i), b = load(x + i + kLanes<T>);
    for (int o = 0; o < kOuts; ++o) {
      even[o] += a * load(rows[o] + i);
      odd[o] += b * load(rows[o] + i + kLanes<T>);
      const T* const next = rows[o] + kOuts * in + i;
      __builtin_prefetch(next, 0, 2);
      __builtin_prefetch(next + kLanes<T>, 0, 2);
    }
  }
  vector_loop<T>(in - i, [&](int64_t j, auto n) {
    const Vec<T> a = load(x + i + j, n);
    for (int o = 0; o < kOuts; ++o) even[o] += a * load(rows[o] + i + j, n);
  });
  for (int o = 0; o < kOuts; ++o) y[o] = sum<T>(even[o] + odd[o]);
}

template <class T>
void matvec(const Matvec<T>& p) {
  constexpr int kOuts = 4;  // at once: they share what x costs
  for (int64_t first = 0; first < p.out; first += kOuts) {
    const T* rows[kOuts];
    for (int o = 0; o < kOuts; ++o) rows[o] = p.weight + std::min(first + o, p.out - 1) * p.in;
    for (int64_t r = 0; r < p.rows; ++r) {
      T y[kOuts];
      dot_products<T, kOuts>(p.x + r * p.x_stride, rows, p.in, y);
      for (int64_t o = first; o < std::min(first + kOuts, p.out); ++o)
        p.y[r * p.y_stride + o] = y[o - first] + (p.residual ? p.residual[r * p.residual_stride + o] : T(0));
    }
  }
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(matvec, Matvec)
