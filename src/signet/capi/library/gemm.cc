// Matrix products of the library of operators: plain loops instead of a BLAS, which would change the threads
// of the host's. One kernel needs them, for the gradient of the recurrent matrices of sLSTM and LSTM: C +=
// A^T B over many rows.
#include "signet/tensor/gemm.h"

#include <algorithm>

#include "signet/base/thread_pool.h"

namespace signet {

template <class T>
void gemm(const Gemm<T>& p, Cpu) {
  parallel_for(p.m, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if (!p.accumulate) std::fill_n(p.c + i * p.ldc, p.n, T(0));
    for (int64_t l = 0; l < p.k; ++l) {
      for (int64_t i = begin; i < end; ++i) {
        const T a = p.transpose_a ? p.a[l * p.lda + i] : p.a[i * p.lda + l];
        T* c = p.c + i * p.ldc;
        if (p.transpose_b) {
          for (int64_t j = 0; j < p.n; ++j) c[j] += a * p.b[j * p.ldb + l];
        } else {
          const T* b = p.b + l * p.ldb;
          for (int64_t j = 0; j < p.n; ++j) c[j] += a * b[j];
        }
      }
    }
  });
}
template void gemm(const Gemm<float>&, Cpu);
template void gemm(const Gemm<double>&, Cpu);

}  // namespace signet
