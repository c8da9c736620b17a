#include "signet/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/hash.h"
#include "signet/base/text.h"
#include "signet/io/json.h"
#include "signet/text/byte_level_bpe.h"
#include "signet/text/sentencepiece.h"

namespace signet::text {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() : Tokenizer({{"tokenizer.bytes", "bytes\n"}}) {
    std::vector<std::string> pieces;
    for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
    set_pieces(std::move(pieces), -1, false);
  }
  std::string kind() const override { return "bytes"; }
  std::unique_ptr<Encoder> encoder(bool) const override { return std::make_unique<Copy>(); }

 private:
  // Without a merge, byte-level BPE gives the bytes.
  std::string json_for_others() const override {
    ByteLevelSpec spec;
    spec.vocabulary.assign(byte_symbols().begin(), byte_symbols().end());
    spec.added = {{"<|endoftext|>", start(), /*special=*/true}};
    return write_tokenizer_json(spec);
  }
  struct Copy final : Encoder {
    void encode(std::string_view text, std::vector<int32_t>& out) override {
      for (const char c : text) out.push_back(static_cast<unsigned char>(c));
    }
  };
};

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

const io::JsonLimits kLimits{kMaxTokenizerBytes, 4 * kMaxVocabulary, 64};

std::unique_ptr<Tokenizer> open_gpt2(const std::string& merges, const std::string& vocabulary) {
  std::string lines = read_file(merges, kMaxTokenizerBytes), ids = read_file(vocabulary, kMaxTokenizerBytes);
  const std::string where = printable(merges) + " and " + printable(vocabulary);
  const auto spec = read_gpt2_files(lines, io::parse_json(ids, vocabulary, kLimits), where);
  return std::make_unique<ByteLevelTokenizer>(
      spec, std::vector<std::pair<std::string, std::string>>{{"vocab.bpe", lines}, {"encoder.json", ids}},
      where);
}

struct Gpt2Names {
  const char *merges, *vocabulary;
};
constexpr Gpt2Names kGpt2Names[] = {{"vocab.bpe", "encoder.json"}, {"merges.txt", "vocab.json"}};
// What a folder is searched for, in this order: beside the first there may be a tokenizer.json for others.
constexpr const char* kFiles[] = {"tokenizer.bytes",       "tokenizer.json",         "tokenizer.model",
                                  kGpt2Names[0].merges,    kGpt2Names[0].vocabulary, kGpt2Names[1].merges,
                                  kGpt2Names[1].vocabulary};
constexpr size_t kSingleFiles = 3;

}  // namespace

Tokenizer::Tokenizer(Files files) : files_(std::move(files)) {
  Xxh64 hash;
  for (const auto& [name, content] : files_) {
    hash.update(name.data(), name.size());
    hash.update(content.data(), content.size());
  }
  fingerprint_ = hash.digest();
}

void Tokenizer::set_pieces(std::vector<std::string> pieces, int32_t start, bool leading_space) {
  pieces_ = std::move(pieces);
  if (start < 0) {
    start = static_cast<int32_t>(pieces_.size());
    pieces_.emplace_back();
  }
  start_ = start;
  leading_space_ = leading_space;
}

std::string Tokenizer::decode(const int32_t* ids, size_t count) const {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += piece(ids[i]);
  if (leading_space_ && !text.empty() && text[0] == ' ') text.erase(0, 1);
  return text;
}

void Tokenizer::save(const std::string& folder) const {
  for (const auto& [name, content] : files_) write_file_atomic(join_path(folder, name), content);
  for (const char* name : kFiles) {
    if (name == files_.front().first) break;
    remove_tree(join_path(folder, name));
  }
}

void Tokenizer::export_to(const std::string& folder) const {
  save(folder);
  if (const std::string json = json_for_others(); !json.empty())
    write_file_atomic(join_path(folder, "tokenizer.json"), json);
}

void Tokenizer::remove(const std::string& folder) {
  for (const char* name : kFiles) remove_tree(join_path(folder, name));
}

bool Tokenizer::lies_in(const std::string& folder) {
  return std::any_of(std::begin(kFiles), std::end(kFiles),
                     [&](const char* name) { return exists(join_path(folder, name)); });
}

std::unique_ptr<Tokenizer> Tokenizer::open(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  if (is_directory(name)) {
    const auto has = [&](const char* file) { return exists(join_path(name, file)); };
    for (size_t i = 0; i < kSingleFiles; ++i)
      if (has(kFiles[i])) return open(join_path(name, kFiles[i]));
    for (const auto& files : kGpt2Names)
      if (has(files.merges) && has(files.vocabulary))
        return open_gpt2(join_path(name, files.merges), join_path(name, files.vocabulary));
    bad_input(
        "{} holds no tokenizer: neither tokenizer.json, tokenizer.model, vocab.bpe with encoder.json, nor "
        "merges.txt with vocab.json",
        printable(name));
  }
  if (ends_with(name, "tokenizer.bytes")) return std::make_unique<ByteTokenizer>();
  for (const auto& files : kGpt2Names)
    if (ends_with(name, files.merges) || ends_with(name, files.vocabulary)) {
      const std::string folder = parent_directory(name);
      return open_gpt2(join_path(folder, files.merges), join_path(folder, files.vocabulary));
    }
  if (!exists(name))
    bad_input("no tokenizer '{}': give a tokenizer.json, a sentencepiece .model, a folder, or bytes",
              printable(name));
  std::string content = read_file(name, kMaxTokenizerBytes);
  if (!ends_with(name, ".json") && !content.starts_with('{'))
    return make_sentencepiece(std::move(content), printable(name));
  const auto spec = read_tokenizer_json(io::parse_json(content, name, kLimits), printable(name));
  return std::make_unique<ByteLevelTokenizer>(
      spec, std::vector<std::pair<std::string, std::string>>{{"tokenizer.json", content}}, printable(name));
}

}  // namespace signet::text
