#include "signet/io/json.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>
#include <vector>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/text.h"

namespace signet::io {
namespace {

using Json = nlohmann::ordered_json;

// Walks the text and leaves its position where the error handling of JsonBuilder can see it.
struct Reader {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  const char** position;
  const char& operator*() const { return *at; }
  Reader& operator++() {
    *position = ++at;
    return *this;
  }
  bool operator==(const Reader& other) const { return at == other.at; }
  bool operator!=(const Reader& other) const { return at != other.at; }
};

// nlohmann's event interface: its parser keeps its own stack, so depth costs no call stack here.
class JsonBuilder {
 public:
  JsonBuilder(std::string_view text, const std::string& where, const JsonLimits& limits)
      : text_(text), where_(where), limits_(limits), position_(text.data()) {}

  Json parse() {
    // nlohmann takes a NUL for the end of the text and would not see what follows.
    if (const size_t nul = text_.find('\0'); nul != std::string_view::npos) {
      position_ = text_.data() + nul + 1;
      fail_here("a NUL character");
    }
    Json::sax_parse(Reader{text_.data(), &position_}, Reader{text_.data() + text_.size(), &position_}, this);
    return std::move(root_);
  }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // not in JSON text
  bool start_object(size_t) { return open(); }
  bool start_array(size_t) { return open(); }

  bool end_object() {
    Level level = close();
    // Into the vector below ordered_map: its own insertion would search all keys again for each one.
    Json::object_t object;
    object.reserve(level.values.size());
    for (size_t i = 0; i < level.values.size(); ++i)
      static_cast<Json::object_t::Container&>(object).emplace_back(std::move(level.keys[i]),
                                                                   std::move(level.values[i]));
    return place(Json(std::move(object)));
  }
  bool end_array() { return place(Json(std::move(close().values))); }

  bool key(std::string& name) {
    // Few keys are compared one by one; many go through a set, so that a million cost no quadratic time.
    constexpr size_t kFew = 16;
    Level& level = levels_.back();
    bool duplicate = false;
    if (level.keys.size() < kFew) {
      duplicate = std::find(level.keys.begin(), level.keys.end(), name) != level.keys.end();
    } else {
      if (!level.seen)
        level.seen = std::make_unique<std::unordered_set<std::string>>(level.keys.begin(), level.keys.end());
      duplicate = !level.seen->insert(name).second;
    }
    if (duplicate) fail_here("key '{}' appears twice", printable(name));
    level.keys.push_back(std::move(name));
    return true;
  }

  bool parse_error(size_t position, const std::string& token, const nlohmann::detail::exception& error) {
    position_ = text_.data() + std::min(position, text_.size());
    // nlohmann's message begins with its own code and position.
    std::string_view message = error.what();
    for (std::string_view marker : {"column ", "] "})
      if (const size_t at = message.find(marker); at != std::string_view::npos) {
        message.remove_prefix(at + marker.size());
        if (const size_t colon = message.find(": "); marker == "column " && colon != std::string_view::npos)
          message.remove_prefix(colon + 2);
        break;
      }
    fail_here("{} (at '{}')", printable(message), printable(token, 40));
  }

 private:
  // An array or object whose end has not come yet.
  struct Level {
    Json::array_t values;
    std::vector<std::string> keys;                          // of an object: keys[i] belongs to values[i]
    std::unique_ptr<std::unordered_set<std::string>> seen;  // when there are many
  };

  template <class... Args>
  [[noreturn]] void fail_here(fmt::format_string<Args...> format, Args&&... args) {
    // position_ is one past the last character read.
    const size_t offset = static_cast<size_t>(std::max<std::ptrdiff_t>(0, position_ - text_.data() - 1));
    const std::string_view before = text_.substr(0, offset);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t newline = before.rfind('\n');
    const size_t column = newline == std::string_view::npos ? offset + 1 : offset - newline;
    bad_input("{}:{}:{}: {}", printable(where_), line, column,
              fmt::format(format, std::forward<Args>(args)...));
  }

  void count_value() {
    if (++values_ > limits_.max_values)
      fail_here("more than the {} values accepted here", limits_.max_values);
  }
  template <class T>
  bool add(T&& value) {
    count_value();
    return place(Json(std::forward<T>(value)));
  }
  bool place(Json&& value) {
    if (levels_.empty())
      root_ = std::move(value);
    else
      levels_.back().values.push_back(std::move(value));
    return true;
  }
  bool open() {
    if (static_cast<int>(levels_.size()) >= limits_.max_depth)
      fail_here("nested deeper than the {} levels accepted here", limits_.max_depth);
    count_value();
    levels_.emplace_back();
    return true;
  }
  Level close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return level;
  }

  std::string_view text_;
  const std::string& where_;
  const JsonLimits& limits_;
  const char* position_;
  Json root_;
  std::vector<Level> levels_;
  int64_t values_ = 0;
};

[[noreturn]] void wrong_type(const char* key, const std::string& where, const char* wanted,
                             const Json& value) {
  // Of a number its value: that it is a number is not what is wrong with 1.5.
  bad_input("{}: '{}' must be {}, not {}", printable(where), key, wanted,
            value.is_number() ? value.dump() : value.type_name());
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes)
    bad_input("{} is {} bytes of JSON; at most {} are accepted here", printable(where), text.size(),
              limits.max_bytes);
  return JsonBuilder(text, where, limits).parse();
}

Json read_json_file(const std::string& path, const JsonLimits& limits) {
  return parse_json(read_file(path, limits.max_bytes), path, limits);
}

std::string json_text(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

void write_json_file(const std::string& path, const Json& value) {
  write_file_atomic(path, json_text(value, 1) + "\n");
}

const Json& json_member(const Json& object, const char* key, const std::string& where) {
  if (!object.is_object()) bad_input("{} must be an object, not {}", printable(where), object.type_name());
  const auto member = object.find(key);
  if (member == object.end()) bad_input("{}: '{}' is missing", printable(where), key);
  return *member;
}

int64_t json_int(const Json& object, const char* key, const std::string& where) {
  const Json& value = json_member(object, key, where);
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX)
    bad_input("{}: '{}' is out of range", printable(where), key);
  if (!value.is_number_integer()) wrong_type(key, where, "a whole number", value);
  return value.get<int64_t>();
}

double json_double(const Json& object, const char* key, const std::string& where) {
  const Json& value = json_member(object, key, where);
  if (!value.is_number()) wrong_type(key, where, "a number", value);
  return value.get<double>();
}

bool json_bool(const Json& object, const char* key, const std::string& where) {
  const Json& value = json_member(object, key, where);
  if (!value.is_boolean()) wrong_type(key, where, "true or false", value);
  return value.get<bool>();
}

std::string json_string(const Json& object, const char* key, const std::string& where) {
  const Json& value = json_member(object, key, where);
  if (!value.is_string()) wrong_type(key, where, "a string", value);
  return value.get<std::string>();
}

std::optional<int64_t> json_size(const Json& value) {
  const bool negative = value.is_number_integer() && !value.is_number_unsigned() && value.get<int64_t>() < 0;
  if (!value.is_number_integer() || negative || value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  return value.get<int64_t>();
}

}  // namespace signet::io
