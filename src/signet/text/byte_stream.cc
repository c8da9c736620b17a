#include "signet/text/byte_stream.h"

#include <algorithm>
#include <cstring>

#include "signet/base/error.h"
#include "signet/base/text.h"
#ifdef SIGNET_ZLIB
#include <zlib.h>
#endif
#ifdef SIGNET_ZSTD
#include <zstd.h>
#endif

namespace signet::text {

struct ByteStream::Unpacker {
  virtual ~Unpacker() = default;
  virtual int64_t read(ByteStream& stream, char* data, int64_t bytes) = 0;
};

#ifdef SIGNET_ZLIB
struct GzipUnpacker final : ByteStream::Unpacker {
  z_stream z{};
  bool inside = false;  // of a member
  GzipUnpacker() {
    if (inflateInit2(&z, 15 + 32) != Z_OK) throw std::bad_alloc();
  }
  ~GzipUnpacker() override { inflateEnd(&z); }
  int64_t read(ByteStream& stream, char* data, int64_t bytes) override {
    z.next_out = reinterpret_cast<Bytef*>(data);
    z.avail_out = static_cast<uInt>(std::min<int64_t>(bytes, 1 << 30));
    const auto room = z.avail_out;
    while (z.avail_out == room) {
      if (stream.begin_ == stream.end_ && !stream.refill()) {
        if (inside) bad_input("{}: the gzip data ends in the middle", printable(stream.path_));
        return 0;
      }
      if (!inside) {  // zeros behind a member are padding, as gzip takes them
        while (stream.begin_ < stream.end_ && stream.buffer_[stream.begin_] == 0) ++stream.begin_;
        if (stream.begin_ == stream.end_) continue;
      }
      inside = true;
      z.next_in = reinterpret_cast<Bytef*>(stream.buffer_.data() + stream.begin_);
      z.avail_in = static_cast<uInt>(stream.end_ - stream.begin_);
      const int result = inflate(&z, Z_NO_FLUSH);
      stream.begin_ = stream.end_ - z.avail_in;
      if (result == Z_STREAM_END) {
        inside = false;
        inflateReset(&z);
      } else if (result == Z_MEM_ERROR) {
        throw std::bad_alloc();
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        bad_input("{}: damaged gzip data: {}", printable(stream.path_), z.msg ? z.msg : "unknown");
      }
    }
    return room - z.avail_out;
  }
};
#endif

#ifdef SIGNET_ZSTD
struct ZstdUnpacker final : ByteStream::Unpacker {
  ZSTD_DStream* z = ZSTD_createDStream();
  bool inside = false;
  ZstdUnpacker() {
    if (!z) throw std::bad_alloc();
  }
  ~ZstdUnpacker() override { ZSTD_freeDStream(z); }
  int64_t read(ByteStream& stream, char* data, int64_t bytes) override {
    ZSTD_outBuffer out{data, static_cast<size_t>(bytes), 0};
    while (out.pos == 0) {
      // What was read may still be held back in the unpacker, so it is asked once more at the end.
      const bool more = stream.begin_ < stream.end_ || stream.refill();
      if (!more && !inside) return 0;
      ZSTD_inBuffer in{stream.buffer_.data(), stream.end_, stream.begin_};
      const size_t result = ZSTD_decompressStream(z, &out, &in);
      stream.begin_ = in.pos;
      if (ZSTD_isError(result))
        bad_input("{}: damaged zstd data: {}", printable(stream.path_), ZSTD_getErrorName(result));
      inside = result != 0;
      if (!more && out.pos == 0) bad_input("{}: the zstd data ends in the middle", printable(stream.path_));
    }
    return static_cast<int64_t>(out.pos);
  }
};
#endif

namespace {

[[noreturn]] [[maybe_unused]] void fail_packed(const std::string& path, const char* what,
                                               const char* package) {
  fail(ErrorCode::kFailure,
       "{} is packed by {}, which this build cannot read: install {} and build again, or "
       "unpack it first",
       printable(path), what, package);
}

}  // namespace

ByteStream::ByteStream(const std::string& path, std::stop_token unwanted)
    : path_(path == "-" ? "standard input" : path),
      input_(path == "-" ? InputStream::standard() : InputStream(path)),
      unwanted_(std::move(unwanted)),
      buffer_(1 << 18) {
  refill();
  const std::string_view head(buffer_.data(), std::min<size_t>(end_, 4));
  if (head.substr(0, 2) == "\x1f\x8b") {
#ifdef SIGNET_ZLIB
    unpacker_ = std::make_unique<GzipUnpacker>();
#else
    fail_packed(path_, "gzip", "zlib1g-dev");
#endif
  } else if (head == "\x28\xb5\x2f\xfd") {
#ifdef SIGNET_ZSTD
    unpacker_ = std::make_unique<ZstdUnpacker>();
#else
    fail_packed(path_, "zstd", "libzstd-dev");
#endif
  }
}

ByteStream::~ByteStream() = default;
ByteStream::ByteStream(ByteStream&&) noexcept = default;

bool ByteStream::refill() {
  begin_ = end_ = 0;
  // A pipe gives little at a time; the first bytes must be there to be looked at.
  while (end_ < 4) {
    const int64_t got =
        input_.read(buffer_.data() + end_, static_cast<int64_t>(buffer_.size() - end_), unwanted_);
    if (got == 0) break;
    end_ += static_cast<size_t>(got);
  }
  consumed_ += static_cast<int64_t>(end_);
  return end_ > 0;
}

int64_t ByteStream::read(char* data, int64_t bytes) {
  if (unpacker_) return unpacker_->read(*this, data, bytes);
  if (begin_ == end_ && !refill()) return 0;
  const auto count = std::min<int64_t>(bytes, static_cast<int64_t>(end_ - begin_));
  std::memcpy(data, buffer_.data() + begin_, static_cast<size_t>(count));
  begin_ += static_cast<size_t>(count);
  return count;
}

}  // namespace signet::text
