// Configurations: one line per key binds a member of a struct to its name, its help and its allowed values,
// and serves reading YAML, `--set section.key=value`, writing the resolved configuration and listing the
// keys.
//
//   struct TrainConfig {
//     int64_t batch = 256;
//     double lr = 1e-3;
//     void describe(io::Fields& fields) {
//       fields.field("batch", batch, "sequences per step", {1, 1 << 20});
//       fields.field("lr", lr, "peak learning rate", {0, 10});
//     }
//   };
//   struct RunConfig { TrainConfig train;  void describe(io::Fields& f) { f.section("train", train); } };
//
//   RunConfig config;
//   io::Fields fields = io::fields_of(config);   // points into config: must not outlive it
//   fields.load(io::read_yaml_file("run.yaml"), "run.yaml");
//   fields.set("train.lr=3e-3");
//   write_file_atomic("config.yaml", fields.to_yaml());
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "signet/io/yaml.h"

namespace signet::io {

// Both ends are allowed.
template <class T>
struct Range {
  T min = std::numeric_limits<T>::lowest(), max = std::numeric_limits<T>::max();
};

struct Field {
  std::string key;  // with its sections: "train.lr"
  std::string help;
  std::string allowed;                                              // "a number from 0 to 10", for people
  std::function<std::string()> write;                               // the value as YAML
  std::function<void(const ConfigNode&, const std::string&)> read;  // the string is "file:line:column: key"
  bool list = false;
  std::vector<std::string> choices = {};  // of one of a few names
  bool given = false;                     // set by a file or by set(), not left at its default
};

class Fields {
 public:
  void field(const char* key, bool& target, const char* help);
  void field(const char* key, int64_t& target, const char* help, Range<int64_t> range = {});
  void field(const char* key, double& target, const char* help, Range<double> range = {});  // always finite
  void field(const char* key, std::string& target, const char* help);
  void field(const char* key, std::vector<int64_t>& target, const char* help, Range<int64_t> range = {});
  void field(const char* key, std::vector<double>& target, const char* help, Range<double> range = {});
  void field(const char* key, std::vector<std::string>& target, const char* help);

  // One of a few names, kept as a string or as an enum; the first name of a value is the one written.
  void field_enum(const char* key, std::string& target, const char* help,
                  const std::vector<std::string>& names);
  template <class E, class = std::enable_if_t<std::is_enum_v<E>>>
  void field_enum(const char* key, E& target, const char* help,
                  std::initializer_list<std::pair<const char*, E>> names) {
    std::vector<std::string> texts;
    std::vector<E> values;
    for (const auto& [text, value] : names) texts.emplace_back(text), values.push_back(value);
    add_enum(
        key, help, std::move(texts),
        [&target, values] {
          size_t i = 0;
          while (i < values.size() && values[i] != target) ++i;
          return i;
        },
        [&target, values](size_t i) { target = values[i]; });
  }

  // A struct with its own describe(Fields&); its keys get the prefix "key.".
  template <class T>
  void section(const char* key, T& nested) {
    const std::string outer = prefix_;
    prefix_ += std::string(key) + ".";
    nested.describe(*this);
    prefix_ = outer;
  }

  // Reads every key of a map; unknown keys, wrong types and values out of range are errors that name the
  // place, the nearest valid key or the allowed values. Keys that are absent keep their value.
  void load(const ConfigNode& root, const std::string& where);
  // "section.key=value" from the command line; lists as "1,2,3" or "[1, 2, 3]".
  void set(std::string_view assignment);

  bool given(std::string_view key) const;
  // The value as a file has it; nothing where there is no such key.
  std::optional<std::string> written(std::string_view key) const;
  const std::vector<Field>& all() const& { return fields_; }
  std::vector<Field> all() && {
    return std::move(fields_);
  }  // so that `for (f : fields_of(c).all())` is safe
  // Every key in the order of description; reading it back gives the same values, doubles bit for bit.
  std::string to_yaml() const;

 private:
  Field& add(const char* key, const char* help, std::string allowed, std::function<std::string()> write,
             std::function<void(const ConfigNode&, const std::string&)> read);
  template <class T, class Read>
  void add_list(const char* key, const char* help, std::vector<T>& target, std::string allowed, Read read);
  void add_enum(const char* key, const char* help, std::vector<std::string> names,
                std::function<size_t()> get, std::function<void(size_t)> put);
  void load_section(const ConfigNode& node, const std::string& prefix, const std::string& where);
  Field* find(std::string_view key);
  std::string unknown_key_advice(const std::string& key) const;

  std::string prefix_;
  std::vector<Field> fields_;
};

template <class T>
Fields fields_of(T& config) {
  Fields fields;
  config.describe(fields);
  return fields;
}

}  // namespace signet::io
