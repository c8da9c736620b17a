#include "signet/io/config_schema.h"

#include <algorithm>
#include <charconv>

#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::io {
namespace {

std::string place(const ConfigNode& node, const std::string& where) {
  return node.line > 0 ? fmt::format("{}:{}:{}", printable(where), node.line, node.column) : printable(where);
}

[[noreturn]] void not_allowed(const ConfigNode& node, const std::string& what, const std::string& allowed) {
  const std::string got = node.kind != ConfigNode::Kind::kScalar ? std::string(node.kind_name())
                          : node.quoted ? "the string '" + printable(node.text, 40) + "'"
                                        : "'" + printable(node.text, 40) + "'";
  bad_input("{} must be {}, not {}", what, allowed, got);
}

// The whole text as a number; false when it is none or does not fit.
template <class T>
bool number_from(const ConfigNode& node, T& value) {
  if (node.kind != ConfigNode::Kind::kScalar || node.quoted || node.text.empty()) return false;
  const char *begin = node.text.data(), *end = begin + node.text.size();
  if (*begin == '+' && node.text.size() > 1 && begin[1] != '-') ++begin;
  const auto [stop, error] = std::from_chars(begin, end, value);
  return error == std::errc() && stop == end;
}

template <class T>
T read_number(const ConfigNode& node, const std::string& what, const std::string& allowed, Range<T> range) {
  T value{};
  if (!number_from(node, value) || !(value >= range.min && value <= range.max))
    not_allowed(node, what, allowed);
  return value;
}

std::string read_string(const ConfigNode& node, const std::string& what, const std::string& allowed) {
  if (node.kind != ConfigNode::Kind::kScalar) not_allowed(node, what, allowed);
  return node.text;
}

template <class T>
std::string allowed_numbers(const char* one, const char* many, bool list, Range<T> range) {
  const Range<T> any;
  const char* kind = list ? many : one;
  if (range.min == any.min && range.max == any.max) return kind;
  if (range.max == any.max) return fmt::format("{} of at least {}", kind, range.min);
  if (range.min == any.min) return fmt::format("{} of at most {}", kind, range.max);
  return fmt::format("{} from {} to {}", kind, range.min, range.max);
}
std::string allowed_values(Range<int64_t> range, bool list) {
  return allowed_numbers("a whole number", "a list of whole numbers", list, range);
}
std::string allowed_values(Range<double> range, bool list) {
  return allowed_numbers("a finite number", "a list of finite numbers", list, range);
}

template <class T>
std::string flow_list(const std::vector<T>& values) {
  std::vector<std::string> texts;
  for (const T& value : values) {
    if constexpr (std::is_same_v<T, std::string>)
      texts.push_back(yaml_scalar(value));
    else
      texts.push_back(fmt::format("{}", value));
  }
  return fmt::format("[{}]", join(texts, ", "));
}

}  // namespace

Field& Fields::add(const char* key, const char* help, std::string allowed, std::function<std::string()> write,
                   std::function<void(const ConfigNode&, const std::string&)> read) {
  std::string full = prefix_ + key;
  if (find(full)) fail(ErrorCode::kFailure, "configuration key {} is described twice", full);
  return fields_.emplace_back(
      Field{std::move(full), help, std::move(allowed), std::move(write), std::move(read)});
}

// `read` makes one item. The list is read into a fresh vector, so that an error leaves the target as it was.
template <class T, class Read>
void Fields::add_list(const char* key, const char* help, std::vector<T>& target, std::string allowed,
                      Read read) {
  auto write = [&target] { return flow_list(target); };
  auto read_all = [&target, allowed, read](const ConfigNode& node, const std::string& what) {
    if (node.kind != ConfigNode::Kind::kList) not_allowed(node, what, allowed);
    std::vector<T> values;
    for (const ConfigNode& item : node.items) values.push_back(read(item, what, allowed));
    target = std::move(values);
  };
  add(key, help, allowed, std::move(write), std::move(read_all)).list = true;
}

