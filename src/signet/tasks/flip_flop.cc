// Flip-flop language modelling, FFL(p) (Liu et al., NeurIPS 2023), with the ids and targets of Sarrof et al.
// (NeurIPS 2024): pairs of an instruction and a bit, beginning with a write. w stores its bit, i (with
// probability p) ignores it, r asks for the stored one: there the input shows '-' and the target is the bit;
// everywhere else the target is '-'. r and w are equally likely.
//
// Ids: 0 pad, 1 and 2 the bits, 3 '-', 4 r, 5 i, 6 w; classes: the two bits, '-'.
#include <memory>

#include "signet/automata/explore.h"
#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/tasks/task.h"

namespace signet::tasks {
namespace {

class FlipFlop final : public Task {
 public:
  FlipFlop(std::string name, double ignore) : name_(std::move(name)), ignore_(ignore) {}

  std::string name() const override { return name_; }
  std::vector<std::string> token_names() const override { return {"pad", "0", "1", "-", "r", "i", "w"}; }
  std::vector<std::string> class_names() const override { return {"0", "1", "-"}; }
  double chance() const override { return 1.0 / 3; }
  bool dense() const override { return true; }
  LengthRange train_lengths() const override { return {512, 512}; }
  LengthRange test_lengths() const override { return {512, 512}; }
  int64_t min_size() const override { return 2; }
  int64_t draw_size(Rng& rng, LengthRange range) const override { return draw_even_size(rng, range); }
  int64_t inputs(int64_t size) const override { return size; }

  void fill(Rng& rng, int64_t size, int32_t* tokens, int32_t* targets) const override {
    int32_t stored = 0;
    for (int64_t i = 0; i + 1 < size; i += 2) {
      const double u = i == 0 ? 1 : rng.uniform();
      const int32_t instruction = u < ignore_ ? kIgnore : u < 0.5 * (1 + ignore_) ? kRead : kWrite;
      const auto bit = static_cast<int32_t>(rng.below(2));
      if (instruction == kWrite) stored = bit;
      tokens[i] = instruction;
      tokens[i + 1] = instruction == kRead ? kHidden : kBit0 + bit;
      targets[i] = kNothing;
      targets[i + 1] = instruction == kRead ? stored : kNothing;
    }
  }
  // State: the instruction whose bit is due, 0 for none, -1 before the first.
  std::optional<automata::Dfa> form() const override {
    const auto step = [this](const auto& state, int32_t letter) -> automata::Transition {
      const int32_t due = state[0], token = kBit0 + letter;
      if (due > 0 ? token >= kRead || (token == kHidden) != (due == kRead)
                  : token < kRead || (due < 0 && token != kWrite) || (token == kIgnore && ignore_ <= 0))
        return {state, kNever};
      return {{due > 0 ? 0 : token}, kDue};
    };
    return automata::explore(letters(), {-1}, step);
  }
  // State: the bit stored, and the instruction whose bit is due, 0 for none.
  std::optional<automata::Dfa> machine() const override {
    const auto step = [](const auto& state, int32_t letter) -> automata::Transition {
      const int32_t stored = state[0], due = state[1], token = kBit0 + letter;
      if (due == 0) return {{stored, token >= kRead ? token : 0}, kNothing};
      if (token >= kRead) return {state, kNothing};
      return {{due == kWrite && token < kHidden ? letter : stored, 0}, due == kRead ? stored : kNothing};
    };
    return automata::explore(letters(), {0, 0}, step);
  }

 private:
  static std::vector<std::string> letters() { return {"0", "1", "-", "r", "i", "w"}; }
  static constexpr int32_t kBit0 = 1, kHidden = 3, kRead = 4, kIgnore = 5, kWrite = 6;
  static constexpr int32_t kNothing = 2;
  std::string name_;
  double ignore_;
};

}  // namespace

// "flip-flop", the published p = 0.8, or "flip-flop:P".
std::unique_ptr<Task> make_flip_flop(std::string_view name) {
  const size_t colon = name.find(':');
  const double ignore = colon == name.npos ? 0.8 : parse_double(name.substr(colon + 1), name);
  if (!(ignore >= 0 && ignore < 1))
    fail(ErrorCode::kUsage, "task {}: the share of ignored pairs must be from 0 to below 1", printable(name));
  return std::make_unique<FlipFlop>(std::string(name), ignore);
}

}  // namespace signet::tasks
