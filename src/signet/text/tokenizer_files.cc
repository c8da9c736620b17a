#include <algorithm>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/io/json.h"
#include "signet/text/byte_level_bpe.h"

namespace signet::text {
namespace {

using nlohmann::ordered_json;

bool present(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null();
}

bool flag(const ordered_json& object, const char* key, const std::string& where, bool otherwise = false) {
  return present(object, key) ? io::json_bool(object, key, where) : otherwise;
}

int32_t checked_id(const ordered_json& value, const std::string& name, const std::string& where) {
  const auto id = io::json_size(value);
  if (!id || *id >= kMaxVocabulary)
    bad_input("{}: the id of '{}' must be a whole number below {}", where, printable(name, 40),
              kMaxVocabulary);
  return static_cast<int32_t>(*id);
}

// {"symbols": id, ...} -> symbols by id.
std::vector<std::string> read_vocabulary(const ordered_json& json, const std::string& where) {
  if (!json.is_object()) bad_input("{}: the vocabulary must be an object of ids", where);
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) {
    const auto id = static_cast<size_t>(checked_id(value, name, where));
    if (id >= names.size()) names.resize(id + 1);
    if (!names[id].empty())
      bad_input("{}: '{}' and '{}' have the same id {}", where, printable(names[id], 40), printable(name, 40),
                id);
    names[id] = name;
  }
  return names;
}

std::pair<std::string, std::string> read_merge(std::string_view line, const std::string& where) {
  const size_t space = line.find(' ');
  if (space == 0 || space >= line.size() - 1 || line.find(' ', space + 1) != line.npos)
    bad_input("{}: a merge is two symbols with a space between, not '{}'", where, printable(line, 60));
  return {std::string(line.substr(0, space)), std::string(line.substr(space + 1))};
}

std::string escaped(const std::string& literal) {  // as an expression
  std::string result;
  for (const char c : literal) {
    if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c))) result += '\\';
    result += c;
  }
  return result;
}

class TokenizerJson {
 public:
  TokenizerJson(const ordered_json& json, const std::string& where) : json_(json), where_(where) {}

  ByteLevelSpec read() {
    if (!json_.is_object() || !json_.contains("model")) bad_input("{}: no tokenizer.json", where_);
    const auto& model = io::json_member(json_, "model", where_);
    if (!model.is_object()) bad_input("{}: 'model' must be an object", where_);
    const std::string type =
        present(model, "type") ? io::json_string(model, "type", where_) : std::string("BPE");
    if (type != "BPE") refuse("model", type, "BPE");
    for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
      if (present(model, key) &&
          model[key] != "")  // NOLINT(readability-container-size-empty): any JSON value
        bad_input("{}: model.{} is not for byte-level BPE", where_, key);
    if (flag(model, "byte_fallback", where_))
      bad_input("{}: model.byte_fallback is for sentencepiece; give the tokenizer.model", where_);
    spec_.ignore_merges = flag(model, "ignore_merges", where_);
    spec_.vocabulary = read_vocabulary(io::json_member(model, "vocab", where_), where_);
    for (const auto& merge : io::json_member(model, "merges", where_)) {
      if (merge.is_string())
        spec_.merges.push_back(read_merge(merge.get_ref<const std::string&>(), where_));
      else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
        spec_.merges.emplace_back(merge[0], merge[1]);
      else
        bad_input("{}: model.merges has what is no pair of symbols", where_);
    }
    if (present(json_, "added_tokens")) read_added(json_["added_tokens"]);
    if (present(json_, "normalizer")) read_normalizer(json_["normalizer"]);
    spec_.patterns.clear();
    if (!present(json_, "pre_tokenizer")) refuse("pre_tokenizer", "null", "ByteLevel");
    read_cuts(json_["pre_tokenizer"]);
    if (!byte_level_) refuse("pre_tokenizer", "one without ByteLevel", "ByteLevel");
    return std::move(spec_);
  }

 private:
  [[noreturn]] void refuse(const char* part, const std::string& type, const char* known) const {
    bad_input("{}: its {} is {}; this program reads {}", where_, part, printable(type, 40), known);
  }
  std::string type_of(const ordered_json& part, const char* name) const {
    if (!part.is_object()) bad_input("{}: '{}' must be an object", where_, name);
    return io::json_string(part, "type", where_ + ": " + name);
  }

  void read_added(const ordered_json& list) {
    if (!list.is_array()) bad_input("{}: 'added_tokens' must be a list", where_);
    for (const auto& entry : list) {
      const std::string in = where_ + ": added_tokens";
      AddedToken token;
      token.content = io::json_string(entry, "content", in);
      token.id = checked_id(io::json_member(entry, "id", in), token.content, in);
      token.special = flag(entry, "special", in);
      token.normalized = flag(entry, "normalized", in, !token.special);
      for (const char* key : {"single_word", "lstrip", "rstrip"})
        if (flag(entry, key, in))
          bad_input("{}: '{}' has {}, which this program does not know", in, printable(token.content, 40),
                    key);
      spec_.added.push_back(token);
    }
  }

