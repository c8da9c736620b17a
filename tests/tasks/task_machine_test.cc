// The machines against the tasks themselves.
#include "signet/automata/dfa.h"
#include "signet/base/error.h"
#include "signet/tasks/registry.h"
#include "support/check.h"

namespace signet::tasks {
namespace {

class TaskMachines : public testing::TestWithParam<const char*> {};
TEST_P(TaskMachines, AnswerEverySample) {
  const auto task = make_task(GetParam());
  const auto found = task->machine();
  ASSERT_TRUE(found);
  const automata::Dfa& machine = *found;
  const auto names = task->token_names();
  std::vector<automata::Letter> letter(names.size(), -1);
  automata::Letter next = 0;
  for (int32_t token : task->input_tokens()) {
    if (names[static_cast<size_t>(token)] == "BOS") continue;  // what a row begins with is no letter
    ASSERT_EQ(machine.alphabet[static_cast<size_t>(next)], names[static_cast<size_t>(token)]);
    letter[static_cast<size_t>(token)] = next++;
  }
  ASSERT_EQ(machine.letters(), next);
  Rng rng(5);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t size = task->draw_size(rng, {4, 60});
    std::vector<int32_t> tokens(static_cast<size_t>(task->inputs(size))), targets(tokens.size());
    task->fill(rng, size, tokens.data(), targets.data());
    automata::State q = machine.start;
    int32_t output = -1;
    for (size_t t = 0; t < tokens.size(); ++t) {
      const automata::Letter a = letter[static_cast<size_t>(tokens[t])];
      if (t == 0 && a < 0) continue;
      ASSERT_GE(a, 0);
      output = machine.mealy() ? machine.output[q][a] : machine.accept[machine.delta[q][a]];
      q = machine.delta[q][a];
      if (task->dense()) {
        ASSERT_EQ(output, targets[t]) << trial;
      }
    }
    if (!task->dense()) {
      ASSERT_EQ(output, targets[0]) << trial;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Tasks, TaskMachines,
                         testing::Values("parity", "even-pairs", "cycle-navigation", "cycle-navigation:5",
                                         "modular-arithmetic", "flip-flop", "flip-flop:0.98",
                                         "language:mod:7", "language:tomita3", "S3", "S4:swaps",
                                         "S4:swaps+3cycles:2tokens", "Z6", "Z6:3tokens", "Q8:standard"));

TEST(TaskMachine, UnboundedTasksHaveNone) {
  EXPECT_FALSE(make_task("modular-arithmetic-brackets")->machine());
}

}  // namespace
}  // namespace signet::tasks
