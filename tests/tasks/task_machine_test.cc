// The machines against the tasks themselves.
#include <set>

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

// The forms against samples: what samples do is allowed, answers are due where they are, and what is allowed
// occurs.
class TaskForms : public testing::TestWithParam<const char*> {};
TEST_P(TaskForms, AreThoseOfItsSamples) {
  const auto task = make_task(GetParam());
  const auto found = task->form();
  ASSERT_TRUE(found);
  const automata::Dfa& form = *found;
  const auto names = task->token_names();
  std::vector<automata::Letter> letter(names.size(), -1);
  automata::Letter next = 0;
  for (int32_t token : task->input_tokens())
    if (names[static_cast<size_t>(token)] != "BOS") letter[static_cast<size_t>(token)] = next++;
  ASSERT_EQ(form.letters(), next);
  std::set<std::pair<automata::State, automata::Letter>> seen, due;
  for (uint64_t i = 0; i < 4000; ++i) {
    const Sample sample = make_sample(*task, 3, Split::kTrain, i, {task->min_size() + 1, 30});
    automata::State at = form.start;
    for (size_t t = 0; t < sample.tokens.size(); ++t) {
      const automata::Letter a = letter[static_cast<size_t>(sample.tokens[t])];
      if (t == 0 && a < 0) continue;
      ASSERT_GE(a, 0);
      ASSERT_NE(form.output[at][a], kNever) << i << " " << t;
      const bool last = t + 1 == sample.tokens.size();
      const int32_t target = task->dense() ? sample.targets[t] : last ? sample.targets[0] : kNotScored;
      seen.insert({at, a});
      if (target != kNotScored) due.insert({at, a});
      at = form.delta[at][a];
    }
  }
  for (automata::State q = 0; q < form.states(); ++q)
    for (automata::Letter a = 0; a < form.letters(); ++a) {
      EXPECT_EQ(seen.count({q, a}), form.output[q][a] != kNever) << q << " " << form.alphabet[a];
      EXPECT_EQ(due.count({q, a}), form.output[q][a] == kDue) << q << " " << form.alphabet[a];
    }
}
INSTANTIATE_TEST_SUITE_P(Tasks, TaskForms,
                         testing::Values("parity", "even-pairs", "cycle-navigation:5", "modular-arithmetic",
                                         "flip-flop", "flip-flop:0", "language:tomita3", "language:dyck:2",
                                         "S3", "S3:swaps:2tokens", "Z6:3tokens", "bounded-dyck:2,3",
                                         "sarrof:parity", "sarrof:abab-star", "sarrof:tomita1",
                                         "sarrof:tomita2", "sarrof:tomita3", "sarrof:tomita7", "sarrof:D3",
                                         "sarrof:abcde", "sarrof:ab-d-bc", "sarrof:012-0-2"));

TEST(TaskForm, NoneWhereItIsNotFiniteOrLarge) {
  EXPECT_FALSE(make_task("modular-arithmetic-brackets")->form());
  EXPECT_FALSE(make_task("bounded-dyck")->form());
}

TEST(TaskMachine, UnboundedTasksHaveNone) {
  EXPECT_FALSE(make_task("modular-arithmetic-brackets")->machine());
}

}  // namespace
}  // namespace signet::tasks
