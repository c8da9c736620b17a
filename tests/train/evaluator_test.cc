#include "signet/train/evaluator.h"

#include <atomic>
#include <cmath>

#include "signet/autograd/ops.h"
#include "signet/base/thread_pool.h"
#include "signet/tasks/registry.h"
#include "signet/train/state_codebook.h"
#include "support/check.h"
#include "support/small_run.h"
#include "support/temporary_directory.h"

namespace signet::train {
namespace {

struct Subject {
  std::unique_ptr<tasks::Task> task = tasks::make_task("parity");
  models::Model model;
  std::vector<double> weights;

  explicit Subject(const std::string& architecture, const std::vector<std::string>& set, double noise = 0.4)
      : model(resolve_config({"", "parity", architecture, set}).model, task->vocabulary(), task->classes()),
        weights(model.parameters().size()) {
    model.parameters().initialize(2, DType::kF64, weights.data());
    Rng rng(2, 1);
    for (auto& w : weights) w += noise * rng.normal();
  }
  Evaluation evaluate(const EvaluationRequest& request) {
    return train::evaluate(model, DType::kF64, weights.data(), *task, request);
  }
  // The loss of one sample from a single pass over all of it.
  double one_pass(const tasks::Sample& sample, bool* correct) {
    Arena arena;
    autograd::Tape tape(arena, DType::kF64, false);
    const models::Weights view(model.parameters(), DType::kF64, weights.data(), nullptr);
    const auto time = static_cast<int64_t>(sample.tokens.size());
    const auto last = static_cast<int32_t>(time - 1);
    const auto logits = model.forward(tape, view, sample.tokens.data(), {1, time}, &last, 1);
    int32_t prediction = -1;
    double loss = 0;
    autograd::cross_entropy(tape, logits, sample.targets.data(), 1, &loss, &prediction);
    *correct = prediction == sample.targets[0];
    return loss;
  }
};

// Segments of 256 tokens, sequences of different length side by side: the same function as one pass.
TEST(Evaluator, SegmentsAgreeWithOnePass) {
  const struct {
    const char* architecture;
    std::vector<std::string> set;
  } variants[] = {
      {"deltanet", {"model.width=8", "model.heads=2", "model.mlp=6", "model.blocks=2"}},
      {"deltanet", {"model.width=8", "model.heads=1", "model.mlp=0", "model.conv=0", "model.blocks=1"}},
      {"mamba", {"model.width=6", "model.state=4", "model.blocks=2"}},
      {"mamba", {"model.width=6", "model.state=3", "model.eigenvalues=0,1", "model.blocks=1"}},
  };
  for (const auto& variant : variants) {
    for (tasks::LengthRange lengths : {tasks::LengthRange{2, 20}, {250, 264}, {257, 257}, {200, 800}}) {
      SCOPED_TRACE(testing::Message() << variant.architecture << " lengths to " << lengths.max);
      Subject subject(variant.architecture, variant.set);
      const int64_t samples = 11;
      const auto result = subject.evaluate({9, tasks::Split::kTest, lengths, samples});
      double loss = 0;
      std::map<int64_t, LengthAccuracy> by_length;
      for (int64_t i = 0; i < samples; ++i) {
        const auto sample = tasks::make_sample(*subject.task, 9, tasks::Split::kTest, i, lengths);
        bool correct = false;
        loss += subject.one_pass(sample, &correct);
        auto& entry = by_length[sample.size];
        ++entry.samples;
        entry.correct += correct;
      }
      EXPECT_NEAR(result.loss, loss / static_cast<double>(samples), 1e-10);
      EXPECT_EQ(result.samples, samples);
      ASSERT_EQ(result.by_length.size(), by_length.size());
      size_t i = 0;
      for (const auto& [length, entry] : by_length) {
        EXPECT_EQ(result.by_length[i].length, length);
        EXPECT_EQ(result.by_length[i].samples, entry.samples);
        EXPECT_EQ(result.by_length[i].correct, entry.correct);
        ++i;
      }
    }
  }
}

// Where there is a single sample or batch, too: its products are large enough to be cut for the threads.
TEST(Evaluator, SameBitsOnAnyNumberOfThreads) {
  const auto task = tasks::make_task("S5");
  const auto config = resolve_config({"", "S5", "deltanet", {"model.width=128"}});
  const models::Model model(config.model, task->vocabulary(), task->classes());
  std::vector<float> weights(model.parameters().size());
  model.parameters().initialize(2, DType::kF32, weights.data());
  const auto values_of = [&] {
    const auto loss = [&](const EvaluationRequest& request) {
      return evaluate(model, DType::kF32, weights.data(), *task, request).loss;
    };
    const tasks::Split test = tasks::Split::kTest;
    const StateCodebook states(model, DType::kF32, weights.data(), *task, {3, 3}, 1);
    std::vector<double> values = {loss({4, test, {300, 300}, 1}), loss({4, test, {3, 300}, 29}),
                                  loss({4, test, {3, 30}, 2, &states, 1})};
    for (const auto& s : token_spectra(model, DType::kF32, weights.data(), *task, 1))
      values.insert(values.end(), s.values.begin(), s.values.end());
    return values;
  };
  const int before = thread_count();
  set_thread_count(1);
  const auto alone = values_of();
  for (int threads : {3, 7, 16}) {
    set_thread_count(threads);
    const auto values = values_of();
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(values[i], alone[i]) << i;
  }
  set_thread_count(before);
}

// Infinite logits answer nothing, although the first of them is the largest, and the answer of some.
TEST(Evaluator, AnswersWithoutALossAreWrong) {
  constexpr int64_t kWidth = 8;
  Subject subject("deltanet", {"model.width=8", "model.heads=1", "model.blocks=1"});
  for (const auto& info : subject.model.parameters().infos())
    for (int64_t i = 0; i < info.shape.size(); ++i) {
      double& weight = subject.weights[static_cast<size_t>(info.offset + i)];
      if (info.name == "norm.weight") weight = i == 0 ? 1e200 : 0;
      if (info.name == models::kHead) weight = i % kWidth == 0 && i > 0 ? 1e200 : 0;
    }
  const auto result = subject.evaluate({9, tasks::Split::kTest, {2, 20}, 40});
  EXPECT_EQ(result.samples, 40);
  EXPECT_EQ(result.correct, 0);
  EXPECT_TRUE(std::isnan(result.loss));
}

TEST(Evaluator, CountsAddUp) {
  Subject subject("deltanet", {"model.width=8", "model.heads=2", "model.mlp=0"});
  const auto result = subject.evaluate({4, tasks::Split::kTest, {3, 30}, 100});
  int64_t samples = 0, correct = 0, before = 0;
  for (const auto& entry : result.by_length) {
    EXPECT_GT(entry.length, before);
    before = entry.length;
    samples += entry.samples;
    correct += entry.correct;
  }
  EXPECT_EQ(samples, 100);
  EXPECT_EQ(correct, result.correct);
  EXPECT_DOUBLE_EQ(result.accuracy(), static_cast<double>(correct) / 100);
  EXPECT_DOUBLE_EQ(scaled_accuracy(0.5, 0.5), 0);
  EXPECT_DOUBLE_EQ(scaled_accuracy(1, 0.2), 1);
  EXPECT_DOUBLE_EQ(scaled_accuracy(0, 0.5), -1);
}

// Products with a zero make it the most frequent answer: 30.5 % by the recursion of the task's generator. A
// model without weights gives it to everything.
TEST(Evaluator, KnowsWhatOneAnswerToEverythingScores) {
  const auto task = tasks::make_task("modular-arithmetic-brackets");
  const auto config = resolve_config({"", "modular-arithmetic-brackets", "deltanet", {"model.width=8"}});
  const models::Model model(config.model, task->vocabulary(), task->classes());
  std::vector<float> zeros(model.parameters().size());
  const auto e = evaluate(model, DType::kF32, zeros.data(), *task, {1, tasks::Split::kTest, {40, 256}, 4000});
  EXPECT_EQ(task->class_names()[e.commonest], "0");
  EXPECT_NEAR(e.constant.accuracy(), 0.305, 0.02);
  EXPECT_EQ(e.constant.right, e.right);
  EXPECT_EQ(e.constant.correct, e.correct);
}

TEST(Evaluator, SaysEarlyHowFarItIsAndStopsWhenAsked) {
  Subject subject("deltanet", {"model.width=8", "model.heads=2", "model.mlp=0"});
  const EvaluationRequest request{4, tasks::Split::kTest, {3, 300}, 8000};
  std::vector<int64_t> heard;
  const auto listen = [&](int64_t done) { heard.push_back(done); };
  const auto whole =
      evaluate(subject.model, DType::kF64, subject.weights.data(), *subject.task, request, listen);
  EXPECT_EQ(whole.samples, 8000);
  ASSERT_FALSE(heard.empty());
  EXPECT_LE(heard.front(), 1000) << "seconds of silence with a large model";
  EXPECT_TRUE(std::is_sorted(heard.begin(), heard.end()));
  EXPECT_EQ(heard.back(), 8000);

  std::atomic<bool> stop = false;
  const auto cut = evaluate(
      subject.model, DType::kF64, subject.weights.data(), *subject.task, request,
      [&](int64_t done) { stop = stop || done > 4000; }, [&] { return !stop; });
  EXPECT_GT(cut.samples, 0);
  EXPECT_LT(cut.samples, 8000) << "nobody could have stopped it";
}

TEST(Evaluator, LengthsTheTaskLacksAreRefused) {
  Subject subject("deltanet", {"model.width=8", "model.heads=2", "model.mlp=0"});
  EXPECT_TRUE(test::error_of([&] { subject.evaluate({1, tasks::Split::kTest, {1, 1}, 4}); }));
  EXPECT_TRUE(test::error_of([&] { subject.evaluate({1, tasks::Split::kTest, {9, 5}, 4}); }));
}

// The answer is the first class below `turn` and another one from there on; a model of zeros always says the
// first.
class TurningTask final : public tasks::Task {
 public:
  explicit TurningTask(int64_t turn, bool odd = false) : turn_(turn), odd_(odd) {}
  std::string name() const override { return "turning"; }
  std::vector<std::string> token_names() const override { return {"a", "b"}; }
  double chance() const override { return 0.5; }
  void fill(Rng&, int64_t size, int32_t* tokens, int32_t* targets) const override {
    std::fill(tokens, tokens + inputs(size), 1);
    targets[0] = size < turn_ ? 0 : 1;
  }
  int64_t draw_size(Rng&, tasks::LengthRange range) const override {
    return odd_ ? range.max - 1 + range.max % 2 : range.max;
  }

