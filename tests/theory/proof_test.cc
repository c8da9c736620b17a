// Networks made by hand that are wrong on a known word: no method may prove them.
#include <gtest/gtest.h>

#include <cmath>

#include "proofs_for_tests.h"
#include "signet/theory/runner.h"

namespace signet::theory {
namespace {

using namespace test;

void expect_found_only_by(bool Hypotheses::*hypothesis, const Network& network, NumberType type,
                          const Word& wrong_word, int64_t max_states = 3000) {
  const auto at = first_mismatch(network, type, wrong_word);
  ASSERT_TRUE(at);
  EXPECT_FALSE(any_false_proof(all_proofs(network, type, {}, max_states), *at));
  Hypotheses without;
  without.*hypothesis = false;
  EXPECT_TRUE(any_false_proof(all_proofs(network, type, without, max_states), *at))
      << "the network does not show what the hypothesis is for";
}

// The start is turned almost half way to the next code word, and drift does the rest.
TEST(Proof, TheStartMayLieOffItsCodeWord) {
  Network network = compiled(cyclic(7, true), "complex-diagonal", "rotation");
  const double angle = M_PI / 7 - 0.01;
  Word word(40, 1);
  for (const double turned : {angle, -angle}) {
    network.layers[0].blocks[0].initial = {std::cos(turned), std::sin(turned)};
    if (first_mismatch(network, NumberType::kBf16Fp32, word)) break;
  }
  expect_found_only_by(&Hypotheses::start_error, network, NumberType::kBf16Fp32, word, 30);
}

// Two states that no letter leaves, coded by 1 and 1/4. The start is nearer to 1/4 as it stands; rounded to
// bf16 it is the middle, 5/8, which decodes to the first of the two.
TEST(Proof, TheSearchBeginsWithTheRoundedStart) {
  Network network = compiled(parity(), "diagonal[-1,1]");
  network.dfa = make_dfa({{0, 0}, {1, 1}}, {1}, 1);
  Layer& layer = network.layers[0];
  layer.rows = 1;
  layer.row = {0, 0};
  layer.next = network.final_state = network.final_output = {0, 1};
  Block& block = layer.blocks[0];
  ASSERT_EQ(block.dim, 1);
  block.codes = {1, 0.25};
  block.gate = {1, 1};
  block.input = {0, 0};
  block.initial = {0.625 - 1e-6};
  validate(network, "test");
  expect_found_only_by(&Hypotheses::start_code, network, NumberType::kBf16, Word(30, 0));
}

// The second of two factors brings back what the first made large, and rounding has taken it.
TEST(Proof, NumbersBetweenFactorsAreBounded) {
  Network network = compiled(tomita4(), "householder[0,1]");
  for (Layer& layer : network.layers)
    for (Block& block : layer.blocks) {
      const Block old = block;
      block.used.clear();
      block.k.clear();
      block.v.clear();
      block.beta.clear();
      block.contexts = block.factors = 0;
      for (int32_t c = 0; c < old.contexts; ++c) {
        std::vector<Factor> factors;
        for (int32_t j = 0; j < old.used[c]; ++j) {
          const size_t row = static_cast<size_t>(c) * old.factors + j;
          factors.push_back({{old.k[row]}, old.beta[row], old.v[row]});
        }
        factors.push_back({{1}, 1 - 0x1.0p21, 0});
        factors.push_back({{1}, 1 - 0x1.0p-21, 0});
        add_householder_context(block, factors);
      }
      finish_householder(block);
    }
  validate(network, "test");
  Rng rng(3);
  Word word(20'000);
  for (auto& s : word) s = static_cast<int32_t>(rng.below(2));
  expect_found_only_by(&Hypotheses::intermediate, network, NumberType::kFp32, word, 200);
}

// Swaps of integers never round. But where the start is (1, 2, 4) the states are not the code words.
TEST(Proof, StatesThatNeverRoundNeedNotBeCodeWords) {
  Network network = compiled(group_word_problem({{1, 0, 2}, {1, 2, 0}}), "householder-product[-1,1]");
  Block& block = network.layers[0].blocks[0];
  ASSERT_EQ(network.layers.size(), 1u);
  for (double& x : block.initial) x *= x == 0 ? 1 : x;
  block.initial[0] += 3;
  Word word;
  for (int i = 0; i < 60; ++i) word.push_back(i % 3 == 0);
  expect_found_only_by(&Hypotheses::states_decoded, network, NumberType::kFp32, word);
}

// The output is right and the state that `run --trace` shows is not.
TEST(Proof, TheStateNamedIsPartOfTheAnswer) {
  Network network = compiled(parity(), "diagonal[-1,1]");
  for (auto& q : network.final_state) q = 1 - q;
  for (const auto& result : all_proofs(network, NumberType::kFp32, {})) EXPECT_FALSE(result.proved);
}

// Mixed types round the start to the parameters' type. A search that rounds it to the state's type proves
// another network.
TEST(Proof, MixedTypesRoundTheStartAsParameters) {
  Network network = compiled(parity(), "diagonal[-1,1]");
  Block& block = network.layers[0].blocks[0];
  block.initial[0] *= 1 + 0x1.0p-10;  // bf16: back to the code word
  const auto runner = make_runner(network, NumberType::kBf16Fp32);
  EXPECT_EQ(std::abs(runner->block_state(0, 0)[0]), 1);
  Proof proof;
  const auto closure = layerwise_closure(network, NumberType::kBf16Fp32, 100, &proof);
  EXPECT_EQ(closure.status, ClosureResult::Status::kProved);
  for (double x : proof.blocks[0].patterns) EXPECT_EQ(std::abs(x), 1);
}

// Distances whose squares underflow are all 0: decoding takes the first code word.
TEST(Proof, CodeWordsCanBeTooNear) {
  Network network = compiled(parity(), "diagonal[-1,1]");
  Block& block = network.layers[0].blocks[0];
  for (double& x : block.codes) x *= 1e-170;
  for (double& x : block.initial) x *= 1e-170;
  for (const auto& result : all_proofs(network, NumberType::kFp64, {})) EXPECT_FALSE(result.proved);
}

}  // namespace
}  // namespace signet::theory
