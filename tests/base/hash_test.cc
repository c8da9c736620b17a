#include "signet/base/hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace signet {
namespace {

// Known answers for text (python-xxhash's documentation and the xxHash command line tool).
TEST(Xxh64, PublishedTextVectors) {
  EXPECT_EQ(xxh64(""), 0xef46db3751d8e999u);
  EXPECT_EQ(xxh64("a"), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(xxh64("abc"), 0x44bc2cf5ad770999u);
  EXPECT_EQ(xxh64("Nobody inspects the spammish repetition"), 0xfbcea83c8a378bf1u);
}

// The self-test of the reference implementation: a buffer from its generator, lengths on both sides of the
// 32-byte stripes, with and without a seed.
TEST(Xxh64, ReferenceSelfTest) {
  constexpr uint64_t kSeed = 2654435761u;
  std::vector<unsigned char> buffer(222);
  uint64_t generator = kSeed;
  for (auto& byte : buffer) {
    byte = static_cast<unsigned char>(generator >> 56);
    generator *= 11400714785074694797u;
  }
  const struct {
    size_t length;
    uint64_t seed, hash;
  } cases[] = {
      {0, 0, 0xEF46DB3751D8E999u},      {0, kSeed, 0xAC75FDA2929B17EFu}, {1, 0, 0xE934A84ADB052768u},
      {1, kSeed, 0x5014607643A9B4C3u},  {4, 0, 0x9136A0DCA57457EEu},     {14, 0, 0x8282DCC4994E35C8u},
      {14, kSeed, 0xC3BD6BF63DEB6DF0u}, {222, 0, 0xB641AE8CB691C174u},   {222, kSeed, 0x20CB8AB7AE10C14Au}};
  for (const auto& c : cases)
    EXPECT_EQ(xxh64(buffer.data(), c.length, c.seed), c.hash) << c.length << " " << c.seed;
}

TEST(Xxh64, PiecesGiveTheSameHashAsTheWhole) {
  std::vector<unsigned char> data(301);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * 37 + 11);
  const uint64_t whole = xxh64(data.data(), data.size());
  for (size_t piece : {1u, 7u, 31u, 32u, 33u, 64u, 300u}) {
    Xxh64 stream;
    for (size_t i = 0; i < data.size(); i += piece) stream.update(&data[i], std::min(piece, data.size() - i));
    EXPECT_EQ(stream.digest(), whole) << piece;
    EXPECT_EQ(stream.digest(), whole) << "digest must not change the stream";
  }
  EXPECT_EQ(hash_text(0xabcu), "0000000000000abc");
}

TEST(Xxh64, EverySingleBitMatters) {
  std::vector<unsigned char> data(77, 0x5A);
  const uint64_t before = xxh64(data.data(), data.size());
  for (size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    EXPECT_NE(xxh64(data.data(), data.size()), before) << bit;
    data[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
  }
}

}  // namespace
}  // namespace signet
