#include "signet/kernels/noise/noise.h"

#include "support/check.h"

namespace signet::kernels {
namespace {

constexpr int64_t kRows = 200, kWidth = 250;
constexpr double kCount = kRows * kWidth;

// The noise alone.
std::vector<double> noise(const NoiseKey& key, int64_t first_row = 0, int64_t rows = kRows,
                          int64_t width = kWidth) {
  std::vector<double> zero(static_cast<size_t>(rows * width)), y = test::poisoned<double>(rows * width);
  add_noise_reference({rows, width, zero.data(), width, y.data(), width, 1, key, first_row});
  return y;
}

double mean_product(const std::vector<double>& a, const std::vector<double>& b) {
  return test::dot(a, b) / static_cast<double>(a.size());
}

TEST(Noise, IsStandardNormal) {
  auto n = noise({1, 1, 0});
  double moments[5] = {};
  for (double x : n)
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(x, k) / kCount;
  const double sigma = 1 / std::sqrt(kCount);
  EXPECT_NEAR(moments[1], 0, 4 * sigma);
  EXPECT_NEAR(moments[2], 1, 4 * std::sqrt(2.0) * sigma);
  EXPECT_NEAR(moments[3], 0, 4 * std::sqrt(15.0) * sigma);
  EXPECT_NEAR(moments[4], 3, 4 * std::sqrt(96.0) * sigma);
  // Kolmogorov-Smirnov: one sample in a thousand is further off than 1.95 sigma.
  std::sort(n.begin(), n.end());
  double distance = 0;
  for (size_t i = 0; i < n.size(); ++i)
    distance = std::max(distance,
                        std::abs(0.5 * std::erfc(-n[i] / std::sqrt(2.0)) - static_cast<double>(i) / kCount));
  EXPECT_LT(distance, 1.95 * sigma);
}

// Neither the values nor their sizes tell anything about those of another row, column, step, place or seed.
TEST(Noise, IsIndependentUnderEveryPartOfItsKey) {
  const auto n = noise({1, 5, 7});
  const auto shifted = [&](size_t by) {
    auto out = n;
    std::rotate(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(by), out.end());
    return out;
  };
  const std::pair<const char*, std::vector<double>> others[] = {
      {"the next column", shifted(1)},
      {"two columns on", shifted(2)},
      {"four columns on", shifted(4)},
      {"the next row", shifted(kWidth)},
      {"the next step", noise({1, 6, 7})},
      {"2^32 steps on", noise({1, 5 + (int64_t{1} << 32), 7})},
      {"the next place", noise({1, 5, 8})},
      {"the place of a step", noise({1, 7, 5})},
      {"the next seed", noise({2, 5, 7})},
      {"another seed", noise({1 | uint64_t{1} << 40, 5, 7})},
      {"rows of the next place", noise({1, 5, 8}, 1)}};
  const auto square = [](std::vector<double> x) {
    for (double& v : x) v = v * v - 1;
    return x;
  };
  for (const auto& [what, other] : others) {
    EXPECT_LT(std::abs(mean_product(n, other)), 4 / std::sqrt(kCount)) << what;
    EXPECT_LT(std::abs(mean_product(square(n), square(other))), 8 / std::sqrt(kCount)) << what;
  }
}

TEST(Noise, RowsAreThoseOfTheWholeBatch) {
  const auto whole = noise({3, 9, 2}, 0, 12, 7), part = noise({3, 9, 2}, 5, 4, 7);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 5 * 7));
}

TEST(Noise, RowsMayComeInAnyOrder) {
  test::for_each_isa([] {
    const NoiseKey key{3, 9, 2};
    const auto whole = noise(key, 0, 12, 7);
    const std::vector<int32_t> keys{11, 0, 5, 5};
    const std::vector<double> zero(keys.size() * 7);
    auto y = test::poisoned<double>(keys.size() * 7);
    AddNoise<double> p{4, 7, zero.data(), 7, y.data(), 7, 1, key};
    p.keys = keys.data();
    add_noise(p, Cpu{});
    for (size_t r = 0; r < keys.size(); ++r)
      for (size_t c = 0; c < 7; ++c) EXPECT_NEAR(y[r * 7 + c], whole[keys[r] * 7 + c], 1e-12);
  });
}

template <class T>
void check_cpu() {
  Rng rng(8);
  struct Size {
    int64_t rows, width, stride;
  };
  for (const Size& s : {Size{1, 1, 1}, Size{3, 2, 5}, Size{5, 33, 40}, Size{300, 128, 128}, Size{0, 8, 8}}) {
    const NoiseKey key{uint64_t{1} << 61 | 3, (int64_t{1} << 33) + 7, 12};
    auto x = test::cast<T>(test::random_values(rng, s.rows * s.stride));
    const std::vector<double> exact(x.begin(), x.end());
    auto expected = test::poisoned<double>(s.rows * s.width);
    add_noise_reference({s.rows, s.width, exact.data(), s.stride, expected.data(), s.width, 0.7, key, 100});
    AddNoise<T> p{s.rows, s.width, x.data(), s.stride, nullptr, s.stride, T(0.7), key, 100};
    auto y = test::poisoned<T>(s.rows * s.stride);
    p.y = y.data();
    add_noise(p, Cpu{});
    const auto got = test::without_gaps(y, s.width, s.stride);
    EXPECT_LT(test::relative_error(got, expected), test::tolerance<T>());
    p.deviation = 0;
    add_noise(p, Cpu{});
    for (size_t i = 0; i < x.size(); ++i) {
      if (static_cast<int64_t>(i) % s.stride < s.width) {
        EXPECT_EQ(y[i], x[i]);
      }
    }
    p.deviation = T(0.7), p.y = x.data();  // in place
    add_noise(p, Cpu{});
    for (size_t i = 0; i < x.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / s.stride, column = static_cast<int64_t>(i) % s.stride;
      EXPECT_EQ(x[i], column < s.width ? got[static_cast<size_t>(row * s.width + column)] : T(exact[i]));
    }
  }
}

TEST(Noise, CpuMatchesReference) {
  test::for_each_isa([] {
    check_cpu<float>();
    check_cpu<double>();
  });
}

}  // namespace
}  // namespace signet::kernels
