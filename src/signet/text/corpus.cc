#include "signet/text/corpus.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/hash.h"
#include "signet/base/text.h"
#include "signet/io/json.h"
#include "signet/io/safetensors.h"

namespace signet::text {
namespace {

using nlohmann::ordered_json;

constexpr char kFormat[] = "signet tokens";
constexpr int64_t kVersion = 1;
constexpr int64_t kMaxDocument = (int64_t{1} << 31) - 2;  // tokens

uint64_t read_hash(const ordered_json& object, const char* key, const std::string& where) {
  const std::string text = io::json_string(object, key, where);
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != text.npos)
    bad_input("{}: '{}' must be 16 hexadecimal digits", printable(where), key);
  return std::stoull(text, nullptr, 16);
}

// At most 2^40, so that the sums over as many shards as data.json may name stay far from 2^63.
int64_t read_count(const ordered_json& object, const char* key, const std::string& where) {
  const int64_t value = io::json_int(object, key, where);
  if (value < 0 || value > int64_t{1} << 40) bad_input("{}: '{}' is out of range", printable(where), key);
  return value;
}

int64_t sum_of(const std::vector<ShardInfo>& shards, int64_t ShardInfo::*member) {
  int64_t sum = 0;
  for (const auto& shard : shards) sum += shard.*member;
  return sum;
}

}  // namespace

std::string shard_name(size_t index) { return fmt::format("{:06}.safetensors", index); }
bool is_shard_name(const std::string& name) {
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  return digits >= 6 && digits < 18 && name == shard_name(std::stoull(name.substr(0, digits)));
}

int64_t CorpusManifest::documents() const { return sum_of(shards, &ShardInfo::documents); }
int64_t CorpusManifest::tokens() const { return sum_of(shards, &ShardInfo::tokens); }
int64_t CorpusManifest::bytes() const { return sum_of(shards, &ShardInfo::bytes); }

CorpusManifest CorpusManifest::read(const std::string& folder) {
  const std::string path = join_path(folder, kManifestFile);
  if (!exists(path)) {
    if (exists(folder) && (!is_directory(folder) || !list_directory(folder).empty()))
      bad_input(
          "{} is not tokenized: signet tokenize {} --tokenizer bytes -o data/mine makes data/mine of it",
          printable(folder), shell_word(folder));
    bad_input("{} holds no {}: make it with signet tokenize INPUT... --tokenizer FILE -o {}",
              printable(folder), kManifestFile, shell_word(folder));
  }
  const auto json = io::read_json_file(path);
  if (!json.is_object() || !json.contains("format") || json["format"] != kFormat)
    bad_input("{}: not the description of tokenized data", printable(path));
  if (const int64_t version = io::json_int(json, "version", path); version != kVersion)
    bad_input("{}: version {}; this program reads version {}", printable(path), version, kVersion);
  CorpusManifest manifest;
  const auto& tokenizer = io::json_member(json, "tokenizer", path);
  manifest.tokenizer_kind = io::json_string(tokenizer, "kind", path);
  manifest.vocabulary = read_count(tokenizer, "vocabulary", path);
  manifest.start = read_count(tokenizer, "start", path);
  manifest.tokenizer = read_hash(tokenizer, "fingerprint", path);
  manifest.held_out = io::json_double(json, "held_out", path);
  if (!(manifest.held_out >= 0 && manifest.held_out <= 1))
    bad_input("{}: 'held_out' must lie in [0, 1]", printable(path));
  manifest.source = read_hash(json, "source", path);
  manifest.records = read_count(json, "records", path);
  manifest.empty = read_count(json, "empty", path);
  manifest.complete = io::json_bool(json, "complete", path);
  manifest.records_hash.reset();
  if (json.contains("records_hash")) manifest.records_hash = read_hash(json, "records_hash", path);
  const auto& shards = io::json_member(json, "shards", path);
  if (!shards.is_array()) bad_input("{}: 'shards' must be a list", printable(path));
  for (const auto& entry : shards) {
    const std::string where = path + ": shards";
    ShardInfo shard;
    shard.file = io::json_string(entry, "file", where);
    if (const std::string name = shard_name(manifest.shards.size()); shard.file != name)
      bad_input("{}: '{}' stands in the place of {}", printable(where), printable(shard.file), name);
    shard.documents = read_count(entry, "documents", where);
    shard.tokens = read_count(entry, "tokens", where);
    shard.bytes = read_count(entry, "bytes", where);
    const auto& hashes = io::json_member(entry, "hashes", where);
    shard.header_hash = read_hash(hashes, "header", where);
    shard.tokens_hash = read_hash(hashes, "tokens", where);
    shard.ends_hash = read_hash(hashes, "ends", where);
    shard.hashes_hash = read_hash(hashes, "hashes", where);
    shard.bytes_hash = read_hash(hashes, "bytes", where);
    manifest.shards.push_back(std::move(shard));
  }
  return manifest;
}

