#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "signet/theory/compile.h"
#include "signet/theory/recogniser.h"

namespace signet::test {

// A network that answers otherwise where several words are read side by side, or has other states there by
// `shift`, as products of several rows round otherwise.
class Shy final : public theory::Recogniser {
 public:
  Shy(const automata::Dfa& alone, const automata::Dfa& beside, double shift = 0)
      : shift_(shift),
        alone_(theory::make_recogniser(theory::compile(alone, {}), NumberType::kFp32)),
        beside_(theory::make_recogniser(theory::compile(beside, {}), NumberType::kFp32)) {}
  const std::vector<std::string>& alphabet() const override { return alone_->alphabet(); }
  void reset(int64_t rows) override {
    now_ = rows == 1 ? alone_.get() : beside_.get();
    now_->reset(rows);
  }
  void feed(const int32_t* letters, int64_t count, int32_t* outputs, int32_t* states) override {
    now_->feed(letters, count, outputs, states);
  }
  const std::vector<theory::StatePart>& parts() const override { return alone_->parts(); }
  std::vector<double> state(int64_t row) const override { return now_->state(row); }
  void set_state(int64_t row, const std::vector<double>& values) override {
    std::vector<double> here = values;
    for (double& x : here) x += now_ == beside_.get() ? shift_ : 0;
    now_->set_state(row, here);
  }
  std::optional<int32_t> empty_output() const override { return std::nullopt; }
  bool mealy() const override { return false; }

 private:
  double shift_;
  std::unique_ptr<theory::Recogniser> alone_, beside_;
  theory::Recogniser* now_ = nullptr;
};

}  // namespace signet::test
