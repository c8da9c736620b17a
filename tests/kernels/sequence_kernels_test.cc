// Attention, the dense recurrence, the PD scan and softmax on the CPU: against fp64, their gradients against
// finite differences, and what makes each of them what it is.
#include "support/sequence_kernels.h"

#include "support/check.h"

namespace signet::kernels {
namespace {

using test::ByReference;
using test::dot;
using test::OnCpu;
using test::Results;

// fp32 and fp64 against the reference, in every instruction set.
template <class Problem>
void compare(const Problem& problem) {
  const Results expected = test::solve(problem, ByReference{});
  test::expect_close(test::solve(problem, OnCpu<float>{}), expected, 1e-5);
  test::expect_close(test::solve(problem, OnCpu<double>{}), expected, 1e-12);
}

TEST(Attention, CpuMatchesReference) {
  test::for_each_isa([] {
    for (const auto& s : test::attention_shapes()) {
      SCOPED_TRACE(testing::Message()
                   << s.batch << " x " << s.time << " x " << s.heads << " x " << s.width << " of " << s.keys);
      compare(test::AttentionProblem(s, 1));
    }
  });
}

// A key that is no number makes every output after it none, also where its block has no other.
TEST(Attention, KeysThatAreNoNumbersShow) {
  test::for_each_isa([] {
    for (const int64_t bad : {1, 64}) {
      AttentionShape shape;
      shape.batch = 1, shape.time = 70, shape.heads = 1, shape.width = 4;
      test::AttentionProblem problem(shape, 2);
      std::fill_n(problem.k.begin(), bad * shape.width, std::numeric_limits<double>::quiet_NaN());
      const auto solved = test::solve(problem, OnCpu<float>{});
      for (const double o : solved.at("o")) EXPECT_TRUE(std::isnan(o)) << bad;
    }
  });
}

TEST(Attention, ReferenceGradients) {
  AttentionShape shape;
  shape.batch = 2, shape.time = 5, shape.heads = 2, shape.width = 4, shape.scale = 0.7,
  shape.rotary_base = 30;
  test::AttentionProblem problem(shape, 2);
  const Results r = test::solve(problem, ByReference{});
  auto loss = [&] { return dot(test::solve(problem, ByReference{}).at("o"), problem.d_o); };
  test::expect_gradient(problem.q, r.at("dq"), loss, "q");
  test::expect_gradient(problem.k, r.at("dk"), loss, "k");
  test::expect_gradient(problem.v, r.at("dv"), loss, "v");
}

// Scores see positions only through their distance. Five keys and values of zero in front add 5 to the
// denominator and nothing else.
TEST(Attention, RotaryPositionsAreRelative) {
  AttentionShape s;
  s.batch = 1, s.time = 1, s.heads = 1, s.width = 8, s.rotary_base = 10000, s.keys = s.capacity = 4;
  const test::AttentionProblem near(s, 3);
  s.keys = s.capacity = 9;
  test::AttentionProblem far(s, 3);
  far.q = near.q, far.k.assign(5 * 8, 0.0), far.v = far.k;
  far.k.insert(far.k.end(), near.k.begin(), near.k.end());
  far.v.insert(far.v.end(), near.v.begin(), near.v.end());
  const Results a = test::solve(near, OnCpu<double>{}), b = test::solve(far, OnCpu<double>{});
  const double here = std::exp(a.at("lse")[0]), there = std::exp(b.at("lse")[0]);
  EXPECT_NEAR(there, here + 5, 1e-12 * there);
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(b.at("o")[i] * there, a.at("o")[i] * here, 1e-12 * there);
}

TEST(DenseRecurrence, CpuMatchesReference) {
  test::for_each_isa([] {
    for (const auto& s : test::dense_shapes()) {
      for (bool stateful : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << s.batch << " x " << s.time << " x " << s.heads << " x " << s.n << stateful);
        compare(test::DenseProblem(s, 1, stateful));
      }
    }
  });
}

TEST(DenseRecurrence, ReferenceGradients) {
  for (bool plus_identity : {false, true}) {
    test::DenseProblem problem({2, 4, 2, 3, 0, plus_identity}, 5, true);
    const Results r = test::solve(problem, ByReference{});
    auto loss = [&] {
      const Results now = test::solve(problem, ByReference{});
      return dot(now.at("h"), problem.d_h) + dot(now.at("final"), problem.d_final);
    };
    test::expect_gradient(problem.a, r.at("da"), loss, "a");
    test::expect_gradient(problem.initial, r.at("d_initial"), loss, "initial");
  }
}

// Products that would overflow or vanish keep their direction, in single precision as in double, and the
// gradient of what reads the direction alone is finite and right.
TEST(DenseRecurrence, ProductsOfAnyLengthKeepTheirDirection) {
  for (double growth : {0.3, 3.0}) {
    SCOPED_TRACE(growth);
    test::LongProduct product(growth);
    auto loss = [&] {
      const auto h = test::solve(product.problem, ByReference{}).at("h");
      return dot(product.w, test::LongProduct::unit(h, test::LongProduct::kTime - 1));
    };
    test::expect_gradient(product.problem.a, product.exact.at("da"), loss, "a", 1e-5, 40);
    test::for_each_isa([&] { product.expect_kept(test::solve(product.problem, OnCpu<float>{})); });
  }
}

// Permutation matrices stay permutation matrices, exactly, for any length.
TEST(DenseRecurrence, PermutationsAreExact) {
  constexpr int64_t kTime = 5000, kN = 5;
  test::DenseProblem problem({1, kTime, 1, kN, 0, false}, 1, false);
  std::fill(problem.a.begin(), problem.a.end(), 0.0);
  std::vector<int64_t> image = {0, 1, 2, 3, 4};
  Rng rng(3);
  for (int64_t t = 0; t < kTime; ++t) {  // a transposition per token
    const auto i = static_cast<int64_t>(rng.below(5)), j = static_cast<int64_t>(rng.below(5));
    for (int64_t k = 0; k < kN; ++k) problem.a[t * 25 + (k == i ? j : k == j ? i : k) * 5 + k] = 1;
    for (auto& x : image) x = x == i ? j : x == j ? i : x;
  }
  const auto last = test::solve(problem, OnCpu<float>{}).at("final");
  for (int64_t k = 0; k < kN; ++k)
    for (int64_t i = 0; i < kN; ++i) EXPECT_EQ(last[i * kN + k], i == image[k] ? 1.0 : 0.0);
}

TEST(PdScan, CpuMatchesReference) {
  test::for_each_isa([] {
    for (const auto& s : test::pd_shapes()) {
      for (bool stateful : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << s.batch << " x " << s.time << " x " << s.heads << " x " << s.width
                     << (s.hard ? " hard" : " soft") << static_cast<int>(s.range) << stateful);
        compare(test::PdProblem(s, 1, stateful));
      }
    }
  });
}

