#include "signet/train/optimizers/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "signet/base/thread_pool.h"
#include "signet/kernels/muon/muon.h"
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

// One update on the CPU; returns what it found.
template <class T>
Outcome update(Optimizer& optimizer, std::vector<T>& weights, const std::vector<T>& gradient, double lr,
               int64_t step) {
  Schedule schedule{lr, static_cast<double>(step)};
  Outcome outcome;
  optimizer.step({weights.data(), gradient.data(), nullptr, &schedule, &outcome});
  return outcome;
}

struct Plain {  // the textbook, element by element
  std::vector<double> w, m, v;
};

TEST(Optimizer, IsAdamWWithDecayWhereItApplies) {
  const auto parameters = some_parameters();
  const auto n = static_cast<size_t>(parameters.size());
  const OptimizerOptions options{0.8, 0.95, 1e-6, 0.3, 0};
  const auto optimizer = make_optimizer(parameters, DType::kF64, options);
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
    update(*optimizer, weights, gradient, 0.01, step);
    for (size_t i = 0; i < n; ++i) {
      plain.m[i] = 0.8 * plain.m[i] + 0.2 * gradient[i];
      plain.v[i] = 0.95 * plain.v[i] + 0.05 * gradient[i] * gradient[i];
      const double m = plain.m[i] / (1 - std::pow(0.8, step)), v = plain.v[i] / (1 - std::pow(0.95, step));
      plain.w[i] -= 0.01 * ((decays[i] ? 0.3 : 0.0) * plain.w[i] + m / (std::sqrt(v) + 1e-6));
    }
    EXPECT_LT(test::relative_error(weights, plain.w), 1e-13) << "step " << step;
  }
}

// Under a constant gradient of 1 the second moment goes to 1 - 0.999^steps. Rounded to nearest it would stay
// near 0.34, where a thousandth of what is missing is less than half a unit in the last place.
TEST(Optimizer, MomentsInBf16KeepTheirMean) {
  models::Parameters parameters;
  parameters.add("w", {1501}, models::constant_init(0));
  const auto optimizer = make_optimizer(parameters, DType::kF32, {.narrow_moments = true});
  const auto size = static_cast<size_t>(parameters.size());
  std::vector<float> weights(size), gradient(size, 1.0f);
  constexpr int kSteps = 3000;
  for (int step = 1; step <= kSteps; ++step) update(*optimizer, weights, gradient, 1e-3, step);
  const auto buffers = optimizer->buffers();
  ASSERT_EQ(buffers.size(), 2u);
  EXPECT_EQ(buffers[0].dtype, DType::kBF16);
  const double expected[] = {1, 1 - std::pow(0.999, kSteps)};
  for (int k = 0; k < 2; ++k) {
    const auto* moments = static_cast<const bf16*>(buffers[k].data);
    double mean = 0, square = 0;
    for (size_t i = 0; i < size; ++i) {
      mean += static_cast<float>(moments[i]) / static_cast<double>(size);
      square += std::pow(static_cast<float>(moments[i]), 2) / static_cast<double>(size);
    }
    EXPECT_NEAR(mean, expected[k], 0.004) << k;
    if (k == 1) {  // the first has arrived
      EXPECT_GT(square - mean * mean, 1e-6) << "every place has a number of its own";
    }
  }
  for (float w : weights) EXPECT_NEAR(w, -3, 0.1);
}

TEST(Optimizer, MomentsInBf16AreTheSameBitsOnAnyNumberOfThreads) {
  models::Parameters parameters;
  parameters.add("a", {40001}, models::normal_init(1));
  parameters.add("b", {60003}, models::normal_init(1), /*decay=*/false);
  const int before = thread_count();
  const auto run = [&](int threads) {
    set_thread_count(threads);
    const auto optimizer =
        make_optimizer(parameters, DType::kF32, {.weight_decay = 0.1, .narrow_moments = true});
    std::vector<float> weights(static_cast<size_t>(parameters.size())), gradient(weights.size());
    parameters.initialize(3, DType::kF32, weights.data());
    Rng rng(6);
    for (int64_t step = 1; step <= 3; ++step) {
      for (float& g : gradient) g = static_cast<float>(rng.uniform(-1, 1));
      update(*optimizer, weights, gradient, 1e-2, step);
    }
    return weights;
  };
  const auto one = run(1), three = run(3);
  set_thread_count(before);
  EXPECT_EQ(one, three);
}

