#include "signet/tensor/gemm.h"

#include "support/rounded.h"

namespace signet {
namespace {

using test::device_error;
using test::OnDevice;
using test::Rounded;

struct Case {
  int64_t m, n, k, extra;  // extra: what the rows are longer than they need be
  bool transpose_a, transpose_b, accumulate;
};
const Case kCases[] = {{1, 1, 1, 0, false, false, false},   {40, 24, 32, 0, false, true, false},
                       {33, 17, 65, 3, true, false, true},  {128, 384, 128, 0, false, true, true},
                       {31, 5, 200, 1, true, true, false},  {64, 96, 0, 0, false, false, false},
                       {3, 1000, 64, 8, false, false, true}};

template <class T>
void check(GemmMath math, bool wide, double tolerance) {
  Rng rng(1);
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.m << " x " << c.n << " x " << c.k);
    const int64_t lda = (c.transpose_a ? c.m : c.k) + c.extra, ldb = (c.transpose_b ? c.k : c.n) + c.extra,
                  ldc = c.n;
    const Rounded<T> a(rng, (c.transpose_a ? c.k : c.m) * lda), b(rng, (c.transpose_b ? c.n : c.k) * ldb),
        c_narrow(rng, c.m * ldc);
    const Rounded<float> c_wide(c_narrow.exact);
    auto expected = c_narrow.exact;
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = c.accumulate ? expected[i * ldc + j] : 0.0;
        for (int64_t l = 0; l < c.k; ++l)
          sum += a.exact[c.transpose_a ? l * lda + i : i * lda + l] *
                 b.exact[c.transpose_b ? j * ldb + l : l * ldb + j];
        expected[i * ldc + j] = sum;
      }
    }
    Gemm<T> p;
    p.m = c.m, p.n = c.n, p.k = c.k, p.a = a.get(), p.lda = lda, p.transpose_a = c.transpose_a, p.b = b.get();
    p.ldb = ldb, p.transpose_b = c.transpose_b, p.c = c_narrow.get(), p.ldc = ldc,
    p.accumulate = c.accumulate;
    p.math = math;
    if (wide) p.wide_c = c_wide.get();
    gemm(p, Cuda{});
    EXPECT_LT(wide ? device_error(c_wide.device, expected) : device_error(c_narrow.device, expected),
              tolerance);
  }
}

TEST(GemmCuda, MatchesLoops) {
  SIGNET_NEEDS_GPU();
  check<float>(GemmMath::kFp32, false, 2e-6);
  check<float>(GemmMath::kTf32, false, 2e-3);
  check<float>(GemmMath::kBf16, false, 1e-2);
  check<bf16>(GemmMath::kFp32, false, 5e-3);
  check<bf16>(GemmMath::kFp32, true, 2e-6);
}

}  // namespace
}  // namespace signet
