#include <fmt/core.h>

#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/random.h"
#include "signet/tensor/gemm.h"

namespace signet::bench {
namespace {

struct Product {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  Values<float> a, b, c;

  Product(int64_t m_, int64_t n_, int64_t k_, bool ta, bool tb)
      : m(m_),
        n(n_),
        k(k_),
        transpose_a(ta),
        transpose_b(tb),
        a(random_values(1, m * k)),
        b(random_values(2, k * n)),
        c(static_cast<size_t>(m * n)) {}
  void run(int64_t rows) {
    gemm(Gemm<float>{rows, n, k, a.data(), transpose_a ? m : k, transpose_a, b.data(), transpose_b ? k : n,
                     transpose_b, c.data(), n},
         Cpu{});
  }
  // Of the first rows, by plain loops.
  double error() {
    const int64_t rows = std::min<int64_t>(m, 64);
    run(rows);
    Values<double> expected(static_cast<size_t>(rows * n), 0.0);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t l = 0; l < k; ++l)
        for (int64_t j = 0; j < n; ++j)
          expected[i * n + j] += static_cast<double>(transpose_a ? a[l * m + i] : a[i * k + l]) *
                                 (transpose_b ? b[j * k + l] : b[l * n + j]);
    return relative_error(c, expected);
  }
};

Case product(int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b) {
  return {fmt::format("{}x{}x{} {}{} fp32", m, n, k, transpose_a ? 't' : 'n', transpose_b ? 't' : 'n'), [=] {
            auto p = std::make_shared<Product>(m, n, k, transpose_a, transpose_b);
            Workload w;
            w.flops = 2.0 * static_cast<double>(m * n * k);
            w.bytes = 4.0 * static_cast<double>(m * k + k * n + m * n);
            w.error = [p] { return p->error(); };
            w.tolerance = 1e-5;
            w.run = [p] { p->run(p->m); };
            return w;
          }};
}

}  // namespace

// Batch 256 of length 39: forward (nt), input gradient (nn) and weight gradient (tn) of a projection and the
// MLP.
std::vector<Case> gemm_cases() {
  return {product(9984, 128, 128, false, true), product(9984, 512, 128, false, true),
          product(9984, 128, 512, false, true), product(9984, 128, 512, false, false),
          product(512, 128, 9984, true, false), product(1024, 1024, 1024, false, false)};
}

}  // namespace signet::bench
