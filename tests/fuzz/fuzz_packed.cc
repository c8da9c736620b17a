// Packed text, gzip or zstd as its first bytes say: small reads give what large ones give.
#include "fuzz/fuzz.h"
#include "signet/text/byte_stream.h"

namespace {

constexpr size_t kMost = 1 << 13;  // a few bytes may unpack to gigabytes

std::string first_bytes(const std::string& path, int64_t piece) {
  signet::text::ByteStream stream(path);
  std::string all, part(static_cast<size_t>(piece), '\0');
  while (all.size() < kMost) {
    const int64_t got = stream.read(part.data(), piece);
    if (got == 0) break;
    if (got < 0 || got > piece) __builtin_trap();
    all.append(part, 0, static_cast<size_t>(got));
  }
  return all.substr(0, kMost);
}

}  // namespace

SIGNET_FUZZ(text) {
  const std::string path = signet::fuzz::file_with(text);
  const std::string whole = first_bytes(path, kMost);
  try {
    if (first_bytes(path, 5) != whole) __builtin_trap();
  } catch (const signet::Error&) {  // who reads less at a time meets damage no earlier
    __builtin_trap();
  }
}
