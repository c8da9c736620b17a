#include "signet/tasks/registry.h"

#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::tasks {

// One declaration and one line per task.
std::unique_ptr<Task> make_parity();
std::unique_ptr<Task> make_even_pairs();
std::unique_ptr<Task> make_cycle_navigation();
std::unique_ptr<Task> make_modular_arithmetic();
std::unique_ptr<Task> make_modular_arithmetic_brackets();
std::unique_ptr<Task> make_modular_arithmetic_brackets_no_mult();

const std::vector<TaskEntry>& tasks() {
  static const std::vector<TaskEntry> table = {
      {"parity", "is the number of ones odd?", make_parity},
      {"even-pairs", "do the first and the last bit agree?", make_even_pairs},
      {"cycle-navigation", "where on a cycle of 6 do steps of -1, 0 and +1 lead?", make_cycle_navigation},
      {"modular-arithmetic", "value mod 5 of digits joined by + - *", make_modular_arithmetic},
      {"modular-arithmetic-brackets", "value mod 5 of nested brackets over + - *",
       make_modular_arithmetic_brackets},
      {"modular-arithmetic-brackets-no-mult", "value mod 5 of nested brackets over + -",
       make_modular_arithmetic_brackets_no_mult},
  };
  return table;
}

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const auto& entry : tasks()) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Task> make_task(std::string_view name) {
  for (const auto& entry : tasks())
    if (name == entry.name) return entry.make();
  const auto names = task_names();
  fail(ErrorCode::kUsage, "unknown task '{}'{}; tasks are {}", name, did_you_mean(name, names),
       join(names, ", "));
}

}  // namespace signet::tasks