// Shards of any number of ranks together make the update of one, to the bit, and keep each number once.
TEST(Optimizer, ShardsMakeTheUpdateOfTheWhole) {
  models::Parameters parameters;
  parameters.add(models::kEmbedding, {300, 17}, models::normal_init(1));
  parameters.add("w", {40, 65}, models::normal_init(1));
  parameters.begin_segment();
  parameters.add("norm", {7}, models::constant_init(1), /*decay=*/false);
  parameters.add("u", {133, 20}, models::normal_init(1));
  parameters.begin_segment();  // of nothing
  const auto n = static_cast<size_t>(parameters.size());
  for (const auto& [name, narrow] : {std::pair("adamw", false), {"adamw", true}, {"muon", false}})
    for (const int ranks : {1, 2, 3, 5}) {
      OptimizerOptions options{.weight_decay = 0.1, .clip = 0.5, .name = name, .narrow_moments = narrow};
      const Sharding sharding = share_parameters(parameters, options, ranks, /*least=*/0);
      ASSERT_EQ(sharding.segments.size(), 3u);
      std::vector<std::unique_ptr<Optimizer>> parts;
      for (int r = 0; r < ranks; ++r) {
        const Shard shard = sharding.of(r);
        parts.push_back(make_optimizer(parameters, DType::kF32, options, {}, &shard));
      }
      int64_t end = 0, blocks = 0;
      for (size_t s = 0; s < 3; ++s) {
        EXPECT_EQ(end, parameters.segments()[s]);
        for (const auto& part : sharding.segments[s]) {
          EXPECT_EQ(part.begin, end);
          end = part.end;
          blocks += Optimizer::blocks_in(parameters, part);
        }
      }
      EXPECT_EQ(end, parameters.size());
      EXPECT_EQ(blocks, Optimizer::blocks_in(parameters, {0, parameters.size()}));
      const auto one = make_optimizer(parameters, DType::kF32, options);
      std::vector<float> weights(n), shared(n), gradient(n);
      parameters.initialize(3, DType::kF32, weights.data());
      shared = weights;
      Rng rng(7, 0);
      for (int64_t step = 1; step <= 3; ++step) {
        for (auto& g : gradient) g = static_cast<float>(rng.normal());
        const Outcome outcome = update(*one, weights, gradient, 0.01, step);
        // In the order of the parameters.
        std::vector<double> squares;
        std::vector<size_t> taken(parts.size());
        for (const auto& segment : sharding.segments)
          for (size_t r = 0; r < parts.size(); ++r)
            for (int64_t i = 0; i < Optimizer::blocks_in(parameters, segment[r]); ++i)
              squares.push_back(parts[r]->squares(gradient.data())[taken[r]++]);
        for (const auto& part : parts) {
          Schedule schedule{0.01, static_cast<double>(step)};
          Outcome found;
          found.square_sum = std::accumulate(squares.begin(), squares.end(), 0.0);
          EXPECT_EQ(found.square_sum, outcome.square_sum);
          part->move({shared.data(), gradient.data(), nullptr, &schedule, &found});
        }
        ASSERT_EQ(shared, weights) << name << " on " << ranks << " ranks, step " << step;
      }
      // What is kept: the parts behind each other are the whole.
      const auto whole = one->buffers();
      for (size_t b = 0; b < whole.size(); ++b) {
        std::vector<char> joined;
        for (const auto& part : parts) {
          const auto buffer = part->buffers()[b];
          EXPECT_EQ(buffer.name, whole[b].name);
          const char* data = static_cast<const char*>(buffer.data);
          EXPECT_TRUE(buffer.bytes() == 0 || buffer.begin_bytes() == static_cast<int64_t>(joined.size()));
          joined.insert(joined.end(), data, data + buffer.bytes());
        }
        ASSERT_EQ(static_cast<int64_t>(joined.size()), whole[b].bytes()) << whole[b].name;
        EXPECT_EQ(std::memcmp(joined.data(), whole[b].data, joined.size()), 0) << whole[b].name;
      }
    }
}

