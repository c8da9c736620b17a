// Bytes of a file or of standard input from front to back; gzip and zstd are unpacked, recognised by their
// first bytes and not by the name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "signet/base/files.h"

namespace signet::text {

class ByteStream {
 public:
  // "-" is standard input. Once no more is wanted there is none: nobody waits for a pipe.
  explicit ByteStream(const std::string& path, std::stop_token unwanted = {});
  ~ByteStream();
  ByteStream(ByteStream&&) noexcept;

  // At most `bytes`; 0 at the end. Throws kBadInput that names the file when packed data is damaged or cut.
  int64_t read(char* data, int64_t bytes);
  int64_t consumed() const { return consumed_; }  // of the file, packed as it is

 private:
  struct Unpacker;
  friend struct GzipUnpacker;
  friend struct ZstdUnpacker;
  bool refill();  // false at the end of the file

  std::string path_;
  InputStream input_;
  std::stop_token unwanted_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  int64_t consumed_ = 0;
  std::unique_ptr<Unpacker> unpacker_;
};

}  // namespace signet::text
