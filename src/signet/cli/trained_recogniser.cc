#include "signet/cli/trained_recogniser.h"

#include <algorithm>
#include <optional>

#include "signet/autograd/ops.h"
#include "signet/base/thread_pool.h"
#include "signet/train/run.h"

namespace signet::cli {
namespace {

constexpr int64_t kSegment = 256;  // tokens in memory at a time

class Trained final : public theory::Recogniser {
 public:
  explicit Trained(const std::string& directory) : run_(train::Run::load(directory)) {
    const tasks::Task& task = run_.task();
    const auto names = task.token_names();
    tokens_ = task.input_tokens();
    for (int32_t token : tokens_) alphabet_.push_back(names[static_cast<size_t>(token)]);
    class_names_ = task.class_names();
    answers_ = task.answers();
    const bool states = run_.config().task.automaton.targets == "state";  // the second need not accept
    accepts_ = answers_.size() == 2 && !states;
    find_lead();
    reset();
  }

  const std::vector<std::string>& alphabet() const override { return alphabet_; }
  void reset() override {
    state_ = std::make_unique<models::ModelState>(run_.model(), 1, run_.dtype());
    predict(lead_.data(), static_cast<int64_t>(lead_.size()));
  }
  void feed(const int32_t* letters, int64_t count, int32_t* outputs, int32_t* states) override {
    for (int64_t begin = 0; begin < count; begin += kSegment) {
      const int64_t n = std::min(kSegment, count - begin);
      segment_.clear();
      for (int64_t t = begin; t < begin + n; ++t)
        segment_.push_back(tokens_[static_cast<size_t>(letters[t])]);
      predict(segment_.data(), n);
      for (int64_t t = 0; t < n; ++t) {
        outputs[begin + t] = output_of(predictions_[static_cast<size_t>(t)]);
        if (states) states[begin + t] = predictions_[static_cast<size_t>(t)];
      }
    }
  }
  std::optional<int32_t> empty_output() const override { return std::nullopt; }  // no task asks about it
  bool mealy() const override { return !accepts_; }
  std::string output_name(int32_t output) const override { return class_names_[static_cast<size_t>(output)]; }

 private:
  // What every row begins with, from a sample of the task.
  void find_lead() {
    const tasks::Task& task = run_.task();
    const auto sample =
        tasks::make_sample(task, 1, tasks::Split::kTrain, 0, run_.config().train_lengths(task));
    const int64_t lead = std::max<int64_t>(0, task.inputs(sample.size) - sample.size);
    lead_.assign(sample.tokens.begin(), sample.tokens.begin() + lead);
  }

  int32_t output_of(int32_t predicted) const {
    if (!std::binary_search(answers_.begin(), answers_.end(), predicted)) return -1;
    return accepts_ ? predicted == answers_[1] : predicted;
  }

  void predict(const int32_t* tokens, int64_t count) {
    if (count == 0) return;
    const InPlace here;  // no bit may depend on the number of threads
    arena_.reset();
    autograd::Tape tape(arena_, run_.dtype(), /*recording=*/false);
    const models::Weights weights(run_.model().parameters(), run_.dtype(), run_.weights(), nullptr);
    const autograd::Var logits = run_.model().forward(tape, weights, tokens, autograd::Sequence{1, count},
                                                      nullptr, count, state_.get());
    targets_.assign(static_cast<size_t>(count), 0);
    predictions_.resize(static_cast<size_t>(count));
    double loss = 0;
    autograd::cross_entropy(tape, logits, targets_.data(), count, &loss, predictions_.data());
  }

  train::Run run_;
  std::vector<std::string> alphabet_, class_names_;
  std::vector<int32_t> tokens_, lead_;  // ids of the letters; what every row begins with
  std::vector<int32_t> answers_;        // classes
  bool accepts_ = false;                // with the second of two answers
  std::unique_ptr<models::ModelState> state_;
  Arena arena_;
  std::vector<int32_t> segment_, targets_, predictions_;
};

}  // namespace

std::unique_ptr<theory::Recogniser> load_trained(const std::string& directory) {
  return std::make_unique<Trained>(directory);
}

}  // namespace signet::cli
