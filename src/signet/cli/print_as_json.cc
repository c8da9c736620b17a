#include "signet/cli/print_as_json.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "signet/io/json.h"

namespace signet::cli {

void print_as_json(const nlohmann::ordered_json& value) { fmt::print("{}\n", io::json_text(value, 2)); }

}  // namespace signet::cli
