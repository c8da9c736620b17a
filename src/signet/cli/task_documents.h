// Tasks of ours as documents of text (tasks/task_text.h), in JSON lines.
#pragma once

#include <cstdint>
#include <string>

namespace signet::cli {

// Documents 0 .. count - 1 at the lengths of training. Throws kUsage for an unknown task.
std::string task_documents(const std::string& task, int64_t count, uint64_t seed);

}  // namespace signet::cli
