// Lists of "section.key=value", as `--set` takes them, before they are read as a configuration.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace signet::train {

// The value of a key, the last one where there are several.
inline std::optional<std::string> assigned(const std::vector<std::string>& assignments,
                                           const std::string& key) {
  for (auto assignment = assignments.rbegin(); assignment != assignments.rend(); ++assignment)
    if (assignment->starts_with(key + "=")) return assignment->substr(key.size() + 1);
  return std::nullopt;
}

}  // namespace signet::train