 private:
  int64_t turn_;
  bool odd_;  // whether all sizes are
};

// Dense: every position is scored; the answer is 0 up to `turn` and then 1, which a model of zeros gets wrong
// once, at `turn`, if only that position is.
class DenseTurningTask final : public tasks::Task {
 public:
  explicit DenseTurningTask(int64_t turn, bool odd = false) : turn_(turn), odd_(odd) {}
  std::string name() const override { return "dense-turning"; }
  std::vector<std::string> token_names() const override { return {"a", "b"}; }
  double chance() const override { return 0.5; }
  bool dense() const override { return true; }
  int64_t inputs(int64_t size) const override { return size + 1; }  // one input before the first that counts
  void fill(Rng&, int64_t size, int32_t* tokens, int32_t* targets) const override {
    for (int64_t i = 0; i < inputs(size); ++i) {
      tokens[i] = 1;
      targets[i] = i == turn_ ? 1 : i % 7 == 3 ? tasks::kNotScored : 0;
    }
  }
  int64_t draw_size(Rng& rng, tasks::LengthRange range) const override {
    return odd_ ? range.max - 1 + range.max % 2 : Task::draw_size(rng, range);
  }

 private:
  int64_t turn_;
  bool odd_;  // whether all sizes are
};

// Of two tokens and two classes; with weights of zero it always answers 0.
models::Model smallest_model() {
  const auto config =
      resolve_config({"",
                      "parity",
                      "",
                      {"model.width=2", "model.heads=1", "model.mlp=0", "model.blocks=1", "model.conv=0"}});
  return models::Model(config.model, 2, 2);
}

TEST(Evaluator, DenseAccuraciesAlongTheSequence) {
  const models::Model model = smallest_model();
  std::vector<float> zeros(model.parameters().size());
  const auto e = evaluate(model, DType::kF32, zeros.data(), DenseTurningTask(301),
                          {1, tasks::Split::kTest, {300, 600}, 40});
  EXPECT_EQ(e.samples, 40);
  ASSERT_FALSE(e.by_length.empty());
  int64_t longer = 0;  // samples with a position 301
  for (const auto& entry : e.by_length) {
    if (entry.length == 301) longer = entry.samples;
    const int64_t position = entry.length;
    EXPECT_EQ(entry.sequence_accuracy(), position < 301 ? 1 : 0) << position;
    EXPECT_EQ(entry.scored, position % 7 == 3 ? 0 : entry.samples);
    if (entry.scored) {
      EXPECT_EQ(entry.accuracy(), position == 301 ? 0 : 1) << position;
    }
  }
  EXPECT_EQ(e.by_length.front().length, 1);
  EXPECT_EQ(e.correct, 40 - longer);
  EXPECT_EQ(e.constant.right, e.right) << "0 is the answer to nearly everything";
  EXPECT_EQ(e.constant.correct, e.correct);
  EXPECT_EQ(e.scored - e.right, longer);
  EXPECT_EQ(score(e, DenseTurningTask(0)), e.sequence_accuracy());
  // Far lengths: fewer points, the last one the end.
  const auto far = evaluate(model, DType::kF32, zeros.data(), DenseTurningTask(9000),
                            {1, tasks::Split::kTest, {10000, 10000}, 2});
  EXPECT_LT(far.by_length.size(), 2500u);
  EXPECT_EQ(far.by_length.back().length, 10000);
  EXPECT_EQ(far.by_length.back().sequence_accuracy(), 0);
}

// The first probe that fails, at a doubled length or the longest of training, shows where it began to.
TEST(Horizon, OfADenseTaskIsReadOffOneProbe) {
  const models::Model model = smallest_model();
  std::vector<float> zeros(model.parameters().size());
  for (const auto& [turn, probes] : {std::pair<int64_t, size_t>{5, 2}, {40, 1}, {41, 3}, {500, 6}}) {
    SCOPED_TRACE(turn);
    const auto horizon =
        find_horizon(model, DType::kF32, zeros.data(), DenseTurningTask(turn), 1, 2, 0.9, 4000);
    EXPECT_EQ(horizon.length, turn);
    EXPECT_EQ(horizon.probes.size(), probes);
    EXPECT_EQ(horizon.probes.back().length, turn) << "for pictures";
  }
  const auto far = find_horizon(model, DType::kF32, zeros.data(), DenseTurningTask(9000), 1, 2, 0.9, 20000);
  EXPECT_GE(far.length, 9000);
  EXPECT_LE(far.length, 9000 * 1.02);
}

TEST(Horizon, StopsWhenAsked) {
  const models::Model model = smallest_model();
  std::vector<float> zeros(model.parameters().size());
  std::atomic<int> asked = 0;
  const auto horizon = find_horizon(model, DType::kF32, zeros.data(), TurningTask(1 << 30), 1, 4, 0.9,
                                    1 << 25, nullptr, [&] { return ++asked < 200; });
  EXPECT_TRUE(horizon.stopped);
  EXPECT_FALSE(horizon.reached_limit);
  for (const auto& probe : horizon.probes) EXPECT_EQ(probe.samples, 4) << "no half probe";
}

TEST(Horizon, IsFoundWithinFivePercent) {
  const models::Model model = smallest_model();
  std::vector<float> zeros(model.parameters().size());
  for (int64_t turn : {9, 23, 39, 41, 57, 100, 999, 1280, 5000}) {
    SCOPED_TRACE(turn);
    const auto horizon = find_horizon(model, DType::kF32, zeros.data(), TurningTask(turn), 1, 4, 0.9, 100000);
    EXPECT_FALSE(horizon.reached_limit);
    EXPECT_GE(horizon.length, turn);  // a length that fails
    EXPECT_LE(horizon.length, turn + std::max<int64_t>(1, turn / 20));
    for (const auto& probe : horizon.probes) EXPECT_EQ(probe.accuracy(), probe.length < turn ? 1 : 0);
  }
  const auto beyond = find_horizon(model, DType::kF32, zeros.data(), TurningTask(5000), 1, 4, 0.9, 3000);
  EXPECT_TRUE(beyond.reached_limit);
  EXPECT_EQ(beyond.length, 3000);
  const auto never = find_horizon(model, DType::kF32, zeros.data(), TurningTask(0), 1, 4, 0.9, 3000);
  EXPECT_FALSE(never.reached_limit);
  EXPECT_EQ(never.length, TurningTask(0).min_size()) << "fails at the shortest length";
  EXPECT_LE(never.probes.size(), 7u);
  const auto low = find_horizon(model, DType::kF32, zeros.data(), TurningTask(5000), 1, 4, 0.9, 10);
  EXPECT_EQ(low.length, 10);  // a limit below the training length
}

TEST(Horizon, LengthsAreThoseOfTheSamples) {
  const models::Model model = smallest_model();
  std::vector<float> zeros(model.parameters().size());
  for (int64_t turn : {23, 40, 100}) {
    const auto horizon =
        find_horizon(model, DType::kF32, zeros.data(), TurningTask(turn, true), 1, 4, 0.9, 1000);
    EXPECT_FALSE(horizon.reached_limit);
    EXPECT_EQ(horizon.length % 2, 1) << horizon.length;
    EXPECT_GE(horizon.length, turn);
    for (const auto& probe : horizon.probes) EXPECT_EQ(probe.accuracy(), probe.length < turn ? 1 : 0);
  }
  const auto beyond =
      find_horizon(model, DType::kF32, zeros.data(), TurningTask(5000, true), 1, 4, 0.9, 1000);
  EXPECT_TRUE(beyond.reached_limit);
  EXPECT_EQ(beyond.length, 999);
  // Of a dense task, too, also where the curve has fewer points than the sequence.
  for (int64_t limit : {1000, 5000}) {
    const auto dense =
        find_horizon(model, DType::kF32, zeros.data(), DenseTurningTask(9000, true), 1, 2, 0.9, limit);
    EXPECT_TRUE(dense.reached_limit);
    EXPECT_EQ(dense.length, limit - 1);
    EXPECT_EQ(dense.probes.back().length, limit - 1);
  }
}

TEST(Horizon, EndsWithTheMemoryOfATransformer) {
  const auto config = resolve_config(
      {"",
       "parity",
       "transformer",
       {"model.width=4", "model.heads=1", "model.mlp=0", "model.blocks=1", "model.max_length=300"}});
  const models::Model model(config.model, 2, 2);
  std::vector<float> zeros(model.parameters().size());
  const auto horizon =
      find_horizon(model, DType::kF32, zeros.data(), DenseTurningTask(5000), 1, 2, 0.9, 4000);
  EXPECT_TRUE(horizon.reached_limit);
  EXPECT_EQ(horizon.length, 299) << "one input before the first that counts";
}

// The reported spectra: 1 - beta for DeltaNet, within the range of the model, one entry per head and symbol.
TEST(TokenSpectra, LieInTheRange) {
  for (const char* architecture : {"deltanet", "mamba"}) {
    for (const char* range : {"0,1", "-1,1"}) {
      SCOPED_TRACE(testing::Message() << architecture << " " << range);
      Subject subject(architecture, {"model.width=8", std::string("model.eigenvalues=") + range}, 2);
      const auto spectra =
          token_spectra(subject.model, DType::kF64, subject.weights.data(), *subject.task, 1);
      EXPECT_FALSE(spectra.empty());
      bool negative = false;
      for (const auto& s : spectra) {
        EXPECT_TRUE(s.token == "0" || s.token == "1") << s.token;
        for (double value : s.values) {
          EXPECT_LE(std::abs(value), 1);
          negative = negative || value < 0;
        }
      }
      EXPECT_EQ(negative, std::string(range) == "-1,1");
    }
  }
}

// 120 letters with 2 x 64 x 16 states each are more than are kept: fewer of each letter, of every block and
// of every state.
TEST(TokenSpectra, ManyValuesAreThinned) {
  const auto task = tasks::make_task("S5");
  const auto config = resolve_config({"", "S5", "mamba", {"model.width=32", "model.blocks=2"}});
  const models::Model model(config.model, task->vocabulary(), task->classes());
  std::vector<float> weights(model.parameters().size());
  model.parameters().initialize(2, DType::kF32, weights.data());
  const auto spectra = token_spectra(model, DType::kF32, weights.data(), *task, 1);
  std::set<std::pair<size_t, std::string>> seen;
  size_t values = 0;
  for (const auto& s : spectra) {
    values += s.values.size();
    EXPECT_GE(s.values.size(), 16u);
    seen.insert({s.block, s.token});
  }
  EXPECT_LE(values, static_cast<size_t>(kMostSpectrumValues + 2 * 120));
  EXPECT_GT(values, static_cast<size_t>(kMostSpectrumValues / 4));
  EXPECT_GT(seen.size(), 2 * 100u);
}

}  // namespace
}  // namespace signet::train
