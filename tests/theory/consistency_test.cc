// What `analyze` calls possible, `compile` builds and it runs right; what it calls impossible, `compile`
// refuses with a witness: every class of networks, over the oracle languages, groups and random automata.
#include <gtest/gtest.h>

#include "automata_for_tests.h"
#include "signet/automata/minimize.h"
#include "signet/automata/named_group.h"
#include "signet/automata/named_language.h"
#include "signet/base/error.h"
#include "signet/theory/compile.h"
#include "signet/theory/verdict.h"
#include "signet/theory/verify.h"

namespace signet::theory {
namespace {

using namespace test;

Word random_word(Rng& rng, int32_t letters, int64_t length) {
  Word word(static_cast<size_t>(length));
  for (auto& s : word) s = static_cast<int32_t>(rng.below(static_cast<uint32_t>(letters)));
  return word;
}

void expect_runs(const Network& network) {
  validate(network, "test");
  // Where there is no bound, as for rotations in bf16, fp32 must do.
  for (NumberType type : {NumberType::kFp32, NumberType::kBf16}) {
    const Horizon horizon = error_horizon(network, type);
    EXPECT_TRUE(horizon.known) << number_type_name(type);
    const int64_t length = std::min<int64_t>(2000, horizon.known ? horizon.letters.value_or(2000) : 0);
    if (type == NumberType::kFp32) {
      EXPECT_GE(length, 500);
    }
    Rng rng(5);
    const auto wrong = first_mismatch(network, type, random_word(rng, network.dfa.letters(), length));
    EXPECT_FALSE(wrong) << number_type_name(type) << ", letter " << *wrong;
  }
}

// One factor at most for the classes that have one; gates in the range that the class names.
void expect_in_class(const Network& network, Target target) {
  const bool positive = target == Target::kDiagonalPositive || target == Target::kHouseholderPositive;
  for (const Layer& layer : network.layers)
    for (const Block& block : layer.blocks) {
      switch (target) {
        case Target::kDiagonalPositive:
        case Target::kDiagonalSigned:
          EXPECT_EQ(block.kind, BlockKind::kDiagonal);
          break;
        case Target::kComplexDiagonal:
          EXPECT_TRUE(block.kind == BlockKind::kDiagonal || block.kind == BlockKind::kComplexDiagonal);
          break;
        case Target::kOneHot:
          EXPECT_EQ(block.kind, BlockKind::kOneHot);
          break;
        default:
          EXPECT_EQ(block.kind, BlockKind::kHouseholder);
      }
      if (target == Target::kHouseholderPositive || target == Target::kHouseholderSigned) {
        EXPECT_LE(block.factors, 1);
      }
      if (block.kind == BlockKind::kDiagonal)
        for (double gate : block.gate) {
          EXPECT_GE(gate, positive ? 0 : -1);
          EXPECT_LE(gate, 1);
        }
      for (size_t row = 0; row < block.beta.size(); ++row) {
        double square = 0;
        for (int32_t i = 0; i < block.dim; ++i)
          square += block.k[row * block.dim + i] * block.k[row * block.dim + i];
        EXPECT_GE(block.beta[row], 0);
        EXPECT_LE(block.beta[row] * square, (positive ? 1 : 2) + 1e-12);
      }
    }
}

void expect_consistent(const Dfa& dfa, const std::vector<automata::Permutation>& natural = {}) {
  const Analysis analysis = analyze(dfa, {}, natural);
  for (size_t t = 0; t < target_names().size(); ++t) {
    const std::string& name = target_names()[t];
    SCOPED_TRACE(name);
    const Verdict& verdict = analysis.verdict(name);
    ASSERT_TRUE(verdict.possible.has_value());
    CompileOptions options;
    options.target = static_cast<Target>(t);
    options.letters_as_permutations = natural;
    try {
      const Network network = compile(dfa, options);
      EXPECT_TRUE(*verdict.possible) << "compiled, but " << verdict.reason;
      expect_in_class(network, options.target);
      expect_runs(network);
      // The verdict's number of layers is that of some network; here it is one that is built, unless the
      // language is definite: one number then holds the last letters, if the type is wide enough.
      if (options.target == Target::kHouseholderSigned && !analysis.facts.definite_window) {
        ASSERT_TRUE(verdict.layers.has_value());
        EXPECT_LE(network_size(network).layers, *verdict.layers) << network.construction << verdict.reason;
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCheckFailed) << error.what();
      EXPECT_FALSE(*verdict.possible) << "refused: " << error.what();
      ASSERT_TRUE(verdict.witness.has_value());
      EXPECT_NE(std::string(error.what()).find(verdict.witness->text), std::string::npos)
          << error.what() << "\n"
          << verdict.witness->text;
    }
  }
}

class OracleLanguages : public testing::TestWithParam<const char*> {};
TEST_P(OracleLanguages, CompileAsTheVerdictSays) { expect_consistent(automata::named_language(GetParam())); }
INSTANTIATE_TEST_SUITE_P(Verdicts, OracleLanguages,
                         testing::Values("tomita1", "tomita2", "tomita3", "tomita4", "tomita5", "tomita6",
                                         "tomita7", "parity", "flip-flop", "mod:7", "mod:8", "dyck:1",
                                         "dyck:4", "divisible:6", "no-run:3", "T:4"));

class OracleGroups : public testing::TestWithParam<const char*> {};
TEST_P(OracleGroups, CompileAsTheVerdictSays) {
  const auto group = automata::named_group(GetParam());
  expect_consistent(automata::word_problem(group).dfa, group.generators);
}
INSTANTIATE_TEST_SUITE_P(Verdicts, OracleGroups,
                         testing::Values("Z3", "Z4", "Z12", "V4", "S3", "D4", "Q8", "A4", "D5", "S4", "A5",
                                         "S3xZ2", "Z2wrS3", "S5"));

TEST(Consistency, OtherOracles) {
  for (int32_t n = 2; n <= 5; ++n) {
    SCOPED_TRACE(n);
    expect_consistent(automata::minimize(elevator(n)));
    expect_consistent(automata::minimize(kth_last(n - 1)));
  }
  expect_consistent(first_is_a());
  expect_consistent(two_flip_flops());
  // Cycle, swap and merge: every map of n states.
  for (int32_t n = 2; n <= 4; ++n) {
    std::vector<std::vector<int32_t>> delta;
    for (int32_t q = 0; q < n; ++q) delta.push_back({(q + 1) % n, q < 2 ? 1 - q : q, q == 1 ? 0 : q});
    SCOPED_TRACE(n);
    expect_consistent(make_dfa(delta, {0}));
  }
}

TEST(Consistency, RandomAutomata) {
  Rng rng(31);
  for (int trial = 0; trial < 120; ++trial) {
    const int32_t states = 2 + trial % 4;
    const Dfa dfa = automata::minimize(random_dfa(rng, states, 2 + trial % 2));
    SCOPED_TRACE(trial);
    expect_consistent(dfa);
    if (testing::Test::HasFailure()) return;
  }
}

// Letters that permute or reset at random: groups under resets, in the hardest class.
TEST(Consistency, SingleReflectionsFollowRandomPermutationsAndResets) {
  Rng rng(32);
  for (int trial = 0; trial < 60; ++trial) {
    const int32_t n = 3 + trial % 3;
    std::vector<std::vector<int32_t>> delta(n, std::vector<int32_t>(3));
    for (int32_t s = 0; s < 3; ++s) {
      std::vector<int32_t> image(n);
      std::iota(image.begin(), image.end(), 0);
      for (int32_t i = n - 1; i > 0; --i) std::swap(image[i], image[rng.below(static_cast<uint32_t>(i + 1))]);
      if (s == 2) image[1] = image[0];
      for (int32_t q = 0; q < n; ++q) delta[q][s] = image[q];
    }
    const Dfa dfa = automata::minimize(make_dfa(delta, {0}));
    CompileOptions options;
    options.target = Target::kHouseholderSigned;
    options.construction = "reflections";
    const Network network = compile(dfa, options);
    SCOPED_TRACE(trial);
    expect_in_class(network, options.target);
    expect_runs(network);
    if (testing::Test::HasFailure()) return;
  }
}

// Where one layer does it, `analyze` names the sizes of the network that `compile` builds.
TEST(Consistency, OneLayerHasTheSizesThatAnalyzeNames) {
  Rng rng(21);
  int compared = 0;
  std::vector<Dfa> automata = {abab(),      bounded_dyck(3), bounded_dyck(4),
                               kth_last(3), elevator(5),     flip_flop()};
  for (int i = 0; i < 60; ++i) automata.push_back(random_dfa(rng, 2 + i % 4, 2));
  for (const Dfa& given : automata) {
    const Dfa dfa = automata::minimize(given);
    const Analysis analysis = analyze(dfa);
    const Verdict& verdict = analysis.verdict("householder-product[-1,1]");
    if (dfa.states() < 2 || analysis.facts.one_layer_exact != true) continue;
    const auto size = network_size(compile(dfa, {}));
    EXPECT_EQ(size.layers, verdict.layers);
    EXPECT_EQ(size.dimension, verdict.dimension) << verdict.reason;
    EXPECT_EQ(size.householders, verdict.householders) << verdict.reason;
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

// Letters that permute, reset, are injective off a sink, or map anyhow; Mealy machines among them.
Dfa random_kind(Rng& rng, int kind) {
  const auto n = static_cast<int32_t>(2 + rng.below(4)), letters = static_cast<int32_t>(1 + rng.below(3));
  Dfa dfa;
  dfa.delta.assign(static_cast<size_t>(n), std::vector<int32_t>(static_cast<size_t>(letters)));
  for (int32_t s = 0; s < letters; ++s) {
    dfa.alphabet.emplace_back(1, static_cast<char>('a' + s));
    std::vector<int32_t> image(static_cast<size_t>(n));
    std::iota(image.begin(), image.end(), 0);
    const int what = kind < 4 ? kind : static_cast<int>(rng.below(4));
    for (int32_t i = n - (what == 2 ? 2 : 1); i > 0; --i)
      std::swap(image[static_cast<size_t>(i)], image[rng.below(static_cast<uint32_t>(i + 1))]);
    for (int32_t q = 0; q < n; ++q) {
      int32_t& to = image[static_cast<size_t>(q)];
      if (what == 2 && rng.below(3) == 0) to = n - 1;
      if (what == 3) to = static_cast<int32_t>(rng.below(static_cast<uint32_t>(n)));
      if (what == 1 && s == 0) to = image[0];
      dfa.delta[static_cast<size_t>(q)][static_cast<size_t>(s)] = to;
    }
  }
  for (int32_t q = 0; q < n; ++q) dfa.accept.push_back(rng.below(2) == 0);
  if (kind == 5)
    for (const auto& row : dfa.delta) {
      dfa.output.emplace_back();
      for (const int32_t to : row)
        dfa.output.back().push_back(static_cast<int32_t>(rng.below(2)) + dfa.accept[static_cast<size_t>(to)]);
    }
  return automata::minimize(dfa);
}

TEST(Consistency, AnalyzeAndCompileNameTheSameSizes) {
  Rng rng(77);
  int compared = 0, fewer = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const Dfa dfa = random_kind(rng, trial % 6);
    SCOPED_TRACE(trial);
    for (const Verdict& v : analyze(dfa).verdicts) {
      const auto& names = target_names();
      if (std::find(names.begin(), names.end(), v.architecture) == names.end() || !v.possible) continue;
      CompileOptions options;
      options.target = parse_target(v.architecture);
      options.type = NumberType::kFp32;
      std::optional<NetworkSize> size;
      try {
        size = network_size(compile(dfa, options));
      } catch (const Error&) {
      }
      SCOPED_TRACE(v.architecture + ": " + v.reason);
      ASSERT_EQ(size.has_value(), v.compiled.has_value());
      if (!size) continue;
      EXPECT_TRUE(*v.possible);
      EXPECT_EQ(size->layers, v.compiled->layers);
      ++compared;
      if (v.layers < size->layers) {  // the theory knows of fewer, and says what compile does
        EXPECT_NE(v.reason.find(fmt::format("compile builds {} layer", size->layers)), std::string::npos);
        ++fewer;
        continue;
      }
      EXPECT_EQ(v.layers, size->layers);
      EXPECT_EQ(v.dimension, size->dimension);
      if (v.householders) {
        EXPECT_EQ(v.householders, size->householders);
      }
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(compared, 1000);
  EXPECT_LT(fewer, compared / 10);
}

}  // namespace
}  // namespace signet::theory
