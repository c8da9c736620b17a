// xxHash, 64 bits (https://github.com/Cyan4973/xxHash, specification by Yann Collet): the checksum of
// checkpoints. It finds damage, not forgery. Written out here because it is a page long and a library would
// be one more dependency of every build.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace signet {

// Feed pieces in any cut; digest() does not end the stream.
class Xxh64 {
 public:
  explicit Xxh64(uint64_t seed = 0);
  void update(const void* data, size_t bytes);
  uint64_t digest() const;

 private:
  std::array<uint64_t, 4> lanes_;
  std::array<unsigned char, 32> buffer_{};
  size_t buffered_ = 0;
  uint64_t total_ = 0, seed_;
};

uint64_t xxh64(const void* data, size_t bytes, uint64_t seed = 0);
inline uint64_t xxh64(std::string_view text, uint64_t seed = 0) {
  return xxh64(text.data(), text.size(), seed);
}

std::string hash_text(uint64_t hash);  // 16 hexadecimal digits

}  // namespace signet
