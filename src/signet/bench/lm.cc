#include "signet/bench/lm.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>

#include "signet/base/error.h"
#include "signet/base/rng.h"
#include "signet/base/text.h"
#include "signet/bench/profile.h"
#include "signet/bench/random.h"
#include "signet/train/config.h"
#include "signet/train/step_engine.h"

namespace signet::bench {

using train::Precision;

train::RunConfig lm_config(const LmOptions& options) {
  train::ConfigSources sources;
  sources.preset = options.model + "-" + options.preset;
  sources.set = {"data.paths=[random tokens]",
                 fmt::format("data.vocabulary={}", options.preset == "10m" ? 8192 : 32000),
                 "model.tie_embeddings=false"};
  if (options.micro_batch > 0)
    sources.set.push_back(fmt::format("train.micro_batch={}", options.micro_batch));
  if (!options.recompute.empty()) sources.set.push_back("train.recompute=" + options.recompute);
  sources.set.insert(sources.set.end(), options.set.begin(), options.set.end());
  return train::resolve_config(sources);
}

namespace {

// Tokens of one step, unless a batch is given: for a CPU, as the peers' figures have them, or what fits.
int64_t step_tokens(const std::string& size) { return size == "10m" ? 4096 : size == "1.3b" ? 16384 : 65536; }

// Tokens drawn from the vocabulary; every one is to be predicted by those before it.
tasks::Batch random_batch(uint64_t seed, int64_t vocabulary, int64_t rows, int64_t time) {
  tasks::Batch batch;
  batch.rows = rows, batch.time = time, batch.dense = true;
  Rng rng(seed, 1);
  for (int64_t r = 0; r < rows; ++r) {
    auto last = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocabulary)));
    for (int64_t t = 0; t < time; ++t) {
      batch.tokens.push_back(last);
      last = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocabulary)));
      batch.targets.push_back(last);
    }
  }
  batch.lengths.assign(static_cast<size_t>(rows), static_cast<int32_t>(time));
  batch.sizes = batch.lengths;
  return batch;
}

class LmTraining {
 public:
  LmTraining(const train::RunConfig& config, int64_t vocabulary, const Device& device)
      : device_(device),
        model_(config.model, vocabulary, vocabulary),
        optimizer_(train::make_optimizer(model_.parameters(), DType::kF32,
                                         {.beta2 = 0.95,
                                          .weight_decay = 0.01,
                                          .clip = 1,
                                          .only_matrices = true,
                                          .narrow_moments = config.train.optimizer_options().narrow_moments},
                                         device)),
        weights_(DeviceKind::kCpu, model_.parameters().size() * int64_t{sizeof(float)}) {
    model_.parameters().initialize(1, DType::kF32, weights_.data());
    options_.precision = device.cuda() ? Precision::kBf16 : Precision::kFp32;
    options_.recompute = config.train.recompute_level();
    options_.micro_batch = config.train.micro_batch;
    observe(nullptr);
  }
  // Starts again from the first weights.
  void observe(autograd::Observer* observer) {
    engine_.reset();
    options_.observer = observer;
    engine_ = train::make_step_engine(device_, model_, options_, weights_.data(), *optimizer_);
  }
  train::StepResult step(const tasks::Batch& batch, double lr = 3e-4) {
    engine_->submit(batch, lr, ++step_);
    return engine_->collect();
  }
  // As the trainer does: results are read late. Returns how many there were and the last loss.
  std::pair<int64_t, double> run_for(const tasks::Batch& batch, double seconds) {
    const Clock clock;
    std::pair<int64_t, double> result;
    do {
      while (engine_->in_flight() < engine_->depth()) engine_->submit(batch, 3e-4, ++step_);
      result.second = engine_->collect().batch.loss;
      ++result.first;
    } while (clock.seconds() < seconds || result.first < 3);
    for (; engine_->in_flight() > 0; ++result.first) result.second = engine_->collect().batch.loss;
    return result;
  }
  const models::Model& model() const { return model_; }
  // As they were at the start, where no step has brought others back.
  Values<double> weights() const {
    return {weights_.as<float>(), weights_.as<float>() + model_.parameters().size()};
  }

 private:
  Device device_;
  models::Model model_;
  std::unique_ptr<train::Optimizer> optimizer_;
  DeviceBuffer weights_;
  train::StepOptions options_;
  std::unique_ptr<train::StepEngine> engine_;
  int64_t step_ = 0;
};

// Of the first two blocks on a few tokens.
double slice_error(train::RunConfig config, int64_t vocabulary, int64_t context, const Device& device) {
  config.model.blocks = std::min<int64_t>(config.model.blocks, 2);
  LmTraining fast(config, vocabulary, device);
  const tasks::Batch batch = random_batch(1, vocabulary, 2, std::min<int64_t>(context, 72));
  const Values<double> weights = fast.weights();
  const auto got = fast.step(batch, 0);
  Values<double> gradient(weights.size());
  train::BatchGradient exact(fast.model(), {DType::kF64});
  const auto loss =
      exact.compute(const_cast<double*>(weights.data()), batch, gradient.data());  // reads them only
  const double norm = std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
  return std::max(std::abs(got.batch.loss - loss.loss) / loss.loss, std::abs(got.norm - norm) / norm);
}

double matrix_weights(const models::Model& model) {
  double count = 0;
  for (const auto& info : model.parameters().infos())
    if (info.matrix() || (info.name == models::kEmbedding && model.config().tie_embeddings))
      count += static_cast<double>(info.shape.size());
  return count;
}

}  // namespace

LmReport run_lm(const LmOptions& options, const Device& device) {
  const train::RunConfig config = lm_config(options);
  const int64_t vocabulary = config.data.vocabulary;
  LmReport report;
  report.preset = options.preset, report.model = options.model;
  report.precision = device.cuda() ? "bf16" : "fp32";
  report.context = options.context ? options.context : config.data.context;
  report.batch =
      options.batch ? options.batch : std::max<int64_t>(1, step_tokens(options.preset) / report.context);
  report.micro_batch = config.train.micro_batch, report.recompute = config.train.recompute;
  report.tolerance = device.cuda() ? 2e-2 : 1e-4;
  report.error = slice_error(config, vocabulary, report.context, device);
  report.correct = report.error <= report.tolerance;
  if (!report.correct) return report;

  forget_gpu_peak();
  const tasks::Batch batch = random_batch(2, vocabulary, report.batch, report.context);
  const Clock clock;
  LmTraining training(config, vocabulary, device);
  report.parameters = training.model().parameters().size();
  const auto tokens = static_cast<double>(report.batch * report.context);
  report.matrix_flops = 6 * matrix_weights(training.model()) * tokens;
  report.recurrence_flops =
      training.model().train_flops_per_token(static_cast<double>(report.context)) * tokens -
      report.matrix_flops;
  training.step(batch);
  report.first_step_seconds = clock.seconds();
  report.first_peak_bytes = gpu_memory().peak;
  forget_gpu_peak();
  for (int i = 0; i < 2; ++i) training.step(batch);
  const Clock timed;
  std::tie(report.steps, report.loss) = training.run_for(batch, options.seconds);
  report.step_seconds = timed.seconds() / static_cast<double>(report.steps);
  report.peak_bytes = gpu_memory().peak;

  Profile profile(device);
  training.observe(&profile);
  constexpr int kProfiled = 2;
  training.step(batch);
  profile.clear();
  for (int i = 0; i < kProfiled; ++i) training.step(batch);
  report.operators = profile.operators();
  for (auto& each : report.operators) each.forward /= kProfiled, each.backward /= kProfiled;
  return report;
}

}  // namespace signet::bench
