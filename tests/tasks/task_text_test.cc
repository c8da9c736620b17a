#include "signet/tasks/task_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "signet/tasks/registry.h"

namespace signet::tasks {
namespace {

TEST(TaskText, TellsTheInputsAndSomeAnswersOfASample) {
  const auto task = make_task("S3");
  const auto classes = task->class_names();
  int told = 0, inputs = 0;
  for (uint64_t index = 0; index < 50; ++index) {
    const std::string text = task_text(*task, 4, index, {8, 20});
    EXPECT_EQ(text, task_text(*task, 4, index, {8, 20}));
    const Sample sample = make_sample(*task, 4, Split::kTrain, index, {8, 20});
    // Every word is an input or, behind "=", the right answer there.
    std::istringstream words(text);
    std::string word;
    words >> word;
    EXPECT_EQ(word, "S3");
    size_t at = 0;
    while (at < sample.tokens.size() && task->token_names()[sample.tokens[at]] == "BOS") ++at;
    bool last_told = false;
    while (words >> word) {
      last_told = word == "=";
      if (last_told) {
        words >> word;
        EXPECT_EQ(word, classes[sample.targets[at - 1]]);
        ++told;
        continue;
      }
      ASSERT_LT(at, sample.tokens.size());
      EXPECT_EQ(word, task->token_names()[sample.tokens[at++]]);
      ++inputs;
    }
    EXPECT_EQ(at, sample.tokens.size());
    EXPECT_TRUE(last_told);
  }
  EXPECT_GT(told, inputs / 5);
  EXPECT_LT(told, inputs / 2);
}

TEST(TaskText, EndsWithTheAnswerOfTasksThatHaveOne) {
  const auto task = make_task("parity");
  const Sample sample = make_sample(*task, 1, Split::kTrain, 3, {5, 5});
  const std::string text = task_text(*task, 1, 3, {5, 5});
  EXPECT_TRUE(text.starts_with("parity\n")) << text;
  EXPECT_TRUE(text.ends_with(" = " + task->class_names()[sample.targets[0]] + "\n")) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '='), 1);
}

}  // namespace
}  // namespace signet::tasks
