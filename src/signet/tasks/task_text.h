// Tasks written as text, to be mixed with other text: the name of the task in a line, then the inputs as
// words, each dense answer that is told behind its input as "= answer". A document is a pure function of
// (seed, index).
#pragma once

#include <cstdint>
#include <string>

#include "signet/tasks/task.h"

namespace signet::tasks {

// Of a dense task's answers about three in ten are told, the last one always; of other tasks the only one.
std::string task_text(const Task& task, uint64_t seed, uint64_t index, LengthRange lengths);

}  // namespace signet::tasks
