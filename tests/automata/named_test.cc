#include <algorithm>
#include <set>
#include <tuple>

#include "signet/automata/minimize.h"
#include "signet/automata/named_group.h"
#include "signet/automata/named_language.h"
#include "signet/automata/perm_group.h"
#include "signet/automata/regex.h"
#include "signet/base/error.h"
#include "support/check.h"
#include "support/temporary_directory.h"

namespace signet::automata {
namespace {

TEST(NamedGroup, OrdersAndDegrees) {
  const std::vector<std::tuple<const char*, int64_t, int32_t>> cases = {
      {"S1", 1, 1},         {"S2", 2, 2},         {"S5", 120, 5},       {"A4", 12, 4},
      {"A5", 60, 5},        {"Z60", 60, 60},      {"C7", 7, 7},         {"D4", 8, 4},
      {"D1", 2, 2},         {"D2", 4, 4},         {"Q8", 8, 8},         {"Dic3", 12, 12},
      {"V4", 4, 4},         {"F20", 20, 5},       {"F21", 21, 7},       {"S3xZ2", 12, 5},
      {"Z2xZ2xZ2", 8, 6},   {"Z2wrS3", 48, 6},    {"SL(2,3)", 24, 8},   {"GL(2,3)", 48, 8},
      {"PSL(2,7)", 168, 8}, {"PGL(2,5)", 120, 6}, {"SL(2,5)", 120, 24}, {"S7", 5040, 7}};
  for (const auto& [name, order, degree] : cases) {
    const NamedGroup group = named_group(name);
    EXPECT_EQ(group.degree, degree) << name;
    EXPECT_EQ(PermGroup(group.degree, group.generators).order(), order) << name;
    if (order > 200) continue;
    const GroupAutomaton automaton = word_problem(group);
    EXPECT_EQ(automaton.dfa.states(), order) << name;
    EXPECT_EQ(minimize(automaton.dfa).delta, automaton.dfa.delta) << name;
  }
}

TEST(NamedGroup, GeneratorSets) {
  EXPECT_EQ(named_group("S5", "all").letters.size(), 120u);
  EXPECT_EQ(named_group("S5", "swaps").letters.size(), 10u);
  EXPECT_EQ(named_group("S5", "adjacent").letters.size(), 4u);
  EXPECT_EQ(named_group("A5", "3cycles").letters.size(), 20u);
  EXPECT_EQ(named_group("Z5", "all").letters, (std::vector<std::string>{"0", "1", "2", "3", "4"}));
  EXPECT_EQ(named_group("S3", "swaps").letters, (std::vector<std::string>{"(0,1)", "(0,2)", "(1,2)"}));
  EXPECT_EQ(natural_action(named_group("S5")).states(), 5);
  EXPECT_THROW(named_group("A5", "swaps"), Error);
  EXPECT_THROW(named_group("S5", "3cycles"), Error);
  EXPECT_THROW(named_group("S5", "swap"), Error);
}

TEST(NamedGroup, RightMultiplicationLeftmostFirst) {
  const NamedGroup group = named_group("S4", "standard");
  const GroupAutomaton automaton = word_problem(group);
  Rng rng(1);
  for (int i = 0; i < 50; ++i) {
    Permutation product = identity_permutation(4);
    State q = 0;
    for (int t = 0; t < 9; ++t) {
      const auto a = static_cast<Letter>(rng.below(2));
      product = then(product, group.generators[a]);
      q = automaton.dfa.delta[q][a];
    }
    EXPECT_EQ(automaton.elements[q], product);
  }
}

TEST(NamedGroup, LargeAndUnknownAreRefused) {
  for (const char* bad : {"S13",
                          "S2000",
                          "Z1000000000",
                          "Z10001",
                          "A30",
                          "X5",
                          "S",
                          "S-1",
                          "S0",
                          "",
                          "S5x",
                          "xS5",
                          "S5wr",
                          "PSL(2,4)",
                          "PSL(3,2)",
                          "F6000",
                          "F15",
                          "Z2wrZ2wrZ2",
                          "Q16",
                          "S99999999999999999999",
                          "Z30xZ30xZ30xZ30",
                          "S12xS12",
                          "Z1999wrZ1999"})
    EXPECT_THROW(named_group(bad), Error) << bad;
  const auto message = [](const Limits& limits) {
    return std::string(test::error_of([&] { named_group("S13", "standard", limits); })->what());
  };
  EXPECT_EQ(message({.from_options = true}),
            "group S13 has 6227020800 elements; the limit is 10000 (raise it with --max-states)");
  EXPECT_EQ(message({}), "group S13 has 6227020800 elements; the limit is 10000");
}

TEST(PermGroup, OrdersMembershipAndDerivedSeries) {
  const auto group = [](const char* name) {
    const NamedGroup named = named_group(name, "standard", {.states = 100'000'000});
    return PermGroup(named.degree, named.generators);
  };
  EXPECT_EQ(group("S10").order_text(), "3628800");
  EXPECT_EQ(group("S4").derived_series().size(), 4u);  // S4 > A4 > V4 > 1
  EXPECT_TRUE(group("S4").derived_series().back().trivial());
  EXPECT_EQ(group("S5").derived_series().back().order(), 60);
  EXPECT_EQ(group("GL(2,3)").derived_series().size(), 5u);
  EXPECT_TRUE(group("Z60").abelian());
  EXPECT_FALSE(group("D4").abelian());
  EXPECT_TRUE(group("D4").order_is_power_of(2));
  EXPECT_FALSE(group("D3").order_is_power_of(2));
  EXPECT_EQ(group("D8").frattini_like(2).order(), 4);
  EXPECT_FALSE(group("A6").contains({1, 0, 2, 3, 4, 5}));
  EXPECT_TRUE(group("A6").contains({1, 2, 0, 3, 4, 5}));
  // S_40, far beyond enumeration: 40! has 48 digits.
  Permutation swap = identity_permutation(40), rotate = identity_permutation(40);
  std::swap(swap[0], swap[1]);
  for (int32_t i = 0; i < 40; ++i) rotate[i] = (i + 1) % 40;
  EXPECT_EQ(PermGroup(40, {swap, rotate}).order_text(), "815915283247897734345611269596115894272000000000");
}

TEST(PermGroup, AgreesWithEnumeration) {
  Rng rng(11);
  for (int trial = 0; trial < 100; ++trial) {
    const auto n = static_cast<int32_t>(1 + rng.below(7));
    std::vector<Permutation> generators;
    for (int g = 0; g < 2; ++g) {
      Permutation p = identity_permutation(n);
      for (int32_t i = n; i-- > 1;) std::swap(p[i], p[rng.below(static_cast<uint32_t>(i + 1))]);
      generators.push_back(rng.below(3) ? p : then(p, p));
    }
    const PermGroup group(n, generators);
    std::set<Permutation> elements = {identity_permutation(n)};
    std::vector<Permutation> queue(elements.begin(), elements.end());
    for (size_t i = 0; i < queue.size(); ++i)
      for (const auto& g : generators)
        if (auto next = then(queue[i], g); elements.insert(next).second) queue.push_back(next);
    ASSERT_EQ(group.order(), static_cast<int64_t>(elements.size()));
    ASSERT_EQ(group.elements(10'000)->size(), elements.size());
    Permutation p = identity_permutation(n);
    do ASSERT_EQ(group.contains(p), elements.count(p) > 0);
    while (n <= 5 && std::next_permutation(p.begin(), p.end()));
  }
}

TEST(NamedLanguage, CatalogueBuildsAndIsMinimal) {
  for (const auto& entry : language_catalogue()) {
    const size_t colon = entry.name.find(':');
    const std::string name = colon == std::string::npos ? entry.name : entry.name.substr(0, colon) + ":3";
    const Dfa dfa = named_language(name);
    EXPECT_EQ(minimize(dfa).delta, dfa.delta) << name;
  }
}

TEST(NamedLanguage, AgreesWithExpressions) {
  const auto same = [](const char* name, const char* expression, const char* alphabet) {
    EXPECT_TRUE(equivalent(named_language(name), regex_to_dfa(expression, alphabet_of(alphabet)))) << name;
  };
  same("parity", "(0*10*1)*0*10*", "01");
  same("mod:5", "(0*10*10*10*10*1)*0*", "01");
  same("dyck:2", "(a(ab)*b)*", "ab");
  same("dyck:1", "(ab)*", "ab");
  same("tomita5", "((00|11)*(01|10)(00|11)*(01|10))*(00|11)*", "01");
  same("divisible:3", "(0|1(01*0)*1)*", "01");
  same("at-least:2", ".*a.*a.*", "ab");
  same("no-run:3", "~(.*aaa.*)", "ab");
}

TEST(NamedLanguage, RefusesBadNames) {
  for (const char* bad : {"", "parit", "mod", "mod:", "mod:0", "mod:x", "mod:-3", "mod:99999999999999999999",
                          "mod:100000", "dyck:0", "parity:2", "kth-last:17", "T:1", "tomita8"})
    EXPECT_THROW(named_language(bad), Error) << bad;
  const auto message = [](const Limits& limits) {
    return std::string(test::error_of([&] { named_language("mod:20000", limits); })->what());
  };
  EXPECT_EQ(message({}), "language 'mod:m': the number must be in 1..9998");
  EXPECT_EQ(message({.from_options = true}), message({}) + " (raise the limit with --max-states)");
}

}  // namespace
}  // namespace signet::automata
