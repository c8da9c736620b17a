// Which sources the program was built from.
#pragma once

namespace signet {

extern const char* const kCommit;  // empty where git did not know; made by cmake/commit.cmake

}  // namespace signet