void Fields::field(const char* key, bool& target, const char* help) {
  const std::string allowed = "true or false";
  add(
      key, help, allowed, [&target] { return target ? "true" : "false"; },
      [&target, allowed](const ConfigNode& node, const std::string& what) {
        const bool plain = node.kind == ConfigNode::Kind::kScalar && !node.quoted;
        if (!plain || (node.text != "true" && node.text != "false")) not_allowed(node, what, allowed);
        target = node.text == "true";
      });
}

void Fields::field(const char* key, int64_t& target, const char* help, Range<int64_t> range) {
  const std::string allowed = allowed_values(range, false);
  add(
      key, help, allowed, [&target] { return fmt::format("{}", target); },
      [&target, allowed, range](const ConfigNode& node, const std::string& what) {
        target = read_number(node, what, allowed, range);
      });
}

void Fields::field(const char* key, double& target, const char* help, Range<double> range) {
  const std::string allowed = allowed_values(range, false);
  add(
      key, help, allowed, [&target] { return fmt::format("{}", target); },
      [&target, allowed, range](const ConfigNode& node, const std::string& what) {
        target = read_number(node, what, allowed, range);
      });
}

void Fields::field(const char* key, std::string& target, const char* help) {
  add(
      key, help, "a string", [&target] { return yaml_scalar(target); },
      [&target](const ConfigNode& node, const std::string& what) {
        target = read_string(node, what, "a string");
      });
}

void Fields::field(const char* key, std::vector<int64_t>& target, const char* help, Range<int64_t> range) {
  add_list(key, help, target, allowed_values(range, true),
           [range](const ConfigNode& item, const std::string& what, const std::string& allowed) {
             return read_number(item, what, allowed, range);
           });
}

void Fields::field(const char* key, std::vector<double>& target, const char* help, Range<double> range) {
  add_list(key, help, target, allowed_values(range, true),
           [range](const ConfigNode& item, const std::string& what, const std::string& allowed) {
             return read_number(item, what, allowed, range);
           });
}

void Fields::field(const char* key, std::vector<std::string>& target, const char* help) {
  add_list(key, help, target, "a list of strings", read_string);
}

void Fields::field_enum(const char* key, std::string& target, const char* help,
                        const std::vector<std::string>& names) {
  add_enum(
      key, help, names,
      [&target, names] {
        return static_cast<size_t>(std::find(names.begin(), names.end(), target) - names.begin());
      },
      [&target, names](size_t i) { target = names[i]; });
}

void Fields::add_enum(const char* key, const char* help, std::vector<std::string> names,
                      std::function<size_t()> get, std::function<void(size_t)> put) {
  std::string allowed = "one of " + join(names, " | ");
  auto write = [names, get = std::move(get), full = prefix_ + key] {
    const size_t i = get();
    if (i >= names.size())
      fail(ErrorCode::kFailure, "configuration key {} holds a value without a name", full);
    return yaml_scalar(names[i]);
  };
  auto read = [names, allowed, put = std::move(put)](const ConfigNode& node, const std::string& what) {
    // A name such as "-1,1" may be written as the list [-1, 1] too.
    std::vector<std::string> parts;
    for (const ConfigNode& item : node.items) parts.push_back(item.text);
    const std::string text = node.kind == ConfigNode::Kind::kList ? join(parts, ",") : node.text;
    const auto name = std::find(names.begin(), names.end(), text);
    if (node.kind == ConfigNode::Kind::kMap || node.kind == ConfigNode::Kind::kNull || name == names.end())
      bad_input("{} must be {}, not '{}'{}", what, allowed, printable(text, 40), did_you_mean(text, names));
    put(static_cast<size_t>(name - names.begin()));
  };
  add(key, help, allowed, std::move(write), std::move(read)).choices = std::move(names);
}

Field* Fields::find(std::string_view key) {
  for (Field& field : fields_)
    if (field.key == key) return &field;
  return nullptr;
}

std::optional<std::string> Fields::written(std::string_view key) const {
  for (const Field& field : fields_)
    if (field.key == key) return field.write();
  return std::nullopt;
}

bool Fields::given(std::string_view key) const {
  for (const Field& field : fields_)
    if (field.key == key) return field.given;
  fail(ErrorCode::kFailure, "configuration key {} is not described", key);
}

