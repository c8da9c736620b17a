#include "signet/theory/verify.h"

#include <gtest/gtest.h>

#include <cmath>

#include "automata_for_tests.h"
#include "signet/automata/named_language.h"
#include "signet/automata/regex.h"
#include "signet/theory/compile.h"
#include "signet/theory/nearest_code.h"
#include "signet/theory/pumped_words.h"

namespace signet::theory {
namespace {

using namespace test;

// Rotations by a fifth or a seventh of the circle round, and in bf16 they drift soon.
Network rotations(const std::string& language) {
  CompileOptions options;
  options.target = parse_target("complex-diagonal");
  return compile(automata::named_language(language), options);
}

VerifyResult verified(const Network& network, NumberType type, VerifyMethod method,
                      VerifyOptions options = {}) {
  options.type = type;
  options.method = method;
  return verify(network, options);
}

// Its shortest wrong word lies beyond a small search, and random words do not find it.
TEST(Verify, GoesAsFarAsTheLimitBeforeItOnlyTests) {
  const Network network = rotations("divisible:7");
  const auto found = verified(network, NumberType::kBf16, VerifyMethod::kAuto);
  EXPECT_FALSE(found.correct);
  EXPECT_EQ(found.method, "orbit-closure");
  ASSERT_TRUE(found.counterexample);
  EXPECT_EQ(first_mismatch(network, NumberType::kBf16, *found.counterexample),
            static_cast<int64_t>(found.counterexample->size()) - 1);
  EXPECT_EQ(found.longest, static_cast<int64_t>(found.counterexample->size()) - 1);

  VerifyOptions small;
  small.max_states = 1000;
  small.length = 100;
  const auto tested = verified(network, NumberType::kBf16, VerifyMethod::kAuto, small);
  EXPECT_TRUE(tested.correct);
  EXPECT_FALSE(tested.proved);
  EXPECT_EQ(tested.method, "random-testing");
  EXPECT_GT(tested.longest, 0);  // the search went through all short words
  EXPECT_LT(tested.longest, found.longest);
}

// A bound on rounding errors is the answer where it holds for as many letters as were asked about.
TEST(Verify, ABoundThatEndsEarlierIsNoAnswer) {
  const Network network = rotations("divisible:7");
  VerifyOptions options;
  options.max_states = 1000;
  options.words = 1;
  const auto bound = verified(network, NumberType::kFp32, VerifyMethod::kHorizon, options).longest;
  ASSERT_TRUE(bound && *bound > 0);
  options.length = *bound;
  EXPECT_EQ(verified(network, NumberType::kFp32, VerifyMethod::kAuto, options).method, "error-horizon");
  ++options.length;
  const auto tested = verified(network, NumberType::kFp32, VerifyMethod::kAuto, options);
  EXPECT_EQ(tested.method, "random-testing");
  EXPECT_FALSE(tested.proved);
}

// However many code words there are, and where some are alike or nothing is a number.
TEST(Verify, TheNearestCodeWordIsTheFirstOfTheNearest) {
  Rng rng(3);
  for (const int32_t codes : {1, 63, 64, 65, 500}) {
    Block block;
    block.dim = 2;
    for (int32_t i = 0; i < codes * block.dim; ++i) block.codes.push_back(rng.below(13) - 6.0);
    block.codes[0] = -0.0;
    NearestCode nearest(block);
    for (int trial = 0; trial < 2000; ++trial) {
      std::vector<float> x = {static_cast<float>(rng.below(13)) - 6, static_cast<float>(rng.below(13)) - 6};
      if (trial % 3 == 0) x[rng.below(2)] += 0.25f;
      if (trial % 97 == 0) x[rng.below(2)] = NAN;
      int64_t first = -1;
      double least = INFINITY;
      for (int32_t c = 0; c < codes; ++c) {
        const double dx = x[0] - block.codes[2 * c], dy = x[1] - block.codes[2 * c + 1];
        if (const double distance = dx * dx + dy * dy; distance < least) least = distance, first = c;
      }
      ASSERT_EQ(nearest.find(x.data()), first) << codes << " code words, " << x[0] << " " << x[1];
    }
  }
}

// 1e-170 is another number than 0, but its square is not: of code words so near the first is the nearest.
TEST(Verify, TheNearestCodeWordIsAtTheDistanceAsComputed) {
  for (const int32_t codes : {63, 64}) {
    Block block;
    block.dim = 1;
    block.codes = {0, 1e-170};
    while (block.code_count() < codes) block.codes.push_back(block.code_count());
    const double x = 1e-170, y = 5;
    EXPECT_EQ(NearestCode(block).find(&x), 0) << codes;
    EXPECT_EQ(NearestCode(block).find(&y), 5) << codes;
  }
}

TEST(Verify, FewWordsOfManyLettersAreFewSteps) {
  int64_t asked = 0;
  const PumpedWords pumped(1, 3000, 0,
                           [&](automata::State, automata::Letter) { return ++asked > 0 ? 0 : -1; });
  EXPECT_EQ(pumped.pairs.size(), 512u);
  EXPECT_LT(asked, 20'000);
}

// A cascade that remembers much has more states than the limit, but not more tuples of code words than that
// search may look at.
TEST(Verify, TuplesOfCodeWordsMayBeManyMoreThanStates) {
  const Network network = compile(automata::named_language("tomita7"), {});
  const auto all = verified(network, NumberType::kFp32, VerifyMethod::kAuto);
  ASSERT_TRUE(all.proved);
  VerifyOptions fewer;
  fewer.max_states = all.states_visited / 3;
  const auto found = verified(network, NumberType::kFp32, VerifyMethod::kAuto, fewer);
  EXPECT_TRUE(found.proved) << found.certificate;
  EXPECT_EQ(found.longest, std::nullopt);
}

TEST(Verify, TestsProveNoLength) {
  VerifyOptions options;
  options.length = 100;
  const auto tested = verified(rotations("divisible:7"), NumberType::kBf16, VerifyMethod::kRandom, options);
  EXPECT_TRUE(tested.correct);
  EXPECT_FALSE(tested.proved);
  EXPECT_EQ(tested.longest, 0);
}

// A flip-flop that leaks while it holds: wrong after a write and 31 times the letter that holds. Powers of
// letters start where nothing leaks, and a random word never holds for so long.
TEST(Verify, WordsThatRepeatOneThingAreTried) {
  CompileOptions compile_options;
  compile_options.target = parse_target("diagonal[0,1]");
  Network network = compile(flip_flop(), compile_options);
  Block& block = network.layers[0].blocks[0];
  ASSERT_EQ(block.dim, 1);
  const double start = block.initial[0];
  int leaks = 0;
  for (double& gate : block.gate)
    if (gate == 1) {
      gate = 0.97;
      block.input[static_cast<size_t>(&gate - block.gate.data())] = 0.02 * start;
      ++leaks;
    }
  ASSERT_EQ(leaks, 1);
  VerifyOptions options;
  options.length = 100'000;
  const auto found = verified(network, NumberType::kFp32, VerifyMethod::kRandom, options);
  EXPECT_FALSE(found.correct) << found.certificate;
  ASSERT_TRUE(found.counterexample);
  EXPECT_LT(found.counterexample->size(), 40u);
  EXPECT_EQ(first_mismatch(network, NumberType::kFp32, *found.counterexample),
            static_cast<int64_t>(found.counterexample->size()) - 1);
}

// What was tried is said: all short u, v and w of four letters, and how many of five.
TEST(Verify, TheWordsThatWereTriedAreCounted) {
  const auto any = [](automata::State, automata::Letter) { return 0; };
  const PumpedWords four(1, 4, 0, any), five(1, 5, 0, any);
  EXPECT_TRUE(four.all);
  EXPECT_EQ(four.pairs.size(), 21u * 20u);
  EXPECT_EQ(four.ends.size(), 20u);
  EXPECT_FALSE(five.all);
  EXPECT_NE(five.text().find("512 of the pairs"), std::string::npos) << five.text();
  // Of words abcabc.. no letter and no two come again and again, of abab.. two do.
  for (const automata::State turns : {3, 2}) {
    const PumpedWords in_turn(turns, turns, 0, [&](automata::State at, automata::Letter a) {
      return a == at ? (at + 1) % turns : -1;
    });
    EXPECT_EQ(in_turn.pairs.size(), turns == 3 ? 0u : 3u);
    EXPECT_EQ(in_turn.text().empty(), turns == 3);
  }
}

TEST(Verify, ABoundOfNoLetterIsNone) {
  const auto result = verified(rotations("divisible:7"), NumberType::kBf16, VerifyMethod::kHorizon);
  EXPECT_FALSE(result.correct);
  EXPECT_FALSE(result.counterexample);
  EXPECT_EQ(result.longest, 0);
}

// Beside the bound on rounding, all tuples of code words are searched: a wrong table is found, and none left
// to chance.
TEST(Verify, TheBoundComesWithAProofOfTheTables) {
  Network network = rotations("cycle:6");
  const auto right = verified(network, NumberType::kFp32, VerifyMethod::kHorizon);
  EXPECT_TRUE(right.proved);
  EXPECT_EQ(right.method, "error-horizon");
  ASSERT_TRUE(right.longest);
  EXPECT_GT(*right.longest, 100'000);
  EXPECT_EQ(right.states_visited, 6);

  // One word in 2^25 is accepted, and the table forgets it.
  const std::string word = "abbabaabbabbabaababbaabab";
  network = compile(automata::regex_to_dfa(word, {"a", "b"}), {});
  for (auto& output : network.final_output) output = 0;
  const auto wrong = verified(network, NumberType::kFp32, VerifyMethod::kHorizon);
  EXPECT_FALSE(wrong.correct);
  ASSERT_TRUE(wrong.counterexample);
  EXPECT_EQ(wrong.counterexample->size(), word.size());

  network = rotations("cycle:6");
  VerifyOptions few;
  few.max_states = 1;  // four tuples, of six
  const auto open = verified(network, NumberType::kFp32, VerifyMethod::kHorizon, few);
  EXPECT_FALSE(open.proved);
  EXPECT_FALSE(open.counterexample);
  EXPECT_EQ(open.longest, 0);
}

}  // namespace
}  // namespace signet::theory
