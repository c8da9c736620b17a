// The machines against the tasks themselves.
#include "signet/automata/task_machine.h"

#include <algorithm>

#include "signet/base/error.h"
#include "signet/tasks/registry.h"
#include "support/check.h"

namespace signet::automata {
namespace {

TEST(TaskMachine, AnswersEverySample) {
  for (const auto& name : task_machine_names()) {
    SCOPED_TRACE(name);
    const auto task = tasks::make_task(name);
    const Dfa machine = task_machine(name);
    const auto tokens_of = task->input_tokens();
    const auto names = task->token_names();
    std::vector<Letter> letter(names.size(), -1);
    for (size_t a = 0; a < tokens_of.size(); ++a) {
      ASSERT_EQ(machine.alphabet[a], names[static_cast<size_t>(tokens_of[a])]);
      letter[static_cast<size_t>(tokens_of[a])] = static_cast<Letter>(a);
    }
    ASSERT_EQ(machine.alphabet.size(), tokens_of.size());
    Rng rng(5);
    for (int trial = 0; trial < 200; ++trial) {
      const int64_t size = task->draw_size(rng, {3, 60});
      std::vector<int32_t> tokens(static_cast<size_t>(task->inputs(size))), targets(tokens.size());
      task->fill(rng, size, tokens.data(), targets.data());
      State q = machine.start;
      int32_t output = -1;
      for (int32_t token : tokens) {
        const Letter a = letter[static_cast<size_t>(token)];
        ASSERT_GE(a, 0);
        output = machine.output[q][a];
        q = machine.delta[q][a];
      }
      ASSERT_EQ(output, targets[0]) << trial;
    }
  }
}

TEST(TaskMachine, UnboundedTasksHaveNone) {
  EXPECT_THROW(task_machine("modular-arithmetic-brackets"), Error);
  EXPECT_THROW(task_machine(""), Error);
}

}  // namespace
}  // namespace signet::automata
