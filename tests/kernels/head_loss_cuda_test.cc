#include "signet/kernels/head_loss/head_loss_cases.h"
#include "support/head_loss.h"
#include "support/rounded.h"

namespace signet::kernels {
namespace {

using test::HeadLossProblem;
using test::OnDevice;
using test::Rounded;

// Gradients of bf16 products are as good as the rounding of their factor, the gradient of the logits.
template <class T>
constexpr double kGradientTolerance = sizeof(T) == 4 ? 3e-5 : 4e-3;

// `padding` rows of the matrix follow the last and take part in the products.
template <class T>
void check(HeadLossProblem problem, bool accumulate, int64_t chunk_rows, int64_t padding) {
  SCOPED_TRACE(testing::Message() << problem.rows << " x " << problem.width << " x " << problem.classes
                                  << " by " << chunk_rows << " with " << padding);
  Rng rng(7);
  const Rounded<T> x(problem.x), dx(problem.dx);
  const int64_t behind = padding * problem.weight_stride;
  auto all = problem.weight;
  for (double v : test::random_values(rng, behind)) all.push_back(v);
  const Rounded<T> weight(all);
  problem.x = x.exact, problem.weight = weight.exact;
  OnDevice<float> dweight(std::vector<float>(all.size(), static_cast<float>(test::kAdded)));
  const OnDevice<int32_t> targets(problem.targets), predictions(problem.targets.size());
  const OnDevice<double> losses(problem.targets.size()), sums(2), count(std::vector<double>{4});
  auto p = problem.call(x.get(), weight.get(), dx.get(), dweight.get());
  p.targets = targets.get(), p.predictions = predictions.get(), p.loss_sum = sums.get();
  p.accumulate_dx = accumulate, p.chunk_rows = chunk_rows;
  p.padded = padding ? problem.classes + padding : 0;
  p.losses = losses.get(), p.correct = sums.get() + 1, p.count = count.get();
  const OnDevice<float> workspace(static_cast<size_t>(head_loss_workspace_size(p, Cuda{})));
  p.workspace = workspace.get();
  head_loss(p, Cuda{});
  problem.gradient_scale /= 4;
  problem.solve(accumulate);
  const auto got = sums.values();
  EXPECT_NEAR(got[0], problem.loss, 1e-5 * (1 + problem.loss));
  double right = 0;
  for (size_t r = 0; r < problem.targets.size(); ++r)
    right += problem.targets[r] >= 0 && problem.targets[r] == problem.predictions[r];
  EXPECT_EQ(got[1], right);
  EXPECT_EQ(predictions.values(), problem.predictions);
  EXPECT_LT(test::relative_error(problem.columns_of(test::widen(dx.device.values())),
                                 problem.columns_of(problem.dx)),
            kGradientTolerance<T>);
  auto got_weight = dweight.values();
  for (size_t i = problem.weight.size() - behind; i < got_weight.size(); ++i)
    EXPECT_EQ(got_weight[i], static_cast<float>(test::kAdded)) << "behind the last class";
  for (int64_t i = 0; i < behind; ++i) problem.dweight.push_back(test::kAdded);
  // What was there before must not hide an error.
  for (auto& v : got_weight) v -= static_cast<float>(test::kAdded);
  for (auto& v : problem.dweight) v -= test::kAdded;
  EXPECT_LT(test::relative_error(got_weight, problem.dweight), kGradientTolerance<T>);
  const OnDevice<float> fresh(std::vector<float>(all.size(), NAN));
  p.dweight = fresh.get(), p.accumulate_dweight = false;
  head_loss(p, Cuda{});
  auto got_fresh = fresh.values();
  got_fresh.resize(problem.weight.size() - behind), problem.dweight.resize(got_fresh.size());
  EXPECT_LT(test::relative_error(got_fresh, problem.dweight), kGradientTolerance<T>) << "overwritten";
}

TEST(HeadLossCuda, MatchesTheReferenceInChunksOfAnySize) {
  SIGNET_NEEDS_GPU();
  Rng rng(31);
  for (const auto& [rows, width, classes] : {std::array<int64_t, 3>{1, 8, 1},
                                             {7, 8, 3},
                                             {33, 24, 40},
                                             {65, 64, 300},
                                             {5, 8, 3001},
                                             {300, 128, 5000}}) {
    for (int64_t chunk : {0, 4, 31}) {
      const HeadLossProblem problem(rng, rows, width, classes);
      check<float>(problem, chunk == 4, chunk, 0);
      check<bf16>(problem, chunk == 4, chunk, chunk == 31 ? 8 - classes % 8 : 0);
    }
  }
}

TEST(HeadLossCuda, VocabulariesOfRealModels) {
  SIGNET_NEEDS_GPU();
  Rng rng(32);
  for (const HeadLossCase& each : kHeadLossCases) {
    const HeadLossProblem problem(rng, 12, 64, each.classes);
    check<float>(problem, false, 5, 0);
    check<bf16>(problem, false, 0, 0);
  }
}

TEST(HeadLossCuda, SameBitsEveryTime) {
  SIGNET_NEEDS_GPU();
  Rng rng(33);
  const HeadLossProblem problem(rng, 700, 256, 32000);
  const Rounded<bf16> x(problem.x), weight(problem.weight);
  const OnDevice<int32_t> targets(problem.targets);
  const auto run = [&] {
    const OnDevice<bf16> dx(problem.dx.size());
    const OnDevice<float> dweight(std::vector<float>(problem.dweight.size(), 0.0f));
    const OnDevice<double> losses(problem.targets.size()), sum(1);
    auto p = problem.call(x.get(), weight.get(), dx.get(), dweight.get());
    p.targets = targets.get(), p.loss_sum = sum.get(), p.losses = losses.get(), p.chunk_rows = 256;
    const OnDevice<float> workspace(static_cast<size_t>(head_loss_workspace_size(p, Cuda{})));
    p.workspace = workspace.get();
    head_loss(p, Cuda{});
    return std::tuple(sum.values(), dweight.values(), test::widen(dx.values()));
  };
  const auto [sum, dweight, dx] = run();
  const auto [sum2, dweight2, dx2] = run();
  EXPECT_EQ(sum, sum2);
  EXPECT_EQ(dweight, dweight2);
  EXPECT_EQ(problem.columns_of(dx), problem.columns_of(dx2));
}

}  // namespace
}  // namespace signet::kernels
