#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "signet/train/evaluator.h"
#include "signet/train/results.h"
#include "signet/train/workload.h"

namespace signet::train {
namespace {

using nlohmann::ordered_json;

class TaskWorkload final : public Workload {
 public:
  explicit TaskWorkload(const Run& run)
      : task_(run.task()),
        train_(run.config().train),
        lengths_(run.config().train_lengths(task_)),
        test_lengths_(run.config().eval_lengths(task_)) {}

  void make_batch(int64_t step, const comm::Range& rows, tasks::Batch& out) const override {
    const int64_t epoch = train_.dataset ? train_.dataset / train_.batch : step;  // in batches
    tasks::make_batch(task_, seed(), tasks::Split::kTrain,
                      static_cast<uint64_t>((step - 1) % epoch * train_.batch + rows.begin), rows.size(),
                      train_.lengths_at(step, lengths_), out);
    out.first_row = rows.begin;
  }

  std::string batch_text(const BatchLoss& loss) const override {
    return fmt::format("loss {:.4f}  batch accuracy {:.3f}", loss.loss, share(loss.correct, loss.scored));
  }

  std::optional<Validation> validate(Run& run, const Device& device, const GoOn& go_on) const override {
    const auto evaluation = evaluate(
        run.model(), run.dtype(), run.weights(), task_,
        {seed(), tasks::Split::kValidation, test_lengths_, train_.validate_samples, nullptr, 0, device},
        nullptr, go_on);
    if (evaluation.samples < train_.validate_samples) return std::nullopt;
    const double scored = score(evaluation, task_);
    return Validation{scored, fmt::format("validation {:.3f}", scored),
                      std::make_shared<ordered_json>(evaluation_json(run, evaluation))};
  }

  std::shared_ptr<ordered_json> results(Run& run, const Device& device,
                                        const std::function<void(int64_t)>& progress,
                                        const GoOn& go_on) const override {
    const int64_t samples = run.config().eval.samples;
    const auto evaluation =
        evaluate(run.model(), run.dtype(), run.weights(), task_,
                 {seed(), tasks::Split::kTest, test_lengths_, samples, nullptr, 0, device}, progress, go_on);
    if (evaluation.samples < samples) return nullptr;
    auto result = std::make_shared<ordered_json>(evaluation_json(run, evaluation));
    (*result)["train_lengths"] = {lengths_.min, lengths_.max};
    // Whether a model that fails at the test's lengths has learned its own. A dense task's curve goes through
    // them.
    if (!task_.dense() && lengths_.min < test_lengths_.min) {
      const int64_t some = std::min<int64_t>(samples, 512);
      const auto trained =
          evaluate(run.model(), run.dtype(), run.weights(), task_,
                   {seed(), tasks::Split::kTest, lengths_, some, nullptr, 0, device}, nullptr, go_on);
      if (trained.samples < some) return nullptr;
      (*result)["trained"] = trained_json(run, trained);
    }
    (*result)["chance"] = task_.chance();
    (*result)["spectra"] =
        spectra_json(token_spectra(run.model(), run.dtype(), run.weights(), task_, seed()));
    return result;
  }

 private:
  uint64_t seed() const { return static_cast<uint64_t>(train_.seed); }

  const tasks::Task& task_;
  TrainConfig train_;
  tasks::LengthRange lengths_, test_lengths_;
};

}  // namespace

std::unique_ptr<Workload> make_task_workload(const Run& run) { return std::make_unique<TaskWorkload>(run); }

std::unique_ptr<Workload> make_workload(const Run& run) {
  return run.config().on_text() ? make_text_workload(run) : make_task_workload(run);
}

}  // namespace signet::train
