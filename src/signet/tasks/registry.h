// Every task by its name: one line in registry.cc each. Some names are patterns (S5:swaps, Z60:2tokens): a
// family makes them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "signet/tasks/task.h"

namespace signet::tasks {

struct TaskEntry {
  const char* name;
  const char* summary;
  std::unique_ptr<Task> (*make_named)(std::string_view name);
  std::unique_ptr<Task> make() const { return make_named(name); }
};

struct TaskFamily {
  const char* pattern;
  const char* summary;
  bool (*has)(std::string_view name);  // whether the name is meant for the family; it may still be wrong
  std::unique_ptr<Task> (*make)(std::string_view name);
};

const std::vector<TaskEntry>& tasks();
const std::vector<TaskFamily>& task_families();
std::vector<std::string> task_names();

// Throws kUsage that names the nearest task when there is none of this name.
std::unique_ptr<Task> make_task(std::string_view name);

}  // namespace signet::tasks
