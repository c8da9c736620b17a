#include "support/head_loss.h"

#include "signet/autograd/head_loss.h"
#include "signet/kernels/head_loss/head_loss_cases.h"

namespace signet::kernels {
namespace {

using test::HeadLossProblem;

template <class T>
void check(HeadLossProblem problem, bool accumulate, int64_t chunk_rows, double tolerance) {
  SCOPED_TRACE(testing::Message() << problem.rows << " x " << problem.width << " x " << problem.classes
                                  << " by " << chunk_rows);
  const auto x = test::cast<T>(problem.x), weight = test::cast<T>(problem.weight);
  auto dx = test::cast<T>(problem.dx), dweight = test::cast<T>(problem.dweight);
  problem.solve(accumulate);
  std::vector<int32_t> predictions(problem.targets.size(), -7);
  double loss = -1;
  auto p = problem.call(x.data(), weight.data(), dx.data(), dweight.data());
  p.targets = problem.targets.data(), p.predictions = predictions.data(), p.loss_sum = &loss;
  p.accumulate_dx = accumulate, p.chunk_rows = chunk_rows;
  test::GuardedScratch<T> scratch(head_loss_workspace_size(p, Cpu{}));
  p.workspace = scratch.data();
  head_loss(p, Cpu{});
  EXPECT_NEAR(loss, problem.loss, tolerance * (1 + problem.loss));
  EXPECT_LT(test::relative_error(problem.columns_of(dx), problem.columns_of(problem.dx)), tolerance);
  EXPECT_LT(test::relative_error(dweight, problem.dweight), tolerance);
  EXPECT_EQ(predictions, problem.predictions);
  if (problem.rows == 0) return;
  std::fill(dweight.begin(), dweight.end(), std::numeric_limits<T>::quiet_NaN());
  p.accumulate_dweight = false;
  head_loss(p, Cpu{});
  for (auto& v : problem.dweight) v -= test::kAdded;
  EXPECT_LT(test::relative_error(dweight, problem.dweight), tolerance) << "overwritten";
}

TEST(HeadLoss, MatchesTheReferenceInChunksOfAnySize) {
  Rng rng(31);
  for (const auto& [rows, width, classes] :
       {std::array<int64_t, 3>{1, 1, 1}, {0, 5, 3}, {7, 5, 3}, {33, 17, 40}, {5, 8, 3001}}) {
    for (int64_t chunk : {0, 1, 4}) {
      const HeadLossProblem problem(rng, rows, width, classes);
      check<float>(problem, chunk == 4, chunk, 1e-5);
      check<double>(problem, chunk == 4, chunk, 1e-13);
    }
  }
}

TEST(HeadLoss, VocabulariesOfRealModels) {
  Rng rng(32);
  for (const HeadLossCase& each : kHeadLossCases) check<float>({rng, 3, 8, each.classes}, false, 2, 1e-5);
}

TEST(HeadLoss, GradientsAreThoseOfTheLoss) {
  Rng rng(33);
  HeadLossProblem problem(rng, 4, 3, 5);
  auto solved = problem;
  std::fill(solved.dweight.begin(), solved.dweight.end(), 0.0);
  std::fill(solved.dx.begin(), solved.dx.end(), 0.0);
  solved.solve(false);
  const auto value = [&] {
    auto p = problem.call<double, double>(problem.x.data(), problem.weight.data(), nullptr, nullptr);
    double loss = 0;
    p.targets = problem.targets.data(), p.loss_sum = &loss;
    head_loss_reference(p);
    return problem.gradient_scale * loss;
  };
  test::expect_gradient(problem.x, solved.dx, value, "x", 1e-6, 400);
  test::expect_gradient(problem.weight, solved.dweight, value, "weight", 1e-6, 400);
}

// The operator is linear and cross-entropy together, in training and in evaluation.
TEST(HeadLoss, OperatorIsTheHeadFollowedByTheLoss) {
  Rng rng(34);
  const HeadLossProblem problem(rng, 9, 6, 11);
  autograd::LossOptions options;
  options.temperature = 1.5, options.smoothing = 0.1, options.z_loss = 0.05;
  const auto run = [&](bool together, bool recording) {
    Arena arena;
    autograd::Tape tape(arena, DType::kF64, recording);
    auto weight = problem.weight, x = problem.x;
    std::vector<double> dweight(weight.size(), 0.0), dx(x.size(), 0.0), out;
    // Gradients in memory of their own, as parameters have them: those of a tape end with their last use.
    const auto var = [](auto& values, auto& gradient, Shape shape) {
      autograd::Var v;
      v.value = Tensor(values.data(), shape, DType::kF64),
      v.layout = Tensor(gradient.data(), shape, DType::kF64);
      return v;
    };
    const autograd::Var head = var(weight, dweight, {problem.classes, problem.width}),
                        rows = var(x, dx, {problem.rows, problem.width});
    std::vector<int32_t> predictions(problem.targets.size());
    double loss = 0;
    if (together)
      autograd::head_loss(tape, rows, head, problem.targets.data(), 7, &loss, predictions.data(), options);
    else
      autograd::cross_entropy(tape, autograd::linear(tape, rows, head), problem.targets.data(), 7, &loss,
                              predictions.data(), options);
    tape.backward();
    out.push_back(loss);
    for (int32_t p : predictions) out.push_back(p);
    out.insert(out.end(), dweight.begin(), dweight.end());
    if (recording) out.insert(out.end(), dx.begin(), dx.end());
    return out;
  };
  for (bool recording : {false, true})
    EXPECT_LT(test::relative_error(run(true, recording), run(false, recording)), 1e-13);
}

}  // namespace
}  // namespace signet::kernels
