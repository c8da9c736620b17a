#include "signet/io/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/text.h"

namespace signet::io {
namespace {

template <class... Args>
[[noreturn]] void fail_at(const std::string& where, int line, int column, fmt::format_string<Args...> format,
                          Args&&... args) {
  bad_input("{}:{}:{}: {}", printable(where), line, column, fmt::format(format, std::forward<Args>(args)...));
}

// Checks the characters before the parser sees them; returns the text without byte order mark and with \n
// only.
std::string normalised(std::string_view text, const std::string& where) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  if (text.substr(0, 2) == "\xFF\xFE" || text.substr(0, 2) == "\xFE\xFF")
    bad_input("{} is UTF-16; save it as UTF-8", printable(where));
  std::string result;
  result.reserve(text.size());
  const size_t invalid = find_invalid_utf8(text);
  int line = 1, column = 1;
  bool indentation = true;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (i == invalid) fail_at(where, line, column, "not UTF-8 text");
    if (c == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')
      fail_at(where, line, column, "control character \\x{:02x}", c);
    if (c == '\t' && indentation) fail_at(where, line, column, "a tab as indentation; use spaces");
    if (c != ' ') indentation = false;
    result += c;
    ++column;
    if (c == '\n') ++line, column = 1, indentation = true;
  }
  return result;
}

// yaml-cpp announces every list and map before it descends into it, so refusing here bounds its recursion.
class YamlBuilder final : public YAML::EventHandler {
 public:
  YamlBuilder(std::string_view text, const std::string& where, const YamlLimits& limits)
      : text_(text), where_(where), limits_(limits) {}
  ConfigNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    place(mark, ConfigNode::Kind::kNull);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail_at(where_, mark.line + 1, mark.column + 1, "aliases (*name) are not supported; write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (tag == "!") require_closing_quote(mark);
    if (!levels_.empty() && levels_.back().node->kind == ConfigNode::Kind::kMap && !levels_.back().has_key)
      return take_key(mark, value);
    ConfigNode& node = place(mark, ConfigNode::Kind::kScalar);
    node.text = value;
    node.quoted = tag == "!";
    if (!node.quoted && (value == "~" || value == "null" || value == "Null" || value == "NULL"))
      node.kind = ConfigNode::Kind::kNull;
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, ConfigNode::Kind::kList);
  }
  void OnSequenceEnd() override { levels_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, ConfigNode::Kind::kMap);
  }
  void OnMapEnd() override { levels_.pop_back(); }

 private:
  struct Level {
    ConfigNode* node;
    bool has_key = false;
    std::unordered_set<std::string> seen;
  };

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0) fail_at(where_, mark.line + 1, mark.column + 1, "anchors (&name) are not supported");
  }
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!")
      fail_at(where_, mark.line + 1, mark.column + 1, "tags are not supported: {}", printable(tag, 40));
  }
  // yaml-cpp lets the end of the text close a quote when a line break comes before it.
  void require_closing_quote(const YAML::Mark& mark) const {
    const std::string_view scalar = text_.substr(std::min(static_cast<size_t>(mark.pos), text_.size()));
    if (scalar.empty() || (scalar[0] != '\'' && scalar[0] != '"')) return;  // a block scalar
    for (size_t i = 1; i < scalar.size(); ++i) {
      const bool escape = scalar[0] == '"' ? scalar[i] == '\\' : scalar.substr(i, 2) == "''";
      if (escape)
        ++i;
      else if (scalar[i] == scalar[0])
        return;
    }
    fail_at(where_, mark.line + 1, mark.column + 1, "a quote that is never closed");
  }
  void take_key(const YAML::Mark& mark, const std::string& key) {
    Level& level = levels_.back();
    if (!level.seen.insert(key).second)
      fail_at(where_, mark.line + 1, mark.column + 1, "key '{}' appears twice", printable(key));
    level.node->keys.push_back(key);
    level.has_key = true;
  }
  ConfigNode& place(const YAML::Mark& mark, ConfigNode::Kind kind) {
    ConfigNode* node = &root_;
    if (!levels_.empty()) {
      Level& level = levels_.back();
      if (level.node->kind == ConfigNode::Kind::kMap && !std::exchange(level.has_key, false))
        fail_at(where_, mark.line + 1, mark.column + 1, "a key must be plain text");
      node = &level.node->items.emplace_back();
    }
    node->kind = kind;
    node->line = mark.line + 1;
    node->column = mark.column + 1;
    return *node;
  }
  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, ConfigNode::Kind kind) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (static_cast<int>(levels_.size()) >= limits_.max_depth)
      fail_at(where_, mark.line + 1, mark.column + 1, "nested deeper than the {} levels accepted here",
              limits_.max_depth);
    levels_.push_back({&place(mark, kind), false, {}});
  }

  std::string_view text_;
  const std::string& where_;
  const YamlLimits& limits_;
  ConfigNode root_;
  std::vector<Level> levels_;
};

// Whether yaml-cpp and others would read the text, unquoted, as exactly this string.
bool plain_is_safe(std::string_view text) {
  if (text.empty() || text == "~" || text.back() == ' ' || text.back() == ':') return false;
  for (std::string_view word : {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (word.size() == text.size() && std::equal(word.begin(), word.end(), text.begin(), [](char a, char b) {
          return a == std::tolower(static_cast<unsigned char>(b));
        }))
      return false;
  }
  const auto safe = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("_-./+ =()*").find(c) != std::string_view::npos;
  };
  return std::isalpha(static_cast<unsigned char>(text[0])) && std::all_of(text.begin(), text.end(), safe);
}

}  // namespace

const ConfigNode* ConfigNode::find(std::string_view key) const {
  for (size_t i = 0; i < keys.size(); ++i)
    if (keys[i] == key) return &items[i];
  return nullptr;
}

const char* ConfigNode::kind_name() const {
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kScalar:
      return quoted ? "a string" : "a value";
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a section";
  }
  return "?";
}

ConfigNode parse_yaml(std::string_view text, const std::string& where, const YamlLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes)
    bad_input("{} is {} bytes of YAML; at most {} are accepted here", printable(where), text.size(),
              limits.max_bytes);
  const std::string clean = normalised(text, where);
  std::istringstream stream(clean);
  YamlBuilder builder(clean, where, limits);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) {
      ConfigNode empty;
      empty.kind = ConfigNode::Kind::kMap;
      return empty;
    }
    YamlBuilder rest(clean, where, limits);
    if (parser.HandleNextDocument(rest)) bad_input("{} holds more than one YAML document", printable(where));
  } catch (const YAML::Exception& error) {
    fail_at(where, error.mark.line + 1, error.mark.column + 1, "{}", printable(error.msg));
  }
  ConfigNode root = builder.take();
  if (root.kind == ConfigNode::Kind::kNull) root.kind = ConfigNode::Kind::kMap;
  return root;
}

ConfigNode read_yaml_file(const std::string& path, const YamlLimits& limits) {
  return parse_yaml(read_file(path, limits.max_bytes), path, limits);
}

std::string yaml_scalar(std::string_view text) {
  if (plain_is_safe(text)) return std::string(text);
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      (result += '\\') += c;
    else if (c == '\n')
      result += "\\n";
    else if (byte < 0x20 || byte == 0x7F)
      result += fmt::format("\\x{:02x}", byte);
    else
      result += c;
  }
  return result + "\"";
}

}  // namespace signet::io
