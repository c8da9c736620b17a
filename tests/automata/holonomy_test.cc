#include "signet/automata/holonomy.h"

#include <algorithm>
#include <cmath>

#include "signet/automata/group_facts.h"
#include "signet/automata/holonomy_cascade.h"
#include "signet/automata/named_group.h"
#include "signet/automata/named_language.h"
#include "signet/automata/small_group.h"
#include "support/check.h"

namespace signet::automata {
namespace {

// Per level: "tiles" or "(tiles,group)" per component.
std::string levels_of(const Dfa& dfa) {
  const Holonomy h = holonomy(make_skeleton(dfa));
  std::string text;
  for (const auto& level : h.levels) {
    if (!text.empty()) text += " / ";
    for (const auto& component : level) {
      const std::string tiles = std::to_string(component.tiles.size());
      text += component.group.order == "1" ? tiles + " " : "(" + tiles + "," + component.group.name + ") ";
    }
    text.pop_back();
  }
  return text;
}

TEST(Holonomy, PublishedAndComputedLevels) {
  EXPECT_EQ(levels_of(named_language("tomita3")), "2 / (2,Z2) (2,Z2) / 2 / 2");
  EXPECT_EQ(levels_of(named_language("tomita4")), "2 / 2 / 2");
  EXPECT_EQ(levels_of(named_language("tomita7")), "2 / 2 / 2 / 2 / 2");
  EXPECT_EQ(levels_of(named_language("dyck:3")), "2 / 2 / 2 / 2");
  EXPECT_EQ(levels_of(named_language("kth-last:3")), "2 / 2 2 / 2 2 2 2");
  EXPECT_EQ(levels_of(named_language("T:4")), "(4,S4) / (3,S3) / (2,Z2)");
  EXPECT_EQ(levels_of(named_language("T:5")), "(5,S5) / (4,S4) / (3,S3) / (2,Z2)");
  EXPECT_EQ(levels_of(named_language("elevator:5")), "2 / 2 / 2 / 2");
  EXPECT_EQ(levels_of(natural_action(named_group("A5"))), "(5,A5)");
  EXPECT_EQ(levels_of(named_language("mod:1")), "");
}

TEST(GroupFacts, NamesAndSeries) {
  struct Case {
    const char *input, *name;
    int32_t derived, two;
  };
  for (const auto& [input, name, derived, two] : std::vector<Case>{{"Z1", "1", 0, 0},
                                                                   {"Z2", "Z2", 1, 1},
                                                                   {"Z8", "Z8", 1, 3},
                                                                   {"Z2xZ3", "Z6", 1, -1},
                                                                   {"Z2xZ4", "Z2xZ4", 1, 2},
                                                                   {"Z6xZ4", "Z2xZ12", 1, -1},
                                                                   {"V4", "Z2xZ2", 1, 1},
                                                                   {"S3", "S3", 2, -1},
                                                                   {"D4", "D4", 2, 2},
                                                                   {"D8", "D8", 2, 3},
                                                                   {"Q8", "Q8", 2, 2},
                                                                   {"A4", "A4", 2, -1},
                                                                   {"S4", "S4", 3, -1},
                                                                   {"A5", "A5", -1, -1},
                                                                   {"S5", "S5", -1, -1},
                                                                   {"SL(2,3)", "SL(2,3)", 3, -1},
                                                                   {"GL(2,3)", "GL(2,3)", 4, -1},
                                                                   {"F20", "F20", 2, -1},
                                                                   {"Dic3", "Dic3", 2, -1},
                                                                   {"D3", "S3", 2, -1},
                                                                   {"D6", "D6", 2, -1},
                                                                   {"S3xZ2", "D6", 2, -1},
                                                                   {"PSL(2,7)", "PSL(2,7)", -1, -1},
                                                                   {"D4xZ2", "D4xZ2", 2, 2},
                                                                   {"Q8xZ2xZ2", "Q8xZ2xZ2", 2, 2},
                                                                   {"Z2wrZ2", "D4", 2, 2},
                                                                   {"PSL(2,5)", "A5", -1, -1},
                                                                   {"SL(2,2)", "S3", 2, -1},
                                                                   {"PGL(2,5)", "S5", -1, -1},
                                                                   {"A4xZ2", "A4xZ2", 2, -1},
                                                                   {"A7", "A7", -1, -1},
                                                                   {"S6", "S6", -1, -1}}) {
    const NamedGroup group = named_group(input);
    // On its elements, so that the name cannot come from the action.
    std::vector<Permutation> letters = group.generators;
    if (PermGroup(group.degree, letters).order() < 200) {
      const GroupAutomaton automaton = word_problem(group);
      for (size_t a = 0; a < letters.size(); ++a) {
        letters[a].clear();
        for (const auto& row : automaton.dfa.delta) letters[a].push_back(row[a]);
      }
    }
    const GroupFacts facts = group_facts(static_cast<int32_t>(letters[0].size()), letters);
    EXPECT_EQ(facts.name, name) << input;
    EXPECT_EQ(facts.derived_length, derived) << input;
    EXPECT_EQ(facts.two_length, two) << input;
  }
}

// One cycle of each of the first sixteen primes: the order is their product, beyond 64 bits.
TEST(GroupFacts, OrdersOfAnySize) {
  Permutation p;
  for (int32_t prime : {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53}) {
    const auto begin = static_cast<int32_t>(p.size());
    for (int32_t i = 0; i < prime; ++i) p.push_back(begin + (i + 1) % prime);
  }
  const GroupFacts facts = group_facts(static_cast<int32_t>(p.size()), {p});
  EXPECT_EQ(facts.order, "32589158477190044730");
  EXPECT_EQ(facts.name, "Z32589158477190044730");
  EXPECT_FALSE(facts.two_group);
  EXPECT_EQ(facts.two_length, -1);
}

// Minimal degrees from GAP (MinimalFaithfulPermutationDegree), see docs/analyze.md.
TEST(GroupFacts, MinimalDegrees) {
  for (const auto& [name, degree] : std::vector<std::pair<const char*, int32_t>>{
           {"Z2", 2}, {"Z3", 3},       {"Z4", 4},       {"Z6", 5},      {"Z12", 7},     {"S3", 3},  {"D4", 4},
           {"Q8", 8}, {"A4", 4},       {"S4", 4},       {"SL(2,3)", 8}, {"GL(2,3)", 8}, {"F20", 5}, {"A5", 5},
           {"S5", 5}, {"SL(2,5)", 24}, {"PSL(2,7)", 7}, {"Z2wrS3", 6},  {"Dic3", 7},    {"Z60", 12}}) {
    const NamedGroup group = named_group(name);
    EXPECT_EQ(minimal_degree(PermGroup(group.degree, group.generators)).value_or(-1), degree) << name;
  }
}

Dfa random_dfa(Rng& rng, State n, bool ordered) {
  Dfa dfa;
  dfa.alphabet = {"a", "b"};
  for (State q = 0; q < n; ++q) {
    auto& row = dfa.delta.emplace_back();
    for (int a = 0; a < 2; ++a) row.push_back(static_cast<State>(rng.below(static_cast<uint32_t>(n))));
    dfa.accept.push_back(false);
  }
  if (ordered)  // order-preserving letters have no groups
    for (int a = 0; a < 2; ++a) {
      std::vector<State> column;
      for (const auto& row : dfa.delta) column.push_back(row[a]);
      std::sort(column.begin(), column.end());
      for (State q = 0; q < n; ++q) dfa.delta[q][a] = column[q];
    }
  return dfa;
}

TEST(HolonomyCascade, FollowsTheAutomaton) {
  Rng rng(21);
  for (int trial = 0; trial < 1000; ++trial) {
    const auto n = static_cast<State>(1 + rng.below(8));
    const Dfa dfa = random_dfa(rng, n, trial % 3 == 0);
    const HolonomyCascade cascade(dfa, make_skeleton(dfa));
    auto q = static_cast<State>(rng.below(static_cast<uint32_t>(n)));
    auto code = cascade.encode(q);
    for (int t = 0; t < 40; ++t) {
      ASSERT_EQ(cascade.decode(code), q) << trial << " " << t;
      const auto a = static_cast<Letter>(rng.below(2));
      code = cascade.step(code, a);
      q = dfa.delta[q][a];
    }
  }
}

// One diagonal layer per level for automata without groups: x holds by the gate 1 and is reset by x' = x/b +
// r, which leaves the old state as the second digit. In fp32, each layer reading only what the layers above
// put out.
TEST(HolonomyCascade, DigitsOfOneGatePerLevelSufficeWithoutGroups) {
  Rng rng(22);
  int64_t resets = 0, deepest = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const auto n = static_cast<State>(2 + rng.below(7));
    const Dfa dfa = random_dfa(rng, n, true);
    const HolonomyCascade cascade(dfa, make_skeleton(dfa));
    deepest = std::max<int64_t>(deepest, cascade.levels());
    State q = 0;
    const auto start = cascade.encode(q);
    std::vector<float> x, base;
    for (int32_t level = 0; level < cascade.levels(); ++level) {
      float b = 4;
      while (b < 2.0f * static_cast<float>(cascade.tiles(level) + 1)) b *= 2;
      base.push_back(b);
      x.push_back(static_cast<float>(start[level] + 1));  // digit 0: idle
    }
    for (int t = 0; t < 400; ++t) {
      const auto a = static_cast<Letter>(rng.below(2));
      HolonomyCascade::Walk walk(cascade, a);
      HolonomyCascade::Code code;
      for (int32_t level = 0; level < cascade.levels(); ++level) {
        const auto action = walk.action();
        const bool hold = !action.moves.empty();
        if (hold) {
          ASSERT_TRUE(is_identity(action.moves));
        } else {
          x[level] = x[level] / base[level] + static_cast<float>(action.reset + 1);
          ++resets;
        }
        const float first = std::floor(x[level]);
        const float second = hold ? first : std::floor((x[level] - first) * base[level]);
        code.push_back(static_cast<int32_t>(first) - 1);
        walk.descend(static_cast<int32_t>(second) - 1, code.back());
      }
      q = dfa.delta[q][a];
      ASSERT_EQ(cascade.decode(code), q) << trial << " " << t;
    }
  }
  EXPECT_GT(resets, 10'000);
  EXPECT_GE(deepest, 4);
}

}  // namespace
}  // namespace signet::automata
