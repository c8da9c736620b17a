#include "signet/automata/holonomy.h"

#include "signet/automata/group_facts.h"
#include "signet/automata/named_group.h"
#include "signet/automata/named_language.h"
#include "signet/automata/small_group.h"
#include "support/check.h"

namespace signet::automata {
namespace {

// Per level: "tiles" or "(tiles,group)" per component.
std::string levels_of(const Dfa& dfa) {
  const Holonomy h = *holonomy(dfa, *make_skeleton(dfa));
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

}  // namespace
}  // namespace signet::automata
