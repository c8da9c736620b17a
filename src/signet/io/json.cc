#include "signet/io/json.h"

#include <cstddef>
#include <iterator>
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

// Walks the text and leaves its position where the error handling of Builder can see it.
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
class Builder {
 public:
  Builder(std::string_view text, const std::string& where, const JsonLimits& limits)
      : text_(text), where_(where), limits_(limits), position_(text.data()) {}

  Json parse() {
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
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    // Few keys are compared one by one; many go through a set, so that a million cost no quadratic time.
    constexpr size_t kFew = 16;
    Level& level = levels_.back();
    const auto& members = level.value->get_ref<const Json::object_t&>();
    bool duplicate = false;
    if (members.size() < kFew) {
      for (const auto& member : members) duplicate |= member.first == name;
    } else {
      if (level.keys.empty())
        for (const auto& member : members) level.keys.insert(member.first);
      duplicate = !level.keys.insert(name).second;
    }
    if (duplicate) fail_here("key '{}' appears twice", printable(name));
    key_ = std::move(name);
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
  struct Level {
    Json* value;
    std::unordered_set<std::string> keys;
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

  template <class T>
  bool add(T&& value) {
    if (++values_ > limits_.max_values)
      fail_here("more than the {} values accepted here", limits_.max_values);
    place(Json(std::forward<T>(value)));
    return true;
  }

  Json* place(Json&& value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *levels_.back().value;
    if (parent.is_array()) {
      auto& items = parent.get_ref<Json::array_t&>();
      items.push_back(std::move(value));
      return &items.back();
    }
    // Straight into the vector below ordered_map, whose own insertion searches all keys again.
    auto& members = static_cast<Json::object_t::Container&>(parent.get_ref<Json::object_t&>());
    members.emplace_back(std::move(key_), std::move(value));
    return &members.back().second;
  }

  bool open(Json&& value) {
    if (static_cast<int>(levels_.size()) >= limits_.max_depth)
      fail_here("nested deeper than the {} levels accepted here", limits_.max_depth);
    if (++values_ > limits_.max_values)
      fail_here("more than the {} values accepted here", limits_.max_values);
    levels_.push_back({place(std::move(value)), {}});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  std::string_view text_;
  const std::string& where_;
  const JsonLimits& limits_;
  const char* position_;
  Json root_;
  std::vector<Level> levels_;
  std::string key_;
  int64_t values_ = 0;
};

[[noreturn]] void wrong_type(const char* key, const std::string& where, const char* wanted,
                             const Json& value) {
  bad_input("{}: '{}' must be {}, not {}", printable(where), key, wanted, value.type_name());
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes)
    bad_input("{} is {} bytes of JSON; at most {} are accepted here", printable(where), text.size(),
              limits.max_bytes);
  return Builder(text, where, limits).parse();
}

Json read_json_file(const std::string& path, const JsonLimits& limits) {
  return parse_json(read_file(path, limits.max_bytes), path, limits);
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

int64_t json_size(const Json& value, const std::string& what) {
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0) ||
      value.get<uint64_t>() > INT64_MAX)
    bad_input("{} must be a whole number from 0 to 2^63 - 1, not {}", what, printable(value.dump(), 40));
  return value.get<int64_t>();
}

}  // namespace signet::io
