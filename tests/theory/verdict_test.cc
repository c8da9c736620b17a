#include "signet/theory/verdict.h"

#include <fmt/core.h>

#include <bit>
#include <map>
#include <set>

#include "signet/automata/minimize.h"
#include "signet/automata/named_group.h"
#include "signet/automata/named_language.h"
#include "signet/automata/regex.h"
#include "signet/theory/compile.h"
#include "signet/theory/verify.h"
#include "support/check.h"

namespace signet::theory {
namespace {

using namespace automata;

// States, size of the monoid, J-classes, idempotents and groups: computed by an independent program; GAP 4.12
// confirmed sizes, D-classes and idempotents (tests/golden/automata/gap_monoids.txt has more of them). Then
// the verdicts: diagonal [0,1], diagonal [-1,1], complex diagonal, Mamba over the reals, one exact layer.
struct Row {
  const char* language;
  int64_t states, monoid, j_classes, idempotents;
  const char* groups;
  bool star_free, two_groups, solvable, definite;
  int one_layer;  // 1, 0, or -1 for open
};

std::string groups_text(const Facts& facts) {
  std::string text;
  for (const auto& group : facts.groups.value()) text += (text.empty() ? "" : " ") + group.name;
  return text;
}

void expect_row(const Row& row, const Dfa& dfa) {
  SCOPED_TRACE(row.language);
  const Analysis analysis = analyze(dfa);
  const Facts& facts = analysis.facts;
  EXPECT_EQ(dfa.states(), row.states);
  EXPECT_EQ(facts.monoid_size.value_or(-1), row.monoid);
  EXPECT_EQ(facts.j_classes.value_or(-1), row.j_classes);
  EXPECT_EQ(facts.idempotents.value_or(-1), row.idempotents);
  EXPECT_EQ(groups_text(facts), row.groups);
  EXPECT_EQ(facts.one_layer_exact.has_value() ? static_cast<int>(*facts.one_layer_exact) : -1, row.one_layer);
  const auto possible = [&](const char* name) { return *analysis.verdict(name).possible; };
  EXPECT_EQ(possible("diagonal[0,1]"), row.star_free);
  EXPECT_EQ(possible("householder[0,1]"), row.star_free);
  EXPECT_EQ(possible("diagonal[-1,1]"), row.two_groups);
  EXPECT_EQ(possible("complex-diagonal"), row.solvable);
  EXPECT_EQ(possible("mamba-real"), row.definite);
  for (const char* always : {"householder[-1,1]", "householder-product[-1,1]", "one-hot", "slstm"})
    EXPECT_TRUE(possible(always)) << always;
  for (const auto& v : analysis.verdicts) {
    EXPECT_FALSE(v.reason.empty());
    if (*v.possible) {
      EXPECT_TRUE(v.layers && v.dimension) << v.architecture;
    } else {
      EXPECT_TRUE(v.witness && !v.layers) << v.architecture;
    }
  }
  EXPECT_EQ(analysis.verdict("householder-product[-1,1]").layers == std::optional<int64_t>(1),
            row.one_layer == 1 || row.states == 2);
}

TEST(Verdict, OracleTable) {
  const std::vector<Row> rows = {
      {"tomita1", 2, 2, 2, 2, "", true, true, true, false, 1},
      {"tomita2", 3, 6, 3, 4, "", true, true, true, false, 1},
      {"tomita3", 5, 26, 6, 12, "Z2", false, true, true, false, 0},
      {"tomita4", 4, 12, 4, 8, "", true, true, true, false, 0},
      {"tomita5", 4, 4, 1, 1, "Z2xZ2", false, true, true, false, 1},
      {"tomita6", 3, 3, 1, 1, "Z3", false, false, true, false, 1},
      {"tomita7", 5, 9, 9, 4, "", true, true, true, false, 0},
      {"parity", 2, 2, 1, 1, "Z2", false, true, true, false, 1},
      {"aa-star", 3, 3, 2, 2, "Z2", false, true, true, false, 1},
      {"dyck:1", 3, 6, 3, 4, "", true, true, true, false, 1},
      {"dyck:2", 4, 15, 4, 7, "", true, true, true, false, 1},
      {"dyck:3", 5, 31, 5, 11, "", true, true, true, false, 1},
      {"dyck:4", 6, 56, 6, 16, "", true, true, true, false, 1},
      {"last", 2, 3, 2, 3, "", true, true, true, true, 1},
      {"first", 3, 3, 2, 3, "", true, true, true, false, 0},
      {"contains-aa", 3, 6, 3, 5, "", true, true, true, false, 0},
      {"kth-last:1", 2, 3, 2, 3, "", true, true, true, true, 1},
      {"kth-last:2", 4, 7, 4, 5, "", true, true, true, true, 1},
      {"kth-last:3", 8, 15, 8, 9, "", true, true, true, true, 1},
      {"kth-last:4", 16, 31, 16, 17, "", true, true, true, true, 1},
      {"flip-flop", 2, 3, 2, 3, "", true, true, true, false, 1},
      {"T:2", 2, 4, 2, 3, "Z2", false, true, true, false, 1},
      {"T:3", 3, 27, 3, 10, "S3 Z2", false, false, true, false, 0},
      {"T:4", 4, 256, 4, 41, "S4 S3 Z2", false, false, true, false, 0},
      {"T:5", 5, 3125, 5, 196, "S5 S4 S3 Z2", false, false, false, false, 0},
      {"elevator:3", 3, 8, 3, 6, "", true, true, true, false, 1},
      {"elevator:4", 4, 18, 4, 10, "", true, true, true, false, 1},
      {"elevator:5", 5, 35, 5, 15, "", true, true, true, false, 1},
      {"elevator:6", 6, 61, 6, 21, "", true, true, true, false, 1},
  };
  for (const auto& row : rows) expect_row(row, named_language(row.language));
  const std::vector<Row> groups = {{"S3", 3, 6, 1, 1, "S3", false, false, true, false, 1},
                                   {"S4", 4, 24, 1, 1, "S4", false, false, true, false, 1},
                                   {"A5", 5, 60, 1, 1, "A5", false, false, false, false, 1},
                                   {"S5", 5, 120, 1, 1, "S5", false, false, false, false, 1}};
  for (const auto& row : groups) expect_row(row, natural_action(named_group(row.language)));
}

TEST(Verdict, GroupsNeedTheirDerivedLength) {
  const auto layers = [](const char* group, const char* architecture) {
    const NamedGroup named = named_group(group);
    const Analysis analysis = analyze(word_problem(named).dfa, {}, named.generators);
    const Verdict& v = analysis.verdict(architecture);
    if (v.possible == std::optional<bool>(false)) return int64_t{-1};
    EXPECT_NE(v.reason.find("exactly"), std::string::npos) << group << ": " << v.reason;
    return *v.layers;
  };
  EXPECT_EQ(layers("Z5", "complex-diagonal"), 1);
  EXPECT_EQ(layers("Z60", "complex-diagonal"), 1);
  EXPECT_EQ(layers("S3", "complex-diagonal"), 2);
  EXPECT_EQ(layers("A4", "complex-diagonal"), 2);
  EXPECT_EQ(layers("S4", "complex-diagonal"), 3);
  EXPECT_EQ(layers("A5", "complex-diagonal"), -1);
  EXPECT_EQ(layers("Z2xZ2xZ2", "diagonal[-1,1]"), 1);
  EXPECT_EQ(layers("Z8", "diagonal[-1,1]"), 3);
  EXPECT_EQ(layers("D4", "diagonal[-1,1]"), 2);
  EXPECT_EQ(layers("S3", "diagonal[-1,1]"), -1);
  EXPECT_EQ(layers("Z3", "householder[-1,1]"), 2);
  EXPECT_EQ(layers("Z2", "householder[-1,1]"), 1);
}

// One complex number can have the group S5 in fp32 (docs/theory.md, 9), so two layers are the fewest for D4
// without rounding only. Real diagonal gates double a period at most, rounded or not.
TEST(Verdict, FewestComplexLayersAreProvedWithoutRounding) {
  const NamedGroup named = named_group("D4");
  const Analysis analysis = analyze(word_problem(named).dfa, {}, named.generators);
  const Verdict& complex = analysis.verdict("complex-diagonal");
  EXPECT_EQ(complex.arithmetic, Arithmetic::kFloatingPoint) << "that it is possible";
  EXPECT_EQ(analyze(named_language("unary-mod:3")).verdict("complex-diagonal").arithmetic, Arithmetic::kReal)
      << "third roots of unity round";
  EXPECT_NE(complex.reason.find("exactly 2 layers without rounding:"), std::string::npos) << complex.reason;
  const std::string& real = analysis.verdict("diagonal[-1,1]").reason;
  EXPECT_NE(real.find("exactly 2 layers:"), std::string::npos) << real;
}

TEST(Verdict, GroupsNeedFewReflections) {
  const auto product = [](const char* group, const char* generators) {
    const NamedGroup named = named_group(group, generators);
    const Analysis analysis = analyze(word_problem(named).dfa, {}, named.generators);
    const Verdict& v = analysis.verdict("householder-product[-1,1]");
    EXPECT_EQ(v.layers, std::optional<int64_t>(1));
    return std::make_pair(*v.householders, *v.dimension);
  };
  EXPECT_EQ(product("S5", "swaps"), (std::pair<int64_t, int64_t>(1, 5)));
  EXPECT_EQ(product("S5", "all"), (std::pair<int64_t, int64_t>(4, 5)));
  EXPECT_EQ(product("A5", "3cycles"), (std::pair<int64_t, int64_t>(2, 5)));
  // Signed permutations: factors and dimension as GAP has them for the smallest real representations.
  EXPECT_EQ(product("Z2", "all"), (std::pair<int64_t, int64_t>(1, 1)));
  EXPECT_EQ(product("Z3", "all"), (std::pair<int64_t, int64_t>(2, 3)));
  EXPECT_EQ(product("Z4", "all"), (std::pair<int64_t, int64_t>(2, 2)));
  EXPECT_EQ(product("D4", "all"), (std::pair<int64_t, int64_t>(2, 2)));
  EXPECT_EQ(product("Q8", "all"), (std::pair<int64_t, int64_t>(4, 4)));
  EXPECT_EQ(product("A4", "all"), (std::pair<int64_t, int64_t>(2, 3)));
  EXPECT_EQ(product("S4", "all"), (std::pair<int64_t, int64_t>(2, 3)));
  EXPECT_EQ(product("Z2wrS3", "all"), (std::pair<int64_t, int64_t>(3, 3)));
}

// A witness is only worth something if it can be checked: run its words.
TEST(Verdict, WitnessesHold) {
  Rng rng(12);
  int cycles = 0, odd = 0, groups = 0, pairs = 0;
  for (int trial = 0; trial < 60; ++trial) {
    Dfa dfa;
    dfa.alphabet = {"a", "b"};
    const auto n = static_cast<State>(2 + rng.below(6));
    for (State q = 0; q < n; ++q) {
      dfa.delta.push_back(
          {(q + 1) % n, static_cast<State>(rng.below(2) ? q : rng.below(static_cast<uint32_t>(n)))});
      dfa.accept.push_back(q == 0);
    }
    dfa = minimize(dfa);
    const Analysis analysis = analyze(dfa);
    for (const auto& v : analysis.verdicts) {
      if (v.possible != std::optional<bool>(false)) continue;
      ASSERT_TRUE(v.witness) << v.architecture;
      const Witness& w = *v.witness;
      if (w.kind == "cycle") {
        ASSERT_GT(w.states.size(), 1u);
        for (size_t i = 0; i < w.states.size(); ++i)
          ASSERT_EQ(dfa.run(w.states[i], w.words[0]), w.states[(i + 1) % w.states.size()]);
        if (v.architecture == "diagonal[-1,1]") {
          ASSERT_NE(w.states.size() & (w.states.size() - 1), 0u);
          ++odd;
        }
        ++cycles;
      } else if (w.kind == "group") {
        for (const auto& word : w.words) {
          std::set<State> image;
          for (State q : w.states) image.insert(dfa.run(q, word));
          ASSERT_EQ(image, std::set<State>(w.states.begin(), w.states.end()));
        }
        ++groups;
      } else {
        ASSERT_EQ(dfa.run(w.states[0], w.words[0]), w.states[0]);
        ASSERT_EQ(dfa.run(w.states[1], w.words[0]), w.states[1]);
        ASSERT_NE(w.states[0], w.states[1]);
        ++pairs;
      }
    }
  }
  EXPECT_GT(cycles, 10);
  EXPECT_GT(odd, 10);
  EXPECT_GT(groups, 2);
  EXPECT_GT(pairs, 10);
}

Dfa random_dfa(uint64_t seed, State n) {
  Rng rng(seed);
  Dfa dfa;
  dfa.alphabet = {"a", "b"};
  for (State q = 0; q < n; ++q) {
    dfa.delta.push_back({static_cast<State>(rng.below(static_cast<uint32_t>(n))),
                         static_cast<State>(rng.below(static_cast<uint32_t>(n)))});
    dfa.accept.push_back(rng.below(2));
  }
  return minimize(dfa);
}

TEST(Verdict, DecidesLargeAutomataFromImageSets) {
  for (uint64_t seed = 0; seed < 2; ++seed) {
    const Analysis analysis = analyze(random_dfa(seed, 30));
    EXPECT_FALSE(analysis.facts.monoid_size);
    EXPECT_TRUE(analysis.facts.aperiodic && analysis.facts.solvable && analysis.facts.two_groups);
  }
}

TEST(Verdict, TheTrivialLanguageNeedsNothing) {
  const Analysis analysis = analyze(regex_to_dfa(".*", {"a", "b"}));
  for (const auto& v : analysis.verdicts) {
    EXPECT_EQ(v.possible, std::optional<bool>(true)) << v.architecture;
    EXPECT_EQ(v.layers, std::optional<int64_t>(0)) << v.architecture;
    EXPECT_EQ(v.householders.value_or(0), 0) << v.architecture;
  }
  EXPECT_EQ(analysis.facts.reverse_definite_window, std::optional<int32_t>(0));
}

// Where the last letter decides, no layer is needed at all: "exactly 1" alone would be wrong.
TEST(Verdict, TheLastLetterNeedsNoLayer) {
  const auto says = [](const Dfa& dfa) {
    int64_t count = 0;
    for (const auto& v : analyze(dfa).verdicts)
      count += v.reason.find("without any layer") != std::string::npos;
    return count;
  };
  const Dfa last = named_language("last");
  EXPECT_EQ(says(last), 9);
  Network none;  // its answer is a table of letters
  none.dfa = last;
  for (Letter s = 0; s < last.letters(); ++s) {
    none.final_state.push_back(last.delta[last.start][s]);
    none.final_output.push_back(last.accept[none.final_state.back()]);
  }
  EXPECT_TRUE(verify(none, {}).proved);
  EXPECT_EQ(says(named_language("kth-last:2")), 0);
  EXPECT_EQ(says(regex_to_dfa(".*", {"a", "b"})), 0);
  // A Mealy machine that says whether the last two letters are the same.
  Dfa same = last;
  same.accept.assign(same.accept.size(), false);
  for (const auto& row : last.delta)
    for (Letter s = 0; s < last.letters(); ++s) {
      if (s == 0) same.output.emplace_back();
      same.output.back().push_back(row[s] == static_cast<State>(&row - last.delta.data()));
    }
  EXPECT_EQ(says(same), 0);
  EXPECT_NE(analyze(same).verdict("mamba-real").reason.find("the last 2 letters"), std::string::npos);
}

// A counter that says, after a step or a reset, where it was: outputs that need the state before take room,
// in machines that are too large for analyze to build the network, too.
TEST(Verdict, OutputsThatNeedTheStateBeforeTakeRoom) {
  for (const State n : {6, 20})
    for (const bool line : {false, true}) {  // or a line with a sink, on which compile finds no layer
      Dfa machine;
      machine.alphabet = {"a", "b"};
      for (State q = 0; q < n; ++q) {
        const State last = n - 1, up = q + 1 < last ? q + 1 : last, down = q > 0 && q < last ? q - 1 : last;
        machine.delta.push_back(line ? std::vector<State>{up, down} : std::vector<State>{(q + 1) % n, 0});
        machine.output.push_back({q / 2, q / 2});
        machine.accept.push_back(false);
      }
      machine = minimize(machine);
      ASSERT_EQ(machine.states(), n);
      SCOPED_TRACE(fmt::format("{} states, {}", n, line ? "line" : "ring"));
      const Analysis analysis = analyze(machine);
      CompileOptions options;
      options.target = NetworkClass::kOneHot;
      EXPECT_EQ(analysis.verdict("one-hot").dimension, network_size(compile(machine, options)).dimension);
      EXPECT_GT(analysis.verdict("one-hot").dimension, n);
      const Verdict& product = analysis.verdict("householder-product[-1,1]");
      EXPECT_EQ(product.layers, 1);
      if (!line) {
        EXPECT_EQ(product.dimension, network_size(compile(machine, {})).dimension);
      } else {
        EXPECT_EQ(product.dimension, 2 * (n - 1));
      }
    }
}

// Reflections of the plane at 22.5 degrees make D8 in one layer, so its three signs bound diagonal layers
// only.
TEST(Verdict, GroupsBoundDiagonalLayersNotFactors) {
  Dfa dfa;
  dfa.alphabet = {"s", "t"};
  for (State q = 0; q < 8; ++q) {
    dfa.delta.push_back({(8 - q) % 8, (9 - q) % 8});
    dfa.accept.push_back(q == 0);
  }
  const Analysis analysis = analyze(minimize(dfa));
  EXPECT_NE(analysis.verdict("diagonal[-1,1]").reason.find("exactly 3 layers"), std::string::npos);
  const std::string reason = analysis.verdict("householder[-1,1]").reason;
  EXPECT_NE(reason.find("at most 3 layers"), std::string::npos) << reason;
  EXPECT_EQ(reason.find("reset"), std::string::npos) << reason;  // there is none
}

TEST(Verdict, SignedPermutationsAreNotCalledPermutations) {
  const NamedGroup named = named_group("Z2wrS4");  // 384 elements, more than 4 points have permutations
  const std::string reason =
      analyze(word_problem(named).dfa, {}, named.generators).verdict("householder[-1,1]").reason;
  EXPECT_NE(reason.find("signed permutations of 4 coordinates"), std::string::npos) << reason;
}

// "The first letter is a" in one layer with gate 1 and inputs +-1: IEEE rounding, ties to even, does what
// Proposition E excludes for exact arithmetic.
TEST(Verdict, TheBarrierSpeaksOfArithmeticWithoutRounding) {
  const auto last = [](const std::string& word) {
    volatile float x = 16777222;  // 2^24 + 6, where floats are 2 apart
    for (char letter : word) x = x + (letter == 'a' ? 1.0f : -1.0f);
    return static_cast<float>(x);
  };
  for (const char* word : {"a", "ab", "abbbb", "abab", "aaaa"}) EXPECT_EQ(last(word), 16777224.0f) << word;
  for (const char* word : {"b", "ba", "baaaa", "baba", "bbbb"}) EXPECT_EQ(last(word), 16777220.0f) << word;
  const std::string reason = analyze(named_language("first")).verdict("diagonal[0,1]").reason;
  EXPECT_NE(reason.find("exactly 2 layers without rounding"), std::string::npos) << reason;
}

// One number that keeps the last `window` of m letters as digits: x' = x/b + letter, as a diagonal gate or as
// one factor, from m on. States are the words of up to so many letters.
Network digits_network(int32_t m, int32_t window, bool factor) {
  const double b = std::bit_ceil(static_cast<uint32_t>(2 * m)), share = factor ? 1 - 1 / b : 1;
  Network network;
  Block block;
  block.dim = 1;
  block.kind = factor ? BlockKind::kHouseholder : BlockKind::kDiagonal;
  block.initial = {share * m};
  for (int32_t a = 0; a < m; ++a) {
    network.dfa.alphabet.push_back(std::to_string(a));
    if (factor)
      add_householder_context(block, {{{1}, share, static_cast<double>(a)}});
    else
      add_diagonal_context(block, {1 / b}, {static_cast<double>(a)});
  }
  if (factor) finish_householder(block);
  std::map<std::vector<int32_t>, State> index = {{{}, 0}};
  std::vector<std::vector<int32_t>> words = {{}};  // latest letter first
  for (size_t q = 0; q < words.size(); ++q) {
    const auto word = words[q];
    double x = 0, place = share;
    for (const int32_t a : word) x += a * place, place /= b;
    // What is left of the start of a short word, or the middle of what may be left of all that came earlier.
    const bool whole = static_cast<int32_t>(word.size()) == window;
    block.codes.push_back(x + m * (whole ? place / 2 : place));
    network.dfa.delta.emplace_back();
    network.dfa.accept.push_back(q % 2 == 1);
    for (int32_t a = 0; a < m; ++a) {
      auto next = word;
      next.insert(next.begin(), a);
      if (static_cast<int32_t>(next.size()) > window) next.pop_back();
      const auto [it, fresh] = index.emplace(next, static_cast<State>(words.size()));
      if (fresh) words.push_back(next);
      network.dfa.delta.back().push_back(it->second);
    }
  }
  Layer layer;
  layer.trails = m;
  layer.rows = 1;
  layer.blocks = {block};
  for (int32_t a = 0; a < m; ++a) layer.context.push_back(a), layer.row.push_back(0);
  for (State q = 0; q < network.dfa.states(); ++q) {
    layer.next.push_back(q);
    network.final_state.push_back(q);
    network.final_output.push_back(network.dfa.accept[static_cast<size_t>(q)]);
  }
  network.layers = {layer};
  validate(network, "digits");
  return network;
}

// docs/analyze.md: six bits of digits are right at every length in the types with the fewest digits, whose
// orbits are small enough to close.
TEST(Verdict, NarrowTypesKeepSixBitsOfLastLetters) {
  VerifyOptions options;
  options.method = VerifyMethod::kClosure;
  for (int32_t m : {1, 2, 3, 4, 5, 8, 16, 17, 32}) {
    const int bits = std::bit_width(std::bit_ceil(static_cast<uint32_t>(2 * m)) - 1);
    for (int32_t window = 1; window * bits <= 6; ++window)
      for (const bool factor : {false, true})
        for (NumberType type : {NumberType::kBf16, NumberType::kFp16}) {
          options.type = type;
          const auto result = verify(digits_network(m, window, factor), options);
          EXPECT_TRUE(result.proved && !result.longest)
              << m << " letters, " << window << " kept, " << number_type_name(type)
              << (factor ? ", factor: " : ": ") << result.certificate;
        }
  }
  options.type = NumberType::kBf16;
  EXPECT_TRUE(verify(digits_network(2, 5, false), options).counterexample) << "ten bits are too many";
}

// What more bits would need is not promised of floating point: the layers are those of the cascade.
TEST(Verdict, ManyLastLettersTakeManyLayersOfFloatingPoint) {
  const Analysis few = analyze(named_language("kth-last:3")), many = analyze(named_language("kth-last:5"));
  for (const char* name : {"diagonal[0,1]", "diagonal[-1,1]", "complex-diagonal", "householder[0,1]"}) {
    EXPECT_EQ(few.verdict(name).layers, 1) << name;
    EXPECT_EQ(many.verdict(name).arithmetic, Arithmetic::kFloatingPoint) << name;
    EXPECT_EQ(many.verdict(name).layers, 5) << name;
    EXPECT_NE(
        many.verdict(name).reason.find("in real numbers exactly 1 layer: definite by the last 5 letters"),
        std::string::npos)
        << many.verdict(name).reason;
  }
  EXPECT_EQ(many.verdict("householder[-1,1]").layers, 5);
  EXPECT_EQ(many.verdict("mamba-real").layers, 1) << "in real numbers";
}

TEST(Verdict, LimitsLeaveAQuestionOpenInsteadOfGuessing) {
  const Analysis analysis = analyze(named_language("T:7"), {.monoid = 100, .image_sets = 20});
  EXPECT_FALSE(analysis.facts.aperiodic);
  EXPECT_FALSE(analysis.facts.groups);
  EXPECT_FALSE(analysis.verdict("complex-diagonal").possible);
  EXPECT_NE(analysis.verdict("complex-diagonal").reason.find("--max-sets"), std::string::npos);
  EXPECT_TRUE(*analysis.verdict("one-hot").possible);
}

}  // namespace
}  // namespace signet::theory
