#include "signet/theory/table_group.h"

#include "signet/automata/named_group.h"
#include "support/check.h"

namespace signet::theory {
namespace {

using automata::Permutation;

// Elements by shortest words in all letters, redundant ones included; every product as permutations have it.
TEST(TableGroup, IsTheGroupOfItsLetters) {
  for (const auto& [name, letters] :
       {std::pair{"S4", "all"}, std::pair{"Q8", "standard"}, std::pair{"Z2xZ6", "all"},
        std::pair{"A5", "3cycles"}, std::pair{"Z1", "all"}}) {
    SCOPED_TRACE(name);
    const auto generators = automata::named_group(name, letters, {}).generators;
    const auto group = TableGroup::generate(generators, 1000);
    ASSERT_TRUE(group);
    std::vector<Permutation> elements = {
        automata::identity_permutation(static_cast<int32_t>(generators[0].size()))};
    for (size_t i = 0; i < elements.size(); ++i)
      for (const auto& s : generators)
        if (const auto c = automata::then(elements[i], s);
            std::find(elements.begin(), elements.end(), c) == elements.end())
          elements.push_back(c);
    ASSERT_EQ(static_cast<size_t>(group->order()), elements.size());
    for (int32_t a = 0; a < group->order(); ++a) {
      EXPECT_EQ(group->element(a), elements[static_cast<size_t>(a)]);
      EXPECT_EQ(group->index(group->element(a)), a);
      EXPECT_EQ(group->product(a, group->inverse(a)), 0);
      for (int32_t b = 0; b < group->order(); ++b)
        ASSERT_EQ(group->element(group->product(a, b)), automata::then(group->element(a), group->element(b)));
    }
    ASSERT_EQ(group->letters().size(), generators.size());
    for (size_t s = 0; s < generators.size(); ++s)
      EXPECT_EQ(group->element(group->letters()[s]), generators[s]);
  }
}

TEST(TableGroup, StopsAtItsLimit) {
  const auto generators = automata::named_group("S5", "standard", {}).generators;
  EXPECT_FALSE(TableGroup::generate(generators, 119));
  EXPECT_EQ(TableGroup::generate(generators, 120)->order(), 120);
}

}  // namespace
}  // namespace signet::theory