bool CorpusManifest::begins(const std::string& folder) {
  const InputFile file(join_path(folder, kManifestFile));
  std::string text(static_cast<size_t>(std::min<int64_t>(file.size(), 64)), '\0');
  file.read_at(0, text.data(), static_cast<int64_t>(text.size()));
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text.starts_with("{\"format\":\"signettokens\",");
}

void CorpusManifest::write(const std::string& folder) const {
  ordered_json list = ordered_json::array();
  for (const auto& shard : shards)
    list.push_back({{"file", shard.file},
                    {"documents", shard.documents},
                    {"tokens", shard.tokens},
                    {"bytes", shard.bytes},
                    {"hashes",
                     {{"header", hash_text(shard.header_hash)},
                      {"tokens", hash_text(shard.tokens_hash)},
                      {"ends", hash_text(shard.ends_hash)},
                      {"hashes", hash_text(shard.hashes_hash)},
                      {"bytes", hash_text(shard.bytes_hash)}}}});
  ordered_json json = {{"format", kFormat},
                       {"version", kVersion},
                       {"tokenizer",
                        {{"kind", tokenizer_kind},
                         {"vocabulary", vocabulary},
                         {"start", start},
                         {"fingerprint", hash_text(tokenizer)}}},
                       {"held_out", held_out},
                       {"source", hash_text(source)},
                       {"records", records},
                       {"empty", empty},
                       {"complete", complete},
                       {"shards", list}};
  if (records_hash) json["records_hash"] = hash_text(*records_hash);
  io::write_json_file(join_path(folder, kManifestFile), json);
}

void ShardBuilder::add(const std::vector<int32_t>& tokens, uint64_t hash, int64_t bytes) {
  if (static_cast<int64_t>(tokens.size()) > kMaxDocument)
    bad_input("a document of {} tokens; at most {}", tokens.size(), kMaxDocument);
  const size_t width = wide_ ? 4 : 2, begin = tokens_.size();
  tokens_.resize(begin + tokens.size() * width);
  char* out = tokens_.data() + begin;
  for (const int32_t token : tokens) {
    std::memcpy(out, &token, width);  // little-endian: the low bytes come first
    out += width;
  }
  count_ += static_cast<int64_t>(tokens.size());
  text_bytes_ += bytes;
  ends_.push_back(count_);
  bytes_.push_back(bytes);
  hashes_.push_back(hash);
}

ShardInfo ShardBuilder::write(const std::string& folder, const std::string& file) {
  const auto count = documents();
  const auto written = io::write_safetensors(
      join_path(folder, file),
      {{"tokens", wide_ ? io::StoredType::kU32 : io::StoredType::kU16, {count_}, tokens_.data()},
       {"ends", io::StoredType::kI64, {count}, ends_.data()},
       {"hashes", io::StoredType::kU64, {count}, hashes_.data()},
       {"bytes", io::StoredType::kI64, {count}, bytes_.data()}});
  ShardInfo info{file, count, count_, text_bytes_, written.header_hash, 0, 0, 0, 0};
  for (const auto& tensor : written.tensors) {
    const std::string& name = tensor.info.name;
    (name == "tokens"   ? info.tokens_hash
     : name == "ends"   ? info.ends_hash
     : name == "hashes" ? info.hashes_hash
                        : info.bytes_hash) = tensor.hash;
  }
  *this = ShardBuilder(wide_ ? 65537 : 1);
  return info;
}

Corpus::Corpus(const std::string& folder) : folder_(folder), manifest_(CorpusManifest::read(folder)) {
  tokenizer_ = Tokenizer::open(folder);
  if (tokenizer_->fingerprint() != manifest_.tokenizer || tokenizer_->vocabulary() != manifest_.vocabulary ||
      tokenizer_->start() != manifest_.start)
    bad_input("{}: the tokenizer there is not the one that made the data (fingerprint {}, not {})",
              printable(folder), hash_text(tokenizer_->fingerprint()), hash_text(manifest_.tokenizer));
  for (const auto& info : manifest_.shards) open_shard(info);
}

namespace {

void check_hash(const io::SafetensorsFile& file, const std::string& path, const char* name, uint64_t hash) {
  const auto* tensor = file.find(name);
  if (!tensor || file.hash(*tensor) != hash)
    bad_input("{}: '{}' is damaged (its hash is another); tokenize again", printable(path), name);
}
// What is read whenever the file is opened; the tokens are much more.
void check_tables(const io::SafetensorsFile& file, const std::string& path, const ShardInfo& info) {
  check_hash(file, path, "ends", info.ends_hash);
  check_hash(file, path, "hashes", info.hashes_hash);
  check_hash(file, path, "bytes", info.bytes_hash);
}

}  // namespace

