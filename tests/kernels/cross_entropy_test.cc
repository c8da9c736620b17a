#include "signet/kernels/cross_entropy/cross_entropy.h"

#include "support/check.h"

namespace signet::kernels {
namespace {

TEST(CrossEntropy, CpuMatchesReferenceAndGradients) {
  Rng rng(11);
  for (int64_t classes : {1, 2, 3, 16, 33}) {
    const int64_t rows = 9, stride = classes + 1;
    const double smoothing = classes % 2 == 0 ? 0.0 : 0.125;
    auto logits = test::random_values(rng, rows * stride, 4);
    std::vector<int32_t> targets(rows), predictions(rows, -7);
    for (auto& t : targets) t = static_cast<int32_t>(rng.below(static_cast<uint32_t>(classes + 1))) - 1;
    double loss = 0;
    auto d = test::poisoned<double>(rows * classes);
    cross_entropy_reference({rows, classes, logits.data(), stride, targets.data(), 0.5, 0.8, smoothing,
                             d.data(), classes, predictions.data(), &loss});
    test::for_each_isa([&] {
      const auto x = test::cast<float>(logits);
      auto dt = test::poisoned<float>(rows * classes);
      std::vector<int32_t> got(rows, -7);
      double loss_got = -1;
      cross_entropy(
          CrossEntropy<float>{rows, classes, x.data(), stride, targets.data(), 0.5f, 0.8f,
                              static_cast<float>(smoothing), dt.data(), classes, got.data(), &loss_got},
          Cpu{});
      EXPECT_NEAR(loss_got, loss, 1e-5 * (1 + loss));
      EXPECT_LT(test::relative_error(dt, d), 3e-6);
      EXPECT_EQ(got, predictions);
    });
    auto value = [&] {
      double l = 0;
      cross_entropy_reference({rows, classes, logits.data(), stride, targets.data(), 0.5, 0.8, smoothing,
                               nullptr, 0, nullptr, &l});
      return 0.5 * l;
    };
    std::vector<double> wide(rows * stride, 0.0);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < classes; ++j) wide[r * stride + j] = d[r * classes + j];
    test::expect_gradient(logits, wide, value, "logits", 1e-6, 400);
  }
}

TEST(CrossEntropy, LargeLogitsStayFiniteAndNanIsSeen) {
  const int32_t target = 0;
  for (float big : {1e30f, -1e30f, 88.0f}) {
    const std::vector<float> x = {big, 0.0f, 1.0f};
    std::vector<float> d(3);
    double loss = 0;
    cross_entropy(
        CrossEntropy<float>{1, 3, x.data(), 3, &target, 1.0f, 1.0f, 0.0f, d.data(), 3, nullptr, &loss},
        Cpu{});
    for (float v : d) EXPECT_TRUE(std::isfinite(v));
    EXPECT_FALSE(std::isnan(loss));
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& x : {std::vector{0.0f, nan, 1.0f}, {nan, 0.0f, 1.0f}, {nan, nan, nan}}) {
    double loss = 0;
    int32_t prediction = 0;
    cross_entropy(
        CrossEntropy<float>{1, 3, x.data(), 3, &target, 1.0f, 1.0f, 0.0f, nullptr, 0, &prediction, &loss},
        Cpu{});
    EXPECT_TRUE(std::isnan(loss));
    EXPECT_EQ(prediction, -1);  // not the first class, which may be the answer
  }
}

TEST(CrossEntropy, TheFirstOfEqualLogitsIsPredicted) {
  const std::vector<float> x = {1.0f, 3.0f, 2.0f, 3.0f};
  const int32_t target = 0;
  double loss = 0;
  int32_t prediction = 0;
  cross_entropy(
      CrossEntropy<float>{1, 4, x.data(), 4, &target, 1.0f, 1.0f, 0.0f, nullptr, 0, &prediction, &loss},
      Cpu{});
  EXPECT_EQ(prediction, 1);
}

}  // namespace
}  // namespace signet::kernels
