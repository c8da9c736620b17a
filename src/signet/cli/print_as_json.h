// What --json prints on standard output.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace signet::cli {

// One value, indented, and the end of its line.
void print_as_json(const nlohmann::ordered_json& value);

}  // namespace signet::cli
