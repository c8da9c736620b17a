#include "signet/automata/elimination_cascade.h"

#include <algorithm>
#include <set>

#include "signet/automata/named_language.h"
#include "signet/base/error.h"
#include "support/check.h"

namespace signet::automata {
namespace {

Dfa random_dfa(Rng& rng, State n, Letter letters) {
  Dfa dfa;
  for (Letter a = 0; a < letters; ++a) dfa.alphabet.push_back(std::string(1, static_cast<char>('a' + a)));
  for (State q = 0; q < n; ++q) {
    auto& row = dfa.delta.emplace_back();
    for (Letter a = 0; a < letters; ++a)
      row.push_back(static_cast<State>(rng.below(static_cast<uint32_t>(n))));
    dfa.accept.push_back(rng.below(2));
  }
  dfa.start = static_cast<State>(rng.below(static_cast<uint32_t>(n)));
  return dfa;
}

TEST(EliminationCascade, FollowsTheAutomaton) {
  Rng rng(5);
  for (int trial = 0; trial < 3000; ++trial) {
    const auto n = static_cast<State>(1 + rng.below(12));
    const Dfa dfa = random_dfa(rng, n, static_cast<Letter>(1 + rng.below(3)));
    EliminationCascade cascade(dfa);
    ASSERT_EQ(cascade.levels(), n - 1);
    auto code = cascade.start();
    State q = dfa.start;
    for (int t = 0; t < 40; ++t) {
      const auto a = static_cast<Letter>(rng.below(static_cast<uint32_t>(dfa.letters())));
      code = cascade.step(code, a);
      q = dfa.delta[q][a];
      ASSERT_EQ(cascade.decode(code), q) << "trial " << trial << " step " << t;
    }
  }
}

// Every level is a partial permutation or a reset given its context, and the old element can be recovered
// when it moves: what the compiler relies on.
TEST(EliminationCascade, LevelsArePartialPermutationsOrResets) {
  Rng rng(6);
  for (int trial = 0; trial < 50; ++trial) {
    const Dfa dfa = random_dfa(rng, 5, 2);
    EliminationCascade cascade(dfa);
    ASSERT_TRUE(cascade.explore(1000));
    for (int32_t level = 0; level < cascade.levels(); ++level)
      for (const auto& row : cascade.rows(level)) {
        const auto old_set = cascade.members(row.old_set), new_set = cascade.members(row.new_set);
        EXPECT_EQ(static_cast<int32_t>(old_set.size()), dfa.states() - level);
        std::set<State> image;
        for (State q : old_set) image.insert(dfa.delta[q][row.letter]);
        for (State q : image) EXPECT_TRUE(std::binary_search(new_set.begin(), new_set.end(), q));
        EXPECT_EQ(row.moves(), image.size() == old_set.size());
        if (!row.moves()) {
          EXPECT_EQ(image.count(row.reset), 0u);
        }
      }
  }
}

// Context counts per level as computed once by an independent program.
TEST(EliminationCascade, KnownContextCounts) {
  const auto counts = [](const Dfa& dfa) {
    EliminationCascade cascade(dfa);
    EXPECT_TRUE(cascade.explore(100'000));
    std::vector<size_t> sizes;
    for (int32_t level = 0; level < cascade.levels(); ++level) sizes.push_back(cascade.rows(level).size());
    return std::make_pair(sizes, cascade.codes_explored());
  };
  EXPECT_EQ(counts(named_language("tomita3")).first, (std::vector<size_t>{2, 4, 8, 8}));
  EXPECT_EQ(counts(named_language("tomita3")).second, 14);
  EXPECT_EQ(counts(named_language("dyck:4")).first, (std::vector<size_t>{2, 6, 12, 20, 14}));
  EXPECT_EQ(counts(named_language("dyck:4")).second, 39);
  EXPECT_EQ(counts(named_language("T:6")).first, (std::vector<size_t>{3, 18, 51, 68, 48}));
  EXPECT_EQ(counts(named_language("T:6")).second, 720);
}

// Exploring leaves out what codes share with earlier ones; no context may be missed by it.
TEST(EliminationCascade, ExploringMeetsEveryContext) {
  Rng rng(7);
  for (int trial = 0; trial < 30; ++trial) {
    const Dfa dfa = random_dfa(rng, static_cast<State>(2 + rng.below(6)), 2);
    EliminationCascade explored(dfa), stepped(dfa);
    ASSERT_TRUE(explored.explore(100'000));
    std::set<EliminationCascade::Code> seen = {stepped.start()};
    std::vector<EliminationCascade::Code> queue = {stepped.start()};
    for (size_t i = 0; i < queue.size(); ++i)
      for (Letter a = 0; a < dfa.letters(); ++a)
        if (const auto next = stepped.step(queue[i], a); seen.insert(next).second) queue.push_back(next);
    EXPECT_EQ(explored.codes_explored(), static_cast<int64_t>(queue.size()));
    for (int32_t level = 0; level < explored.levels(); ++level) {
      const auto rows = [level](const EliminationCascade& cascade) {
        std::set<std::tuple<std::vector<State>, std::vector<State>, Letter, State>> result;
        for (const auto& row : cascade.rows(level))
          result.emplace(cascade.members(row.old_set), cascade.members(row.new_set), row.letter, row.reset);
        EXPECT_EQ(result.size(), cascade.rows(level).size()) << "a context is tabulated twice";
        return result;
      };
      EXPECT_EQ(rows(explored), rows(stepped)) << "trial " << trial << " level " << level;
    }
  }
}

TEST(EliminationCascade, LimitsEndTheExploration) {
  EXPECT_EQ(EliminationCascade(named_language("mod:1")).levels(), 0);
  EliminationCascade cascade(named_language("T:9"));
  EXPECT_FALSE(cascade.explore(1000));
  EliminationCascade small_table(named_language("T:9"));
  EXPECT_FALSE(small_table.explore(1000, 10'000));
  EXPECT_LT(small_table.codes_explored(), 1000);
}

}  // namespace
}  // namespace signet::automata
