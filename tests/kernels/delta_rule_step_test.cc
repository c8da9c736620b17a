#include "signet/kernels/delta_rule/delta_rule_step.h"

#include "support/check.h"

namespace signet::kernels {
namespace {

// Random factors of every width against the recurrence in fp64; the padding must stay zero.
template <class Type>
void compare(double accuracy) {
  using Value = typename Type::Value;
  Rng rng(1);
  for (int dk : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33}) {
    for (int factors : {0, 1, 3}) {
      const int width = delta_rule_step_width(dk);
      std::vector<Value> k(width * factors + 1, Value(0)), v(factors + 1), beta(factors + 1),
          state(width, Value(0));
      std::vector<double> expected(dk);
      for (int i = 0; i < dk; ++i) expected[i] = state[i] = Type::round(static_cast<Value>(rng.normal()));
      for (int j = 0; j < factors; ++j) {
        double u = 0;
        v[j] = Type::round(static_cast<Value>(rng.normal()));
        beta[j] = Type::round(static_cast<Value>(rng.uniform(0, 2)));
        for (int i = 0; i < dk; ++i) {
          k[j * width + i] = Type::round(static_cast<Value>(rng.normal() / std::sqrt(dk)));
          u += static_cast<double>(k[j * width + i]) * expected[i];
        }
        for (int i = 0; i < dk; ++i)
          expected[i] += static_cast<double>(k[j * width + i]) * static_cast<double>(beta[j]) *
                         (static_cast<double>(v[j]) - u);
      }
      delta_rule_step<Type>(k.data(), v.data(), beta.data(), factors, width, state.data());
      for (int i = 0; i < dk; ++i) EXPECT_NEAR(static_cast<double>(state[i]), expected[i], accuracy) << dk;
      for (int i = dk; i < width; ++i) EXPECT_EQ(state[i], Value(0));
    }
  }
}

TEST(DeltaRuleStep, FollowsTheRecurrence) {
  compare<Fp64>(1e-13);
  compare<Fp32>(1e-4);
  compare<Fp16>(0.3);
  compare<Bf16>(2.0);
}

// A swap with key e_i - e_j and beta = 1 is exact in every type on integer states.
template <class Type>
void expect_exact_swaps() {
  using Value = typename Type::Value;
  Rng rng(2);
  Value state[8] = {1, 2, 3, 4, 5};
  std::vector<int> expected = {1, 2, 3, 4, 5};
  for (int t = 0; t < 10000; ++t) {
    const int i = static_cast<int>(rng.below(5)), j = (i + 1 + static_cast<int>(rng.below(4))) % 5;
    Value k[8] = {};
    k[i] = 1;
    k[j] = -1;
    const Value v = 0, beta = 1;
    delta_rule_step<Type>(k, &v, &beta, 1, 8, state);
    std::swap(expected[i], expected[j]);
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(state[i], static_cast<Value>(expected[i]));
}

TEST(DeltaRuleStep, SwapsAreExactInEveryType) {
  expect_exact_swaps<Fp64>();
  expect_exact_swaps<Fp32>();
  expect_exact_swaps<Bf16>();
  expect_exact_swaps<Fp16>();
}

// Rounding: to nearest, ties to even, for the types whose values live in float.
TEST(DeltaRuleStep, RoundingFollowsTheStorageTypes) {
  Rng rng(3);
  for (int i = 0; i < 20000; ++i) {
    const float x = static_cast<float>(rng.normal() * std::pow(2.0, rng.uniform(-30, 20)));
    EXPECT_EQ(Bf16::round(x), static_cast<float>(bf16(x)));
    EXPECT_EQ(Fp16::round(x), static_cast<float>(fp16(x)));
  }
  EXPECT_TRUE(std::isnan(Bf16::round(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(Bf16::round(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace signet::kernels
