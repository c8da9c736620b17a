#include "signet/cli/task_documents.h"

#include <nlohmann/json.hpp>

#include "signet/io/json.h"
#include "signet/tasks/registry.h"
#include "signet/tasks/task_text.h"

namespace signet::cli {

std::string task_documents(const std::string& name, int64_t count, uint64_t seed) {
  const auto task = tasks::make_task(name);
  std::string lines;
  for (int64_t i = 0; i < count; ++i)
    lines += io::json_text(nlohmann::ordered_json{
                 {"text", tasks::task_text(*task, seed, static_cast<uint64_t>(i), task->train_lengths())}}) +
             "\n";
  return lines;
}

}  // namespace signet::cli