TEST(Optimizer, TwoRanksKeepHalfEach) {
  models::Parameters parameters;
  parameters.add("w", {1000, 333}, models::normal_init(1));
  parameters.add("u", {200, 100}, models::normal_init(1));
  const Sharding sharding = share_parameters(parameters, {}, 2);
  const double whole = static_cast<double>(make_optimizer(parameters, DType::kF32, {})->state_bytes());
  for (const int rank : {0, 1}) {
    const Shard shard = sharding.of(rank);
    const auto half = make_optimizer(parameters, DType::kF32, {}, {}, &shard);
    EXPECT_NEAR(static_cast<double>(half->state_bytes()) / whole, 0.5, 0.005);
  }
}

TEST(Optimizer, OnlyMatricesMayDecay) {
  models::Parameters parameters;
  parameters.add(models::kEmbedding, {4, 3}, models::normal_init(1));
  parameters.add("norm", {3}, models::constant_init(1));
  parameters.add("w", {3, 2}, models::normal_init(1));
  parameters.add("rates", {2, 2}, models::normal_init(1), /*decay=*/false);
  // Without a gradient nothing but the decay moves a weight: 1 becomes 1 - lr decay.
  const auto decays = [&](bool only_matrices) {
    const auto optimizer =
        make_optimizer(parameters, DType::kF64, {.weight_decay = 0.5, .only_matrices = only_matrices});
    std::vector<double> weights(static_cast<size_t>(parameters.size()), 1.0), none(weights.size());
    update(*optimizer, weights, none, 0.5, 1);
    for (double& w : weights) w = (1 - w) / 0.5;
    return weights;
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
  const auto clipping_at = [&](double clip) {
    return make_optimizer(parameters, DType::kF64, {0.9, 0.99, 1.0, 0, clip});
  };
  std::vector<double> a(n, 1.0), b(n, 1.0);
  EXPECT_NEAR(std::sqrt(update(*clipping_at(limit), a, gradient, 0.1, 1).square_sum), norm, 1e-12 * norm);
  update(*clipping_at(0), b, small, 0.1, 1);
  EXPECT_LT(test::relative_error(a, b), 1e-14);
  // Below the limit nothing changes.
  std::vector<double> c(n, 1.0), d(n, 1.0);
  update(*clipping_at(norm * 2), c, gradient, 0.1, 1);
  update(*clipping_at(0), d, gradient, 0.1, 1);
  EXPECT_EQ(c, d);
}

TEST(Optimizer, NothingChangesWhereAnElementOrTheLossIsNotFinite) {
  const auto parameters = some_parameters();
  const auto n = static_cast<size_t>(parameters.size());
  const auto optimizer = make_optimizer(parameters, DType::kF32, {});
  const std::vector<float> start(n, 2.0f), ones(n, 1.0f);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (size_t at = 0; at < n; ++at) {
      auto gradient = ones, weights = start;
      gradient[at] = bad;
      EXPECT_EQ(update(*optimizer, weights, gradient, 0.1, 1).stop, 1) << at;
      EXPECT_EQ(weights, start);
    }
    auto weights = start;
    Schedule schedule{0.1, 1};
    Outcome outcome;
    outcome.loss_sum = bad;
    optimizer->step({weights.data(), ones.data(), nullptr, &schedule, &outcome});
    EXPECT_EQ(weights, start);
    outcome.loss_sum = 1;  // a step after one that stopped changes nothing either
    optimizer->step({weights.data(), ones.data(), nullptr, &schedule, &outcome});
    EXPECT_EQ(weights, start);
  }
  for (const auto& buffer : optimizer->buffers())
    for (int64_t i = 0; i < buffer.shape.size(); ++i) EXPECT_EQ(static_cast<float*>(buffer.data)[i], 0.0f);
}

