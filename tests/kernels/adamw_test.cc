#include "signet/kernels/adamw/adamw.h"

#include "support/check.h"

namespace signet::kernels {
namespace {

TEST(AdamW, CpuFollowsReferenceOverManySteps) {
  test::for_each_isa([] {
    for (int64_t size : {0, 1, 16, 37, 1000}) {
      Rng rng(12);
      auto w = test::random_values(rng, size);
      std::vector<double> m(size, 0.0), v(size, 0.0);
      auto wt = w, mt = m, vt = v;
      for (int64_t step = 1; step <= 20; ++step) {
        const auto g = test::random_values(rng, size);
        adamw_reference(
            {size, w.data(), g.data(), m.data(), v.data(), 0.7, 1e-2, 0.9, 0.999, 1e-8, 0.1, step});
        adamw(AdamW<double>{size, wt.data(), g.data(), mt.data(), vt.data(), 0.7, 1e-2, 0.9, 0.999, 1e-8, 0.1,
                            step},
              Cpu{});
      }
      EXPECT_LT(test::relative_error(wt, w), 1e-13);
      EXPECT_LT(test::relative_error(vt, v), 1e-13);
    }
  });
}

TEST(AdamW, FirstStepMovesByTheLearningRate) {
  std::vector<float> w = {1, 1}, g = {3, -5}, m(2), v(2);
  adamw(AdamW<float>{2, w.data(), g.data(), m.data(), v.data(), 1, 0.01, 0.9, 0.999, 1e-8, 0, 1}, Cpu{});
  EXPECT_NEAR(w[0], 0.99, 1e-6);
  EXPECT_NEAR(w[1], 1.01, 1e-6);
}

// The smallest eps that a run may have: gradients whose squares vanish in float move no weight further than
// the learning rate, and those that are 0 leave it alone.
TEST(AdamW, GradientsTooSmallToSquareMoveByTheLearningRateAtMost) {
  for (float size : {0.f, 1e-44f, 1e-38f, 1e-30f, 1e-25f, 1e-22f, 1e-21f, 1e-20f, 1e-18f, 1e-10f}) {
    float w = 1, m = 0, v = 0;
    for (int64_t step = 1; step <= 20; ++step) {
      const float before = w;
      adamw(AdamW<float>{1, &w, &size, &m, &v, 1, 0.01, 0.9, 0.999, 1e-20, 0, step}, Cpu{});
      EXPECT_LE(std::abs(w - before), 0.0101f) << size;
      EXPECT_TRUE(size > 0 || w == 1);
    }
  }
}

TEST(AdamW, SquareSumSeesEveryElementAndEveryNan) {
  test::for_each_isa([] {
    for (int64_t size : {0, 1, 15, 1024, 5000}) {
      Rng rng(13);
      auto x = test::random_values(rng, size);
      double expected = 0, got = -1;
      for (double value : x) expected += value * value;
      square_sum(SquareSum<double>{size, x.data(), &got}, Cpu{});
      EXPECT_NEAR(got, expected, 1e-12 * (1 + expected));
      if (size == 0) continue;
      x[static_cast<size_t>(size - 1)] = std::numeric_limits<double>::quiet_NaN();
      square_sum(SquareSum<double>{size, x.data(), &got}, Cpu{});
      EXPECT_TRUE(std::isnan(got));
    }
  });
}

}  // namespace
}  // namespace signet::kernels
