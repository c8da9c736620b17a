#include "signet/train/batch_gradient.h"

#include <algorithm>

#include "signet/autograd/ops.h"
#include "signet/base/thread_pool.h"
#include "signet/models/registry.h"
#include "signet/tasks/registry.h"
#include "support/check.h"
#include "support/dense_task.h"
#include "support/small_run.h"

namespace signet::train {
namespace {

using test::PrefixParity;

struct Threads {
  int before = thread_count();
  ~Threads() { set_thread_count(before); }
};

template <class T>
struct Problem {
  models::Model model;
  std::vector<T> weights;
  tasks::Batch batch;

  Problem(const tasks::Task& task, int64_t rows, tasks::LengthRange lengths,
          const models::ModelConfig& model_config = config("deltanet"))
      : model(model_config, task.vocabulary(), task.classes()), weights(model.parameters().size()) {
    model.parameters().initialize(11, dtype(), weights.data());
    Rng rng(11, 1);
    for (auto& w : weights) w += static_cast<T>(0.2 * rng.normal());
    tasks::make_batch(task, 5, tasks::Split::kTrain, 0, rows, lengths, batch);
  }
  static DType dtype() { return sizeof(T) == 4 ? DType::kF32 : DType::kF64; }
  static models::ModelConfig config(const std::string& architecture) {
    return test::small_config(
               {"model.architecture=" + architecture, "model.blocks=2", "model.conv=4", "model.mlp=12"})
        .model;
  }
  std::vector<T> gradient(BatchLoss* loss = nullptr, autograd::LossOptions options = {},
                          autograd::NoiseOptions noise = {}, int64_t step = 1) {
    BatchGradient compute(model, {dtype(), Precision::kFp32, options, noise});
    auto result = test::poisoned<T>(model.parameters().size());
    const BatchLoss value = compute.compute(weights.data(), batch, result.data(), step);
    if (loss) *loss = value;
    return result;
  }
  // One tape over the whole batch; mean loss.
  std::vector<T> whole(double* loss, const autograd::Noise* noise = nullptr) {
    Arena arena;
    autograd::Context context{dtype(), {}};
    context.noise = noise;
    autograd::Tape tape(arena, arena, context, true);
    std::vector<T> result(weights.size());
    const models::Weights view(model.parameters(), dtype(), weights.data(), result.data());
    std::vector<int32_t> scored;
    for (int64_t r = 0; r < batch.rows; ++r)
      scored.push_back(static_cast<int32_t>(r * batch.time + batch.lengths[r] - 1));
    int64_t count = 0;
    for (int32_t target : batch.targets) count += target >= 0;
    const auto logits = model.forward(tape, view, batch.tokens.data(), {batch.rows, batch.time},
                                      batch.dense ? nullptr : scored.data(),
                                      batch.dense ? batch.rows * batch.time : batch.rows);
    autograd::cross_entropy(tape, logits, batch.targets.data(), count, loss, nullptr);
    *loss /= static_cast<double>(count);
    tape.backward();
    return result;
  }
};

// Sequences that begin within rows are what they are in rows of their own.
TEST(BatchGradient, StartsCarryNothingOver) {
  const PrefixParity task;
  for (const char* architecture : {"deltanet", "gated-deltanet", "mlstm"}) {
    Problem<double> rows(task, 5, {24, 24}, Problem<double>::config(architecture)),
        alone(task, 5, {24, 24}, Problem<double>::config(architecture));
    const int64_t time = rows.batch.time;
    rows.batch.starts = {1, 7, time + 20, 3 * time + 1, 3 * time + 2, 5 * time - 1};
    tasks::Batch& pieces = alone.batch;
    pieces = {};
    pieces.time = time, pieces.dense = true;
    for (int64_t i = 0; i < 5 * time; ++i) {
      const auto& starts = rows.batch.starts;
      if (i % time == 0 || std::find(starts.begin(), starts.end(), i) != starts.end()) {
        ++pieces.rows;
        pieces.tokens.resize(static_cast<size_t>(pieces.rows * time));
        pieces.targets.resize(pieces.tokens.size(), tasks::kNotScored);
        pieces.lengths.push_back(0);
      }
      const int64_t to = (pieces.rows - 1) * time + pieces.lengths.back()++;
      pieces.tokens[to] = rows.batch.tokens[i], pieces.targets[to] = rows.batch.targets[i];
    }
    ASSERT_EQ(pieces.rows, 11);
    BatchLoss together, apart, carried;
    const auto gradient = rows.gradient(&together);
    EXPECT_LT(test::relative_error(gradient, alone.gradient(&apart)), 1e-12) << architecture;
    EXPECT_NEAR(together.loss, apart.loss, 1e-12);
    EXPECT_EQ(together.correct, apart.correct);
    rows.batch.starts.clear();
    rows.gradient(&carried);
    EXPECT_GT(std::abs(carried.loss - together.loss), 1e-6) << architecture;
  }
}

// A group's bits are its own: other ranks may have the rows in which sequences begin.
TEST(BatchGradient, GroupsDoNotChangeWithTheRestOfTheBatch) {
  Problem<float> all(PrefixParity(), 8, {24, 24}), half(PrefixParity(), 8, {24, 24});
  const int64_t time = all.batch.time;
  all.batch.starts = {5, 2 * time + 7};
  tasks::Batch& rows = half.batch;
  rows.rows = 4, rows.first_row = 4, rows.scored_of_all = all.batch.scored();
  for (auto* values : {&rows.tokens, &rows.targets})
    values->erase(values->begin(), values->begin() + 4 * time);
  rows.lengths.erase(rows.lengths.begin(), rows.lengths.begin() + 4);
  const auto gradient = [](Problem<float>& problem, const std::vector<int64_t>& cuts) {
    BatchGradient compute(problem.model, {DType::kF32, Precision::kFp32});
    compute.run(problem.weights.data(), problem.batch, cuts, 1);
    const auto* const values = static_cast<const float*>(compute.gradients()[cuts.size() - 2]);
    return std::vector<float>(values, values + problem.model.parameters().size());
  };
  EXPECT_EQ(gradient(all, {0, 4, 8}), gradient(half, {0, 4}));
}

TEST(BatchGradient, IsTheGradientOfTheWholeBatch) {
  const auto parity = tasks::make_task("parity");
  const PrefixParity dense;
  const tasks::Task* const both[] = {parity.get(), &dense};
  for (const tasks::Task* task : both) {
    for (int64_t rows : {1, 2, 7, 8, 9, 67}) {
      for (tasks::LengthRange lengths : {tasks::LengthRange{2, 2}, {3, 40}, {300, 300}}) {
        if (lengths.max > 100 && rows > 9) continue;
        SCOPED_TRACE(testing::Message() << task->name() << " rows " << rows << " lengths to " << lengths.max);
        Problem<double> problem(*task, rows, lengths);
        BatchLoss loss;
        double expected_loss = 0;
        const auto gradient = problem.gradient(&loss);
        const auto expected = problem.whole(&expected_loss);
        EXPECT_LT(test::relative_error(gradient, expected), 1e-12);
        EXPECT_NEAR(loss.loss, expected_loss, 1e-12);
        EXPECT_LE(loss.correct, loss.scored);
      }
    }
  }
}

// What makes a run the same on a laptop and on a server.
TEST(BatchGradient, SameBitsOnAnyNumberOfThreads) {
  const auto task = tasks::make_task("parity");
  Threads keep;
  for (const std::string& name : models::architecture_names()) {
    auto config = models::ModelConfig::for_architecture(name);
    config.width = 32, config.blocks = 1;
    Problem<float> problem(*task, 19, {3, 24}, config);
    set_thread_count(1);
    BatchLoss first_loss;
    const auto first = problem.gradient(&first_loss);
    for (int threads : {2, 5, 16}) {
      SCOPED_TRACE(testing::Message() << name << ", " << threads << " threads");
      set_thread_count(threads);
      BatchLoss loss;
      EXPECT_TRUE(problem.gradient(&loss) == first);
      EXPECT_EQ(loss.loss, first_loss.loss);
    }
  }
}

TEST(BatchGradient, ABufferOfAnEarlierStepLeavesNoTrace) {
  const auto task = tasks::make_task("parity");
  Problem<float> large(*task, 40, {3, 40});
  Problem<float> small(*task, 3, {3, 9});
  BatchGradient compute(large.model, {DType::kF32});
  auto reused = test::poisoned<float>(large.model.parameters().size());
  compute.compute(large.weights.data(), large.batch, reused.data());
  const int64_t memory = compute.arena_bytes();
  compute.compute(small.weights.data(), small.batch, reused.data());
  EXPECT_EQ(reused, small.gradient());
  compute.compute(large.weights.data(), large.batch, reused.data());
  EXPECT_EQ(reused, large.gradient());
  EXPECT_EQ(compute.arena_bytes(), memory) << "a later step of the same size must not allocate";
}

TEST(BatchGradient, TemperatureDividesTheLogits) {
  const auto task = tasks::make_task("parity");
  Problem<double> problem(*task, 9, {3, 12});
  BatchLoss loss;
  problem.gradient(&loss, {.temperature = 2});
  const auto& head = problem.model.parameters().infos().back();
  ASSERT_EQ(head.name, "head.weight");
  for (int64_t i = 0; i < head.shape.size(); ++i) problem.weights[head.offset + i] /= 2;
  double halved = 0;
  problem.whole(&halved);
  EXPECT_NEAR(loss.loss, halved, 1e-13);
}

// Loss and gradient are linear in the share that is spread.
TEST(BatchGradient, SmoothingMixesTheTargetWithAllClasses) {
  const auto task = tasks::make_task("parity");
  Problem<double> problem(*task, 9, {3, 12});
  BatchLoss certain, even, mixed;
  auto expected = problem.gradient(&certain);
  const auto spread = problem.gradient(&even, {.smoothing = 1});
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = 0.75 * expected[i] + 0.25 * spread[i];
  const auto got = problem.gradient(&mixed, {.smoothing = 0.25});
  EXPECT_GT(std::abs(certain.loss - even.loss), 1e-3);
  EXPECT_NEAR(mixed.loss, 0.75 * certain.loss + 0.25 * even.loss, 1e-13);
  EXPECT_LT(test::relative_error(got, expected), 1e-12);
}

// Rows are those of the whole batch, and gradients pass through.
TEST(BatchGradient, NoiseIsAFunctionOfTheStepThatGradientsPassThrough) {
  const auto parity = tasks::make_task("parity");
  const PrefixParity dense_task;
  const tasks::Task* const both[] = {parity.get(), &dense_task};
  const autograd::NoiseOptions noise{0.3, 5};
  for (const tasks::Task* task : both) {
    for (const std::string architecture : {"deltanet", "gated-deltaproduct"}) {
      SCOPED_TRACE(architecture + " on " + task->name());
      Problem<double> problem(*task, 19, {3, 12}, Problem<double>::config(architecture));
      BatchLoss quiet, loss, other;
      const auto without = problem.gradient(&quiet), gradient = problem.gradient(&loss, {}, noise, 7);
      EXPECT_EQ(problem.gradient(nullptr, {}, noise, 7), gradient);
      EXPECT_EQ(problem.gradient(nullptr, {}, {0, 5}, 7), without);
      problem.gradient(&other, {}, noise, 8);
      EXPECT_GT(std::abs(loss.loss - quiet.loss), 1e-4);
      EXPECT_GT(std::abs(loss.loss - other.loss), 1e-4);
      problem.gradient(&other, {}, {0.3, 6}, 7);
      EXPECT_GT(std::abs(loss.loss - other.loss), 1e-4);
      double expected = 0;
      const autograd::Noise of_batch{noise, 7, nullptr, 0, 0, problem.batch.rows};
      EXPECT_LT(test::relative_error(gradient, problem.whole(&expected, &of_batch)), 1e-12);
      EXPECT_NEAR(loss.loss, expected, 1e-12);
      test::expect_gradient(
          problem.weights, gradient,
          [&] {
            double at = 0;
            problem.whole(&at, &of_batch);
            return at;
          },
          "weights", 1e-6, 40);
    }
  }
}

// Also where it begins within a row, and if it has one token: no two documents have the same noise.
TEST(BatchGradient, NoiseOfADocumentIsThatOfItsPlace) {
  const PrefixParity task;
  const autograd::NoiseOptions noise{0.3, 5};
  Problem<double> rows(task, 3, {12, 12}), part(task, 3, {12, 12});
  const tasks::Batch whole = rows.batch;
  const int64_t time = whole.time;
  rows.batch.starts = {1, 5, time + 3, time + 4, 2 * time + 9};
  rows.batch.first_row = 4;  // of what other ranks have, too
  BatchLoss loss;
  const auto got = rows.gradient(&loss, {}, noise, 7);
  std::vector<double> expected(got.size());
  for (int64_t at = 0, end = 1; at < 3 * time; at = end) {
    for (end = at + 1; end % time != 0 && !std::ranges::count(rows.batch.starts, end);) ++end;
    part.batch.rows = 1, part.batch.time = end - at, part.batch.lengths = {static_cast<int32_t>(end - at)};
    part.batch.tokens.assign(whole.tokens.begin() + at, whole.tokens.begin() + end);
    part.batch.targets.assign(whole.targets.begin() + at, whole.targets.begin() + end);
    const autograd::Noise of_document{noise, 7, nullptr, rows.batch.first_row * time + at};
    double own = 0;
    const auto gradient = part.whole(&own, &of_document);
    int64_t scored = 0;
    for (int64_t i = at; i < end; ++i) scored += whole.targets[i] >= 0;
    for (size_t i = 0; i < expected.size() && scored > 0; ++i)
      expected[i] += gradient[i] * static_cast<double>(scored) / static_cast<double>(loss.scored);
  }
  EXPECT_LT(test::relative_error(got, expected), 1e-12);
}

TEST(BatchGradient, RecomputationChangesNoBit) {
  const auto parity = tasks::make_task("parity");
  const PrefixParity dense;
  for (const auto& architecture : models::architecture_names()) {
    for (const tasks::Task* task :
         {static_cast<const tasks::Task*>(parity.get()), static_cast<const tasks::Task*>(&dense)}) {
      SCOPED_TRACE(architecture + " " + task->name());
      const auto config =
          resolve_config({"", "parity", architecture, {"model.width=32", "model.blocks=3"}}).model;
      Problem<float> problem(*task, 3, {7, 9}, config);
      const auto expected = problem.gradient();
      for (const models::Recompute level : {models::Recompute::kMixer, models::Recompute::kBlock}) {
        BatchGradient compute(problem.model, {.dtype = DType::kF32, .recompute = level});
        for (int repeat = 0; repeat < 2; ++repeat) {
          auto got = test::poisoned<float>(problem.model.parameters().size());
          compute.compute(problem.weights.data(), problem.batch, got.data());
          EXPECT_EQ(got, expected) << "level " << static_cast<int>(level) << " repeat " << repeat;
        }
      }
    }
  }
}

TEST(BatchGradient, MicroBatchesGiveTheGradientOfTheBatch) {
  const PrefixParity dense;
  Problem<double> problem(dense, 37, {5, 12});
  BatchLoss whole;
  const auto expected = problem.gradient(&whole);
  for (int64_t rows : {1, 2, 5, 100}) {
    BatchGradient compute(problem.model, {.dtype = DType::kF64, .micro_batch = rows});
    auto got = test::poisoned<double>(problem.model.parameters().size());
    const BatchLoss loss = compute.compute(problem.weights.data(), problem.batch, got.data());
    EXPECT_NEAR(loss.loss, whole.loss, 1e-12);
    EXPECT_EQ(loss.scored, whole.scored);
    EXPECT_EQ(loss.correct, whole.correct);
    EXPECT_LT(test::relative_error(got, expected), 1e-12) << rows;
  }
}

// A dry pass asks for the same places as a real one.
TEST(BatchGradient, KnowsItsMemoryBeforehand) {
  const PrefixParity dense;
  for (const auto& architecture : models::architecture_names()) {
    for (const auto level : {models::Recompute::kNone, models::Recompute::kBlock}) {
      const auto config =
          resolve_config({"", "parity", architecture, {"model.width=32", "model.blocks=3"}}).model;
      Problem<double> problem(dense, 1, {21, 21}, config);
      const StepOptions options{.dtype = DType::kF64, .recompute = level};
      const StepMemory plan = BatchGradient::memory(problem.model, options, 1, problem.batch.time, true);
      Arena arena, host;
      for (int repeat = 0; repeat < 2; ++repeat) {  // the second time in one block
        arena.reset(), host.reset();
        autograd::Tape tape(arena, host, {DType::kF64, {}}, true);
        std::vector<double> gradient(problem.weights.size());
        const models::Weights view(problem.model.parameters(), DType::kF64, problem.weights.data(),
                                   gradient.data());
        const auto hidden =
            problem.model.hidden(tape, view, problem.batch.tokens.data(), {1, problem.batch.time}, nullptr,
                                 problem.batch.time, nullptr, level);
        EXPECT_EQ(arena.used(), plan.activations) << architecture;
        double loss = 0;
        problem.model.loss(tape, view, hidden, problem.batch.targets.data(), 1, &loss, nullptr);
        tape.backward();
      }
      EXPECT_EQ(arena.peak(), plan.activations + plan.workspaces) << architecture;
      EXPECT_GT(plan.workspaces, 0);
      EXPECT_EQ(plan.gradients, problem.model.parameters().size() * 8);
    }
  }
  Problem<double> problem(dense, 1, {60, 60},
                          test::small_config({"model.blocks=8", "model.mlp=64", "model.width=32"}).model);
  const auto activations = [&](models::Recompute level) {
    return BatchGradient::memory(problem.model, {.dtype = DType::kF64, .recompute = level}, 1, 60, true)
        .activations;
  };
  EXPECT_LT(activations(models::Recompute::kBlock), activations(models::Recompute::kMixer) / 2);
  EXPECT_LT(activations(models::Recompute::kMixer), activations(models::Recompute::kNone) * 3 / 4);
}

// Many classes: the head and its loss are one operator. Its gradient is that of logits and cross-entropy.
TEST(BatchGradient, ManyClassesNeedNoLogits) {
  for (const bool tied : {false, true}) {
    const auto config = resolve_config({"",
                                        "parity",
                                        "deltanet",
                                        {"model.width=16", "model.heads=2", "model.blocks=2",
                                         std::string("model.tie_embeddings=") + (tied ? "true" : "false")}})
                            .model;
    constexpr int64_t kWords = 1500, kTime = 9, kRows = 3;
    const models::Model model(config, kWords, kWords);
    std::vector<double> weights(static_cast<size_t>(model.parameters().size())), expected(weights.size());
    model.parameters().initialize(3, DType::kF64, weights.data());
    tasks::Batch batch;
    batch.rows = kRows, batch.time = kTime, batch.dense = true;
    batch.lengths.assign(kRows, kTime);
    Rng rng(4);
    for (int64_t i = 0; i < kRows * kTime; ++i) {
      batch.tokens.push_back(static_cast<int32_t>(rng.below(kWords)));
      batch.targets.push_back(i % 5 == 0 ? tasks::kNotScored : static_cast<int32_t>(rng.below(kWords)));
    }
    const auto scored = kRows * kTime - (kRows * kTime + 4) / 5;
    Arena arena;
    autograd::Tape tape(arena, DType::kF64, true);
    const models::Weights view(model.parameters(), DType::kF64, weights.data(), expected.data());
    double loss = 0;
    autograd::cross_entropy(
        tape, model.forward(tape, view, batch.tokens.data(), {kRows, kTime}, nullptr, kRows * kTime),
        batch.targets.data(), scored, &loss, nullptr);
    tape.backward();
    std::vector<double> got(weights.size());
    const BatchLoss result = BatchGradient(model, {DType::kF64}).compute(weights.data(), batch, got.data());
    EXPECT_EQ(result.scored, scored);
    EXPECT_NEAR(result.loss, loss / static_cast<double>(scored), 1e-12);
    EXPECT_LT(test::relative_error(got, expected), 1e-12);
    std::vector<float> rounded(weights.begin(), weights.end()), fast(weights.size());
    BatchGradient(model, {DType::kF32}).compute(rounded.data(), batch, fast.data());
    EXPECT_LT(test::relative_error(std::vector<double>(fast.begin(), fast.end()), expected), 1e-5);
  }
}

// Ranks send the gradient of a segment while backward goes on: from its completion on it must stay as it is.
// Rows may hold several sequences.
TEST(BatchGradient, WhatIsCompleteNoLongerChanges) {
  const Threads restore;
  const auto parity = tasks::make_task("parity");
  // Groups of several passes.
  Problem<float> rows(*parity, 21, {3, 200}), pieces(PrefixParity(), 21, {24, 24});
  for (const int64_t row : {0, 7, 19, 20}) {
    pieces.batch.starts.push_back(row * pieces.batch.time + 5);
    pieces.batch.starts.push_back(row * pieces.batch.time + 16);
  }
  for (Problem<float>* const problem : {&rows, &pieces})
    for (const int threads : {1, 3})
      for (const auto recompute : {models::Recompute::kNone, models::Recompute::kBlock}) {
        set_thread_count(threads);
        StepOptions options;
        options.recompute = recompute, options.micro_batch = 2;
        BatchGradient compute(problem->model, options);
        const auto& parameters = problem->model.parameters();
        const auto& begins = parameters.segments();
        ASSERT_EQ(begins.size(), 3u) << "two blocks and the head";
        std::vector<float> seen(problem->weights.size()), gradient(seen);
        std::vector<int> order;
        const auto cuts = BatchGradient::cuts_of(21);
        compute.run(problem->weights.data(), problem->batch, cuts, 1, [&](int segment) {
          order.push_back(segment);
          const auto i = static_cast<size_t>(segment);
          compute.add_up(seen.data(), begins[i], i + 1 < begins.size() ? begins[i + 1] : parameters.size());
        });
        EXPECT_EQ(order, (std::vector<int>{2, 1, 0}));
        compute.add_up(gradient.data());
        EXPECT_EQ(seen, gradient);
      }
}

}  // namespace
}  // namespace signet::train