std::string Fields::unknown_key_advice(const std::string& key) const {
  std::vector<std::string> keys, same_name, same_end;
  const auto after = [](const std::string& text, const char* separators) {
    return text.substr(text.find_last_of(separators) + 1);
  };
  for (const Field& field : fields_) {
    keys.push_back(field.key);
    if (after(field.key, ".") == after(key, ".")) same_name.push_back(field.key);
    if (after(field.key, "._") == after(key, "._")) same_end.push_back(field.key);
  }
  const auto advice = [](const std::vector<std::string>& found) {
    return found.empty() || found.size() > 3 ? ""
                                             : fmt::format(" (did you mean '{}'?)", join(found, "' or '"));
  };
  // The right key in the wrong section, or without one, is the likeliest slip; then a letter or two; then
  // another word for what goes before the last one (eval_every for validate_every).
  for (const std::string& text : {advice(same_name), did_you_mean(key, keys), advice(same_end)})
    if (!text.empty()) return text;
  return "; `signet train TASK --model NAME --list-keys` prints the keys";
}

void Fields::load(const ConfigNode& root, const std::string& where) {
  if (root.kind != ConfigNode::Kind::kMap)
    bad_input("{} must hold 'key: value' lines, not {}", printable(where), root.kind_name());
  load_section(root, "", where);
}

void Fields::load_section(const ConfigNode& node, const std::string& prefix, const std::string& where) {
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const ConfigNode& value = node.items[i];
    const std::string key = prefix + node.keys[i];
    if (Field* field = find(key)) {
      field->read(value, place(value, where) + ": " + key);
      field->given = true;
      continue;
    }
    const std::string inner = key + ".";
    const bool section = std::any_of(fields_.begin(), fields_.end(), [&](const Field& field) {
      return field.key.compare(0, inner.size(), inner) == 0;
    });
    if (!section)
      bad_input("{}: unknown key '{}'{}", place(value, where), printable(key), unknown_key_advice(key));
    if (value.kind == ConfigNode::Kind::kNull) continue;  // "train:" with nothing below
    if (value.kind != ConfigNode::Kind::kMap)
      bad_input("{}: '{}' is a section of keys, not {}", place(value, where), key, value.kind_name());
    load_section(value, inner, where);
  }
}

void Fields::set(std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0)
    fail(ErrorCode::kUsage, "setting '{}' must look like section.key=value", printable(assignment));
  const std::string key(assignment.substr(0, equals)), text(assignment.substr(equals + 1));
  Field* field = find(key);
  if (!field) fail(ErrorCode::kUsage, "unknown key '{}'{}", printable(key), unknown_key_advice(key));
  try {
    ConfigNode value;
    value.kind = ConfigNode::Kind::kScalar;
    value.text = text;
    if (field->list)
      value = parse_yaml(!text.empty() && text[0] == '[' ? text : fmt::format("[{}]", text), key);
    field->read(value, key);
  } catch (const Error& error) {
    throw Error(ErrorCode::kUsage, error.what());  // what is wrong stands on the command line, not in a file
  }
  field->given = true;
}

// The keys below `prefix` in the order of description, a section where its first key stands.
static void write_section(const std::vector<Field>& fields, const std::string& prefix, int depth,
                          std::string& out) {
  std::vector<std::string> sections;
  for (const Field& field : fields) {
    if (field.key.compare(0, prefix.size(), prefix) != 0) continue;
    const std::string rest = field.key.substr(prefix.size());
    const size_t dot = rest.find('.');
    const std::string name = rest.substr(0, dot), indentation(static_cast<size_t>(2 * depth), ' ');
    if (dot == std::string::npos) {
      out += indentation + name + ": " + field.write() + "\n";
    } else if (std::find(sections.begin(), sections.end(), name) == sections.end()) {
      sections.push_back(name);
      out += indentation + name + ":\n";
      write_section(fields, prefix + name + ".", depth + 1, out);
    }
  }
}

std::string Fields::to_yaml() const {
  std::string result;
  write_section(fields_, "", 0, result);
  return result;
}

}  // namespace signet::io