TEST(Optimizer, KeepsNamedStatesForCheckpoints) {
  const auto parameters = some_parameters();
  const auto optimizer = make_optimizer(parameters, DType::kF64, {});
  std::vector<std::string> names;
  for (const auto& buffer : optimizer->buffers()) names.push_back(buffer.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"m.a", "m.norm", "m.bias", "m.b", "v.a", "v.norm", "v.bias", "v.b"}));
  EXPECT_EQ(optimizer->state_bytes(), 2 * parameters.size() * 8);
  EXPECT_THROW(make_optimizer(parameters, DType::kF64, {.name = "adam"}), Error);
}

// Matrices of both orientations by plain loops, the rest as AdamW does it.
TEST(Optimizer, MuonMakesTheMomentumOfMatricesOrthogonal) {
  models::Parameters parameters;
  parameters.add(models::kEmbedding, {20, 18}, models::normal_init(1));
  parameters.add("wide", {17, 24}, models::normal_init(1));
  parameters.add("gain", {24}, models::constant_init(1), /*decay=*/false);
  parameters.add("tall", {33, 16}, models::normal_init(1));
  parameters.add("taps", {40, 4}, models::normal_init(1));
  parameters.add(models::kHead, {20, 18}, models::normal_init(1));
  const auto n = static_cast<size_t>(parameters.size());
  const OptimizerOptions options{.weight_decay = 0.3, .name = "muon", .momentum = 0.9};
  const auto muon = make_optimizer(parameters, DType::kF64, options),
             adamw = make_optimizer(parameters, DType::kF64, {.weight_decay = 0.3});
  std::vector<double> weights(n), momentum(n);
  parameters.initialize(3, DType::kF64, weights.data());
  auto expected = weights;
  Rng rng(5, 0);
  for (int64_t step = 1; step <= 3; ++step) {
    std::vector<double> gradient(n);
    for (auto& g : gradient) g = rng.normal();
    auto by_adamw = expected;
    update(*adamw, by_adamw, gradient, 0.01, step);
    for (const auto& info : parameters.infos()) {
      const auto at = static_cast<size_t>(info.offset), size = static_cast<size_t>(info.shape.size());
      if (info.name != "wide" && info.name != "tall") {
        std::copy_n(by_adamw.begin() + info.offset, size, expected.begin() + info.offset);
        continue;
      }
      const int64_t rows = info.shape[0], columns = info.shape[1];
      const bool wide = rows <= columns;
      const auto place = [&](int64_t i, int64_t j) {  // of the matrix whose rows are the shorter side
        return wide ? i * columns + j : j * columns + i;
      };
      const int64_t shorter = std::min(rows, columns), longer = std::max(rows, columns);
      std::vector<double> x(size);
      double squares = 0;
      for (int64_t i = 0; i < shorter; ++i)
        for (int64_t j = 0; j < longer; ++j) {
          const size_t from = at + static_cast<size_t>(place(i, j));
          momentum[from] = 0.9 * momentum[from] + gradient[from];
          const double u = gradient[from] + 0.9 * momentum[from];
          x[static_cast<size_t>(i * longer + j)] = u;
          squares += u * u;
        }
      for (double& each : x) each /= std::sqrt(squares) + 1e-7;
      kernels::newton_schulz_reference(shorter, longer, x.data());
      double norm = 0;  // of an orthogonal matrix: the square root of the shorter side
      for (double each : x) norm += each * each;
      EXPECT_NEAR(std::sqrt(norm / static_cast<double>(shorter)), 1, 0.2);
      for (int64_t i = 0; i < shorter; ++i)
        for (int64_t j = 0; j < longer; ++j) {
          double& w = expected[at + static_cast<size_t>(place(i, j))];
          w -= 0.01 * (0.3 * w +
                       0.2 * std::sqrt(static_cast<double>(longer)) * x[static_cast<size_t>(i * longer + j)]);
        }
    }
    update(*muon, weights, gradient, 0.01, step);
    EXPECT_LT(test::relative_error(weights, expected), 1e-11) << "step " << step;
  }
  // Stopped, it changes nothing.
  auto gradient = std::vector<double>(n, 1.0), before = weights;
  gradient[200] = std::numeric_limits<double>::infinity();
  update(*muon, weights, gradient, 0.01, 4);
  EXPECT_EQ(weights, before);
}

}  // namespace
}  // namespace signet::train
