// Sequences of which one position is read: the same as all positions with a gradient at that one.
#include <gtest/gtest.h>

#include "signet/kernels/delta_rule/delta_rule.h"
#include "support/rounded.h"

namespace signet::kernels {
namespace {

using test::OnDevice;
using test::Rounded;

template <class T>
void check_one_position() {
  Rng rng(8);
  const DeltaRuleShape shape{5, 21, 3, 32, 32, 1};  // an odd number of heads: two sequences share a warp
  const int64_t rows = shape.batch * shape.time, width = shape.heads * 32;
  std::vector<int32_t> at;
  for (int64_t b = 0; b < shape.batch; ++b)
    at.push_back(static_cast<int32_t>(b * shape.time + (b == 0   ? 0
                                                        : b == 1 ? shape.time - 1
                                                                 : static_cast<int64_t>(rng.below(21)))));
  std::vector<double> gradient(static_cast<size_t>(rows * width), 0.0);
  for (int32_t row : at)
    for (int64_t i = 0; i < width; ++i) gradient[row * width + i] = rng.uniform(-1, 1);
  const Rounded<T> q(rng, rows * width), k(rng, rows * width, 0.2), v(rng, rows * width), d_o(gradient);
  const Rounded<float> beta(rng, rows * shape.heads);
  const OnDevice<int32_t> read(at);
  struct Result {
    std::vector<T> o, dq, dk, dv;
    std::vector<float> dbeta;
  };
  const auto run = [&](const int32_t* only) {
    const auto algorithm = DeltaRuleAlgorithm::kRecurrent;
    const auto size = static_cast<size_t>(rows * width);
    const OnDevice<T> o(size), dq(size), dk(size), dv(size);
    const OnDevice<float> dbeta(static_cast<size_t>(rows * shape.heads)),
        saved(static_cast<size_t>(delta_rule_saved_size<T>(shape, algorithm, Cuda{}))),
        workspace(static_cast<size_t>(delta_rule_workspace_size<T>(shape, algorithm, Cuda{})));
    DeltaRuleInputs<T> in{shape, q.get(), k.get(), v.get(), beta.get()};
    in.scale = 0.5f, in.algorithm = algorithm, in.read = only, in.workspace = workspace.get();
    delta_rule_forward(DeltaRuleForward<T>{in, o.get(), nullptr, saved.get()}, Cuda{});
    delta_rule_backward(
        DeltaRuleBackward<T>{in, saved.get(), d_o.get(), nullptr, dq.get(), dk.get(), dv.get(), dbeta.get()},
        Cuda{});
    return Result{o.values(), dq.values(), dk.values(), dv.values(), dbeta.values()};
  };
  const Result all = run(nullptr), one = run(read.get());
  for (int32_t row : at)
    for (int64_t i = 0; i < width; ++i)
      ASSERT_EQ(test::widen(one.o[row * width + i]), test::widen(all.o[row * width + i]));
  EXPECT_LT(test::relative_error(test::widen(one.dq), test::widen(all.dq)), 1e-6);
  EXPECT_LT(test::relative_error(test::widen(one.dk), test::widen(all.dk)), 1e-6);
  EXPECT_LT(test::relative_error(test::widen(one.dv), test::widen(all.dv)), 1e-6);
  EXPECT_LT(test::relative_error(test::widen(one.dbeta), test::widen(all.dbeta)), 1e-6);
}

TEST(DeltaRuleCuda, OnePositionThatIsRead) {
  SIGNET_NEEDS_GPU();
  check_one_position<float>();
  check_one_position<bf16>();
}

}  // namespace
}  // namespace signet::kernels
