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
std::unique_ptr<Task> make_group_word(std::string_view name);

namespace {

template <std::unique_ptr<Task> (*Make)()>
std::unique_ptr<Task> plain(std::string_view) {
  return Make();
}

bool names_group(std::string_view name) { return !name.empty() && name[0] >= 'A' && name[0] <= 'Z'; }

}  // namespace

const std::vector<TaskEntry>& tasks() {
  static const std::vector<TaskEntry> table = {
      {"parity", "is the number of ones odd?", plain<make_parity>},
      {"even-pairs", "do the first and the last bit agree?", plain<make_even_pairs>},
      {"cycle-navigation", "where on a cycle of 6 do steps of -1, 0 and +1 lead?",
       plain<make_cycle_navigation>},
      {"modular-arithmetic", "value mod 5 of digits joined by + - *", plain<make_modular_arithmetic>},
      {"modular-arithmetic-brackets", "value mod 5 of nested brackets over + - *",
       plain<make_modular_arithmetic_brackets>},
      {"modular-arithmetic-brackets-no-mult", "value mod 5 of nested brackets over + -",
       plain<make_modular_arithmetic_brackets_no_mult>},
      {"S5", "the running product of permutations of five points", make_group_word},
      {"S5:swaps", "the same, of swaps and the identity", make_group_word},
      {"S5:swaps+3cycles", "the same, of swaps, 3-cycles and the identity", make_group_word},
      {"S5:4tokens", "the same, of permutations that take four tokens each", make_group_word},
      {"A5", "the running product of even permutations of five points", make_group_word},
      {"Z60", "the running sum mod 60", make_group_word},
      {"Z60:2tokens", "the same, of numbers that take two tokens each", make_group_word},
  };
  return table;
}

const std::vector<TaskFamily>& task_families() {
  static const std::vector<TaskFamily> table = {
      {"GROUP[:LETTERS][:Ntokens]", "the running product in any group of up to 1000 elements", names_group,
       make_group_word},
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
  for (const auto& family : task_families()) {
    if (!family.has(name)) continue;
    try {
      return family.make(name);
    } catch (const Error& error) {  // of the toolkit, for which the name would come from a file
      if (error.code() != ErrorCode::kBadInput) throw;
      fail(ErrorCode::kUsage, "task '{}': {}{}", printable(name), error.what(),
           did_you_mean(name, task_names()));
    }
  }
  const auto names = task_names();
  std::vector<std::string> patterns;
  for (const auto& family : task_families()) patterns.emplace_back(family.pattern);
  fail(ErrorCode::kUsage, "unknown task '{}'{}; tasks are {}, and {}", printable(name),
       did_you_mean(name, names), join(names, ", "), join(patterns, ", "));
}

}  // namespace signet::tasks
