// What rounding can do that no real network of the same kind does (docs/theory.md, 9). The numbers were found
// by search; `verify` proves each network for words of every length.
#include <gtest/gtest.h>

#include <cmath>

#include "proofs_for_tests.h"
#include "signet/automata/deciders.h"
#include "signet/automata/monoid.h"
#include "signet/theory/runner.h"
#include "signet/theory/verdict.h"
#include "support/temporary_directory.h"

namespace signet::theory {
namespace {

using namespace test;

// The network whose states are the bit patterns that `block` reaches in this type, and the automaton on them:
// letter s is context s, and the accepted words are those that lead back to the start.
Network tracked(Block block, NumberType type) {
  const int32_t letters = block.contexts;
  block.codes = block.initial;
  Network network;
  network.target = network.construction = "found by search";
  Layer layer;
  layer.blocks = {block};
  layer.trails = letters;
  for (int32_t s = 0; s < letters; ++s) layer.context.push_back(s);
  layer.row.assign(static_cast<size_t>(letters), 0);
  layer.rows = 1;
  layer.next = {0};
  network.layers = {layer};
  std::vector<std::vector<double>> states;
  std::vector<std::vector<int32_t>> delta;
  {
    const auto runner = make_runner(network, type);
    states.push_back(runner->block_state(0, 0));
    for (size_t i = 0; i < states.size() && i < 100; ++i) {
      delta.emplace_back();
      for (int32_t s = 0; s < letters; ++s) {
        runner->set_block_state(0, 0, states[i]);
        runner->step_block(0, 0, s);
        const auto next = runner->block_state(0, 0);
        auto it = std::find(states.begin(), states.end(), next);
        if (it == states.end()) it = states.insert(states.end(), next);
        delta.back().push_back(static_cast<int32_t>(it - states.begin()));
      }
    }
  }
  network.dfa = make_dfa(std::move(delta), {0});
  Block& stored = network.layers[0].blocks[0];
  stored.codes.clear();
  for (size_t q = 0; q < states.size(); ++q) {
    stored.codes.insert(stored.codes.end(), states[q].begin(), states[q].end());
    network.layers[0].next.resize(q + 1, 0);
    network.layers[0].next[q] = static_cast<int32_t>(q);
    network.final_state.push_back(static_cast<int32_t>(q));
    network.final_output.push_back(q == 0);
  }
  validate(network, "test");
  return network;
}

void expect_proved_for_all_lengths(const Network& network, NumberType type) {
  VerifyOptions options;
  options.type = type;
  const auto result = verify(network, options);
  EXPECT_TRUE(result.proved) << result.certificate;
  EXPECT_FALSE(result.longest);
}

// Two gates and inputs of one complex number.
Block complex_number(const std::vector<std::vector<double>>& gates, std::vector<double> start) {
  Block block;
  block.kind = BlockKind::kComplexDiagonal;
  block.dim = 2;
  for (const auto& g : gates) add_diagonal_context(block, {g[0], g[1]}, {g[2], g[3]});
  block.initial = std::move(start);
  return block;
}

// In real numbers commuting gates have abelian groups, and contracting ones forget.
TEST(Rounding, OneContractingComplexNumberHasTheGroupS5) {
  const Block block = complex_number({{-0x1.5b99acp-1, -0x1.e6ec2ap-2, -0x1.bad49ap+0, 0x1.6cd6p+1},
                                      {0x1.1c6988p-1, 0x1.268d24p-1, 0x1.aaba24p-1, 0x1.1c7f9ap+0}},
                                     {-0x1.0471ap-1, 0x1.d77e5ap+0});
  EXPECT_NEAR(std::hypot(block.gate[0], block.gate[1]), 0.829, 1e-3);
  EXPECT_NEAR(std::hypot(block.gate[2], block.gate[3]), 0.800, 1e-3);
  const Network network = tracked(block, NumberType::kFp32);
  ASSERT_EQ(network.dfa.states(), 5);
  expect_proved_for_all_lengths(network, NumberType::kFp32);
  const Analysis analysis = analyze(network.dfa);
  ASSERT_EQ(analysis.facts.groups.value().size(), 1u);
  EXPECT_EQ(analysis.facts.groups->at(0).name, "S5");
  // What the theorems say of it is said of real numbers.
  for (const char* name : {"complex-diagonal", "householder[0,1]", "mamba-real"}) {
    const Verdict& verdict = analysis.verdict(name);
    EXPECT_EQ(verdict.possible, false) << name;
    EXPECT_EQ(verdict.arithmetic, Arithmetic::kReal) << name;
    EXPECT_NE(verdict.reason.find("rounding may do more"), std::string::npos) << verdict.reason;
  }
  for (const char* name : {"diagonal[0,1]", "diagonal[-1,1]"}) {
    EXPECT_EQ(analysis.verdict(name).possible, false);
    EXPECT_EQ(analysis.verdict(name).arithmetic, Arithmetic::kFloatingPoint) << "Proposition A";
  }
}

TEST(Rounding, OneContractingComplexNumberHasTheGroupS7) {
  const Block block = complex_number({{-0x1.ba49a8p-1, 0x1.5c5282p-2, -0x1.d58b54p+1, -0x1.673924p+0},
                                      {-0x1.55382ap-2, -0x1.8f502ap-1, -0x1.85d42cp+0, -0x1.6886dep+1}},
                                     {-0x1.c5905p+0, -0x1.138278p+0});
  EXPECT_LT(std::hypot(block.gate[0], block.gate[1]), 0.93);
  EXPECT_LT(std::hypot(block.gate[2], block.gate[3]), 0.85);
  const Network network = tracked(block, NumberType::kFp32);
  ASSERT_EQ(network.dfa.states(), 7);
  expect_proved_for_all_lengths(network, NumberType::kFp32);
  EXPECT_EQ(analyze(network.dfa).facts.groups.value().at(0).name, "S7");
}

// One factor I - 0.75 k k^T, |k| = 1, eigenvalues 1 and 1/4. Two large numbers that cancel turn the dot
// product into a threshold: the map of the rest is a contraction with a jump, which has cycles of any length.
TEST(Rounding, OneHouseholderFactorCounts) {
  struct Case {
    int32_t modulus;
    double v, x, y;
  };
  for (const auto& [modulus, v, x, y] :
       {Case{2, 2.5, 3.015625, 0.828125}, Case{3, 3.6875, 5.4375, 2.9375}, Case{4, -3.25, -6.8125, -0.1875},
        Case{5, -0.201171875, -0.734375, -0.025390625}, Case{6, -3.828125, -7, -0.6484375},
        Case{7, -2.4375, -2.09375, -2}}) {
    SCOPED_TRACE(modulus);
    Block block;
    block.dim = 4;
    add_householder_context(block, {{{0.5, 0.5, 0.5, 0.5}, 0.75, v}});
    finish_householder(block);
    block.initial = {0x1p25, -0x1p25, x, y};
    const Network network = tracked(block, NumberType::kBf16);
    ASSERT_EQ(network.dfa.states(), modulus);
    expect_proved_for_all_lengths(network, NumberType::kBf16);
    EXPECT_EQ(analyze(network.dfa).verdict("householder[0,1]").possible, false);
  }
  // In fp32 without large numbers.
  Block block;
  block.dim = 3;
  add_householder_context(block, {{{0x1.0c3f8cp-1, -0x1.594bdap-2, -0x1.90795ep-1}, 0.75, -0x1.abd354p-6}});
  finish_householder(block);
  block.initial = {0x1.fb808ep-5, -0x1.fd8278p-1, 0x1.01fe4ap-1};
  const Network network = tracked(block, NumberType::kFp32);
  ASSERT_EQ(network.dfa.states(), 3);
  expect_proved_for_all_lengths(network, NumberType::kFp32);
}

// One number and one factor, with the eigenvalue 0.098: no diagonal gate, which would follow no alternation.
TEST(Rounding, OneHouseholderFactorOfOneNumberAlternates) {
  Block block;
  block.dim = 1;
  const Factor factor = {{1.546875}, 0.376953125, 27};
  EXPECT_NEAR(1 - factor.beta * factor.k[0] * factor.k[0], 0.098, 1e-3);
  add_householder_context(block, {factor});
  finish_householder(block);
  block.initial = {17.375};
  const Network network = tracked(block, NumberType::kBf16);
  ASSERT_EQ(network.dfa.states(), 2);
  expect_proved_for_all_lengths(network, NumberType::kBf16);
}

// Two factors whose product has the eigenvalues 0.030 and 0.017: it should forget within a few letters.
TEST(Rounding, AGateWithSmallPositiveEigenvaluesHasPeriodTwo) {
  Block block;
  block.dim = 2;
  const std::vector<Factor> factors = {{{-0x1.d0ea38p-1, 0x1.acf184p-2}, 0x1.f49cdp-1, 0x1.7cfdb2p-1},
                                       {{-0x1.d75b86p-2, -0x1.c6883ep-1}, 0x1.f45de2p-1, -0x1.d4e788p-2}};
  add_householder_context(block, factors);
  finish_householder(block);
  block.initial = {-0x1.e08c2p-2, 0x1.84adb8p-1};
  const Network network = tracked(block, NumberType::kFp32);
  ASSERT_EQ(network.dfa.states(), 2);
  expect_proved_for_all_lengths(network, NumberType::kFp32);
  // Trace and determinant of the product.
  double a[2][2];
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      a[i][j] = 0;
      for (int m = 0; m < 2; ++m)
        a[i][j] += ((i == m) - factors[1].beta * factors[1].k[i] * factors[1].k[m]) *
                   ((m == j) - factors[0].beta * factors[0].k[m] * factors[0].k[j]);
    }
  const double trace = a[0][0] + a[1][1], determinant = a[0][0] * a[1][1] - a[0][1] * a[1][0];
  const double root = std::sqrt(trace * trace - 4 * determinant);
  EXPECT_NEAR((trace + root) / 2, 0.0303, 1e-3);
  EXPECT_NEAR((trace - root) / 2, 0.0167, 1e-3);
}

TEST(Rounding, ASearchFindsNetworksThatCount) {
  for (const int32_t m : {2, 3, 5}) {
    std::vector<std::vector<int32_t>> delta;
    for (int32_t q = 0; q < m; ++q) delta.push_back({(q + 1) % m, q});  // the second letter does nothing
    const auto dfa = make_dfa(std::move(delta), {0});
    const Network network = compile_by_rounding(dfa, NumberType::kBf16);
    expect_proved_for_all_lengths(network, NumberType::kBf16);
    EXPECT_EQ(network.layers.size(), 1u);
    for (double beta : network.layers[0].blocks[0].beta) EXPECT_LT(beta, 1);
  }
  signet::test::expect_error(
      [] {
        compile_by_rounding(make_dfa({{1, 0}, {0, 0}}, {0}), NumberType::kBf16);
      },
      ErrorCode::kCheckFailed, "cycle");
}

}  // namespace
}  // namespace signet::theory