void Corpus::open_shard(const ShardInfo& info) {
  const std::string path = join_path(folder_, info.file);
  const auto file = io::SafetensorsFile::open(path);
  if (file.header_hash() != info.header_hash)
    bad_input("{}: not the file that {} describes; tokenize again", printable(path), kManifestFile);
  const auto tensor = [&](const char* name, std::initializer_list<io::StoredType> types, int64_t count) {
    const auto* found = file.find(name);
    if (!found || std::find(types.begin(), types.end(), found->dtype) == types.end() ||
        found->shape != std::vector<int64_t>{count})
      bad_input("{}: '{}' is missing or has another type or size than {} says", printable(path), name,
                kManifestFile);
    return found;
  };
  using io::StoredType;
  const auto* tokens = tensor("tokens", {StoredType::kU16, StoredType::kU32}, info.tokens);
  tensor("ends", {StoredType::kI64}, info.documents);
  tensor("hashes", {StoredType::kU64}, info.documents);
  tensor("bytes", {StoredType::kI64}, info.documents);
  check_tables(file, path, info);
  const auto count = static_cast<size_t>(info.documents);
  std::vector<int64_t> ends(count), bytes(count);
  std::vector<uint64_t> hashes(count);
  const auto width = static_cast<int64_t>(sizeof(int64_t)) * info.documents;
  file.read("ends", ends.data(), width);
  file.read("hashes", hashes.data(), width);
  file.read("bytes", bytes.data(), width);
  int64_t begin = 0, text = 0;
  const auto limit = static_cast<uint64_t>(manifest_.held_out * 0x1.0p53);
  for (size_t i = 0; i < count; ++i) {
    if (ends[i] < begin || ends[i] > info.tokens || ends[i] - begin > kMaxDocument || bytes[i] < 0 ||
        bytes[i] > info.bytes - text)
      bad_input("{}: document {} has impossible bounds; tokenize again", printable(path), i);
    // Not the hash itself: whoever chose documents by it would choose the split.
    const int split = (xxh64(&hashes[i], sizeof hashes[i], 1) >> 11) < limit ? kHeldOut : kTrain;
    documents_[split].push_back(
        {begin, static_cast<int32_t>(shards_.size()), static_cast<int32_t>(ends[i] - begin), bytes[i]});
    tokens_[split] += ends[i] - begin;
    bytes_[split] += bytes[i];
    begin = ends[i];
    text += bytes[i];
  }
  if (begin != info.tokens || text != info.bytes)
    bad_input("{}: {} and {} of no document; tokenize again", printable(path),
              count_of(info.tokens - begin, "token"), count_of(info.bytes - text, "byte"));
  shards_.push_back({std::make_unique<InputFile>(path), tokens->offset, tokens->dtype == StoredType::kU32});
}

std::string Corpus::unfinished() const {
  if (manifest_.complete) return "";
  return fmt::format("tokenize was stopped after {}; the same command goes on",
                     count_of(manifest_.documents(), "document"));
}

std::string Corpus::one_sided() const {
  const size_t train = documents_[kTrain].size(), held_out = documents_[kHeldOut].size();
  if (train > 0 && held_out > 0) return "";
  if (std::string why = unfinished(); !why.empty()) return why;
  return fmt::format(
      "of {} none is {}: tokenize again with a {} --held-out, or cut the files into more documents "
      "(--separator "
      "TEXT or --format lines)",
      count_of(static_cast<int64_t>(train + held_out), "document"),
      held_out == 0 ? "held out to measure on" : "left to train on", held_out == 0 ? "larger" : "smaller");
}

void Corpus::read(const DocumentPlace& document, int64_t from, int64_t count, int32_t* out) const {
  const Shard& shard = shards_[static_cast<size_t>(document.shard)];
  const int64_t width = shard.wide ? 4 : 2;
  // Into the end of the output, and from there spread out to its front.
  char* const raw = reinterpret_cast<char*>(out) + count * (4 - width);
  shard.file->read_at(shard.offset + (document.begin + from) * width, raw, count * width);
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t value = 0;
    std::memcpy(&value, raw + i * width, static_cast<size_t>(width));
    largest = std::max(largest, value);
    out[i] = static_cast<int32_t>(value);
  }
  if (count > 0 && largest >= static_cast<uint64_t>(manifest_.vocabulary))
    bad_input("{}: holds token {}, and the vocabulary has {}; it is damaged: tokenize again",
              printable(shard.file->path()), largest, manifest_.vocabulary);
}

void Corpus::verify(const std::function<void(int64_t)>& progress) const {
  int64_t done = 0;
  for (const auto& info : manifest_.shards) {
    const std::string path = join_path(folder_, info.file);
    const auto file = io::SafetensorsFile::open(path);
    check_hash(file, path, "tokens", info.tokens_hash);
    check_tables(file, path, info);
    if (progress) progress(++done);
  }
}

}  // namespace signet::text
