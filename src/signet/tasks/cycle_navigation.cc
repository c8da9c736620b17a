// Steps on a cycle from position 0 (Deletang et al., ICLR 2023, with the row format and the cycle of 6 of
// Beck et al., NeurIPS 2024; `cycle-navigation:5` is the cycle of the former). Ids: 0 pad, 1 stay, 2 step +1,
// 3 step -1, from 4 on the positions; the position is due on the last step.
#include <memory>

#include "signet/automata/explore.h"
#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/tasks/task.h"

namespace signet::tasks {
namespace {

class CycleNavigation final : public Task {
 public:
  CycleNavigation(std::string name, int32_t positions) : name_(std::move(name)), positions_(positions) {}

  std::string name() const override { return name_; }
  std::vector<std::string> token_names() const override {
    std::vector<std::string> names = {"pad", "stay", "+1", "-1"};
    for (int32_t i = 0; i < positions_; ++i) names.push_back("at " + std::to_string(i));
    return names;
  }
  std::vector<int32_t> input_tokens() const override { return {1, 2, 3}; }
  std::vector<int32_t> answers() const override { return ids(kFirstPosition, positions_); }
  double chance() const override { return 1.0 / positions_; }
  void fill(Rng& rng, int64_t size, int32_t* tokens, int32_t* targets) const override {
    const int32_t move[] = {0, 1, positions_ - 1};
    int64_t position = 0;
    for (int64_t i = 0; i < inputs(size); ++i) {
      const uint32_t step = rng.below(3);
      tokens[i] = kFirstStep + static_cast<int32_t>(step);
      position += move[step];
    }
    targets[0] = kFirstPosition + static_cast<int32_t>(position % positions_);
  }
  std::optional<automata::Dfa> form() const override { return every_word({"stay", "+1", "-1"}); }
  std::optional<automata::Dfa> machine() const override {
    const auto step = [this](const auto& state, int32_t letter) -> automata::Transition {
      const int32_t move[] = {0, 1, positions_ - 1};
      const int32_t position = (state[0] + move[letter]) % positions_;
      return {{position}, kFirstPosition + position};
    };
    return automata::explore({"stay", "+1", "-1"}, {0}, step);
  }

 private:
  static constexpr int32_t kFirstStep = 1, kFirstPosition = 4;
  std::string name_;
  int32_t positions_;
};

}  // namespace

// "cycle-navigation", or "cycle-navigation:N" for another cycle.
std::unique_ptr<Task> make_cycle_navigation(std::string_view name) {
  const size_t colon = name.find(':');
  const int64_t positions = colon == name.npos ? 6 : parse_int(name.substr(colon + 1), name);
  if (positions < 2 || positions > 1000)
    fail(ErrorCode::kUsage, "task {}: a cycle has 2 to 1000 positions", printable(name));
  return std::make_unique<CycleNavigation>(std::string(name), static_cast<int32_t>(positions));
}

}  // namespace signet::tasks
