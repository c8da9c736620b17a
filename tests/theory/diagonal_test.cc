#include <gtest/gtest.h>

#include "automata_for_tests.h"
#include "signet/base/error.h"
#include "signet/theory/abelian_series.h"
#include "signet/theory/compile.h"
#include "signet/theory/runner.h"
#include "signet/theory/verify.h"

namespace signet::theory {
namespace {

using automata::Dfa;
using namespace test;

std::optional<Network> try_compile(const Dfa& dfa, const std::string& target) {
  CompileOptions options;
  options.target = parse_target(target);
  try {
    Network network = compile(dfa, options);
    validate(network, "test");
    return network;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCheckFailed) throw;
    EXPECT_NE(std::string(error.what()).find("word"), std::string::npos) << error.what();
    return std::nullopt;
  }
}

bool proved(const Network& network, NumberType type) {
  if (joint_closure(network, type, 20'000).status == ClosureResult::Status::kProved) return true;
  return layerwise_closure(network, type, 50'000).status == ClosureResult::Status::kProved;
}

// Which targets can: diagonal[0,1], diagonal[-1,1], complex-diagonal.
struct Expected {
  const char* name;
  Dfa dfa;
  bool positive, real, complex;
};

TEST(Diagonal, TargetsAcceptWhatTheirGroupsAllow) {
  const std::vector<Expected> cases = {
      {"parity", parity(), false, true, true},
      {"flip-flop", flip_flop(), true, true, true},
      {"Tomita 3", tomita3(), false, true, true},
      {"Tomita 4", tomita4(), true, true, true},
      {"(abab)*", abab(), false, true, true},
      {"aA*", first_is_a(), true, true, true},
      {"dyck", bounded_dyck(3), true, true, true},
      {"elevator", elevator(4), true, true, true},
      {"third last", kth_last(3), true, true, true},
      {"Z3", cyclic(3, true), false, false, true},
      {"Z4", cyclic(4, true), false, true, true},
      {"S3", group_word_problem({{1, 0, 2}, {1, 2, 0}}), false, false, true},
      {"D4", group_word_problem({{1, 2, 3, 0}, {2, 1, 0, 3}}), false, true, true},
      {"A5", group_word_problem({{1, 2, 3, 4, 0}, {1, 2, 0, 3, 4}}), false, false, false},
      {"T3", make_dfa({{1, 1, 0}, {2, 0, 0}, {0, 2, 2}}, {0}), false, false, true},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(try_compile(c.dfa, "diagonal[0,1]").has_value(), c.positive);
    EXPECT_EQ(try_compile(c.dfa, "householder[0,1]").has_value(), c.positive);
    EXPECT_EQ(try_compile(c.dfa, "diagonal[-1,1]").has_value(), c.real);
    EXPECT_EQ(try_compile(c.dfa, "complex-diagonal").has_value(), c.complex);
  }
}

TEST(Diagonal, GatesStayInTheirRange) {
  for (const char* target : {"diagonal[0,1]", "diagonal[-1,1]"}) {
    const auto network = try_compile(tomita4(), target);
    ASSERT_TRUE(network);
    for (const Layer& layer : network->layers)
      for (const Block& block : layer.blocks)
        for (double gate : block.gate) {
          EXPECT_LE(gate, 1);
          EXPECT_GE(gate, std::string(target) == "diagonal[0,1]" ? 0 : -1);
        }
  }
}

TEST(Diagonal, CascadesAreProvedForAllLengths) {
  for (const Dfa& dfa : {tomita4(), first_is_a(), bounded_dyck(2), elevator(4), kth_last(2)})
    for (const char* target : {"diagonal[0,1]", "householder[0,1]"}) {
      const auto network = try_compile(dfa, target);
      ASSERT_TRUE(network);
      for (NumberType type : {NumberType::kFp32, NumberType::kBf16, NumberType::kFp16, NumberType::kBf16Fp32})
        EXPECT_TRUE(proved(*network, type)) << network->construction << number_type_name(type);
      const Horizon horizon = error_horizon(*network, NumberType::kBf16);
      EXPECT_TRUE(horizon.known && !horizon.letters);  // rounding never adds up
    }
  for (const Dfa& dfa :
       {tomita3(), abab(), cyclic(8, true), group_word_problem({{1, 2, 3, 0}, {2, 1, 0, 3}})})
    for (const char* target : {"diagonal[-1,1]", "householder[-1,1]"}) {
      const auto network = try_compile(dfa, target);
      ASSERT_TRUE(network);
      EXPECT_TRUE(proved(*network, NumberType::kBf16)) << network->construction;
    }
}

// Every automaton that a target accepts runs right; every refusal comes with a witness (try_compile).
TEST(Diagonal, RandomAutomata) {
  Rng rng(5);
  int accepted[3] = {};
  const char* targets[] = {"diagonal[0,1]", "diagonal[-1,1]", "complex-diagonal"};
  for (int trial = 0; trial < 150; ++trial) {
    const Dfa dfa = random_dfa(rng, 2 + trial % 4, 2);
    bool before = false;
    for (int i = 0; i < 3; ++i) {
      const auto network = try_compile(dfa, targets[i]);
      EXPECT_TRUE(network || !before) << "a larger class refused what a smaller one took";
      before = network.has_value();
      if (!network) continue;
      ++accepted[i];
      Word word(400);
      for (auto& s : word) s = static_cast<int32_t>(rng.below(2));
      for (NumberType type : {NumberType::kFp32, NumberType::kBf16Fp32})
        EXPECT_FALSE(first_mismatch(*network, type, word)) << network->construction;
    }
  }
  EXPECT_GT(accepted[0], 10);
  EXPECT_GE(accepted[1], accepted[0]);
  EXPECT_GE(accepted[2], accepted[1]);
}

// Layers of a group are its derived length; of a 2-group the length of its series with factors Z2 x .. x Z2.
TEST(Diagonal, GroupsTakeOneLayerPerFactor) {
  EXPECT_EQ(try_compile(group_word_problem({{1, 0, 2}, {1, 2, 0}}), "complex-diagonal")->layers.size(),
            2u);  // S3
  EXPECT_EQ(try_compile(group_word_problem({{1, 0, 2, 3}, {1, 2, 3, 0}}), "complex-diagonal")->layers.size(),
            3u);  // S4
  EXPECT_EQ(try_compile(cyclic(8, true), "diagonal[-1,1]")->layers.size(), 3u);
  EXPECT_EQ(try_compile(make_dfa({{1, 2}, {0, 3}, {3, 0}, {2, 1}}, {0}), "diagonal[-1,1]")->layers.size(),
            1u);  // Z2 x Z2
}

TEST(Diagonal, OneLayerWhereCoordinatesAreIndependent) {
  for (const char* target : {"diagonal[0,1]", "diagonal[-1,1]", "householder[0,1]", "householder[-1,1]"}) {
    const auto network = try_compile(two_flip_flops(), target);
    ASSERT_TRUE(network);
    EXPECT_EQ(network->layers.size(), 1u) << target;
    EXPECT_TRUE(error_horizon(*network, NumberType::kBf16).exact);
    EXPECT_TRUE(proved(*network, NumberType::kBf16));
  }
}

TEST(AbelianSeries, CoordinatesAddByEarlierOnes) {
  const std::vector<automata::Permutation> s4 = {{1, 0, 2, 3}, {1, 2, 3, 0}};
  const auto series = AbelianSeries::make(4, s4, false);
  ASSERT_TRUE(series);
  ASSERT_EQ(series->order(), 24);
  ASSERT_EQ(series->factors(), 3u);
  for (int32_t p = 0; p < 24; ++p) {
    std::map<std::vector<std::vector<int32_t>>, std::vector<int32_t>> seen;
    for (int32_t g = 0; g < 24; ++g) {
      const int32_t product = series->index(automata::then(series->element(g), series->element(p)));
      for (size_t i = 0; i < 3; ++i) {
        std::vector<std::vector<int32_t>> key(series->coordinates(g).begin(),
                                              series->coordinates(g).begin() + i);
        key.push_back({static_cast<int32_t>(i)});
        std::vector<int32_t> added;
        for (size_t j = 0; j < series->orders(i).size(); ++j) {
          const int32_t order = series->orders(i)[j];
          added.push_back((series->coordinates(product)[i][j] - series->coordinates(g)[i][j] + order) %
                          order);
        }
        EXPECT_EQ(seen.emplace(key, added).first->second, added);
      }
    }
  }
  EXPECT_FALSE(AbelianSeries::make(5, {{1, 2, 3, 4, 0}, {1, 2, 0, 3, 4}}, false));  // A5
  EXPECT_FALSE(AbelianSeries::make(3, {{1, 2, 0}}, true));
}

TEST(Reflections, TheoremSixCountsModuloAnyNumber) {
  for (int32_t m : {3, 5, 6, 7}) {
    const auto network = try_compile(cyclic(m, true), "householder[-1,1]");
    ASSERT_TRUE(network);
    EXPECT_EQ(network->layers.size(), 2u);
    EXPECT_EQ(network_size(*network).householders_per_head, 1);
    Rng rng(3);
    Word word(20'000);
    for (auto& s : word) s = static_cast<int32_t>(rng.below(m));
    EXPECT_FALSE(first_mismatch(*network, NumberType::kFp32, word));
  }
}

}  // namespace
}  // namespace signet::theory
