#include "signet/base/rng.h"

#include <gtest/gtest.h>

#include <vector>

namespace signet {
namespace {

std::vector<uint32_t> words(const PhiloxBlock& block) { return {block.words, block.words + 4}; }

// Known answers of Random123, the authors' library.
TEST(Philox, GivesThePublishedNumbers) {
  constexpr uint32_t kAll = 0xffffffff;
  EXPECT_EQ(words(philox({{0, 0, 0, 0}}, 0)),
            (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(philox({{kAll, kAll, kAll, kAll}}, ~uint64_t{0})),
            (std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

// Runs made before must be the same when they are made again.
TEST(Rng, CountsBlocksUnderItsSeedAndStream) {
  const uint64_t seed = 0x123456789abcdef, stream = 0xfedcba987654321;
  Rng rng(seed, stream);
  for (uint32_t block = 0; block < 3; ++block)
    for (const uint32_t word : words(philox({{block, 0, 0x87654321, 0xfedcba9}}, seed)))
      EXPECT_EQ(rng.next_u32(), word);
}

TEST(Rng, SkipsAsIfItHadDrawn) {
  for (uint64_t before = 0; before < 6; ++before)
    for (const uint64_t words : {0, 1, 2, 3, 4, 5, 11, 1000}) {
      Rng drawing(7, 9), skipping(7, 9);
      for (uint64_t i = 0; i < before; ++i) drawing.next_u32(), skipping.next_u32();
      for (uint64_t i = 0; i < words; ++i) drawing.next_u32();
      skipping.skip(words);
      for (int i = 0; i < 5; ++i)
        EXPECT_EQ(drawing.next_u32(), skipping.next_u32()) << before << " " << words;
    }
}

}  // namespace
}  // namespace signet
