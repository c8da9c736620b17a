// Runs a shell command and keeps what it said.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "support/temporary_directory.h"
#include "support/text_file.h"

namespace signet::test {

struct CommandResult {
  int exit_code = -1;  // 128 + n when signal n ended it
  std::string out, err;
};

// Through sh, in `directory` ("" is the current one).
inline CommandResult run_command(const std::string& command, const std::string& directory = "") {
  TemporaryDirectory scratch;
  const std::string change = directory.empty() ? "" : "cd '" + directory + "' && ";
  const std::string line =
      change + "{ " + command + "\n} >'" + (scratch / "out") + "' 2>'" + (scratch / "err") + "' </dev/null";
  const int status = std::system(line.c_str());
  CommandResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = read_text(scratch / "out");
  result.err = read_text(scratch / "err");
  return result;
}

// The program under test with these arguments.
inline CommandResult run_signet(const std::string& arguments, const std::string& directory = "") {
  return run_command("'" SIGNET_BINARY "' " + arguments, directory);
}

}  // namespace signet::test
