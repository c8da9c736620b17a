// Every task by its name: one line in registry.cc each.
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
  std::unique_ptr<Task> (*make)();
};

const std::vector<TaskEntry>& tasks();
std::vector<std::string> task_names();

// Throws kUsage that names the nearest task when there is none of this name.
std::unique_ptr<Task> make_task(std::string_view name);

}  // namespace signet::tasks
