#include "signet/theory/robustness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "signet/automata/named_group.h"
#include "signet/automata/named_language.h"
#include "signet/base/rng.h"
#include "signet/theory/compile.h"
#include "signet/theory/network_file.h"
#include "signet/theory/runner.h"
#include "signet/theory/verify.h"
#include "support/temporary_directory.h"
#include "theory/automata_for_tests.h"

namespace signet::theory {
namespace {

NetworkRobustness robustness_of(const Network& network, int64_t length = 100) {
  std::string reason;
  auto result = network_robustness(network, NumberType::kFp64, length, 100'000, &reason);
  EXPECT_TRUE(result) << reason;
  return result.value_or(NetworkRobustness{});
}

// Letters a and b write, x <- gate x +- (1 - gate); the answer is the last letter.
Network last_letter(double gate) {
  Network network;
  network.dfa.alphabet = {"a", "b"};
  network.dfa.delta = {{0, 1}, {0, 1}};
  network.dfa.accept = {true, false};
  Block block;
  block.kind = BlockKind::kDiagonal;
  block.dim = 1;
  add_diagonal_context(block, {gate}, {1 - gate});
  add_diagonal_context(block, {gate}, {gate - 1});
  block.initial = {1};
  block.codes = {1, -1};
  Layer layer;
  layer.blocks = {block};
  layer.trails = 2;
  layer.context = {0, 1};
  layer.row = {0, 0};
  layer.rows = 1;
  layer.next = {0, 1};
  network.layers = {layer};
  network.final_state = {0, 1};
  network.final_output = {1, 0};
  validate(network, "test");
  return network;
}

// Runs a random word; before every letter `disturb(t, state of a block)` may move the numbers. Whether all
// answers are right.
template <class Disturb>
bool right_when_disturbed(const Network& network, uint64_t seed, int64_t length, const Disturb& disturb) {
  const auto runner = make_runner(network, NumberType::kFp64);
  Rng rng(77, seed);
  automata::State q = network.dfa.start;
  for (int64_t t = 0; t < length; ++t) {
    for (size_t l = 0; l < network.layers.size(); ++l)
      for (size_t b = 0; b < network.layers[l].blocks.size(); ++b) {
        auto state = runner->block_state(l, b);
        disturb(t, state, rng);
        runner->set_block_state(l, b, state);
      }
    const auto s = static_cast<automata::Letter>(rng.below(static_cast<uint32_t>(network.dfa.letters())));
    int32_t answer = 0;
    runner->feed(&s, 1, &answer);
    q = network.dfa.delta[static_cast<size_t>(q)][static_cast<size_t>(s)];
    if (answer < 0 || network.final_state[static_cast<size_t>(answer)] != q) return false;
  }
  return true;
}

void move_by(std::vector<double>& state, double size, Rng& rng) {
  double sum = 0;
  std::vector<double> direction(state.size());
  for (double& x : direction) {
    x = rng.normal();
    sum += x * x;
  }
  for (size_t i = 0; i < state.size(); ++i) state[i] += size * direction[i] / std::sqrt(sum);
}

double least(const NetworkRobustness& r, double BlockRobustness::*member) {
  double result = INFINITY;
  for (const auto& block : r.blocks) result = std::min(result, block.*member);
  return result;
}

TEST(Robustness, OneDisturbanceWithinTheBoundNeverHarms) {
  for (const auto& [language, target] : {std::pair{"parity", Target::kDiagonalSigned},
                                         {"tomita4", Target::kDiagonalPositive},
                                         {"tomita3", Target::kHouseholderProduct},
                                         {"flip-flop", Target::kDiagonalPositive},
                                         {"kth-last:3", Target::kHouseholderProduct},
                                         {"mod:5", Target::kHouseholderProduct}}) {
    CompileOptions options;
    options.target = target;
    const Network network = compile(automata::named_language(language), options);
    const auto bounds = robustness_of(network);
    const double once = least(bounds, &BlockRobustness::once);
    EXPECT_TRUE(bounds.finite()) << language;
    EXPECT_GT(once, 0) << language;
    for (uint64_t seed = 0; seed < 60; ++seed)
      EXPECT_TRUE(right_when_disturbed(network, seed, 60,
                                       [&](int64_t t, auto& state, Rng& rng) {
                                         if (t == static_cast<int64_t>(seed % 20))
                                           move_by(state, 0.999 * once, rng);
                                       }))
          << language << " seed " << seed;
    // And the bound is no smaller than it need be: half the gap, where the code is exact.
    EXPECT_LE(once, bounds.blocks[0].gap / 2 + 1e-9) << language;
  }
}

// By hand: disturbed by e towards 0 at every letter, the state after a is at least (1-g) - g X - e, where X
// is at most ((1-g) + e) / (1-g). It stays positive for e < (1-g)(1-2g): a little more than what is proved.
TEST(Robustness, OfARegisterThatContractsIsNearlyTheTruth) {
  for (const double gate : {0.05, 0.1, 0.2}) {
    const Network network = last_letter(gate);
    const auto bounds = robustness_of(network);
    const double every = bounds.blocks[0].every, truth = (1 - gate) * (1 - 2 * gate);
    EXPECT_GT(every, 0.9 * truth - 0.05) << gate;
    EXPECT_LE(every, truth) << gate;
    const auto against = [&](double size) {
      return [size](int64_t, std::vector<double>& state, Rng& rng) {
        state[0] += rng.uniform() < 0.5 ? size : -size;
      };
    };
    for (uint64_t seed = 0; seed < 40; ++seed)
      EXPECT_TRUE(right_when_disturbed(network, seed, 200, against(0.999 * every))) << gate;
    EXPECT_TRUE(bounds.blocks[0].every_in_type > 0.99 * every) << "strongly robust in fp64";
    EXPECT_GT(bounds.blocks[0].weights, 0);
  }
}

TEST(Robustness, WhatKeepsIsNotRobustAndSaysWhere) {
  CompileOptions options;
  options.target = Target::kDiagonalPositive;
  const Network network = compile(automata::named_language("flip-flop"), options);
  const auto bounds = robustness_of(network);
  EXPECT_EQ(bounds.blocks[0].every, 0);
  EXPECT_EQ(bounds.blocks[0].growth, 1);
  EXPECT_EQ(network.dfa.alphabet[static_cast<size_t>(bounds.letter)], "hold");
  EXPECT_EQ(bounds.blocks[0].weights, 0);
  EXPECT_GT(bounds.blocks[0].weights_for_length, 0);
}

TEST(Robustness, WeightsWithinTheBoundNeverHarm) {
  std::vector<Network> networks = {last_letter(0.1), compile(automata::named_language("tomita3"), {})};
  CompileOptions diagonal;
  diagonal.target = Target::kDiagonalSigned;
  networks.push_back(compile(automata::named_language("tomita3"), diagonal));
  for (const Network& network : networks) {
    constexpr int64_t kLength = 100;
    const auto bounds = robustness_of(network, kLength);
    const double for_length = least(bounds, &BlockRobustness::weights_for_length);
    EXPECT_GT(for_length, 0);
    for (const auto& [delta, length] :
         {std::pair{for_length, kLength}, {least(bounds, &BlockRobustness::weights), int64_t{2000}}})
      for (uint64_t seed = 0; seed < 30; ++seed) {
        Network off = network;
        Rng rng(5, seed);
        for (auto& layer : off.layers)
          for (auto& block : layer.blocks)
            for (auto* values :
                 {&block.k, &block.v, &block.beta, &block.gate, &block.input, &block.initial, &block.codes})
              for (double& x : *values) x += rng.uniform() < 0.5 ? delta : -delta;
        EXPECT_TRUE(
            right_when_disturbed(off, seed, delta > 0 ? length : kLength, [](int64_t, auto&, Rng&) {}));
      }
  }
}

// The letters write 256 and 257, which no step rounds in fp32; stored in bf16 both are 256.
TEST(Robustness, WeightsCountAsTheTypeStoresThem) {
  Network network = compile(automata::named_language("last"), {});
  Block& block = network.layers[0].blocks[0];
  ASSERT_EQ(block.dim, 1);
  for (auto* values : {&block.v, &block.initial, &block.codes})
    for (double& x : *values) x += 256;
  EXPECT_TRUE(verify(network, {}).proved);
  const auto fp32 = network_robustness(network, NumberType::kFp32, 10, 1000, nullptr);
  ASSERT_TRUE(fp32);
  EXPECT_GT(fp32->blocks[0].every_in_type, 0.4);
  for (const NumberType type : {NumberType::kBf16, NumberType::kBf16Fp32}) {
    VerifyOptions options;
    options.type = type;
    ASSERT_FALSE(verify(network, options).correct);
    const auto result = network_robustness(network, type, 10, 1000, nullptr);
    if (!result) continue;
    EXPECT_FALSE(result->blocks[0].finite);
    EXPECT_EQ(result->blocks[0].once, 0);
    EXPECT_EQ(result->blocks[0].every_in_type, 0);
    EXPECT_EQ(result->blocks[0].weights_for_length, 0);
  }
}

// A factor with beta below 0 lengthens. Ten that double take what a weight before them is off to a thousand
// times that.
TEST(Robustness, FactorsThatLengthenCarryErrorsOfWeights) {
  const auto written = [](double v) {
    Network network = last_letter(0);
    Block block;
    block.dim = 1;
    std::vector<Factor> doubled = {{{1}, 1, v}};
    doubled.resize(11, {{1}, -1, 0});
    add_householder_context(block, doubled);
    add_householder_context(block, {{{1}, 1, -1}});
    finish_householder(block);
    block.initial = {1};
    block.codes = {1, -1};
    network.layers[0].blocks[0] = block;
    validate(network, "test");
    return network;
  };
  const double exact = 0x1.0p-10, bound = robustness_of(written(exact)).blocks[0].weights;
  EXPECT_GT(bound, 0);
  EXPECT_TRUE(verify(written(exact - bound), {}).correct);
  EXPECT_LT(bound, exact) << "0 is no longer written where v is off by this";
}

TEST(Robustness, WithoutLayersThereIsNothingToDisturb) {
  automata::Dfa all;
  all.alphabet = {"a"};
  all.delta = {{0}};
  all.accept = {true};
  std::string reason;
  EXPECT_FALSE(network_robustness(compile(all, {}), NumberType::kFp64, 10, 1000, &reason));
  EXPECT_NE(reason.find("no layer"), reason.npos) << reason;
}

// No step rounds: letters that merge states, and x <- 1 - x on quarters, which proofs of decay say nothing
// of.
TEST(Robustness, WhatIsExactStays) {
  Network flip = last_letter(0);
  flip.dfa.delta = {{1, 1}, {0, 0}};
  Block& block = flip.layers[0].blocks[0];
  block.gate = {-1, -1};
  block.input = {1, 1};
  block.initial = {0.25};
  block.codes = {0.25, 0.75};
  validate(flip, "test");
  std::vector<Network> networks = {flip};
  CompileOptions options;
  options.target = Target::kOneHot;
  for (const char* language : {"flip-flop", "tomita3", "kth-last:3"})
    networks.push_back(compile(automata::named_language(language), options));
  for (const Network& network : networks)
    for (const NumberType type : {NumberType::kFp64, NumberType::kBf16}) {
      const auto bounds = network_robustness(network, type, 10, 1000, nullptr);
      ASSERT_TRUE(bounds);
      EXPECT_TRUE(bounds->finite()) << network.construction << number_type_name(type);
    }
  // A third of 1 is no number of few bits: 1 - x is not exactly the other code word.
  flip.layers[0].blocks[0].initial = {1.0 / 3};
  flip.layers[0].blocks[0].codes = {1.0 / 3, 2.0 / 3};
  EXPECT_FALSE(robustness_of(flip).finite());
}

// Letters that merge states add numbers up. By hand: a word takes q to q' and the disturbance d of q to e,
// and j is taken for q' once e_j - e_q' is 1. That is a sum of +-d_i over the states i that the word takes to
// j or to q', so at most the root of their number times |d|, which is reached.
TEST(Robustness, OneHotGatesThatMergeStatesBearOneDisturbance) {
  CompileOptions options;
  options.target = Target::kOneHot;
  Rng rng(5);
  int tight = 0;
  for (int trial = 0; trial < 80; ++trial) {
    const automata::Dfa dfa = test::random_dfa(rng, 2 + trial % 4, 1 + trial % 3);
    const Network network = compile(dfa, options);
    const auto bounds = robustness_of(network);
    ASSERT_EQ(bounds.blocks.size(), 1u);
    std::vector<automata::State> identity;
    for (automata::State q = 0; q < dfa.states(); ++q) identity.push_back(q);
    std::set<std::vector<automata::State>> words = {identity};
    for (std::vector<std::vector<automata::State>> queue = {identity}; !queue.empty();) {
      const auto word = queue.back();
      queue.pop_back();
      for (automata::Letter s = 0; s < dfa.letters(); ++s) {
        auto longer = word;
        for (auto& q : longer) q = dfa.delta[q][s];
        if (words.insert(longer).second) queue.push_back(longer);
      }
    }
    std::ptrdiff_t most = 0;
    for (const auto& before : words)
      for (const auto& word : words)
        for (automata::State j = 0; j < dfa.states(); ++j)
          if (const automata::State to = word[before[dfa.start]]; j != to)
            most = std::max(
                most, std::count(word.begin(), word.end(), to) + std::count(word.begin(), word.end(), j));
    const double once = bounds.blocks[0].once, truth = 1 / std::sqrt(static_cast<double>(most));
    EXPECT_LE(once, truth) << trial;
    EXPECT_GE(once, 0.998 / std::sqrt(static_cast<double>(dfa.states()))) << trial;
    tight += most > 2 && once > 0.998 * truth;
    const double weights = bounds.blocks[0].weights, each = 0.999 * once / std::sqrt(dfa.states());
    EXPECT_GT(weights, 0) << trial;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      EXPECT_TRUE(right_when_disturbed(network, seed, 40, [&](int64_t t, auto& state, Rng&) {
        for (double& x : state)
          if (t == static_cast<int64_t>(seed)) x -= each;
      })) << trial;
      Network off = network;
      Block& block = off.layers[0].blocks[0];
      for (auto* numbers : {&block.initial, &block.codes})
        for (double& x : *numbers) x += rng.uniform() < 0.5 ? weights : -weights;
      EXPECT_TRUE(right_when_disturbed(off, seed, 40, [](int64_t, auto&, Rng&) {})) << trial;
    }
  }
  EXPECT_GT(tight, 10);
}

// Layers that reset by 1/64 and turn by -1: the low-order digits that a reset leaves do not grow.
TEST(Robustness, ResetsKeepWhatSignsTakeAlong) {
  automata::Dfa dfa;
  dfa.alphabet = {"a", "b"};
  dfa.delta = {{1, 1}, {2, 0}, {1, 3}, {3, 3}};
  dfa.accept = {true, false, true, true};
  for (const Target target : {Target::kDiagonalSigned, Target::kHouseholderSigned}) {
    CompileOptions options;
    options.target = target;
    const Network network = compile(dfa, options);
    const auto bounds = robustness_of(network);
    EXPECT_TRUE(bounds.finite()) << class_name(target);
    const double once = least(bounds, &BlockRobustness::once);
    EXPECT_GT(once, 0.01) << class_name(target);
    for (uint64_t seed = 0; seed < 60; ++seed)
      EXPECT_TRUE(right_when_disturbed(network, seed, 60, [&](int64_t t, auto& state, Rng& rng) {
        if (t == static_cast<int64_t>(seed % 20)) move_by(state, 0.999 * once, rng);
      })) << class_name(target);
  }
}

TEST(Robustness, ARotationDrifts) {
  CompileOptions options;
  options.construction = "rotation";
  const auto bounds = robustness_of(compile(automata::named_language("mod:7"), options));
  EXPECT_FALSE(bounds.finite());
  EXPECT_EQ(bounds.blocks[0].once, 0);
}

// Theorem 5: cascades of cells that attract. Disturbed at every letter by what is proved harmless, in the
// worst corners, they are right; so they are in bf16, and a file keeps them.
TEST(MetricTargets, CellsRecogniseStarFreeLanguagesStronglyRobustly) {
  signet::test::TemporaryDirectory directory;
  for (const Target target : {Target::kElman, Target::kSlstm})
    for (const char* language : {"flip-flop", "tomita1", "tomita4", "tomita7", "kth-last:2"}) {
      SCOPED_TRACE(std::string(language) + " " + class_name(target));
      CompileOptions options;
      options.target = target;
      const Network network = compile(automata::named_language(language), options);
      for (const Layer& layer : network.layers)
        for (const Block& block : layer.blocks) EXPECT_TRUE(is_cell(block.kind));
      for (const NumberType type : {NumberType::kFp64, NumberType::kFp32, NumberType::kBf16}) {
        const auto bounds = network_robustness(network, type, 100, 100'000, nullptr);
        ASSERT_TRUE(bounds && bounds->finite());
        EXPECT_GT(least(*bounds, &BlockRobustness::every_in_type), 0.05) << number_type_name(type);
        EXPECT_GT(least(*bounds, &BlockRobustness::weights), 0);
        Rng rng(3, 4);
        Word word;
        for (int t = 0; t < 1500; ++t)
          word.push_back(
              static_cast<automata::Letter>(rng.below(static_cast<uint32_t>(network.dfa.letters()))));
        EXPECT_FALSE(first_mismatch(network, type, word)) << number_type_name(type);
      }
      const double every = least(robustness_of(network), &BlockRobustness::every);
      for (uint64_t seed = 0; seed < 20; ++seed)
        EXPECT_TRUE(right_when_disturbed(network, seed, 100, [&](int64_t, auto& state, Rng& rng) {
          for (double& x : state) x += rng.uniform() < 0.5 ? 0.999 * every : -0.999 * every;
        }));
      save_network(directory / "cells.safetensors", network);
      const Network again = load_network(directory / "cells.safetensors");
      EXPECT_EQ(again.layers[0].blocks[0].recurrent, network.layers[0].blocks[0].recurrent);
      EXPECT_EQ(again.layers[0].blocks[0].input, network.layers[0].blocks[0].input);
    }
}

// The flip-flops of Theorem 5: h <- tanh(2) sigmoid(u + 10 h - 5) bears 0.05 at every letter there, x <-
// tanh(2 x + u) bears 0.1. The truth is how far holding moves a state towards its stable point, at the best
// place.
TEST(MetricTargets, TheFlipFlopsBearWhatTheTheorySaysAndMore) {
  for (const auto& [target, claimed] : {std::pair{Target::kSlstm, 0.05}, {Target::kElman, 0.1}}) {
    CompileOptions options;
    options.target = target;
    const auto bounds = robustness_of(compile(automata::named_language("flip-flop"), options));
    const bool elman = target == Target::kElman;
    double up = 0, down = 0;
    for (double x = -1; x < 1; x += 1e-4) {
      const double moved = (elman ? std::tanh(2 * x) : std::tanh(2) / (1 + std::exp(5 - 10 * x))) - x;
      if (x > (elman ? 0 : 0.5)) up = std::max(up, moved);
      if (x < (elman ? 0 : 0.5) && x > (elman ? -1 : 0)) down = std::max(down, -moved);
    }
    EXPECT_GE(bounds.blocks[0].every, claimed) << class_name(target);
    EXPECT_NEAR(bounds.blocks[0].every, std::min(up, down), 0.012) << class_name(target);
    EXPECT_GT(bounds.blocks[0].inputs, 0.1);
  }
}

// Theorem 8. In real numbers holding tends to 0 and keeps its sign. In floating point it works until it
// doesn't.
TEST(MetricTargets, MambaHoldsASignThatShrinks) {
  CompileOptions options;
  options.target = Target::kMambaGcs;
  const Network flip_flop = compile(automata::named_language("flip-flop"), options);
  EXPECT_EQ(flip_flop.layers[0].blocks[0].kind, BlockKind::kDiagonal);
  for (double gate : flip_flop.layers[0].blocks[0].gate) EXPECT_TRUE(gate > 0 && gate < 1);
  std::optional<int64_t> wrong;
  for (const automata::Letter write : {1, 2}) {
    Word word(200, 0);
    word[0] = write;
    if (const auto at = first_mismatch(flip_flop, NumberType::kFp32, word)) wrong = at;
  }
  ASSERT_TRUE(wrong) << "after so many letters of holding the sign is lost";
  EXPECT_NEAR(static_cast<double>(*wrong), 129, 3);
  std::string reason;
  EXPECT_FALSE(network_robustness(flip_flop, NumberType::kFp32, 10, 1000, &reason)) << "it is not eta-finite";
  EXPECT_FALSE(reason.empty());
  for (const char* language : {"tomita4", "tomita7", "kth-last:2"}) {
    const Network network = compile(automata::named_language(language), options);
    EXPECT_TRUE(right_when_disturbed(network, 1, 3000, [](int64_t, auto&, Rng&) {})) << language;
  }
}

TEST(MetricTargets, GroupsAreRefusedWithAWord) {
  for (const Target target : {Target::kElman, Target::kSlstm, Target::kMambaGcs}) {
    CompileOptions options;
    options.target = target;
    signet::test::expect_error([&] { compile(automata::named_language("parity"), options); },
                               ErrorCode::kCheckFailed, "star-free");
  }
  EXPECT_EQ(parse_target("slstm"), Target::kSlstm);
  EXPECT_STREQ(class_name(Target::kMambaGcs), "mamba-gcs");
}

}  // namespace
}  // namespace signet::theory
