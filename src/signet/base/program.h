// Other programs of the machine, such as Graphviz, used where they are installed.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace signet {

// Runs a program found on the PATH with `input` on its standard input and returns its standard output; what
// it says on standard error is dropped. Nothing when it is not installed or its exit status is not 0.
std::optional<std::string> run_program(std::vector<std::string> command, const std::string& input);

}  // namespace signet
