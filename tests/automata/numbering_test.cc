#include "signet/automata/numbering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace signet::automata {
namespace {

// Hashes of few values, so that different things meet in every slot.
TEST(Numbering, NumbersEachThingOnce) {
  for (uint64_t hashes : {1u, 7u, 100'000u}) {
    SCOPED_TRACE(hashes);
    Numbering numbering;
    std::vector<int> things;
    for (int i = 0; i < 1'000; ++i) {
      const int thing = i * i % 331;
      const uint64_t hash = static_cast<uint64_t>(thing) % hashes;
      const auto same = [&](int32_t number) { return things[static_cast<size_t>(number)] == thing; };
      const auto before = std::find(things.begin(), things.end(), thing);
      const int32_t number = numbering.find(hash, same);
      EXPECT_EQ(number, before == things.end() ? -1 : before - things.begin());
      if (number >= 0) continue;
      things.push_back(thing);
      EXPECT_EQ(numbering.add(hash), static_cast<int32_t>(things.size()) - 1);
    }
    EXPECT_EQ(things.size(), 166u);  // squares mod 331
  }
}

}  // namespace
}  // namespace signet::automata
