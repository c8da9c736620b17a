// Strict, bounded JSON. What RFC 8259 leaves open is refused: duplicate keys, numbers that do not fit a
// double, text that is not UTF-8, anything after the value. Depth, length and number of values are capped, so
// a hostile file costs a bounded amount of time, memory and stack. Errors say file:line:column.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace signet::io {

struct JsonLimits {
  int64_t max_bytes = 64 << 20;
  int64_t max_values = 10'000'000;  // numbers, strings, literals, arrays and objects together
  int max_depth = 64;
};

// `where` names the text in errors: a path or "--option".
nlohmann::ordered_json parse_json(std::string_view text, const std::string& where,
                                  const JsonLimits& limits = {});
nlohmann::ordered_json read_json_file(const std::string& path, const JsonLimits& limits = {});

// The value as text, on one line or by `indent`. JSON is UTF-8 and names of files may be any bytes: those
// that are not become U+FFFD, so that work whose result names them is not lost. Whatever is printed or
// written goes through here.
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);
// As a file of its own, which is whole or not there.
void write_json_file(const std::string& path, const nlohmann::ordered_json& value);

// Members of an object that must be there and have the type; the error names `where` and the key.
const nlohmann::ordered_json& json_member(const nlohmann::ordered_json& object, const char* key,
                                          const std::string& where);
int64_t json_int(const nlohmann::ordered_json& object, const char* key, const std::string& where);
double json_double(const nlohmann::ordered_json& object, const char* key, const std::string& where);
bool json_bool(const nlohmann::ordered_json& object, const char* key, const std::string& where);
std::string json_string(const nlohmann::ordered_json& object, const char* key, const std::string& where);

// The value as a whole number from 0 to 2^63 - 1, or nothing when it is anything else.
std::optional<int64_t> json_size(const nlohmann::ordered_json& value);

}  // namespace signet::io