TEST(PdScan, ReferenceGradients) {
  for (const bool hard : {false, true}) {
    for (EigenvalueRange range : {EigenvalueRange::kPositive, EigenvalueRange::kSigned}) {
      test::PdProblem problem({2, 4, 2, 3, hard, range, 0, 0, 0}, 5, true);
      const Results r = test::solve(problem, ByReference{});
      auto loss = [&] {
        const Results now = test::solve(problem, ByReference{});
        return dot(now.at("h"), problem.d_h) + dot(now.at("final"), problem.d_final);
      };
      test::expect_gradient(problem.gate, r.at("d_gate"), loss, "gate");
      test::expect_gradient(problem.b, r.at("db"), loss, "b");
      test::expect_gradient(problem.initial, r.at("d_initial"), loss, "initial");
      if (!hard) test::expect_gradient(problem.choice, r.at("d_choice"), loss, "choice");
    }
  }
}

// A hard choice with gates at their ends moves values about and changes signs, exactly, for any length: the
// state is that of the automaton it encodes.
TEST(PdScan, AHardChoiceIsExact) {
  constexpr int64_t kTime = 3000, kN = 5;
  test::PdProblem problem({1, kTime, 1, kN, true, EigenvalueRange::kSigned, 0, 0, 0}, 7, true);
  std::fill(problem.b.begin(), problem.b.end(), 0.0);
  problem.initial = {0, 0, 1, 0, 0};
  for (auto& g : problem.gate) g = g > 0 ? 40 : -40;
  int64_t state = 2;
  double sign = 1;
  for (int64_t t = 0; t < kTime; ++t) {
    sign *= problem.gate[t * kN + state] > 0 ? 1 : -1;
    const double* column = problem.choice.data() + (t * kN + state) * kN;
    state = std::max_element(column, column + kN) - column;
  }
  const auto last = test::solve(problem, OnCpu<float>{}).at("final");
  for (int64_t i = 0; i < kN; ++i) EXPECT_EQ(last[i], i == state ? sign : 0.0);
}

TEST(Softmax, CpuMatchesReference) {
  test::for_each_isa([] {
    for (const auto& problem : test::softmax_problems()) compare(problem);
  });
}

TEST(Softmax, ReferenceGradients) {
  test::SoftmaxProblem problem(3, 5, 0);
  const Results r = test::solve(problem, ByReference{});
  test::expect_gradient(
      problem.x, r.at("dx"), [&] { return dot(test::solve(problem, ByReference{}).at("y"), problem.dy); },
      "x");
}

TEST(Softmax, LargeInputsDoNotOverflow) {
  test::SoftmaxProblem problem(1, 3, 0);
  problem.x = {1e30, -1e30, 1e30};
  const auto y = test::solve(problem, OnCpu<float>{}).at("y");
  EXPECT_EQ(y, (std::vector<double>{0.5, 0.0, 0.5}));
}

}  // namespace
}  // namespace signet::kernels
