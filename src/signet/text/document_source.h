// Documents out of files, folders and standard input, one after the other in bounded memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "signet/text/byte_stream.h"
#include "signet/text/token_file.h"

namespace signet::text {

struct SourceOptions {
  std::string format = "auto";  // text, lines, jsonl, ids; auto = jsonl by its name or first byte, else text
  std::string field = "text";   // of a line of JSONL
  std::string separator;        // between the documents of a text file; a file is one document when empty
  int64_t max_document = 64 << 20;  // bytes of one document or line; longer ones are an error
  std::string without;  // a folder that is no input, though it may lie in one: where the output goes
  // Of ids: the tokenizer's.
  int64_t vocabulary = 0;
  int32_t start = 0;
  std::stop_token unwanted = {};  // ends the wait for a pipe
};

// A document as it lies in its file: itself, or the line of JSON that has it.
struct Record {
  std::string text;
  std::vector<int32_t> ids;  // in the place of text, of files of ids
  bool json = false;
  int64_t number = 0;  // in its file, from 1
  size_t file = 0;
};

class DocumentSource {
 public:
  // Folders are walked in the order of names; hidden files, links to folders, files with NUL bytes in them
  // and the folder `without` are left out there, and of ids all but .bin. "-" is standard input.
  DocumentSource(const std::vector<std::string>& inputs, const SourceOptions& options);

  bool next(Record& record);                         // false at the end
  std::string document(const Record& record) const;  // from any thread; throws kBadInput that names the line
  const std::vector<std::string>& files() const { return files_; }
  int64_t left_out() const { return left_out_; }        // files of folders that are no text
  int64_t total_bytes() const { return total_bytes_; }  // of the files as they lie there; 0 = not known
  int64_t consumed_bytes() const {
    return consumed_ + (stream_ ? stream_->consumed() : 0) + (tokens_ ? tokens_->consumed() : 0);
  }
  uint64_t fingerprint() const;  // of the list of files, their sizes and the options

 private:
  bool open_next();
  bool next_ids(Record& record);
  std::string place(const Record& record) const;  // "file:line"
  bool looks_like_json(const std::string& path) const;

  SourceOptions options_;
  std::vector<std::string> files_;
  std::vector<bool> walked_;  // found in a folder
  std::vector<int64_t> sizes_;
  size_t current_ = 0;  // one after the file that is open
  std::optional<ByteStream> stream_;
  std::optional<TokenFile> tokens_;
  bool json_ = false, at_end_ = false;
  std::string separator_, pending_;
  size_t searched_ = 0;  // of pending_, without a separator
  size_t taken_ = 0;     // of pending_, handed out
  int64_t number_ = 0, left_out_ = 0, total_bytes_ = 0, consumed_ = 0;
};

}  // namespace signet::text
