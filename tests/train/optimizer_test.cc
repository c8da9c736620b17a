#include "signet/train/optimizer.h"

#include <cmath>

#include "support/check.h"

namespace signet::train {
namespace {

// Runs of parameters with and without decay, of odd sizes.
models::Parameters some_parameters() {
  models::Parameters parameters;
  parameters.add("a", {3, 5}, models::normal_init(1));
  parameters.add("norm", {7}, models::constant_init(1), /*decay=*/false);
  parameters.add("bias", {2}, models::constant_init(1), /*decay=*/false);
  parameters.add("b", {13}, models::normal_init(1));
  return parameters;
}

struct Plain {  // the textbook, element by element
  std::vector<double> w, m, v;
};

TEST(Optimizer, IsAdamWWithDecayWhereItApplies) {
  const auto parameters = some_parameters();
  const auto n = static_cast<size_t>(parameters.size());
  const OptimizerOptions options{0.8, 0.95, 1e-6, 0.3, 0};
  Optimizer optimizer(parameters, DType::kF64, options);
  std::vector<double> weights(n);
  parameters.initialize(3, DType::kF64, weights.data());
  Plain plain{weights, std::vector<double>(n), std::vector<double>(n)};
  std::vector<bool> decays(n);
  for (const auto& info : parameters.infos())
    for (int64_t i = 0; i < info.shape.size(); ++i) decays[info.offset + i] = info.decay;
  Rng rng(5, 0);
  for (int64_t step = 1; step <= 4; ++step) {
    std::vector<double> gradient(n);
    for (auto& g : gradient) g = rng.normal();
    optimizer.update(weights.data(), gradient.data(), optimizer.gradient_norm(gradient.data()), 0.01, step);
    for (size_t i = 0; i < n; ++i) {
      plain.m[i] = 0.8 * plain.m[i] + 0.2 * gradient[i];
      plain.v[i] = 0.95 * plain.v[i] + 0.05 * gradient[i] * gradient[i];
      const double m = plain.m[i] / (1 - std::pow(0.8, step)), v = plain.v[i] / (1 - std::pow(0.95, step));
      plain.w[i] -= 0.01 * ((decays[i] ? 0.3 : 0.0) * plain.w[i] + m / (std::sqrt(v) + 1e-6));
    }
    EXPECT_LT(test::relative_error(weights, plain.w), 1e-13) << "step " << step;
  }
}

TEST(Optimizer, OnlyMatricesMayDecay) {
  models::Parameters parameters;
  parameters.add(models::kEmbedding, {4, 3}, models::normal_init(1));
  parameters.add("norm", {3}, models::constant_init(1));
  parameters.add("w", {3, 2}, models::normal_init(1));
  parameters.add("rates", {2, 2}, models::normal_init(1), /*decay=*/false);
  const auto decays = [&](bool only_matrices) {
    std::vector<double> of_element;
    const OptimizerOptions options{.weight_decay = 0.5, .only_matrices = only_matrices};
    const Optimizer optimizer(parameters, DType::kF32, options);
    for (const auto& group : optimizer.groups())
      of_element.insert(of_element.end(), static_cast<size_t>(group.size), group.weight_decay);
    return of_element;
  };
  const auto expected = [](int embedding, int norm) {
    std::vector<double> values(12, 0.5 * embedding);
    values.insert(values.end(), 3, 0.5 * norm);
    values.insert(values.end(), 6, 0.5);
    values.insert(values.end(), 4, 0.0);
    return values;
  };
  EXPECT_EQ(decays(false), expected(1, 1));
  EXPECT_EQ(decays(true), expected(0, 0));
}

TEST(Optimizer, ClippingScalesTheGradientToTheLimit) {
  const auto parameters = some_parameters();
  const auto n = static_cast<size_t>(parameters.size());
  std::vector<double> gradient(n), small(n);
  Rng rng(1, 0);
  for (auto& g : gradient) g = rng.normal();
  double norm = 0;
  for (double g : gradient) norm += g * g;
  norm = std::sqrt(norm);
  const double limit = norm / 8;
  for (size_t i = 0; i < n; ++i) small[i] = gradient[i] * (limit / norm);
  // A large epsilon keeps AdamW from being blind to the gradient's scale.
  Optimizer clipped(parameters, DType::kF64, {0.9, 0.99, 1.0, 0, limit});
  Optimizer unclipped(parameters, DType::kF64, {0.9, 0.99, 1.0, 0, 0});
  EXPECT_NEAR(clipped.gradient_norm(gradient.data()), norm, 1e-12 * norm);
  std::vector<double> a(n, 1.0), b(n, 1.0);
  clipped.update(a.data(), gradient.data(), norm, 0.1, 1);
  unclipped.update(b.data(), small.data(), limit, 0.1, 1);
  EXPECT_LT(test::relative_error(a, b), 1e-14);
  // Below the limit nothing changes.
  std::vector<double> c(n, 1.0), d(n, 1.0);
  Optimizer loose(parameters, DType::kF64, {0.9, 0.99, 1.0, 0, norm * 2});
  Optimizer none(parameters, DType::kF64, {0.9, 0.99, 1.0, 0, 0});
  loose.update(c.data(), gradient.data(), norm, 0.1, 1);
  none.update(d.data(), gradient.data(), norm, 0.1, 1);
  EXPECT_EQ(c, d);
}

TEST(Optimizer, TheNormShowsAnyBadElement) {
  const auto parameters = some_parameters();
  Optimizer optimizer(parameters, DType::kF32, {});
  for (int64_t at = 0; at < parameters.size(); ++at) {
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> gradient(static_cast<size_t>(parameters.size()), 1.0f);
      gradient[at] = bad;
      EXPECT_FALSE(std::isfinite(optimizer.gradient_norm(gradient.data()))) << at;
    }
  }
}

}  // namespace
}  // namespace signet::train
