#include "signet/automata/binary_code.h"

#include <cstdio>
#include <map>
#include <set>

#include "signet/automata/deciders.h"
#include "signet/automata/minimize.h"
#include "signet/automata/monoid.h"
#include "signet/automata/named_group.h"
#include "signet/automata/named_language.h"
#include "signet/automata/regex.h"
#include "support/check.h"

namespace signet::automata {
namespace {

// The code follows the automaton, tells states apart, and every gate is a signed partial permutation.
void expect_valid(const Dfa& dfa, const BinaryCode& code) {
  std::set<std::vector<bool>> seen;
  for (State q = 0; q < dfa.states(); ++q) {
    std::vector<bool> value;
    for (const auto& c : code.coordinates) value.push_back(c[q]);
    ASSERT_TRUE(seen.insert(value).second);
    for (Letter a = 0; a < dfa.letters(); ++a)
      for (int32_t i = 0; i < code.dimension(); ++i) {
        const auto source = code.letters[a][i];
        const bool next = source.coordinate < 0 ? source.flip : value[source.coordinate] != source.flip;
        ASSERT_EQ(next, code.coordinates[i][dfa.delta[q][a]]);
      }
  }
  for (Letter a = 0; a < dfa.letters(); ++a) {
    std::set<int32_t> read;
    for (const auto& source : code.letters[a])
      if (source.coordinate >= 0) {
        ASSERT_TRUE(read.insert(source.coordinate).second);
      }
    ASSERT_LE(code.householders(a), code.dimension());
  }
}

TEST(BinaryCode, KnownLanguages) {
  const std::vector<std::pair<const char*, int32_t>> one_layer = {
      {"tomita1", 1},    {"tomita2", 2},    {"tomita5", 2},    {"tomita6", 3},      {"parity", 1},
      {"aa-star", 2},    {"dyck:1", 2},     {"dyck:3", 4},     {"last", 1},         {"flip-flop", 1},
      {"kth-last:3", 3}, {"elevator:3", 2}, {"elevator:6", 5}, {"elevator:12", 11}, {"T:2", 1},
      {"abab-star", 4},  {"mod:7", 7},      {"dyck:12", 13}};
  for (const auto& [name, dimension] : one_layer) {
    const Dfa dfa = named_language(name);
    const auto code = find_binary_code(dfa);
    ASSERT_TRUE(code) << name;
    expect_valid(dfa, *code);
    EXPECT_EQ(code->dimension(), dimension) << name;
  }
  for (const char* name :
       {"tomita3", "tomita4", "tomita7", "first", "contains-aa", "contains-ab", "T:3", "T:4"})
    EXPECT_FALSE(find_binary_code(named_language(name))) << name;
}

TEST(BinaryCode, HouseholderCounts) {
  EXPECT_EQ(find_binary_code(named_language("parity"))->householders(1), 1);
  const auto swap = find_binary_code(natural_action(named_group("S5", "swaps")));
  ASSERT_TRUE(swap);
  for (Letter a = 0; a < 10; ++a) EXPECT_EQ(swap->householders(a), 1);
}

// On every pair of letters up to four states: a code exists only where the one-layer barrier allows it, that
// is, at most one idempotent per image and f e f = e f for all idempotents. Where no code is found although
// both hold, the question is open; that is rare.
TEST(BinaryCode, NeverContradictsTheBarrier) {
  int64_t found = 0, barred = 0, open = 0;
  for (int64_t code = 0; code < 65'536; ++code) {
    if (code % 256 > code / 256 || code % 3) continue;
    Dfa dfa;
    dfa.alphabet = {"a", "b"};
    for (State q = 0; q < 4; ++q)
      dfa.delta.push_back(
          {static_cast<State>(code >> (2 * q) & 3), static_cast<State>(code >> (2 * q + 8) & 3)});
    dfa.accept.assign(4, false);
    const Monoid monoid = *Monoid::enumerate(dfa);
    const auto idempotents = monoid.idempotents();
    bool allowed = !find_barrier_pattern(dfa).pattern;
    for (size_t i = 0; i < idempotents.size() && allowed; ++i)
      for (size_t j = 0; j < idempotents.size() && allowed; ++j) {
        const int32_t ef = monoid.times(idempotents[i], idempotents[j]);
        allowed = monoid.times(idempotents[j], ef) == ef;
      }
    const auto binary = find_binary_code(dfa);
    if (binary) {
      ASSERT_TRUE(allowed) << code;
      expect_valid(dfa, *binary);
      ++found;
    } else {
      ++(allowed ? open : barred);
    }
  }
  RecordProperty("found", static_cast<int>(found));
  RecordProperty("open", static_cast<int>(open));
  printf("one exact layer: %ld, barred: %ld, open: %ld\n", static_cast<long>(found),
         static_cast<long>(barred), static_cast<long>(open));
  EXPECT_GT(found, 1000);
  EXPECT_GT(barred, 1000);
}

TEST(DiagonalLayer, KnownLanguages) {
  const auto size = [](const char* name, bool signs) {
    const auto layer = find_diagonal_layer(named_language(name), signs);
    return layer ? static_cast<int>(layer->size()) : -1;
  };
  EXPECT_EQ(size("flip-flop", false), 1);
  EXPECT_EQ(size("tomita1", false), 1);
  EXPECT_EQ(size("last", false), 1);
  EXPECT_EQ(size("parity", false), -1);
  EXPECT_EQ(size("parity", true), 1);
  EXPECT_EQ(size("tomita5", true), 2);
  EXPECT_EQ(size("aa-star", true), 2);
  EXPECT_EQ(size("tomita6", true), -1);
  EXPECT_EQ(size("first", true), -1);
  EXPECT_EQ(size("tomita4", true), -1);
  EXPECT_EQ(size("T:2", true), 1);
  EXPECT_EQ(size("mod:4", true), -1);
}

// Running the coordinates beside the automaton: equal joint states mean equal states.
TEST(DiagonalLayer, DeterminesTheState) {
  Rng rng(3);
  int found = 0;
  for (int trial = 0; trial < 300; ++trial) {
    Dfa dfa;
    dfa.alphabet = {"a", "b"};
    for (State q = 0; q < 3; ++q)
      dfa.delta.push_back({static_cast<State>(rng.below(3)), static_cast<State>(rng.below(3))});
    dfa.accept = {true, false, false};
    dfa = minimize(dfa);
    const auto layer = find_diagonal_layer(dfa, true);
    if (!layer) continue;
    ++found;
    std::map<std::vector<bool>, State> meaning;
    std::vector<bool> value(layer->size());
    State q = dfa.start;
    for (int t = 0; t < 200; ++t) {
      const auto [it, fresh] = meaning.emplace(value, q);
      ASSERT_EQ(it->second, q);
      const auto a = static_cast<Letter>(rng.below(2));
      q = dfa.delta[q][a];
      for (size_t c = 0; c < layer->size(); ++c) {
        const DiagonalMove move = (*layer)[c][a];
        if (move == DiagonalMove::kFlip)
          value[c] = !value[c];
        else if (move != DiagonalMove::kHold)
          value[c] = move == DiagonalMove::kSet1;
      }
    }
  }
  EXPECT_GT(found, 50);
}

}  // namespace
}  // namespace signet::automata
