#include "signet/tensor/gemm.h"

#include <limits>

#include "signet/base/error.h"
#include "signet/base/signals.h"
#include "signet/base/thread_pool.h"
#include "signet/tensor/gemm_amx.h"
#include "signet/tensor/openblas.h"

#ifdef SIGNET_ONEDNN
#include <omp.h>

#include <oneapi/dnnl/dnnl.h>
#endif

namespace signet {
namespace {

// The thread pool owns the cores: oneDNN runs on the calling thread only.
void single_threaded_libraries() {
#ifdef SIGNET_ONEDNN
  [[maybe_unused]] static thread_local const bool per_thread =
      (omp_set_num_threads(1), use_signal_stack(), true);
#endif
}

template <class T, class Function>
void multiply_by_openblas(const Gemm<T>& p, Function* function) {
  for (const int64_t size : {p.m, p.n, p.k, p.lda, p.ldb, p.ldc})
    if (size > std::numeric_limits<int>::max())
      fail(ErrorCode::kResource, "a matrix with {} rows or columns is too large for OpenBLAS", size);
  const auto op = [](bool transposed) { return transposed ? CblasTrans : CblasNoTrans; };
  function(CblasRowMajor, op(p.transpose_a), op(p.transpose_b), static_cast<int>(p.m), static_cast<int>(p.n),
           static_cast<int>(p.k), T(1), p.a, static_cast<int>(p.lda), p.b, static_cast<int>(p.ldb),
           p.accumulate ? T(1) : T(0), p.c, static_cast<int>(p.ldc));
}

void product(const Gemm<double>& p, bool /*on_tiles*/) { multiply_by_openblas(p, openblas().dgemm); }

void product(const Gemm<float>& p, bool on_tiles) {
  if (on_tiles) return multiply_by_amx(p);
#ifdef SIGNET_ONEDNN
  const dnnl_status_t status =
      dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, 1.0f, p.a, p.lda, p.b,
                 p.ldb, p.accumulate ? 1.0f : 0.0f, p.c, p.ldc);
  if (status != dnnl_success)  // c is as it was
    fail(status == dnnl_out_of_memory ? ErrorCode::kResource : ErrorCode::kFailure,
         "oneDNN did not multiply {} x {} by {} x {}: status {}", p.m, p.k, p.k, p.n,
         static_cast<int>(status));
#else
  multiply_by_openblas(p, openblas().sgemm);
#endif
}

bool goes_on_tiles(const Gemm<double>&) { return false; }
bool goes_on_tiles(const Gemm<float>& p) { return current_isa() >= Isa::kAmx && amx_pays(p); }

}  // namespace

template <class T>
void gemm(const Gemm<T>& p, Cpu) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    for (int64_t i = 0; i < p.m && !p.accumulate; ++i)
      for (int64_t j = 0; j < p.n; ++j) p.c[i * p.ldc + j] = T(0);
    return;
  }
  constexpr int64_t kFlopsPerThread = 1 << 20;  // below this a hand-over costs more than it saves
  const int64_t grain = 1 + kFlopsPerThread / (2 * p.n * p.k);
  const bool on_tiles = goes_on_tiles(p);  // of the whole product: bits are those of any number of threads
  parallel_for(p.m, grain, [&](int64_t begin, int64_t end) {
    single_threaded_libraries();
    Gemm<T> part = p;
    part.m = end - begin;
    part.a = p.a + (p.transpose_a ? begin : begin * p.lda);
    part.c = p.c + begin * p.ldc;
    product(part, on_tiles);
  });
}

template void gemm(const Gemm<float>&, Cpu);
template void gemm(const Gemm<double>&, Cpu);

const char* gemm_backend() {
  const bool tiles = current_isa() >= Isa::kAmx;
#ifdef SIGNET_ONEDNN
  return tiles ? "AMX tiles, oneDNN" : "oneDNN";
#else
  return tiles ? "AMX tiles, OpenBLAS" : "OpenBLAS";
#endif
}

}  // namespace signet
