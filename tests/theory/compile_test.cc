#include "signet/theory/compile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "automata_for_tests.h"
#include "signet/automata/named_language.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/kernels/delta_rule/delta_rule.h"
#include "signet/kernels/delta_rule/delta_rule_step.h"
#include "signet/theory/lookup_table.h"
#include "signet/theory/runner.h"
#include "signet/theory/verify.h"
#include "support/temporary_directory.h"

namespace signet::theory {
namespace {

using automata::Dfa;
using namespace test;

Network compile_as(const Dfa& dfa, const std::string& construction = "auto",
                   const std::string& target = "householder-product[-1,1]") {
  CompileOptions options;
  options.target = parse_target(target);
  options.construction = construction;
  Network network = compile(dfa, options);
  validate(network, "test");
  return network;
}

Word random_word(Rng& rng, int32_t letters, int64_t length) {
  Word word(static_cast<size_t>(length));
  for (auto& s : word) s = static_cast<int32_t>(rng.below(letters));
  return word;
}

// Decoded states, not only outputs, against the automaton.
void expect_follows(const Network& network, NumberType type, const Word& word) {
  const auto runner = make_runner(network, type);
  std::vector<int32_t> answers(word.size());
  runner->feed(word.data(), static_cast<int64_t>(word.size()), answers.data());
  int32_t q = network.dfa.start;
  for (size_t t = 0; t < word.size(); ++t) {
    q = network.dfa.delta[q][word[t]];
    ASSERT_GE(answers[t], 0) << "letter " << t;
    ASSERT_EQ(network.final_state[answers[t]], q) << "letter " << t;
  }
}

void expect_proved(const Network& network) {
  for (NumberType type : {NumberType::kFp64, NumberType::kFp32, NumberType::kBf16, NumberType::kFp16}) {
    const auto closure = joint_closure(network, type, 100'000);
    EXPECT_EQ(closure.status, ClosureResult::Status::kProved)
        << number_type_name(type) << network.construction;
  }
}

// 2,200 random automata of 2 to 12 states through the real inference code, in two halves.
void expect_random_cascades(uint64_t seed, NumberType type) {
  Rng rng(seed);
  for (int trial = 0; trial < 1100; ++trial) {
    const int32_t n = 2 + trial % 11;
    const Dfa dfa = random_dfa(rng, n, 2);
    const Network network = compile_as(dfa, "elimination");
    ASSERT_EQ(network_size(network).layers, n - 1);
    ASSERT_EQ(network_size(network).dimension, 2 * n);
    ASSERT_LE(network_size(network).householders, 2 * n);
    expect_follows(network, type, random_word(rng, 2, 50));
    if (testing::Test::HasFatalFailure()) return;
  }
}
TEST(Elimination, RandomAutomataInFp32) { expect_random_cascades(7, NumberType::kFp32); }
TEST(Elimination, RandomAutomataInBf16) { expect_random_cascades(8, NumberType::kBf16); }

TEST(Elimination, SmallAutomataAreProvedForAllLengths) {
  Rng rng(8);
  for (int trial = 0; trial < 60; ++trial) {
    const Network network = compile_as(random_dfa(rng, 2 + trial % 4, 2 + trial % 2), "elimination");
    EXPECT_EQ(joint_closure(network, NumberType::kBf16, 100'000).status, ClosureResult::Status::kProved);
    const Horizon horizon = error_horizon(network, NumberType::kBf16);
    EXPECT_TRUE(horizon.known && horizon.exact);
  }
}

TEST(Elimination, GatesAreContractions) {
  Rng rng(9);
  const Network network = compile_as(random_dfa(rng, 6, 3), "elimination");
  for (const Layer& layer : network.layers)
    for (const Block& block : layer.blocks)
      for (size_t i = 0; i < block.beta.size(); ++i) {
        double square = 0;
        for (int32_t j = 0; j < block.dim; ++j)
          square += block.k[i * block.dim + j] * block.k[i * block.dim + j];
        EXPECT_GE(1 - block.beta[i] * square, -1);
        EXPECT_LE(1 - block.beta[i] * square, 1);
      }
}

TEST(Elimination, RefusesWhatWouldNotFit) {
  Rng rng(10);
  CompileOptions options;
  options.construction = "elimination";
  options.max_table = 10'000;
  try {
    compile(random_dfa(rng, 14, 3), options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadInput);
    EXPECT_NE(std::string(error.what()).find("--max-table"), std::string::npos);
  }
}

struct Expected {
  const char* name;
  Dfa dfa;
  int64_t layers, dimension, householders;
};

// One exact layer where theory says so (docs/theory.md), with its size, proved in every type.
TEST(SingleLayer, SizesAndProofs) {
  const std::vector<Expected> cases = {
      {"parity", parity(), 1, 1, 1},
      {"flip-flop", flip_flop(), 1, 1, 1},
      {"(abab)*", abab(), 1, 4, 4},
      {"dyck:3", bounded_dyck(3), 1, 4, 4},
      {"elevator:5", elevator(5), 1, 4, 4},
      {"third last", kth_last(3), 1, 3, 3},
      {"Z3", cyclic(3, false), 1, 3, 2},
      {"Z4", cyclic(4, true), 1, 2, 2},
      {"Z60", cyclic(60, false), 1, 10, 8},
      {"S3", group_word_problem(all_permutations(3)), 1, 3, 2},
      {"S4", group_word_problem(all_permutations(4)), 1, 3, 2},
      {"S5", group_word_problem(all_permutations(5)), 1, 5, 4},
      {"A5", group_word_problem({{1, 2, 3, 4, 0}, {1, 2, 0, 3, 4}}), 1, 5, 4},
      {"two flip-flops", two_flip_flops(), 1, 2, 1},
      {"swap and merge", make_dfa({{1, 0}, {0, 0}}, {1}), 1, 1, 1},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const Network network = compile_as(c.dfa);
    const auto size = network_size(network);
    EXPECT_EQ(size.layers, c.layers) << network.construction;
    EXPECT_LE(size.dimension, c.dimension) << network.construction;
    EXPECT_EQ(size.householders, c.householders) << network.construction;
    expect_proved(network);
    EXPECT_TRUE(error_horizon(network, NumberType::kBf16).exact);
  }
}

// What one layer of norm at most 1 cannot do goes to the cascade.
TEST(SingleLayer, BarrierLanguagesNeedMoreLayers) {
  for (const Dfa& dfa : {first_is_a(), tomita3(), tomita4()}) EXPECT_GE(compile_as(dfa).layers.size(), 2u);
}

TEST(SingleLayer, OneHotTakesAnyAutomaton) {
  Rng rng(11);
  for (int trial = 0; trial < 50; ++trial) {
    const Dfa dfa = random_dfa(rng, 1 + trial % 9, 1 + trial % 3);
    const Network network = compile_as(dfa, "auto", "one-hot");
    EXPECT_LE(network.layers.size(), 1u);
    expect_proved(network);
  }
}

TEST(SingleLayer, OneHotTakesAsManyStatesAsItIsTold) {
  CompileOptions options;
  options.target = Target::kOneHot;
  const Dfa dfa = automata::named_language("mod:2100");
  signet::test::expect_error([&] { compile(dfa, options); }, ErrorCode::kBadInput, "--max-layer-states");
  options.max_layer_states = 2100;
  EXPECT_EQ(network_size(compile(dfa, options)).dimension, 2100);
}

TEST(SingleLayer, MealyMachinesAnswerWithTheirOutput) {
  // The output depends on the old state: state 0 and 1 both go to 0 on the letter, with different outputs.
  Dfa dfa = make_dfa({{1, 0}, {0, 0}}, {});
  dfa.output = {{0, 1}, {1, 2}};
  for (const char* target : {"householder-product[-1,1]", "one-hot"}) {
    const Network network = compile_as(dfa, "auto", target);
    expect_proved(network);
  }
}

// Theorem 6 and section 5 of the notes: rotations fail at a length, permutations do not.
TEST(Rotation, HorizonIsBelowTheMeasuredFailure) {
  const Network network = compile_as(cyclic(60, false), "rotation");
  EXPECT_EQ(network_size(network).dimension, 2);
  EXPECT_EQ(network_size(network).householders, 2);
  VerifyOptions options;
  options.type = NumberType::kBf16Fp32;
  options.length = 100'000;
  const auto result = verify(network, options);
  ASSERT_FALSE(result.correct);
  ASSERT_TRUE(result.counterexample);
  const Horizon horizon = error_horizon(network, options.type);
  ASSERT_TRUE(horizon.known);
  ASSERT_TRUE(horizon.letters);
  EXPECT_LT(*horizon.letters, static_cast<int64_t>(result.counterexample->size()));
  EXPECT_EQ(first_mismatch(network, options.type, *result.counterexample),
            static_cast<int64_t>(result.counterexample->size()) - 1);
  // In fp32 the bound covers at least tens of thousands of letters, and the run agrees.
  const Horizon fp32 = error_horizon(network, NumberType::kFp32);
  ASSERT_TRUE(fp32.known && fp32.letters);
  EXPECT_GT(*fp32.letters, 1000);
  EXPECT_FALSE(first_mismatch(network, NumberType::kFp32, Word(static_cast<size_t>(*fp32.letters), 1)));
}

// A model file may hold any finite numbers: what overflows has no horizon.
TEST(Rotation, NumbersThatOverflowHaveNoHorizon) {
  for (const bool codes : {false, true}) {
    Network network = compile_as(cyclic(7, false), "rotation");
    for (double& k : network.layers[0].blocks[0].k) k *= 1e200;
    if (codes)
      for (double& code : network.layers[0].blocks[0].codes) code *= 1e200;
    EXPECT_NO_THROW(validate(network, "test"));
    for (NumberType type : {NumberType::kFp64, NumberType::kFp32, NumberType::kBf16}) {
      EXPECT_FALSE(error_horizon(network, type).known);
      VerifyOptions options;
      options.type = type;
      options.method = VerifyMethod::kHorizon;
      options.length = 100;
      EXPECT_FALSE(verify(network, options).correct);
    }
  }
}

TEST(Rotation, QuarterTurnsAreExact) {
  expect_proved(compile_as(cyclic(4, true), "rotation", "complex-diagonal"));
}

// Rounding can lock an inexact orbit into a finite cycle: closure proves it for fp32 and refutes bf16.
TEST(Rotation, OrbitOfOneSixtiethClosesInFp32) {
  const Network network = compile_as(cyclic(60, false), "rotation", "complex-diagonal");
  const auto fp32 = joint_closure(network, NumberType::kFp32, 100'000);
  EXPECT_EQ(fp32.status, ClosureResult::Status::kProved);
  EXPECT_EQ(fp32.states, 1735);
  const auto bf16 = joint_closure(network, NumberType::kBf16, 100'000);
  EXPECT_EQ(bf16.status, ClosureResult::Status::kRefuted);
  EXPECT_EQ(first_mismatch(network, NumberType::kBf16, bf16.counterexample),
            static_cast<int64_t>(bf16.counterexample.size()) - 1);
}

// Asked for a number type, `auto` takes more layers where fewer would round.
TEST(Rotation, GivesWayToWhatIsExactInTheTypeAskedFor) {
  CompileOptions options;
  options.target = Target::kHouseholderSigned;
  const Network fewest = compile(cyclic(7, true), options);
  EXPECT_EQ(network_size(fewest).layers, 2);
  EXPECT_TRUE(error_horizon(fewest, NumberType::kBf16).letters);
  options.type = NumberType::kBf16;
  for (int n : {3, 5, 7, 12}) {
    SCOPED_TRACE(n);
    const Network network = compile(cyclic(n, true), options);
    EXPECT_TRUE(error_horizon(network, NumberType::kBf16).exact) << network.construction;
    Rng rng(5);
    EXPECT_FALSE(first_mismatch(network, NumberType::kBf16, random_word(rng, network.dfa.letters(), 20'000)));
  }
  options.construction = "rotation";
  EXPECT_EQ(compile(cyclic(7, true), options).construction, fewest.construction) << "asked for, given";
  // Eighths of a turn round; signs in a cascade do not. Sevenths have no other diagonal network.
  options.construction = "auto";
  options.target = Target::kComplexDiagonal;
  EXPECT_TRUE(error_horizon(compile(cyclic(8, true), options), NumberType::kBf16).exact);
  EXPECT_TRUE(error_horizon(compile(cyclic(7, true), options), NumberType::kBf16).letters);
}

struct LongRun {
  const char* name;
  Dfa dfa;
  const char* target;
};
class MillionLetters : public testing::TestWithParam<LongRun> {};
TEST_P(MillionLetters, AreRightInFp32AndBf16) {
  const Network network = compile_as(GetParam().dfa, "auto", GetParam().target);
  for (NumberType type : {NumberType::kFp32, NumberType::kBf16}) {
    Rng rng(17);
    const Word word = random_word(rng, network.dfa.letters(), 1'000'000);
    EXPECT_FALSE(first_mismatch(network, type, word)) << number_type_name(type);
  }
}
INSTANTIATE_TEST_SUITE_P(Networks, MillionLetters,
                         testing::Values(LongRun{"parity", parity(), "householder-product[-1,1]"},
                                         LongRun{"s5", group_word_problem(all_permutations(5)),
                                                 "householder-product[-1,1]"},
                                         LongRun{"tomita3", tomita3(), "diagonal[-1,1]"},
                                         LongRun{"z60", cyclic(60, true), "householder-product[-1,1]"},
                                         LongRun{"dyck3", bounded_dyck(3), "householder-product[-1,1]"}),
                         [](const auto& info) { return std::string(info.param.name); });

// The step that inference uses computes what kernels/delta_rule computes on the same factors.
TEST(Runner, AgreesWithTheDeltaRuleKernel) {
  Rng rng(12);
  const Network network = compile_as(group_word_problem(all_permutations(5)));
  const Block& block = network.layers[0].blocks[0];
  const int64_t time = 300, n = block.dim, f = block.factors;
  const Word word = random_word(rng, 120, time);
  std::vector<float> q(time * n, 0.0f), k, v, beta, o(time), state(n),
      initial(block.initial.begin(), block.initial.end());
  for (int32_t s : word) {
    const int64_t c = network.layers[0].context[s];
    for (int64_t i = 0; i < f * n; ++i) k.push_back(static_cast<float>(block.k[c * f * n + i]));
    for (int64_t i = 0; i < f; ++i) {
      v.push_back(static_cast<float>(block.v[c * f + i]));
      beta.push_back(static_cast<float>(block.beta[c * f + i]));
    }
  }
  kernels::DeltaRuleForward<float> p;
  p.shape = {1, time, 1, n, 1, f};
  p.q = q.data(), p.k = k.data(), p.v = v.data(), p.beta = beta.data(), p.o = o.data();
  p.initial_state = initial.data(), p.final_state = state.data();
  p.algorithm = kernels::DeltaRuleAlgorithm::kRecurrent;
  std::vector<float> workspace(kernels::delta_rule_workspace_size<float>(p.shape, p.algorithm, Cpu{}) + 1);
  p.workspace = workspace.data();
  kernels::delta_rule_forward(p, Cpu{});
  const auto runner = make_runner(network, NumberType::kFp32);
  std::vector<int32_t> answers(time);
  runner->feed(word.data(), time, answers.data());
  EXPECT_EQ(runner->block_state(0, 0), std::vector<double>(state.begin(), state.end()));
}

// Where no step can round, rounding is left out: the numbers are those of the step that rounds.
TEST(Runner, LeavesOutRoundingOnlyWhereItChangesNothing) {
  Rng rng(14);
  const Network s5 = compile_as(group_word_problem(all_permutations(5)));
  const Block& block = s5.layers[0].blocks[0];
  EXPECT_TRUE(never_rounds(block, NumberType::kBf16));
  const int width = kernels::delta_rule_step_width(block.dim);
  const size_t f = static_cast<size_t>(block.factors), n = static_cast<size_t>(block.dim);
  std::vector<float> state(static_cast<size_t>(width), 0.0f);
  std::copy(block.initial.begin(), block.initial.end(), state.begin());
  const Word word = random_word(rng, 120, 500);
  for (int32_t s : word) {
    const size_t c = static_cast<size_t>(s5.layers[0].context[s]);
    std::vector<float> k(f * static_cast<size_t>(width), 0.0f), v(f), beta(f);
    for (size_t j = 0; j < f; ++j) {
      for (size_t i = 0; i < n; ++i) k[j * width + i] = static_cast<float>(block.k[(c * f + j) * n + i]);
      v[j] = static_cast<float>(block.v[c * f + j]);
      beta[j] = static_cast<float>(block.beta[c * f + j]);
    }
    kernels::delta_rule_step<Bf16>(k.data(), v.data(), beta.data(), block.used[c], width, state.data());
  }
  const auto runner = make_runner(s5, NumberType::kBf16);
  std::vector<int32_t> answers(word.size());
  runner->feed(word.data(), static_cast<int64_t>(word.size()), answers.data());
  EXPECT_EQ(runner->block_state(0, 0), std::vector<double>(state.begin(), state.begin() + block.dim));

  // bf16 has not the integer 257; rotations round in every type.
  Block wide = block;
  wide.initial[0] = 257;
  EXPECT_FALSE(never_rounds(wide, NumberType::kBf16));
  EXPECT_TRUE(never_rounds(wide, NumberType::kFp32));
  EXPECT_FALSE(never_rounds(compile_as(cyclic(5, true), "rotation").layers[0].blocks[0], NumberType::kFp64));
}

TEST(Runner, ChunksAndResetsDoNotMatter) {
  Rng rng(13);
  const Network network = compile_as(tomita3());
  const auto runner = make_runner(network, NumberType::kFp32);
  const Word word = random_word(rng, 2, 10'000);
  std::vector<int32_t> whole(word.size()), parts(word.size());
  runner->feed(word.data(), 10'000, whole.data());
  runner->reset();
  for (int64_t begin = 0, n = 1; begin < 10'000; begin += n, n = 1 + rng.below(997)) {
    n = std::min<int64_t>(n, 10'000 - begin);
    runner->feed(word.data() + begin, n, parts.data() + begin);
  }
  EXPECT_EQ(whole, parts);
}

TEST(Compile, NamesAreChecked) {
  EXPECT_THROW(parse_target("householder"), Error);
  CompileOptions options;
  options.construction = "magic";
  EXPECT_THROW(compile(parity(), options), Error);
  EXPECT_THROW(compile_as(tomita3(), "group"), Error);
}

// Distances of codes, quadratic in their number, matter only where a step rounds.
TEST(Verify, ExactBlocksNeedNoMargin) {
  const Horizon horizon =
      error_horizon(compile(automata::named_language("contains-aa"), {}), NumberType::kFp32);
  EXPECT_TRUE(horizon.exact);
  EXPECT_TRUE(std::isinf(horizon.margin));
}

// Weights that no file could hold are refused before they fill the memory, with what would fit.
TEST(Compile, LayersBeyondTheLimitAreRefused) {
  Block block;
  block.dim = 4096;
  add_householder_context(block, std::vector<Factor>(1024, {std::vector<double>(4096, 1.0), 0, 0}));
  for (int i = 1; i < 32; ++i) add_householder_context(block, {});  // 32 x 1024 x 4096 = 2^27
  signet::test::expect_error([&] { add_householder_context(block, {}); }, ErrorCode::kBadInput,
                             "--target one-hot");
  // Nothing is made before all letters are known to fit: 997 of 996 factors on 997 coordinates do not.
  signet::test::expect_error([] { compile_as(automata::named_language("sum-mod:997")); },
                             ErrorCode::kBadInput, "--construction rotation");
}

// Z1000 acts on 4 coordinates with signs (Z8) and on 125 (Z125), which fits where its 1000 points do not.
TEST(Compile, LargeGroupsAreSumsOfWideActions) {
  const Network network = compile_as(automata::named_language("sum-mod:1000"));
  const auto size = network_size(network);
  EXPECT_EQ(size.layers, 1);
  EXPECT_EQ(size.dimension, 129);
  EXPECT_EQ(size.heads, 2);
  Word word;
  for (int i = 0; i < 2000; ++i) word.push_back(i * 37 % 1000);
  EXPECT_FALSE(first_mismatch(network, NumberType::kFp32, word));
}

// Codes are found by following sparse keys; the network steps through all of them.
TEST(Compile, LargeCyclesAreExact) {
  const Network network = compile_as(automata::named_language("cycle:307"));
  EXPECT_EQ(network_size(network).dimension, 307);
  EXPECT_TRUE(error_horizon(network, NumberType::kFp32).exact);
  Word word;
  for (int i = 0; i < 2000; ++i) word.push_back(i % 5 ? 1 : i % 3);
  EXPECT_FALSE(first_mismatch(network, NumberType::kFp32, word));
}

// A search says how far it is: states of the orbit, then letters of the test words.
TEST(Verify, TellsOfItsProgress) {
  const Network network = compile(automata::named_language("parity"), {});
  VerifyOptions options;
  options.length = 10'000;
  for (const auto& [method, what] : {std::pair{VerifyMethod::kClosure, "states of the orbit"},
                                     {VerifyMethod::kRandom, "letters of a test word"}}) {
    options.method = method;
    EXPECT_TRUE(verify(network, options).correct);
    const Activity latest = latest_activity();
    EXPECT_STREQ(latest.what, what);
    EXPECT_GT(latest.done, 0);
    EXPECT_LE(latest.done, latest.limit);
  }
}

}  // namespace
}  // namespace signet::theory
