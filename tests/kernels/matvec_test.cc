#include "signet/kernels/matvec/matvec.h"

#include <gtest/gtest.h>

#include <vector>

#include "signet/base/rng.h"
#include "support/check.h"

namespace signet::kernels {
namespace {

TEST(Matvec, MatchesDotProducts) {
  Rng rng(1);
  struct Case {
    int64_t rows, in, out;
    bool residual;
  };
  for (const auto& c : {Case{1, 768, 3072, true}, Case{2, 100, 5, false}, Case{4, 1, 1, true},
                        Case{3, 33, 7, false}, Case{1, 1536, 80, false}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " " << c.in << " " << c.out);
    const int64_t x_stride = c.in + 3, y_stride = c.out + 2;
    const auto x = test::random_values(rng, c.rows * x_stride),
               weight = test::random_values(rng, c.out * c.in),
               residual = test::random_values(rng, c.rows * c.out);
    const auto check = [&](auto element, double tolerance) {
      using T = decltype(element);
      const std::vector<T> a(x.begin(), x.end()), w(weight.begin(), weight.end()),
          add(residual.begin(), residual.end());
      std::vector<T> y(static_cast<size_t>(c.rows * y_stride), T(-7));
      Matvec<T> p;
      p.rows = c.rows, p.in = c.in, p.out = c.out, p.x = a.data(), p.x_stride = x_stride, p.weight = w.data();
      if (c.residual) p.residual = add.data(), p.residual_stride = c.out;
      p.y = y.data(), p.y_stride = y_stride;
      matvec(p, Cpu{});
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int64_t o = 0; o < c.out; ++o) {
          double right = c.residual ? static_cast<double>(add[r * c.out + o]) : 0;
          for (int64_t i = 0; i < c.in; ++i)
            right += static_cast<double>(a[r * x_stride + i]) * static_cast<double>(w[o * c.in + i]);
          ASSERT_NEAR(static_cast<double>(y[r * y_stride + o]), right, tolerance) << r << " " << o;
        }
        for (int64_t o = c.out; o < y_stride; ++o) ASSERT_EQ(y[r * y_stride + o], T(-7));
      }
      // The same bits, made alone.
      std::vector<T> one(static_cast<size_t>(c.rows));
      p.weight += (c.out - 1) * c.in, p.out = 1, p.y = one.data(), p.y_stride = 1;
      if (c.residual) p.residual += c.out - 1;
      matvec(p, Cpu{});
      for (int64_t r = 0; r < c.rows; ++r) EXPECT_EQ(one[r], y[r * y_stride + c.out - 1]);
    };
    check(float{}, 1e-4);
    check(double{}, 1e-12);
  }
}

TEST(Matvec, ReadsMatricesInBf16) {
  Rng rng(2);
  struct Case {
    int64_t rows, in, out;
    bool residual;
  };
  for (const auto& c : {Case{1, 768, 9, false}, Case{4, 1, 1, true}, Case{3, 45, 6, true},
                        Case{2, 4096, 3, false}, Case{4, 8300, 2, true}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " " << c.in << " " << c.out);
    const auto random = [&](int64_t count) {
      const auto values = test::random_values(rng, count);
      return std::vector<float>(values.begin(), values.end());
    };
    const auto x = random(c.rows * c.in), residual = random(c.rows * c.out);
    std::vector<bf16> weight;
    for (const float value : random(c.out * c.in)) weight.emplace_back(value);
    std::vector<float> y(static_cast<size_t>(c.rows * c.out));
    Matvec<float> p;
    p.rows = c.rows, p.in = c.in, p.out = c.out, p.x = x.data(), p.x_stride = c.in;
    p.narrow_weight = weight.data(), p.y = y.data(), p.y_stride = c.out;
    if (c.residual) p.residual = residual.data(), p.residual_stride = c.out;
    matvec(p, Cpu{});
    for (int64_t r = 0; r < c.rows; ++r)
      for (int64_t o = 0; o < c.out; ++o) {
        double right = c.residual ? static_cast<double>(residual[r * c.out + o]) : 0;
        for (int64_t i = 0; i < c.in; ++i)
          right += static_cast<double>(x[r * c.in + i]) *
                   static_cast<double>(static_cast<float>(weight[o * c.in + i]));
        EXPECT_NEAR(static_cast<double>(y[r * c.out + o]), right, 2e-4) << r << " " << o;
      }
  }
}

}  // namespace
}  // namespace signet::kernels
