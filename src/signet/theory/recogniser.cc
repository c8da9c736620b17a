#include "signet/theory/recogniser.h"

#include <fmt/core.h>

#include <algorithm>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/theory/runner.h"

namespace signet::theory {
namespace {

class Compiled final : public Recogniser {
 public:
  Compiled(Network network, NumberType type) : network_(std::move(network)), type_(type) {
    for (size_t l = 0; l < network_.layers.size(); ++l)
      for (size_t b = 0; b < network_.layers[l].blocks.size(); ++b) {
        const Block& block = network_.layers[l].blocks[b];
        parts_.push_back({l, 0, b, block.dim, !is_cell(block.kind)});
      }
    reset(1);
  }
  const std::vector<std::string>& alphabet() const override { return network_.dfa.alphabet; }
  void reset(int64_t rows) override {
    while (static_cast<int64_t>(runners_.size()) < rows) runners_.push_back(make_runner(network_, type_));
    runners_.resize(static_cast<size_t>(rows));
    for (auto& runner : runners_) runner->reset();
  }
  void feed(const int32_t* letters, int64_t count, int32_t* outputs, int32_t* states) override {
    for (size_t row = 0; row < runners_.size(); ++row) {
      const int64_t begin = static_cast<int64_t>(row) * count;
      runners_[row]->feed(letters + begin, count, outputs + begin);
      for (int64_t i = begin; i < begin + count; ++i) {
        const int32_t answer = outputs[i];
        if (states) states[i] = answer < 0 ? -1 : network_.final_state[answer];
        outputs[i] = answer < 0 ? -1 : network_.final_output[answer];
      }
    }
  }
  const std::vector<StatePart>& parts() const override { return parts_; }
  std::vector<double> state(int64_t row) const override {
    std::vector<double> values;
    for (const StatePart& part : parts_) {
      const auto block = runners_[static_cast<size_t>(row)]->block_state(part.layer, part.head);
      values.insert(values.end(), block.begin(), block.end());
    }
    return values;
  }
  void set_state(int64_t row, const std::vector<double>& values) override {
    auto begin = values.begin();
    for (const StatePart& part : parts_) {
      runners_[static_cast<size_t>(row)]->set_block_state(part.layer, part.head, {begin, begin + part.size});
      begin += part.size;
    }
  }
  std::optional<int32_t> empty_output() const override {
    if (mealy()) return std::nullopt;
    return network_.initial_output();
  }
  bool mealy() const override { return network_.dfa.mealy(); }

 private:
  Network network_;
  NumberType type_;
  std::vector<StatePart> parts_;
  std::vector<std::unique_ptr<Runner>> runners_;  // one per word
};

size_t utf8_length(unsigned char first) {
  return first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

std::string StatePart::name() const {
  return fmt::format("layer {} {} {}", layer + 1, tensor == 0 ? "head" : "memory", head + 1);
}

std::unique_ptr<Recogniser> make_recogniser(Network network, NumberType type) {
  return std::make_unique<Compiled>(std::move(network), type);
}

WordReader::WordReader(const std::vector<std::string>& alphabet)
    : alphabet_(alphabet), single_(true), dotted_(false) {
  std::fill(std::begin(by_byte_), std::end(by_byte_), -1);
  for (size_t i = 0; i < alphabet.size(); ++i) {
    const std::string& name = alphabet[i];
    single_ = single_ && !name.empty() && utf8_length(static_cast<unsigned char>(name[0])) == name.size();
    dotted_ = dotted_ || name.find('.') != name.npos;
    if (name.size() == 1) by_byte_[static_cast<unsigned char>(name[0])] = static_cast<int32_t>(i);
  }
}

int32_t WordReader::letter(std::string_view name) const {
  const auto it = std::find(alphabet_.begin(), alphabet_.end(), name);
  if (it == alphabet_.end())
    bad_input(
        "'{}' is no letter of this model; its letters are {}{}", printable(name, 40),
        printable(join({alphabet_.begin(), alphabet_.begin() + std::min<size_t>(alphabet_.size(), 20)}, " ")),
        alphabet_.size() > 20 ? " ..." : "");
  return static_cast<int32_t>(it - alphabet_.begin());
}

void WordReader::read(std::string_view text, std::vector<int32_t>& letters) {
  constexpr size_t kLongestName = 4096;
  for (char c : text) {
    if (single_) {
      if (pending_.empty()) {
        const int32_t direct = by_byte_[static_cast<unsigned char>(c)];
        if (direct >= 0) {
          letters.push_back(direct);
          continue;
        }
        if (is_space(c)) continue;
      }
      pending_.push_back(c);
      if (pending_.size() >= utf8_length(static_cast<unsigned char>(pending_[0]))) finish(letters);
    } else if (is_space(c) || (c == '.' && !dotted_)) {
      finish(letters);
    } else {
      pending_.push_back(c);
      if (pending_.size() > kLongestName) bad_input("a letter's name of more than {} bytes", kLongestName);
    }
  }
}

void WordReader::finish(std::vector<int32_t>& letters) {
  if (pending_.empty()) return;
  letters.push_back(letter(pending_));
  pending_.clear();
}

}  // namespace signet::theory
