#ifdef SIGNET_WITH_CUDA

#include <fmt/core.h>

#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/device_values.h"
#include "signet/tensor/gemm.h"

namespace signet::bench {
namespace {

template <class T>
struct ProductOnGpu {
  DeviceValues<T> a, b, c;
  DeviceValues<float> wide_c;
  Gemm<T> p;

  ProductOnGpu(const Device& device, int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b,
               GemmMath math)
      : a(device, random_values(1, m * k)), b(device, random_values(2, k * n)) {
    p.m = m, p.n = n, p.k = k, p.a = a.get(), p.lda = transpose_a ? m : k, p.transpose_a = transpose_a;
    p.b = b.get(), p.ldb = transpose_b ? k : n, p.transpose_b = transpose_b, p.ldc = n, p.math = math;
    // Gradients of weights stay fp32.
    if (std::is_same_v<T, bf16> && transpose_a) {
      wide_c = {device, m * n};
      p.wide_c = wide_c.get();
    } else {
      c = {device, m * n};
      p.c = c.get();
    }
  }
  Values<double> result() const { return p.wide_c ? wide_c.exact() : c.exact(); }
};

// Of the first rows, by plain loops.
template <class T>
double error(const Device& device, const ProductOnGpu<T>& fast) {
  const Gemm<T>& p = fast.p;
  gemm(p, Cuda{device.stream});
  const auto a = fast.a.exact(), b = fast.b.exact();
  const int64_t rows = std::min<int64_t>(p.m, 32);
  auto got = fast.result();
  got.resize(static_cast<size_t>(rows * p.n));
  Values<double> expected(got.size(), 0.0);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t l = 0; l < p.k; ++l)
      for (int64_t j = 0; j < p.n; ++j)
        expected[static_cast<size_t>(i * p.n + j)] +=
            a[static_cast<size_t>(p.transpose_a ? l * p.m + i : i * p.k + l)] *
            b[static_cast<size_t>(p.transpose_b ? j * p.k + l : l * p.n + j)];
  return relative_error(got, expected);
}

template <class T>
Case product(const Device& device, int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b,
             GemmMath math) {
  const char* name = std::is_same_v<T, bf16> ? "bf16" : math == GemmMath::kTf32 ? "tf32" : "fp32";
  return {
      fmt::format("{}x{}x{} {}{} {}", m, n, k, transpose_a ? 't' : 'n', transpose_b ? 't' : 'n', name), [=] {
        auto fast = std::make_shared<ProductOnGpu<T>>(device, m, n, k, transpose_a, transpose_b, math);
        Workload w;
        w.flops = 2.0 * static_cast<double>(m * n * k);
        w.math = std::is_same_v<T, bf16> ? Math::kBf16 : math == GemmMath::kTf32 ? Math::kTf32 : Math::kFp32;
        w.bytes = static_cast<double>(sizeof(T)) * static_cast<double>(m * k + k * n + m * n);
        w.error = [=] { return error(device, *fast); };
        w.tolerance = w.math == Math::kBf16 ? 1e-2 : w.math == Math::kTf32 ? 2e-3 : 1e-5;
        w.run = [=] { gemm(fast->p, Cuda{device.stream}); };
        return w;
      }};
}

}  // namespace

// Batch 1024 of length 40: forward (nt), input gradient (nn) and weight gradient (tn) of a projection and the
// MLP.
std::vector<Case> gemm_cuda_cases(const Device& device) {
  std::vector<Case> cases;
  const auto add = [&](int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
    cases.push_back(product<float>(device, m, n, k, ta, tb, GemmMath::kFp32));
    cases.push_back(product<float>(device, m, n, k, ta, tb, GemmMath::kTf32));
    cases.push_back(product<bf16>(device, m, n, k, ta, tb, GemmMath::kBf16));
  };
  constexpr int64_t kRows = 1024 * 40;
  add(kRows, 384, 128, false, true), add(kRows, 1024, 128, false, true), add(kRows, 128, 512, false, true);
  add(kRows, 128, 1024, false, false), add(1024, 128, kRows, true, false),
      add(4096, 4096, 4096, false, false);
  return cases;
}

}  // namespace signet::bench

#endif
