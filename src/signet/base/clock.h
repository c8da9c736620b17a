// Seconds for differences and deadlines: from a beginning that nobody knows, never back.
#pragma once

#include <chrono>

namespace signet {

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace signet
