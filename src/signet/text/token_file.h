// Documents out of files that others have tokenized:
//   nanoGPT   X.bin: ids behind each other, U16 (U32 for vocabularies above 65536), an end-of-text token
//             between documents
//   Megatron  X.bin with X.idx beside it, which says of what type the ids are and where sequences and
//             documents begin
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "signet/base/files.h"

namespace signet::text {

class TokenFile {
 public:
  // `start` is the token that ends documents. Throws kBadInput that says what is wrong with the files.
  TokenFile(const std::string& path, int64_t vocabulary, int32_t start, int64_t max_document);

  // The ids of the next document, without the tokens that begin and end it; false at the end. Throws
  // kBadInput at an id that the vocabulary lacks.
  bool next(std::vector<int32_t>& ids);
  int64_t consumed() const { return consumed_; }  // bytes

 private:
  void read_index();
  bool next_of_stream(std::vector<int32_t>& ids);
  void read_ids(int64_t offset, int64_t count, std::vector<int32_t>& ids);  // appends

  InputFile file_;
  std::optional<InputFile> index_;
  int64_t vocabulary_, max_document_, width_, consumed_ = 0;  // width: bytes of an id
  int32_t start_;
  // Of the index: how many there are, and where their tables lie.
  int64_t sequences_ = 0, documents_ = 0, lengths_at_ = 0, places_at_ = 0, bounds_at_ = 0, document_ = 0;
};

}  // namespace signet::text
