// The GPU versions of attention, the dense recurrence, the PD scan and softmax against fp64, twice with the
// same bits.
#include "support/cuda.h"
#include "support/sequence_kernels.h"

namespace signet::kernels {
namespace {

struct OnGpu {
  using Number = float;
  using Memory = test::OnDevice<float>;
  static constexpr bool kReference = false;
  Cuda device;
};

// Every input becomes a number of fp32 first.
void round(std::vector<double>& values) {
  for (auto& v : values) v = static_cast<float>(v);
}

template <class Problem>
void compare(const Problem& problem) {
  const auto expected = test::solve(problem, test::ByReference{});
  const auto once = test::solve(problem, OnGpu{});
  test::expect_close(once, expected, 1e-5);
  EXPECT_TRUE(once == test::solve(problem, OnGpu{})) << "two runs differ";
}

TEST(AttentionCuda, MatchesReference) {
  SIGNET_NEEDS_GPU();
  for (const auto& s : test::attention_shapes()) {
    SCOPED_TRACE(testing::Message() << s.batch << " x " << s.time << " x " << s.heads << " x " << s.width
                                    << " of " << s.keys);
    test::AttentionProblem problem(s, 1);
    round(problem.q), round(problem.k), round(problem.v), round(problem.d_o);
    compare(problem);
  }
}

TEST(DenseRecurrenceCuda, MatchesReference) {
  SIGNET_NEEDS_GPU();
  for (const auto& s : test::dense_shapes()) {
    for (bool stateful : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << s.batch << " x " << s.time << " x " << s.heads << " x " << s.n << stateful);
      test::DenseProblem problem(s, 1, stateful);
      round(problem.a), round(problem.initial), round(problem.d_h), round(problem.d_final);
      compare(problem);
    }
  }
}

TEST(DenseRecurrenceCuda, ProductsOfAnyLengthKeepTheirDirection) {
  SIGNET_NEEDS_GPU();
  for (double growth : {0.3, 3.0}) {
    SCOPED_TRACE(growth);
    const test::LongProduct product(growth);
    product.expect_kept(test::solve(product.problem, OnGpu{}));
  }
}

// States that start at the ends of fp32, in blocks of whole and of partly idle warps.
TEST(DenseRecurrenceCuda, StatesFarFromOneComeBack) {
  SIGNET_NEEDS_GPU();
  for (int64_t n : {1, 3, 8, 33}) {
    for (double size : {1e-36, 1e-6, 1e6, 1e36}) {
      SCOPED_TRACE(testing::Message() << n << ", " << size);
      test::DenseProblem problem({2, 9, 2, n, 0, n % 2 == 1}, 6, true);
      for (auto& x : problem.initial) x *= size;
      round(problem.a), round(problem.initial), round(problem.d_h), round(problem.d_final);
      compare(problem);
    }
  }
}

TEST(PdScanCuda, MatchesReference) {
  SIGNET_NEEDS_GPU();
  for (const auto& s : test::pd_shapes()) {
    for (bool stateful : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << s.batch << " x " << s.time << " x " << s.heads << " x " << s.width
                   << (s.hard ? " hard" : " soft") << static_cast<int>(s.range) << stateful);
      compare(test::PdProblem(s, 1, stateful));
    }
  }
}

TEST(SoftmaxCuda, MatchesReference) {
  SIGNET_NEEDS_GPU();
  for (auto problem : test::softmax_problems()) {
    round(problem.x), round(problem.dy);
    compare(problem);
  }
}

}  // namespace
}  // namespace signet::kernels
