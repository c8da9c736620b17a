// The first two blocks of a preset's model with a small vocabulary, and one training step of it, compared
// with fp64: loss and the gradient of every parameter.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "signet/train/step_engine.h"
#include "support/check.h"

namespace signet::test {

class PresetSlice {
 public:
  PresetSlice(const std::string& preset, int64_t vocabulary, int64_t rows, int64_t time)
      : model_(config_of(preset, vocabulary), vocabulary, vocabulary),
        weights_(static_cast<size_t>(model_.parameters().size())),
        exact_(weights_.size()) {
    model_.parameters().initialize(1, DType::kF32, weights_.data());
    Rng rng(2);
    batch_.rows = rows, batch_.time = time, batch_.dense = true;
    for (int64_t i = 0; i < rows * time; ++i) {
      batch_.tokens.push_back(static_cast<int32_t>(rng.below(static_cast<uint32_t>(vocabulary))));
      batch_.targets.push_back(static_cast<int32_t>(rng.below(static_cast<uint32_t>(vocabulary))));
    }
    batch_.lengths.assign(static_cast<size_t>(rows), static_cast<int32_t>(time));
    batch_.sizes = batch_.lengths;
    std::vector<double> wide(weights_.begin(), weights_.end());
    loss_ = train::BatchGradient(model_, {DType::kF64}).compute(wide.data(), batch_, exact_.data()).loss;
  }

  // The gradient is read from the first moments of an update.
  void expect_step(const Device& device, train::Precision precision, double loss_tolerance,
                   double gradient_tolerance, models::Recompute recompute = models::Recompute::kNone) {
    constexpr double kBeta = 0.5;
    const auto optimizer =
        train::make_optimizer(model_.parameters(), DType::kF32, {.beta1 = kBeta, .beta2 = kBeta}, device);
    train::StepOptions options;
    options.precision = precision, options.recompute = recompute;
    std::vector<float> weights = weights_;
    const auto engine = train::make_step_engine(device, model_, options, weights.data(), *optimizer);
    engine->submit(batch_, 0, 1);
    EXPECT_NEAR(engine->collect().batch.loss, loss_, loss_tolerance * loss_);
    engine->to_host();
    const auto buffers = optimizer->buffers();
    for (size_t i = 0; i < model_.parameters().infos().size(); ++i) {
      const auto& info = model_.parameters().infos()[i];
      const auto* moment = static_cast<const float*>(buffers[i].data);
      std::vector<double> got(moment, moment + info.shape.size());
      for (double& g : got) g /= 1 - kBeta;
      const std::vector<double> expected(exact_.begin() + info.offset,
                                         exact_.begin() + info.offset + info.shape.size());
      EXPECT_LT(relative_error(got, expected), gradient_tolerance) << info.name;
    }
  }

 private:
  static models::ModelConfig config_of(const std::string& preset, int64_t vocabulary) {
    train::ConfigSources sources;
    sources.preset = preset;
    sources.set = {"data.paths=[none]", "data.vocabulary=" + std::to_string(vocabulary), "model.blocks=2"};
    return train::resolve_config(sources).model;
  }

  models::Model model_;
  std::vector<float> weights_;
  tasks::Batch batch_;
  std::vector<double> exact_;
  double loss_ = 0;
};

}  // namespace signet::test
