// Strict, bounded YAML: what a configuration needs and no more. One document of maps, lists and scalars.
// Refused with file:line:column: duplicate keys, anchors and aliases (so no alias bombs and no cycles), tags,
// tabs as indentation, text that is not UTF-8, nesting and length beyond the limits. A byte order mark and
// CRLF are fine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::io {

struct ConfigNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  std::string text;               // scalar: as written, quotes removed
  bool quoted = false;            // scalar: was in quotes or a block, so it is a string and no number
  std::vector<ConfigNode> items;  // list: the items; map: the values
  std::vector<std::string> keys;  // map: keys[i] belongs to items[i]
  int line = 0, column = 0;       // from 1; 0 when not from a file

  const ConfigNode* find(std::string_view key) const;
  const char* kind_name() const;
};

// Throws kBadInput at the node: file:line:column and the message.
template <class... Args>
[[noreturn]] void bad_node(const ConfigNode& node, const std::string& where,
                           fmt::format_string<Args...> format, Args&&... args) {
  bad_input("{}:{}:{}: {}", printable(where), node.line, node.column,
            fmt::format(format, std::forward<Args>(args)...));
}

struct YamlLimits {
  int64_t max_bytes = 1 << 20;
  int max_depth = 64;
};

// An empty text is an empty map. `where` names the text in errors.
ConfigNode parse_yaml(std::string_view text, const std::string& where, const YamlLimits& limits = {});
ConfigNode read_yaml_file(const std::string& path, const YamlLimits& limits = {});

// A string as a YAML scalar that reads back as the same string: plain where that is safe, else in quotes.
std::string yaml_scalar(std::string_view text);

}  // namespace signet::io
