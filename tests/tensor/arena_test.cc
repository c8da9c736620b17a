#include "signet/tensor/arena.h"

#include "signet/base/rng.h"
#include "support/check.h"

namespace signet {
namespace {

TEST(Arena, GivesOutAgainWhatWasReleased) {
  Arena arena;
  EXPECT_NE(arena.allocate(0), nullptr);
  char* const a = static_cast<char*>(arena.allocate(1000));
  char* const b = static_cast<char*>(arena.allocate(300));
  void* const c = arena.allocate(1);
  EXPECT_EQ(b - a, 1024);
  EXPECT_EQ(arena.used(), 1024 + 512 + 256);
  arena.release(a, 1000);
  EXPECT_EQ(arena.allocate(2000), static_cast<char*>(c) + 256);  // too large for the hole
  EXPECT_EQ(arena.allocate(512), a);
  arena.release(b, 300);                     // beside the rest of the first hole
  EXPECT_EQ(arena.allocate(1024), a + 512);  // both together
  EXPECT_EQ(arena.peak(), 1024 + 512 + 256 + 2048);
}

TEST(Arena, WhatIsReleasedAtTheEndIsAsIfItHadNeverBeen) {
  Arena arena;
  void* const a = arena.allocate(100);
  void* const b = arena.allocate(1 << 12);
  arena.release(b, 1 << 12);
  EXPECT_EQ(arena.allocate(1 << 13), b);
  EXPECT_EQ(arena.peak(), 256 + (1 << 13));
  arena.reset();
  EXPECT_EQ(arena.allocate(100), a);
  EXPECT_EQ(arena.peak(), 256);
}

// Random calls on an arena that measures, and the same on one with so much memory: the same places, none in
// use twice, and no growth.
TEST(Arena, MeasuresWhatAnotherNeeds) {
  struct Live {
    char *measured, *real;
    int64_t bytes;
  };
  Arena measuring = Arena::measuring(DeviceKind::kCpu), real;
  int64_t need = 0;
  for (int round = 0; round < 2; ++round) {
    Rng rng(3);
    std::vector<Live> live;
    measuring.reset();
    char *first_measured = nullptr, *first_real = nullptr;
    for (int i = 0; i < 2000; ++i) {
      if (live.size() > 40 || (!live.empty() && rng.below(2))) {
        const size_t which = rng.below(static_cast<uint32_t>(live.size()));
        measuring.release(live[which].measured, live[which].bytes);
        if (round == 1) real.release(live[which].real, live[which].bytes);
        live.erase(live.begin() + static_cast<int64_t>(which));
        continue;
      }
      Live one{nullptr, nullptr, rng.between(0, 9000)};
      one.measured = static_cast<char*>(measuring.allocate(one.bytes));
      if (!first_measured) first_measured = one.measured;
      if (round == 1) {
        one.real = static_cast<char*>(real.allocate(one.bytes));
        if (!first_real) first_real = one.real;
        EXPECT_EQ(one.real - first_real, one.measured - first_measured);
        for (const Live& other : live)
          EXPECT_TRUE(one.real + one.bytes <= other.real || other.real + other.bytes <= one.real);
      }
      live.push_back(one);
    }
    need = measuring.peak();
    if (round == 0) real.reserve(need);
  }
  EXPECT_FALSE(real.grown());
  EXPECT_EQ(real.peak(), need);
}

}  // namespace
}  // namespace signet