  void read_normalizer(const ordered_json& part) {
    const std::string type = type_of(part, "normalizer");
    if (type == "Sequence") {
      for (const auto& inner : io::json_member(part, "normalizers", where_)) read_normalizer(inner);
    } else if (type == "NFC") {
      spec_.normal_form_c = true;
    } else {
      refuse("normalizer", type, "NFC, or none");
    }
  }

  void read_cuts(const ordered_json& part) {
    const std::string type = type_of(part, "pre_tokenizer");
    if (type == "Sequence") {
      for (const auto& inner : io::json_member(part, "pretokenizers", where_)) read_cuts(inner);
    } else if (type == "ByteLevel") {
      if (byte_level_) bad_input("{}: ByteLevel twice", where_);
      byte_level_ = true;
      spec_.prefix_space = flag(part, "add_prefix_space", where_, true);
      if (spec_.prefix_space && !spec_.patterns.empty())
        bad_input("{}: add_prefix_space after another pre_tokenizer", where_);
      if (flag(part, "use_regex", where_, true)) spec_.patterns.emplace_back(kGpt2Words);
    } else if (byte_level_) {
      refuse("pre_tokenizer", type + " after ByteLevel", "ByteLevel as the last");
    } else if (type == "Digits") {
      spec_.patterns.emplace_back(flag(part, "individual_digits", where_) ? "\\p{N}" : "\\p{N}+");
    } else if (type == "Split") {
      const auto& pattern = io::json_member(part, "pattern", where_);
      if (const std::string behavior = io::json_string(part, "behavior", where_);
          behavior != "Isolated" || flag(part, "invert", where_))
        refuse("Split", behavior + (flag(part, "invert", where_) ? ", inverted" : ""), "Isolated");
      spec_.patterns.push_back(present(pattern, "Regex")
                                   ? io::json_string(pattern, "Regex", where_)
                                   : escaped(io::json_string(pattern, "String", where_)));
    } else {
      refuse("pre_tokenizer", type, "ByteLevel, Split, Digits and sequences of them");
    }
  }

  const ordered_json& json_;
  const std::string& where_;
  ByteLevelSpec spec_;
  bool byte_level_ = false;
};

}  // namespace

ByteLevelSpec read_tokenizer_json(const ordered_json& json, const std::string& where) {
  return TokenizerJson(json, where).read();
}

ByteLevelSpec read_gpt2_files(const std::string& merges, const ordered_json& vocabulary,
                              const std::string& where) {
  ByteLevelSpec spec;
  spec.vocabulary = read_vocabulary(vocabulary, where);
  for (auto line : split(merges, '\n')) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.rfind("#version", 0) == 0) continue;
    spec.merges.push_back(read_merge(line, where));
  }
  const auto& names = spec.vocabulary;
  if (const auto found = std::find(names.begin(), names.end(), "<|endoftext|>"); found != names.end())
    spec.added.push_back({*found, static_cast<int32_t>(found - names.begin()), true, false});
  return spec;
}

std::string write_tokenizer_json(const ByteLevelSpec& spec) {
  const ordered_json bytes = {{"type", "ByteLevel"},
                              {"add_prefix_space", spec.prefix_space},
                              {"trim_offsets", true},
                              {"use_regex", true}};
  ordered_json added = ordered_json::array(), vocabulary = ordered_json::object(),
               merges = ordered_json::array();
  for (const auto& token : spec.added)
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  // Not through operator[], which looks at every key before it.
  auto& entries = vocabulary.get_ref<ordered_json::object_t&>();
  for (size_t id = 0; id < spec.vocabulary.size(); ++id)
    if (!spec.vocabulary[id].empty()) entries.push_back({spec.vocabulary[id], id});
  for (const auto& [left, right] : spec.merges) merges.push_back(left + " " + right);
  const ordered_json json = {{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens", added},
                             {"normalizer", nullptr},
                             {"pre_tokenizer", bytes},
                             {"post_processor", nullptr},
                             {"decoder", bytes},
                             {"model",
                              {{"type", "BPE"},
                               {"dropout", nullptr},
                               {"unk_token", nullptr},
                               {"continuing_subword_prefix", nullptr},
                               {"end_of_word_suffix", nullptr},
                               {"fuse_unk", false},
                               {"byte_fallback", false},
                               {"vocab", vocabulary},
                               {"merges", merges}}}};
  return json.dump(1) + "\n";
}

}  // namespace signet::text
