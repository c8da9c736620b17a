#include "signet/base/hash.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace signet {
namespace {

static_assert(std::endian::native == std::endian::little, "xxh64 reads little-endian words");

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87u, kPrime2 = 0xC2B2AE3D27D4EB4Fu,
                   kPrime3 = 0x165667B19E3779F9u, kPrime4 = 0x85EBCA77C2B2AE63u,
                   kPrime5 = 0x27D4EB2F165667C5u;

template <class T>
T load(const unsigned char* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

uint64_t round(uint64_t lane, uint64_t word) { return std::rotl(lane + word * kPrime2, 31) * kPrime1; }

void stripe(std::array<uint64_t, 4>& lanes, const unsigned char* p) {
  for (int i = 0; i < 4; ++i) lanes[i] = round(lanes[i], load<uint64_t>(p + ptrdiff_t{8} * i));
}

}  // namespace

Xxh64::Xxh64(uint64_t seed)
    : lanes_{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1}, seed_(seed) {}

void Xxh64::update(const void* data, size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  total_ += bytes;
  if (buffered_ > 0) {
    const size_t take = std::min(bytes, buffer_.size() - buffered_);
    if (take > 0) std::memcpy(buffer_.data() + buffered_, p, take);
    buffered_ += take, p += take, bytes -= take;
    if (buffered_ < buffer_.size()) return;
    stripe(lanes_, buffer_.data());
    buffered_ = 0;
  }
  for (; bytes >= 32; p += 32, bytes -= 32) stripe(lanes_, p);
  if (bytes > 0) std::memcpy(buffer_.data(), p, bytes);
  buffered_ = bytes;
}

uint64_t Xxh64::digest() const {
  uint64_t hash = seed_ + kPrime5;
  if (total_ >= 32) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (uint64_t lane : lanes_) hash = (hash ^ round(0, lane)) * kPrime1 + kPrime4;
  }
  hash += total_;
  const unsigned char *p = buffer_.data(), *end = p + buffered_;
  for (; end - p >= 8; p += 8) hash = std::rotl(hash ^ round(0, load<uint64_t>(p)), 27) * kPrime1 + kPrime4;
  for (; end - p >= 4; p += 4) hash = std::rotl(hash ^ load<uint32_t>(p) * kPrime1, 23) * kPrime2 + kPrime3;
  for (; p < end; ++p) hash = std::rotl(hash ^ *p * kPrime5, 11) * kPrime1;
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

uint64_t xxh64(const void* data, size_t bytes, uint64_t seed) {
  Xxh64 stream(seed);
  stream.update(data, bytes);
  return stream.digest();
}

std::string hash_text(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace signet
