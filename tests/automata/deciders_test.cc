// The polynomial and orbit-based deciders against brute force on the transition monoid, for every pair of
// letters on up to 4 states.
#include "signet/automata/deciders.h"

#include <set>

#include "signet/automata/monoid.h"
#include "signet/automata/perm_group.h"
#include "signet/automata/skeleton.h"
#include "support/check.h"

namespace signet::automata {
namespace {

struct Facts {
  bool group, commutative, definite, r_trivial, j_trivial, aperiodic, two_groups, pattern;
  bool operator==(const Facts& other) const = default;
};

std::ostream& operator<<(std::ostream& out, const Facts& f) {
  return out << f.group << f.commutative << f.definite << f.r_trivial << f.j_trivial << f.aperiodic
             << f.two_groups << f.pattern;
}

Facts brute_force(const Dfa& dfa) {
  const Monoid monoid = *Monoid::enumerate(dfa);
  const auto green = monoid.green();
  const State n = dfa.states();
  Facts facts{};
  facts.aperiodic = facts.two_groups = facts.group = facts.commutative = true;
  for (int32_t i = 0; i < monoid.size(); ++i) {
    // The period of i is the lcm of its cycle lengths, at most 4 here: 3 is the only one that is not a power
    // of two.
    for (State q = 0; q < n; ++q) {
      State x = q;
      int32_t period = 0;
      for (State step = 0; step < n; ++step) x = monoid.element(i)[x];
      const State home = x;
      do x = monoid.element(i)[x], ++period;
      while (x != home);
      facts.aperiodic &= period == 1;
      facts.two_groups &= (period & (period - 1)) == 0;
    }
  }
  facts.group = green.r_classes == 1 && green.l_classes == 1;
  for (Letter a = 0; a < dfa.letters(); ++a)
    for (Letter b = 0; b < dfa.letters(); ++b)
      facts.commutative &= monoid.step(monoid.of_letter(a), b) == monoid.step(monoid.of_letter(b), a);
  facts.r_trivial = green.r_classes == monoid.size();
  facts.j_trivial = green.j_classes == monoid.size();
  // Definite: products of n^2 letters are constant. Their set is the n^2-th power of the set of letters.
  std::set<int32_t> products = {0};
  for (State step = 0; step < n * n; ++step) {
    std::set<int32_t> next;
    for (int32_t i : products)
      for (Letter a = 0; a < dfa.letters(); ++a) next.insert(monoid.step(i, a));
    products = next;
  }
  facts.definite = true;
  for (int32_t i : products) facts.definite &= monoid.rank(i) == 1;
  std::set<std::set<uint16_t>> images;
  for (int32_t e : monoid.idempotents()) {
    const std::set<uint16_t> image(monoid.element(e), monoid.element(e) + n);
    facts.pattern |= !images.insert(image).second;
  }
  return facts;
}

Facts decided(const Dfa& dfa) {
  Facts facts{};
  facts.group = is_group(dfa);
  facts.commutative = is_commutative(dfa);
  facts.definite = definite_window(dfa).has_value();
  facts.r_trivial = is_r_trivial(dfa);
  facts.j_trivial = *is_j_trivial(dfa);
  facts.pattern = find_barrier_pattern(dfa).pattern.has_value();
  facts.aperiodic = facts.two_groups = true;
  const Skeleton skeleton = make_skeleton(dfa);
  for (const auto& c : skeleton.classes) {
    if (c.generators.empty()) continue;
    facts.aperiodic = false;
    facts.two_groups &= PermGroup(static_cast<int32_t>(c.points.size()), c.generators).order_is_power_of(2);
  }
  return facts;
}

Dfa two_letters(State n, int64_t code) {
  Dfa dfa;
  dfa.alphabet = {"a", "b"};
  dfa.delta.assign(static_cast<size_t>(n), std::vector<State>(2));
  for (Letter a = 0; a < 2; ++a)
    for (State q = 0; q < n; ++q, code /= n) dfa.delta[q][a] = static_cast<State>(code % n);
  dfa.accept.assign(static_cast<size_t>(n), false);
  return dfa;
}

TEST(Deciders, AgreeWithTheMonoidOnEveryPairOfLettersUpToFourStates) {
  int64_t checked = 0;
  for (State n = 1; n <= 4; ++n) {
    int64_t maps = 1;
    for (State i = 0; i < n; ++i) maps *= n;
    for (int64_t code = 0; code < maps * maps; ++code) {
      if (code % maps > code / maps) continue;  // the letters' order does not matter
      const Dfa dfa = two_letters(n, code);
      ASSERT_EQ(decided(dfa), brute_force(dfa)) << "n " << n << " code " << code;
      ++checked;
    }
  }
  EXPECT_EQ(checked, 1 + 10 + 378 + 32'896);
}

TEST(Deciders, AgreeWithTheMonoidOnRandomAutomata) {
  Rng rng(2);
  for (int trial = 0; trial < 300; ++trial) {
    const auto n = static_cast<State>(5 + rng.below(2));
    Dfa dfa;
    dfa.alphabet = {"a", "b", "c"};
    for (State q = 0; q < n; ++q) {
      auto& row = dfa.delta.emplace_back();
      for (int a = 0; a < 3; ++a)
        row.push_back(rng.below(3) ? static_cast<State>(q)
                                   : static_cast<State>(rng.below(static_cast<uint32_t>(n))));
    }
    dfa.accept.assign(static_cast<size_t>(n), false);
    Facts fast = decided(dfa), slow = brute_force(dfa);
    ASSERT_EQ(fast, slow) << trial;
  }
}

TEST(Deciders, WindowsAreLeast) {
  // Brute force over words: the least k such that all words of length k are constant.
  Rng rng(4);
  int definite = 0, reverse = 0;
  for (int64_t code = 0; code < 65'536; code += 7) {
    const Dfa dfa = two_letters(4, code);
    const auto window = definite_window(dfa);
    int32_t least = -1;
    for (int32_t k = 0; k <= 4 && least < 0; ++k) {
      bool constant = true;
      for (int32_t bits = 0; bits < 1 << k; ++bits) {
        std::vector<Letter> word;
        for (int32_t i = 0; i < k; ++i) word.push_back(bits >> i & 1);
        for (State q = 1; q < 4; ++q) constant &= dfa.run(q, word) == dfa.run(0, word);
      }
      if (constant) least = k;
    }
    ASSERT_EQ(window.value_or(-1), least) << code;
    definite += window.has_value();
    reverse += reverse_definite_window(dfa).has_value();
  }
  EXPECT_GT(definite, 20);
  EXPECT_GT(reverse, 20);
}

// By the images of the letters, for every pair of them on three states.
TEST(Deciders, LettersThatPermuteResetOrInject) {
  int resetting = 0, injecting = 0;
  for (int64_t code = 0; code < 729; ++code) {
    const Dfa dfa = two_letters(3, code);
    const auto image = [&](Letter a, State without) {
      std::multiset<State> reached;
      for (const auto& row : dfa.delta)
        if (row[a] != without) reached.insert(row[a]);
      return reached;
    };
    const auto injective = [&](Letter a, State without) {
      const auto reached = image(a, without);
      return std::set<State>(reached.begin(), reached.end()).size() == reached.size();
    };
    bool resets = true, injections = false;
    for (Letter a = 0; a < 2; ++a) {
      const auto reached = image(a, -1);
      resets &= injective(a, -1) || reached.count(*reached.begin()) == reached.size();
    }
    for (State sink = -1; sink < 3; ++sink)
      injections |= (sink < 0 || (dfa.delta[sink][0] == sink && dfa.delta[sink][1] == sink)) &&
                    injective(0, sink) && injective(1, sink);
    ASSERT_EQ(letters_permutations_or_resets(dfa), resets) << code;
    ASSERT_EQ(letters_partial_injections(dfa), injections) << code;
    resetting += resets, injecting += injections;
  }
  EXPECT_EQ(resetting, 81) << "of each letter 6 permutations and 3 constants";
  EXPECT_GT(injecting, 81);
}

// Maps of states are stored in 16 bits.
TEST(Monoid, IsNotListedForMoreStatesThanItsMapsCanName) {
  Dfa dfa;
  dfa.alphabet = {"a"};
  dfa.delta.assign(65'537, {65'536});
  dfa.accept.assign(65'537, false);
  EXPECT_FALSE(Monoid::enumerate(dfa));
}

TEST(Deciders, BarrierPatternIsAWitness) {
  int found = 0;
  for (int64_t code = 0; code < 65'536; code += 3) {
    const Dfa dfa = two_letters(4, code);
    const auto search = find_barrier_pattern(dfa);
    ASSERT_TRUE(search.complete);
    if (!search.pattern) continue;
    ++found;
    const auto& [x, p, q, u, v] = *search.pattern;
    ASSERT_NE(p, q);
    EXPECT_EQ(dfa.run(x, u), p);
    EXPECT_EQ(dfa.run(p, u), p);
    EXPECT_EQ(dfa.run(q, u), q);
    EXPECT_EQ(dfa.run(x, v), q);
    EXPECT_EQ(dfa.run(p, v), p);
    EXPECT_EQ(dfa.run(q, v), q);
  }
  EXPECT_GT(found, 100);
}

TEST(Skeleton, GeneratorWordsActAsTheirPermutations) {
  Rng rng(8);
  for (int trial = 0; trial < 200; ++trial) {
    Dfa dfa;
    dfa.alphabet = {"a", "b"};
    const auto n = static_cast<State>(3 + rng.below(6));
    for (State q = 0; q < n; ++q)
      dfa.delta.push_back({static_cast<State>(rng.below(static_cast<uint32_t>(n))), (q + 1) % n});
    dfa.accept.assign(static_cast<size_t>(n), false);
    const Skeleton skeleton = make_skeleton(dfa);
    EXPECT_EQ(skeleton.class_of[0], 0);
    for (const auto& c : skeleton.classes)
      for (size_t g = 0; g < c.generators.size(); ++g)
        for (size_t i = 0; i < c.points.size(); ++i)
          ASSERT_EQ(dfa.run(c.points[i], c.words[g]), c.points[c.generators[g][i]]);
  }
}

// Every maximal subgroup of the monoid is a permutator group: their orders are among those of the skeleton.
TEST(Skeleton, ContainsTheMaximalSubgroups) {
  Rng rng(9);
  for (int trial = 0; trial < 100; ++trial) {
    Dfa dfa;
    dfa.alphabet = {"a", "b"};
    const auto n = static_cast<State>(5);
    for (State q = 0; q < n; ++q)
      dfa.delta.push_back({static_cast<State>(rng.below(5)), q < 2 ? 1 - q : q == 4 ? 2 : q + 1});
    dfa.accept.assign(5, false);
    const Monoid monoid = *Monoid::enumerate(dfa);
    const auto green = monoid.green();
    std::set<int64_t> orders = {1}, subgroup_orders;
    const Skeleton skeleton = make_skeleton(dfa);
    for (const auto& c : skeleton.classes)
      orders.insert(PermGroup(static_cast<int32_t>(c.points.size()), c.generators).order());
    for (int32_t e : monoid.idempotents()) {
      int64_t order = 0;  // of the H-class of e
      for (int32_t i = 0; i < monoid.size(); ++i)
        order += green.r[i] == green.r[e] && green.l[i] == green.l[e];
      subgroup_orders.insert(order);
    }
    for (int64_t order : subgroup_orders) ASSERT_TRUE(orders.count(order)) << order;
  }
}

}  // namespace
}  // namespace signet::automata
