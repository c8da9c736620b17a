// Steps on a cycle of 6 positions from position 0 (Deletang et al., ICLR 2023, with the row format and the
// cycle of Beck et al., NeurIPS 2024). Ids: 0 pad, 1 stay, 2 step +1, 3 step -1, 4..9 the positions; the
// position is due on the last step.
#include <memory>

#include "signet/tasks/task.h"

namespace signet::tasks {
namespace {

constexpr int32_t kPositions = 6, kFirstStep = 1, kFirstPosition = 4;

class CycleNavigation final : public Task {
 public:
  std::string name() const override { return "cycle-navigation"; }
  std::vector<std::string> token_names() const override {
    std::vector<std::string> names = {"pad", "stay", "+1", "-1"};
    for (int32_t i = 0; i < kPositions; ++i) names.push_back("at " + std::to_string(i));
    return names;
  }
  std::vector<int32_t> input_tokens() const override { return {1, 2, 3}; }
  double chance() const override { return 1.0 / kPositions; }
  void fill(Rng& rng, int64_t size, int32_t* tokens, int32_t* targets) const override {
    constexpr int32_t kMove[] = {0, 1, kPositions - 1};
    int64_t position = 0;
    for (int64_t i = 0; i < inputs(size); ++i) {
      const uint32_t step = rng.below(3);
      tokens[i] = kFirstStep + static_cast<int32_t>(step);
      position += kMove[step];
    }
    targets[0] = kFirstPosition + static_cast<int32_t>(position % kPositions);
  }
};

}  // namespace

std::unique_ptr<Task> make_cycle_navigation() { return std::make_unique<CycleNavigation>(); }

}  // namespace signet::tasks
