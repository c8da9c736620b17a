#include "signet/train/step_engine.h"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "signet/base/text.h"

namespace signet::train {
namespace {

class CpuStepEngine final : public StepEngine {
 public:
  CpuStepEngine(const models::Model& model, const StepOptions& options, void* weights, Optimizer& optimizer,
                DataParallel* parallel)
      : dtype_(options.dtype),
        weights_(weights),
        optimizer_(optimizer),
        parallel_(parallel),
        batch_gradient_(model, options),
        gradient_(static_cast<size_t>(model.parameters().size() * dtype_size(options.dtype))) {}

  void submit(const tasks::Batch& batch, double lr, int64_t step) override {
    if (result_)
      fail(ErrorCode::kFailure, "step {} was submitted before step {} was collected", step, result_->step);
    StepResult result;
    result.step = step;
    Schedule schedule{lr, static_cast<double>(step - optimizer_.began())};
    const Update update{weights_, gradient_.data(), nullptr, &schedule, &outcome_};
    if (parallel_) {
      const auto losses = batch_gradient_.run(weights_, batch, parallel_->cuts(), step, [&](int segment) {
        parallel_->complete(segment, batch_gradient_, dtype_, gradient_.data());
      });
      parallel_->finish_gradients(batch_gradient_, dtype_, gradient_.data());
      const auto measured = parallel_->measure(losses, optimizer_.squares(gradient_.data()));
      result.batch = measured.loss;
      outcome_.loss_sum = measured.loss.loss, outcome_.square_sum = measured.square_sum;
      optimizer_.move(update);
      parallel_->gather(dtype_, weights_);
    } else {
      result.batch = batch_gradient_.compute(weights_, batch, gradient_.data(), step);
      outcome_.loss_sum = result.batch.loss;
      optimizer_.step(update);
    }
    result.norm = std::sqrt(outcome_.square_sum);
    result.updated = outcome_.stop == 0;
    if (parallel_ && !result.updated) result.bad_rank = parallel_->first_of(!batch_gradient_.finite());
    result_ = result;
  }
  StepResult collect() override {
    if (!result_) fail(ErrorCode::kFailure, "no step is in flight");
    return *std::exchange(result_, std::nullopt);
  }
  int depth() const override { return 1; }
  int in_flight() const override { return result_ ? 1 : 0; }
  void to_host() override {}  // the host buffers are the engine's own
  void from_host() override { outcome_ = {}; }

 private:
  DType dtype_;
  void* weights_;
  Optimizer& optimizer_;
  DataParallel* parallel_;
  BatchGradient batch_gradient_;
  std::vector<char> gradient_;
  Outcome outcome_;
  std::optional<StepResult> result_;
};

}  // namespace

StepMemory step_memory(const Device& device, const models::Model& model, const StepOptions& options,
                       int64_t rows, int64_t time, bool dense, int64_t groups) {
  if (!device.cuda()) return BatchGradient::memory(model, options, rows, time, dense, groups);
#ifdef SIGNET_WITH_CUDA
  return cuda_step_memory(model, options, rows, time, dense);
#else
  fail_without_cuda();
#endif
}

void fail_too_large(int64_t need, int64_t free, int64_t rows, int64_t time) {
  const auto gib = [](int64_t bytes) { return std::ldexp(static_cast<double>(bytes), -30); };
  fail(ErrorCode::kResource,
       "a training step with {} of {} at once needs {:.2f} GiB more, and {:.2f} GiB are free; lower "
       "train.micro_batch or train.batch, shorten the sequences, or set train.recompute=block",
       count_of(rows, "sequence"), count_of(time, "token"), gib(need), gib(free));
}

std::unique_ptr<StepEngine> make_step_engine(const Device& device, const models::Model& model,
                                             const StepOptions& options, void* weights, Optimizer& optimizer,
                                             DataParallel* parallel) {
  if (optimizer.device().kind != device.kind) fail(ErrorCode::kFailure, "the optimizer is on another device");
  if (!device.cuda()) return std::make_unique<CpuStepEngine>(model, options, weights, optimizer, parallel);
#ifdef SIGNET_WITH_CUDA
  if (parallel && parallel->exact())
    fail(ErrorCode::kUsage,
         "train.exact_reduction is for CPUs; on GPUs the same number of ranks gives the "
         "same bits");
  if (options.dtype != DType::kF32)
    fail(ErrorCode::kUsage, "train.dtype={} is for the CPU; the GPU trains in float32",
         dtype_name(options.dtype));
  return make_cuda_step_engine(device, model, options, weights, optimizer, parallel);
#else
  fail_without_cuda();
#endif
}

}  // namespace signet::train
