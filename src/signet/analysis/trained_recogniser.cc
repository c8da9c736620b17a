#include "signet/analysis/trained_recogniser.h"

#include <algorithm>
#include <cmath>

#include "signet/autograd/ops.h"
#include "signet/base/thread_pool.h"

namespace signet::analysis {

TrainedRecogniser::TrainedRecogniser(train::Run run) : run_(std::move(run)) {
  const tasks::Task& task = run_.task();
  const auto names = task.token_names();
  find_lead();
  for (int32_t token : task.input_tokens())
    if (std::find(lead_.begin(), lead_.end(), token) == lead_.end()) tokens_.push_back(token);
  for (int32_t token : tokens_) alphabet_.push_back(names[static_cast<size_t>(token)]);
  class_names_ = task.class_names();
  answers_ = task.answers();
  const bool states = run_.config().task.automaton.targets == "state";  // the second need not accept
  accepts_ = answers_.size() == 2 && !states;
  for (size_t b = 0; b < run_.model().blocks(); ++b) {
    const auto& mixer = run_.model().mixer(b);
    const auto shapes = mixer.state_shapes(1);
    for (size_t t = 0; t < shapes.size(); ++t) {
      const int64_t heads = shapes[t].rank() > 2 ? shapes[t][1] : 1;
      if (shapes[t].size() == 0) continue;
      for (int64_t h = 0; h < heads; ++h)
        parts_.push_back({b, t, static_cast<size_t>(h), shapes[t].size() / heads, mixer.linear(),
                          t == 0 && mixer.reads_direction()});
    }
  }
  reset(1);
}

std::unique_ptr<TrainedRecogniser> TrainedRecogniser::load(const std::string& directory) {
  return std::make_unique<TrainedRecogniser>(train::Run::load(directory));
}

void TrainedRecogniser::reset(int64_t rows) {
  rows_ = rows;
  state_ = std::make_unique<models::ModelState>(run_.model(), rows, run_.dtype());
  const models::Weights weights(run_.model().parameters(), run_.dtype(), run_.weights(), nullptr);
  state_->started = true;  // here, so that state() and set_state() hold before the first letter, too
  for (size_t b = 0; b < run_.model().blocks(); ++b)
    run_.model().mixer(b).start(weights, state_->block(b), Device{});
  segment_.clear();
  for (int64_t row = 0; row < rows; ++row) segment_.insert(segment_.end(), lead_.begin(), lead_.end());
  predict(segment_.data(), static_cast<int64_t>(lead_.size()));
}

void TrainedRecogniser::feed(const int32_t* letters, int64_t count, int32_t* outputs, int32_t* states) {
  constexpr int64_t kTokens = 1 << 14;  // in memory at a time
  const int64_t piece = std::max<int64_t>(1, std::min(kPiece, kTokens / rows_));
  for (int64_t begin = 0; begin < count; begin += piece) {
    const int64_t n = std::min(piece, count - begin);
    segment_.clear();
    for (int64_t row = 0; row < rows_; ++row)
      for (int64_t t = begin; t < begin + n; ++t)
        segment_.push_back(tokens_[static_cast<size_t>(letters[row * count + t])]);
    predict(segment_.data(), n);
    for (int64_t row = 0; row < rows_; ++row)
      for (int64_t t = 0; t < n; ++t) {
        const int32_t predicted = predictions_[static_cast<size_t>(row * n + t)];
        outputs[row * count + begin + t] = output_of(predicted);
        if (states) states[row * count + begin + t] = predicted;
      }
  }
}

template <class F>
void TrainedRecogniser::each_part(int64_t row, const F& f) const {
  for (const auto& part : parts_) {
    const Tensor& tensor = state_->block(part.layer)[part.tensor];
    const int64_t of_row = tensor.size() / rows_;
    with_dtype(tensor.dtype, [&](auto type) {
      f(tensor.as<decltype(type)>() + row * of_row + static_cast<int64_t>(part.head) * part.size, part.size);
    });
  }
}

std::vector<double> TrainedRecogniser::state(int64_t row) const {
  std::vector<double> values;
  each_part(row, [&](const auto* x, int64_t size) { values.insert(values.end(), x, x + size); });
  return values;
}

void TrainedRecogniser::set_state(int64_t row, const std::vector<double>& values) {
  size_t at = 0;
  each_part(row, [&](auto* x, int64_t size) {
    for (int64_t i = 0; i < size; ++i) x[i] = static_cast<std::decay_t<decltype(*x)>>(values[at++]);
  });
}

std::vector<std::pair<std::string, double>> TrainedRecogniser::probabilities(int64_t row) const {
  std::vector<std::pair<std::string, double>> result;
  const auto classes = static_cast<int64_t>(class_names_.size());
  if (static_cast<int64_t>(logits_.size()) != rows_ * classes) return result;
  const double* x = logits_.data() + row * classes;
  const double most = *std::max_element(x, x + classes);
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) sum += std::exp(x[c] - most);
  for (int64_t c = 0; c < classes; ++c)
    result.emplace_back(class_names_[static_cast<size_t>(c)], std::exp(x[c] - most) / sum);
  return result;
}

// From a sample of the task.
void TrainedRecogniser::find_lead() {
  const tasks::Task& task = run_.task();
  const auto sample = tasks::make_sample(task, 1, tasks::Split::kTrain, 0, run_.config().train_lengths(task));
  const int64_t lead = std::max<int64_t>(0, task.inputs(sample.size) - sample.size);
  lead_.assign(sample.tokens.begin(), sample.tokens.begin() + lead);
}

int32_t TrainedRecogniser::output_of(int32_t predicted) const {
  if (!std::binary_search(answers_.begin(), answers_.end(), predicted)) return -1;
  return accepts_ ? predicted == answers_[1] : predicted;
}

void TrainedRecogniser::predict(const int32_t* tokens, int64_t count) {
  if (count == 0) return;
  const InPlace here;  // no bit may depend on the number of threads
  arena_.reset();
  autograd::Tape tape(arena_, run_.dtype(), /*recording=*/false);
  const models::Weights weights(run_.model().parameters(), run_.dtype(), run_.weights(), nullptr);
  const int64_t all = rows_ * count;
  const autograd::Var logits = run_.model().forward(tape, weights, tokens, autograd::Sequence{rows_, count},
                                                    nullptr, all, state_.get());
  targets_.assign(static_cast<size_t>(all), 0);
  predictions_.resize(static_cast<size_t>(all));
  const int64_t classes = logits.value.shape[1];
  logits_.clear();
  with_dtype(run_.dtype(), [&](auto type) {
    for (int64_t row = 0; row < rows_; ++row) {
      const auto* last = logits.value.as<decltype(type)>() + (row * count + count - 1) * classes;
      logits_.insert(logits_.end(), last, last + classes);
    }
  });
  double loss = 0;
  autograd::cross_entropy(tape, logits, targets_.data(), all, &loss, predictions_.data());
}

}  // namespace signet::analysis
