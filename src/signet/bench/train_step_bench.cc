// One update of a whole model, as `signet train` makes it: batch, loss, gradient, norm, AdamW. The flops are
// those of the matrix products alone, so that flops / (rate of `signet bench gemm`) is the time they need.
#include <memory>

#include "signet/bench/bench.h"
#include "signet/bench/random.h"
#include "signet/tasks/registry.h"
#include "signet/train/batch_gradient.h"
#include "signet/train/config.h"
#include "signet/train/optimizers/optimizer.h"

namespace signet::bench {
namespace {

constexpr int64_t kBatch = 256, kSize = 40, kTime = kSize - 1;  // the longest training row of parity
constexpr int64_t kStepWidth = 128, kStepMlp = 512, kStepHeads = 4;

class Step {
 public:
  Step()
      : task_(tasks::make_task("parity")),
        model_(train::resolve_config({"", "parity", "deltanet", {"model.mlp=512"}}).model,
               task_->vocabulary(), task_->classes()),
        gradient_(model_, {DType::kF32}),
        optimizer_(train::make_optimizer(model_.parameters(), DType::kF32, {})),
        weights_(static_cast<size_t>(model_.parameters().size())),
        buffer_(weights_.size()) {
    model_.parameters().initialize(1, DType::kF32, weights_.data());
  }

  void run() {
    make_batch(kBatch);
    gradient_.compute(weights_.data(), batch_, buffer_.data());
    train::Schedule schedule{1e-4, static_cast<double>(++step_)};
    train::Outcome outcome;
    optimizer_->step({weights_.data(), buffer_.data(), nullptr, &schedule, &outcome});
  }

  // Of the gradient of a few rows in fp32 against fp64.
  double error() {
    make_batch(16);
    gradient_.compute(weights_.data(), batch_, buffer_.data());
    Values<double> weights = to_double(weights_), expected(weights_.size());
    train::BatchGradient exact(model_, {DType::kF64});
    exact.compute(weights.data(), batch_, expected.data());
    return relative_error(buffer_, expected);
  }

 private:
  void make_batch(int64_t rows) {
    tasks::make_batch(*task_, 1, tasks::Split::kTrain, static_cast<uint64_t>(step_ * kBatch), rows,
                      {kSize, kSize}, batch_);
  }

  std::unique_ptr<tasks::Task> task_;
  models::Model model_;
  train::BatchGradient gradient_;
  std::unique_ptr<train::Optimizer> optimizer_;
  Values<float> weights_, buffer_;
  tasks::Batch batch_;
  int64_t step_ = 0;
};

// Forward, input gradient and weight gradient of: the first block's output projection and MLP and the second
// one's input projection at every row; the second one's output projection and MLP at the scored rows. The
// first projection is made for the vocabulary alone.
double product_flops() {
  const double out_and_mlp = kStepWidth * kStepWidth + 3.0 * kStepMlp * kStepWidth;
  const double projection = kStepWidth * (3.0 * kStepWidth + kStepHeads);
  return 3 * 2.0 * kBatch * (kTime * (out_and_mlp + projection) + out_and_mlp);
}

}  // namespace

std::vector<Case> train_step_cases() {
  return {{"parity, 2 blocks, width 128, batch 256 x 39", [] {
             auto step = std::make_shared<Step>();
             Workload w;
             w.flops = product_flops();
             w.error = [step] { return step->error(); };
             w.tolerance = 1e-4;
             w.run = [step] { step->run(); };
             return w;
           }}};
}

}  // namespace signet::bench
