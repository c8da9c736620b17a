// The one exception type of the project. Public entries validate once and throw it; main() turns it into
// a message on stderr and an exit code.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace signet {

// The values are the process's exit codes.
enum class ErrorCode : int {
  kFailure = 1,       // anything without a better name
  kUsage = 2,         // the command line is wrong
  kBadInput = 3,      // a file or configuration is wrong
  kCheckFailed = 4,   // a check or threshold did not hold
  kNumerical = 5,     // NaN or Inf where none may be
  kResource = 6,      // memory or disk
  kStopped = 75,      // stopped by SIGTERM; resumable
  kInterrupted = 130  // stopped by SIGINT; resumable
};

// what() says what was wrong and where, and what would be right.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }
  int exit_code() const { return static_cast<int>(code_); }

 private:
  ErrorCode code_;
};

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// Bad input files and configurations are the most common failure.
template <class... Args>
[[noreturn]] void bad_input(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::kBadInput, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace signet
