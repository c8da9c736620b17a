// A folder of tokenized documents (docs/tokenize.md): data.json, the tokenizer's files, and shards. A shard
// is a safetensors file with
//   tokens  [n] U16, or U32 for vocabularies above 65536: the documents behind each other
//   ends    [documents] I64: where each ends in `tokens`
//   hashes  [documents] U64: xxh64 of its text
//   bytes   [documents] I64: of its text
// data.json is written anew after each shard and says how many records of the input they hold together, and
// their hash, so that tokenizing can go on. A held-out document is one whose hash says so: equal documents
// are held out together, and nobody needs to store which.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "signet/base/files.h"
#include "signet/text/tokenizer.h"

namespace signet::text {

struct ShardInfo {
  std::string file;
  int64_t documents = 0, tokens = 0, bytes = 0;
  uint64_t header_hash = 0, tokens_hash = 0, ends_hash = 0, hashes_hash = 0, bytes_hash = 0;
};

// data.json.
struct CorpusManifest {
  std::string tokenizer_kind;
  int64_t vocabulary = 0, start = 0;
  uint64_t tokenizer = 0;  // its fingerprint
  double held_out = 0;     // share of the documents
  uint64_t source = 0;     // fingerprint of inputs and options
  int64_t records = 0, empty = 0;
  std::optional<uint64_t> records_hash = 0;  // of one after the other; older versions wrote none
  bool complete = false;
  std::vector<ShardInfo> shards;

  static CorpusManifest read(const std::string& folder);
  // Whether the file is one of these by its beginning, which one that was cut off has too.
  static bool begins(const std::string& folder);
  void write(const std::string& folder) const;
  int64_t documents() const, tokens() const, bytes() const;
};
inline constexpr char kManifestFile[] = "data.json";
std::string shard_name(size_t index);         // 000000.safetensors
bool is_shard_name(const std::string& name);  // of some index

// Gathers documents and writes them as a shard.
class ShardBuilder {
 public:
  explicit ShardBuilder(int64_t vocabulary) : wide_(vocabulary > 65536) {}
  void add(const std::vector<int32_t>& tokens, uint64_t hash, int64_t bytes);
  int64_t tokens() const { return count_; }
  int64_t documents() const { return static_cast<int64_t>(ends_.size()); }
  // Leaves the builder empty.
  ShardInfo write(const std::string& folder, const std::string& file);

 private:
  bool wide_;
  int64_t count_ = 0, text_bytes_ = 0;
  std::vector<char> tokens_;
  std::vector<int64_t> ends_, bytes_;
  std::vector<uint64_t> hashes_;
};

// Where a document lies.
struct DocumentPlace {
  int64_t begin = 0;  // in the tokens of its shard
  int32_t shard = 0;
  int32_t tokens = 0;
  int64_t bytes = 0;
};

class Corpus {
 public:
  // Checks headers, sizes and bounds; the tokens are looked at when they are read.
  explicit Corpus(const std::string& folder);
  Corpus(Corpus&&) = default;

  enum Split { kTrain, kHeldOut };
  const std::vector<DocumentPlace>& documents(Split split) const { return documents_[split]; }
  int64_t tokens(Split split) const { return tokens_[split]; }
  int64_t bytes(Split split) const { return bytes_[split]; }

  // Tokens [from, from + count) of a document. From any thread. Throws kBadInput that names the shard when it
  // has shrunk or holds an id that the vocabulary lacks.
  void read(const DocumentPlace& document, int64_t from, int64_t count, int32_t* out) const;
  // Reads everything and compares the hashes; throws kBadInput that names the shard.
  void verify(const std::function<void(int64_t)>& progress = nullptr) const;

  // That tokenize has more to do, and how. Else empty.
  std::string unfinished() const;
  // Why it cannot be trained on and measured on, and what to do: one part has no documents. Else empty.
  std::string one_sided() const;

  const std::string& folder() const { return folder_; }
  const CorpusManifest& manifest() const { return manifest_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  struct Shard {
    std::unique_ptr<InputFile> file;
    int64_t offset = 0;  // of the tokens in it
    bool wide = false;
  };
  void open_shard(const ShardInfo& info);

  std::string folder_;
  CorpusManifest manifest_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<Shard> shards_;
  std::vector<DocumentPlace> documents_[2];
  int64_t tokens_[2] = {0, 0}, bytes_[2] = {0, 0};
};

}  // namespace signet::text
