#include "signet/tasks/task_text.h"

namespace signet::tasks {

std::string task_text(const Task& task, uint64_t seed, uint64_t index, LengthRange lengths) {
  constexpr char kStart[] = "BOS";
  constexpr uint32_t kTold = 3, kOf = 10;
  const auto tokens = task.token_names(), answers = task.class_names();
  const Sample sample = make_sample(task, seed, Split::kTrain, index, lengths);
  Rng rng(seed ^ 0x7465787473000000u, index);  // which answers are told
  std::string text = task.name() + "\n";
  for (size_t i = 0; i < sample.tokens.size(); ++i) {
    if (tokens[static_cast<size_t>(sample.tokens[i])] == kStart)
      continue;  // documents have a start of their own
    text += tokens[static_cast<size_t>(sample.tokens[i])];
    const bool last = i + 1 == sample.tokens.size();
    const int32_t answer = task.dense() ? sample.targets[i] : last ? sample.targets[0] : kNotScored;
    if (answer >= 0 && (rng.below(kOf) < kTold || last)) text += " = " + answers[static_cast<size_t>(answer)];
    text += last ? "\n" : " ";
  }
  return text;
}

}  // namespace signet::tasks
