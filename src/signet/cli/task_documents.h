// Tasks of ours as documents of text (tasks/task_text.h) in a file of JSON lines.
#pragma once

#include <cstdint>
#include <string>

namespace signet::cli {

// Documents 0 .. count - 1 at the lengths of training; returns the file. Throws kUsage for an unknown task.
std::string write_task_documents(const std::string& task, int64_t count, uint64_t seed,
                                 const std::string& file);

}  // namespace signet::cli
