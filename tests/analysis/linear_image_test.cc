#include "signet/analysis/linear_image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "signet/analysis/components.h"
#include "signet/base/rng.h"

namespace signet::analysis {
namespace {

constexpr int64_t kSize = 5, kPoints = 400;
constexpr int32_t kClasses = 3;

// The label decides two directions; the others wander farther than labels are apart.
void draw(uint64_t seed, std::vector<double>& points, std::vector<int32_t>& labels) {
  Rng rng(seed);
  const double code[kClasses][2] = {{1, 0}, {-1, 1}, {0, -1}};
  for (int64_t p = 0; p < kPoints; ++p) {
    // The last label is rare, and must weigh as much.
    const auto label = static_cast<int32_t>(p % 20 == 0 ? 2 : p % 2);
    const double w[3] = {rng.uniform(-9, 9), rng.uniform(-9, 9), rng.uniform(-9, 9)};
    const double* c = code[label];
    points.insert(points.end(), {c[0] + w[0], c[1] - w[0] + w[1], w[0] + 0.5 * w[1], w[1] - w[2], 2 * w[2]});
    labels.push_back(label);
  }
}

TEST(LinearImage, GathersWhatMattersOutOfPointsThatWander) {
  std::vector<double> points, fresh;
  std::vector<int32_t> labels, expected;
  draw(1, points, labels);
  draw(2, fresh, expected);
  EXPECT_NE(find_components(fresh, kSize).count, kClasses);
  const LinearImage image = fit_image(points, kSize, labels, kClasses);
  std::vector<double> seen;
  for (int64_t p = 0; p < kPoints; ++p) {
    const auto at = image.of(fresh.data() + p * kSize);
    EXPECT_EQ(std::max_element(at.begin(), at.end()) - at.begin(), expected[static_cast<size_t>(p)]);
    seen.insert(seen.end(), at.begin(), at.end());
  }
  const Components found = find_components(seen, image.dim);
  ASSERT_TRUE(found.gathered);
  EXPECT_EQ(found.count, kClasses);
  for (size_t p = 0; p < expected.size(); ++p)
    EXPECT_EQ(found.of_point[p], found.of_point[expected[p] == 2 ? 0 : expected[p] == 1 ? 1 : 2]);
}

// Labels that nothing in the points tells apart stay together, and one that does not occur does no harm.
TEST(LinearImage, InventsNoDifference) {
  Rng rng(3);
  std::vector<double> points;
  std::vector<int32_t> labels;
  for (int64_t p = 0; p < kPoints; ++p) {
    for (int64_t i = 0; i < kSize; ++i) points.push_back(rng.uniform(-1, 1));
    labels.push_back(static_cast<int32_t>(p % 2));
  }
  const LinearImage image = fit_image(points, kSize, labels, kClasses);
  for (int64_t p = 0; p < kPoints; ++p) {
    const auto at = image.of(points.data() + p * kSize);
    EXPECT_LT(std::abs(at[0] - 0.5), 0.4);
    EXPECT_NEAR(at[2], 0, 1e-12);
  }
}

// Known components gather where no point is as near to another centre: also where single linkage sees none.
TEST(LinearImage, LabelledPointsGatherByTheirCentres) {
  std::vector<double> points;
  std::vector<int32_t> labels;
  for (int i = 0; i < 50; ++i)
    for (const int32_t label : {7, 3}) {
      points.push_back(label + (label == 7 ? -1 : 1) * 1.98 * i / 49);
      labels.push_back(label);
    }
  EXPECT_EQ(find_components(points, 1).gathered && find_components(points, 1).count == 2, false);
  const Components found = components_of_labels(points, 1, labels);
  EXPECT_TRUE(found.gathered);
  EXPECT_EQ(found.count, 2);
  EXPECT_NEAR(found.centers[0], 6.01, 1e-9);
  EXPECT_NEAR(found.gap, 2.02, 1e-9);
  EXPECT_NEAR(found.radius, 0.99, 1e-9);
  points[0] = 4.5;  // a state of the first label on the side of the second
  EXPECT_FALSE(components_of_labels(points, 1, labels).gathered);
}

}  // namespace
}  // namespace signet::analysis
