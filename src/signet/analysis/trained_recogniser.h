// A trained model as a recogniser of words: its newest checkpoint through the recurrent form, the state
// carried from piece to piece.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "signet/tensor/arena.h"
#include "signet/theory/recogniser.h"
#include "signet/train/run.h"

namespace signet::analysis {

// Letters are the task's input tokens. A task with two answers accepts with the second: the number of ones is
// odd, the word is in the language. Other tasks have the predicted class as output. Classes that are no
// answer of the task are lost.
class TrainedRecogniser final : public theory::Recogniser {
 public:
  explicit TrainedRecogniser(train::Run run);
  // `directory` as written by signet train.
  static std::unique_ptr<TrainedRecogniser> load(const std::string& directory);

  const std::vector<std::string>& alphabet() const override { return alphabet_; }
  void reset(int64_t rows) override;
  // One word's letters go through the network so many at a time. Where else a word is cut, between calls, the
  // last bits differ.
  static constexpr int64_t kPiece = 256;
  void feed(const int32_t* letters, int64_t count, int32_t* outputs, int32_t* states) override;
  const std::vector<theory::StatePart>& parts() const override { return parts_; }
  std::vector<double> state(int64_t row) const override;
  void set_state(int64_t row, const std::vector<double>& values) override;
  std::vector<std::pair<std::string, double>> probabilities(int64_t row) const override;
  std::optional<int32_t> empty_output() const override { return std::nullopt; }  // no task asks about it
  bool mealy() const override { return !accepts_; }
  std::string output_name(int32_t output) const override { return class_names_[static_cast<size_t>(output)]; }
  std::string state_name(int32_t state) const override { return output_name(state); }  // the class predicted

  train::Run& run() { return run_; }
  // Ids of the letters, and of what every row begins with.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const std::vector<int32_t>& lead() const { return lead_; }
  // What feed() makes of a predicted class.
  int32_t output_of(int32_t predicted) const;

 private:
  void find_lead();
  // Tokens [rows, count] -> predictions_ [rows, count].
  void predict(const int32_t* tokens, int64_t count);
  template <class F>
  void each_part(int64_t row, const F& f) const;

  train::Run run_;
  std::vector<std::string> alphabet_, class_names_;
  std::vector<int32_t> tokens_, lead_, answers_;  // answers are classes
  bool accepts_ = false;                          // with the second of two answers
  std::vector<theory::StatePart> parts_;
  int64_t rows_ = 0;
  std::unique_ptr<models::ModelState> state_;
  Arena arena_;
  std::vector<int32_t> segment_, targets_, predictions_;
  std::vector<double> logits_;  // [rows, classes] at the last token
};

}  // namespace signet::analysis
