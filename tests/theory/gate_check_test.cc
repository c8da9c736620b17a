#include "signet/theory/gate_check.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "signet/base/error.h"

namespace signet::theory {
namespace {

GateReport check(const std::string& text, NumberType type = NumberType::kFp32) {
  GateCheckOptions options;
  options.type = type;
  return check_gates(parse_gates(text, "test"), options);
}

bool nothing(const EigenvalueSearch& search) { return !search.found && !search.open; }
bool incomplete(const GateReport& report) {
  return std::any_of(report.theorem2.begin(), report.theorem2.end(),
                     [](const EigenvalueSearch& search) { return !search.complete; });
}

TEST(GateCheck, StructureCertifies) {
  EXPECT_EQ(check("[[[0.5]],[[0.25]]]").certificate, "definite");
  EXPECT_EQ(check("[[[1]],[[0]]]").certificate, "star-free");
  EXPECT_EQ(check("[[[1]],[[-1]]]").certificate, "2-groups");
  EXPECT_EQ(check("[[[1,0],[0.5,0.5]],[[1,0],[0,1]]]").certificate, "");  // triangular, but of norm above 1
  EXPECT_EQ(check("[[[0,1],[1,0]],[[1,0],[0,-1]]]").certificate, "");
  // The eigenvalues of diagonal gates are their entries, exactly.
  for (const char* above :
       {"[1.0000000000000002]", "[-1.0000000000000002]", "[[[0.5,0],[0,1.0000000000000002]]]"})
    EXPECT_EQ(check(above).certificate, "") << above;
  EXPECT_EQ(check("[-0.9999999999999999]").certificate, "definite");
  EXPECT_EQ(check("[1,-0.9999999999999999]").certificate, "star-free");
  // I - v v^T at 0 and 60 degrees: beta = 1 < 2.
  EXPECT_EQ(check("[[[0,0],[0,1]],[[0.75,-0.4330127018922193],[-0.4330127018922193,0.25]]]").certificate,
            "star-free");
}

TEST(GateCheck, TheoremOneAndTwoFindTheirWitness) {
  const auto parity = check("[[[-1]],[[1]]]");
  ASSERT_TRUE(parity.theorem1.found);
  EXPECT_EQ(parity.theorem1.found->word, GateWord{0});
  EXPECT_TRUE(nothing(parity.theorem2[0]));
  EXPECT_TRUE(nothing(parity.theorem2[2]));
  // Two reflections: neither turns, their product does (layer 2 of Theorem 2).
  const auto reflections = check("[[[0,1],[1,0]],[[1,0],[0,-1]]]");
  EXPECT_TRUE(nothing(reflections.theorem2[0]));
  ASSERT_TRUE(reflections.theorem2[1].found);
  EXPECT_EQ(reflections.theorem2[1].found->word.size(), 2u);
  EXPECT_TRUE(nothing(check("[[[0.5]],[[1]]]").theorem1));
}

// Eigenvalues come with the error of their computation, and what lies within it is not decided.
TEST(GateCheck, RoundingHidesNoSignAndMakesNone) {
  EXPECT_TRUE(check("[-1e-10]").theorem1.found);
  EXPECT_TRUE(check("[[[0.5,1],[0,-1e-10]]]").theorem1.found);
  // A Jordan block, LAPACK's eigenvalues of which lie on a circle of radius 0.01: upper, lower, and with its
  // coordinates in another order.
  for (const auto& order :
       {std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}, {7, 6, 5, 4, 3, 2, 1, 0}, {3, 0, 6, 1, 7, 2, 5, 4}}) {
    std::string text;
    for (int i = 0; i < 8; ++i) {
      text += i ? ",[" : "[";
      for (int j = 0; j < 8; ++j) {
        const bool next = order[j] == order[i] + 1;
        text += (j ? "," : "") + std::string(i == j ? "0.5" : next ? "1" : "0");
      }
      text += "]";
    }
    const auto r = check("[[" + text + "]]");
    EXPECT_TRUE(nothing(r.theorem1));
    for (const auto& products : r.theorem2) EXPECT_TRUE(nothing(products));
  }
  // The same in a basis that hides it: (1 - d) with a double eigenvalue. Nobody can tell from fp64.
  const auto hidden = check("[[[1.5,1],[-0.25,0.5]]]");
  EXPECT_FALSE(hidden.theorem1.found);
  EXPECT_TRUE(hidden.theorem1.open);
  EXPECT_LT(hidden.theorem1.open->error, 1e-6);
}

// Squares of numbers below 1e-162 vanish, the errors of eigenvalues do not.
TEST(GateCheck, GatesAsSmallAsYouLikeHaveTheirErrors) {
  for (const char* size : {"", "e-90", "e-160", "e-200", "e-290"}) {
    const auto gate = [&](const char* a, const char* b, const char* c, const char* d) {
      const auto number = [&](const char* x) { return std::string(x) + size; };
      return fmt::format("[[[{},{}],[{},{}]]]", number(a), number(b), number(c), number(d));
    };
    SCOPED_TRACE(size);
    const auto open = check(gate("-0.75", "1", "-0.5625", "0.75"));  // its square is 0
    EXPECT_FALSE(open.theorem1.found);
    EXPECT_TRUE(open.theorem1.open);
    EXPECT_TRUE(open.theorem2[0].open);
    EXPECT_TRUE(check(gate("0.5", "1", "-1", "0.5")).theorem2[0].found);
    EXPECT_TRUE(nothing(check(gate("2", "1", "1", "2")).theorem1));
  }
  const auto real = check(
      "[[[-1.6089509731868136e-269, 7.342291298873783e-260],"
      "[-3.5257702653609953e-279, 1.6089509731868136e-269]]]");
  EXPECT_FALSE(real.theorem2[0].found);
}

// A turn by 5e-13 counts, if slowly, and what grows by a part in 10^13 has no spectrum in (-1,1].
TEST(GateCheck, NearlySymmetricIsNotSymmetric) {
  EXPECT_EQ(check("[[[1,-5e-13],[5e-13,1]]]").certificate, "");
  EXPECT_EQ(check("[[[1,1e-12],[0,1]]]").certificate, "");
  EXPECT_EQ(check("[[[1.0000000000001,0],[0,-0.5]]]").certificate, "");
}

// These two reflections turn together by 5e-17, which the computed product does not show.
TEST(GateCheck, AProductThatLooksSymmetricMayTurn) {
  const auto r = check(
      "[[[-0.40804914983727175,0.9129599615082141],[0.9129599615082141,0.40804914983727175]],"
      "[[-0.40804914983727175,0.9129599615082142],[0.9129599615082142,0.40804914983727175]]]");
  EXPECT_TRUE(nothing(r.theorem2[0]));
  EXPECT_FALSE(r.theorem2[1].none());
  // A word that reads the same from both ends is symmetric, though its eigenvalue 1 is a double one.
  const auto swap = check("[[[0.6,0.8],[0.8,-0.6]]]");
  EXPECT_TRUE(swap.theorem2[1].none());
  EXPECT_TRUE(swap.theorem2[2].none());
}

// Gates that are known to their error only: what is within it is neither a zero nor a sign.
TEST(GateCheck, GatesThatAreOffSayLess) {
  auto set = parse_gates("[[[0.5,0],[0,0.25]]]", "test");
  EXPECT_EQ(check_gates(set, {}).certificate, "definite");
  set = parse_gates("[[[1,0],[0,0]]]", "test");
  EXPECT_EQ(check_gates(set, {}).certificate, "star-free");
  EXPECT_TRUE(check_gates(set, {}).theorem1.none());
  set.off = 1e-15;
  const auto off = check_gates(set, {});
  EXPECT_EQ(off.certificate, "");
  EXPECT_FALSE(off.theorem1.none());
  EXPECT_TRUE(off.theorem1.open);
  set = parse_gates("[0.5,1]", "test");
  set.off = 1e-15;
  EXPECT_TRUE(check_gates(set, {}).theorem1.none());
  // Four letters have four errors.
  set = parse_gates("[[[1,-1e-14],[1e-14,1]]]", "test");
  EXPECT_TRUE(check_gates(set, {}).theorem2[2].found);
  set.off = 2e-14;
  EXPECT_FALSE(check_gates(set, {}).theorem2[2].found);
  EXPECT_TRUE(check_gates(set, {}).theorem2[2].open);
}

// The product of these two reflections turns by 120 degrees; its numbers are too small for fp64.
TEST(GateCheck, ProductsThatVanishSayNothing) {
  const std::string tiny =
      "[[[1e-200,0],[0,-1e-200]],[[-0.5e-200,0.8660254037844386e-200],[0.8660254037844386e-200,0.5e-200]]]";
  EXPECT_TRUE(incomplete(check(tiny)));
  EXPECT_FALSE(incomplete(check("[[[1e-30,0],[0,-1]]]")));
  EXPECT_TRUE(check("[[[1e-310,0],[0,-1]]]").theorem1.found);
}

TEST(GateCheck, CertificatesNameTheirArithmetic) {
  EXPECT_EQ(check("[[[1]],[[0]]]").arithmetic, Arithmetic::kFloatingPoint);
  EXPECT_EQ(check("[[[1]],[[-1]]]").arithmetic, Arithmetic::kFloatingPoint);
  EXPECT_EQ(check("[[[0.5]],[[0.25]]]").arithmetic, Arithmetic::kReal);
  for (const char* text : {"[1,0]", "[1,-1]"}) {  // as factors, which round more (rounding_test.cc)
    auto factors = parse_gates(text, "test");
    factors.plain = false;
    EXPECT_EQ(check_gates(factors, {}).arithmetic, Arithmetic::kReal) << text;
  }
  EXPECT_EQ(check("[[[0,0],[0,1]],[[0.75,-0.4330127018922193],[-0.4330127018922193,0.25]]]").arithmetic,
            Arithmetic::kReal);
}

// In bf16 0.99 x + 0.01 does not forget: rounding holds whatever lies between 0.6875 and 1.1875.
TEST(GateCheck, CollapseFollowsTwoStates) {
  const auto held =
      check(R"({"gates":[0.99],"inputs":[[0.01]],"state":[0.6875],"other":[1.1875]})", NumberType::kBf16);
  ASSERT_EQ(held.collapse.size(), 2u);
  EXPECT_EQ(held.collapse[0].measured, 0);
  EXPECT_EQ(held.collapse[0].apart, 0.5);
  const auto lost = check(R"({"gates":[0.5],"inputs":[[1]],"state":[0]})");
  EXPECT_EQ(lost.collapse[0].apart, 0);
  EXPECT_GT(*lost.collapse[0].measured, 10);
}

TEST(GateCheck, GatesThatAreNumbersHaveInputsAndStatesThatAre) {
  const auto plain = parse_gates(R"({"gates":[0.99],"inputs":[0.01],"state":0.5,"other":1.5})", "test");
  const auto lists =
      parse_gates(R"({"gates":[[[0.99]]],"inputs":[[0.01]],"state":[0.5],"other":[1.5]})", "test");
  EXPECT_EQ(plain.inputs, lists.inputs);
  EXPECT_EQ(plain.state, lists.state);
  EXPECT_EQ(plain.other, lists.other);
}

// (abab)*: both gates are nilpotent, all their eigenvalues 0, and yet the word ab counts modulo 2.
TEST(GateCheck, GroupsLiveOnWords) {
  const auto r = check(
      "{\"letters\":[\"a\",\"b\"],\"gates\":["
      "[[0,0,0,0],[1,0,0,0],[0,0,0,0],[0,0,1,0]],"
      "[[0,0,0,1],[0,0,0,0],[0,1,0,0],[0,0,0,0]]]}");
  EXPECT_TRUE(nothing(r.theorem1));
  ASSERT_FALSE(r.periodic.empty());
  EXPECT_EQ(r.periodic[0].word.size(), 2u);
  EXPECT_NEAR(r.periodic[0].value.real(), -1, 1e-9);
}

// The state stands still about when the theory says, in every type.
TEST(GateCheck, CollapseIsPredicted) {
  for (const char* text : {"[[[0.9]]]", "[[[0.5]]]", "{\"gates\":[[[0.99]]],\"inputs\":[[1]],\"state\":[0]}",
                           "{\"gates\":[[[0.9,0],[0,0.5]]],\"inputs\":[[1,1]],\"state\":[3,-2]}",
                           // One number goes to 0 beside one that stays, and one to and fro.
                           "[[[0.5,0],[0,1]]]", "[[[-0.5,0],[0,1]]]"})
    for (NumberType type : {NumberType::kFp64, NumberType::kFp32, NumberType::kBf16, NumberType::kFp16}) {
      const auto r = check(text, type);
      ASSERT_FALSE(r.collapse.empty());
      const Collapse& c = r.collapse[0];
      ASSERT_TRUE(c.measured) << text;
      // bf16 rounds the gate itself; elsewhere prediction and run agree closely.
      EXPECT_NEAR(static_cast<double>(*c.measured), static_cast<double>(c.predicted.value()),
                  0.35 * static_cast<double>(c.predicted.value()) + 12)
          << text << number_type_name(type);
    }
}

// A gate that is measured to be nearly 1 may be 1, and not that which would stand still after so many steps.
TEST(GateCheck, NothingIsPredictedOfWhatMeasuredGatesKeep) {
  auto set = parse_gates(
      R"({"gates":[[[0.5,0],[0,0.9999998]]],"inputs":[[1,0]],"state":[0,1],"other":[0,2]})", "test");
  EXPECT_GT(check_gates(set, {}).collapse.at(0).predicted.value(), 1'000'000);
  set.measured = true;
  const Collapse kept = check_gates(set, {}).collapse.at(0);
  EXPECT_TRUE(kept.keeps);
  EXPECT_FALSE(kept.predicted);
  set.gates[0](1, 1) = 0.9;
  const Collapse lost = check_gates(set, {}).collapse.at(0);
  EXPECT_FALSE(lost.keeps);
  EXPECT_TRUE(lost.predicted);
}

// What adds to a number that is kept moves on for ever, however little it adds.
TEST(GateCheck, NoCollapseIsPredictedOfWhatDrifts) {
  for (const char* text : {"{\"gates\":[[[0.999,0],[0,1]]],\"inputs\":[[0.001,1e-9]]}",
                           "{\"gates\":[[[0.5,0.5],[0.5,0.5]]],\"inputs\":[[1,0]]}"})
    for (NumberType type : {NumberType::kFp64, NumberType::kFp32, NumberType::kBf16})
      EXPECT_TRUE(check(text, type).collapse.empty()) << text << number_type_name(type);
  // Of what is kept nothing moves here: the input lies where differences shrink.
  EXPECT_FALSE(check("{\"gates\":[[[0.999,0],[0,1]]],\"inputs\":[[0.001,0]]}").collapse.empty());
  EXPECT_FALSE(check("{\"gates\":[[[0.5,0.5],[0.5,0.5]]],\"inputs\":[[1,-1]]}").collapse.empty());
}

// Theorem 2 says nothing of products that were not looked at.
TEST(GateCheck, UnseenProductsAreKnown) {
  const auto set = parse_gates("[[[0,1],[1,0]],[[1,0],[0,-1]]]", "test");
  EXPECT_FALSE(incomplete(check_gates(set, {})));
  EXPECT_TRUE(incomplete(check_gates(set, {.max_length = 1})));
  EXPECT_TRUE(incomplete(check_gates(set, {.max_words = 5})));
}

// No limit on work ends before every gate was looked at: the last of these alternates.
TEST(GateCheck, NoGateIsLeftOut) {
  const auto set = parse_gates("[[[1,0],[0,1]],[[1,0],[0,1]],[[1,0],[0,-1]]]", "test");
  const auto r = check_gates(set, {.max_words = 1});
  ASSERT_TRUE(r.theorem1.found);
  EXPECT_EQ(r.theorem1.found->word, GateWord{2});
  EXPECT_FALSE(r.theorem2[1].complete);
  EXPECT_FALSE(r.theorem2[1].none());
}

// Theorems and certificates are about what letters do after any word; what repeats does so as it is.
TEST(GateCheck, OtherGatesCountForTheTheorems) {
  auto set = parse_gates("[1,0.5]", "test");
  EXPECT_TRUE(check_gates(set, {}).theorem1.none());
  set.others = {Matrix(1, 1)};
  set.others[0](0, 0) = -1;
  set.letters.emplace_back("1 after 0");
  const auto r = check_gates(set, {});
  EXPECT_EQ(r.certificate, "2-groups");
  ASSERT_TRUE(r.theorem1.found);
  EXPECT_EQ(r.theorem1.found->word, GateWord{2});
  EXPECT_TRUE(r.periodic.empty());
  set.others.clear();
  set.partial = true;
  const auto part = check_gates(set, {});
  EXPECT_EQ(part.certificate, "");
  EXPECT_FALSE(part.theorem1.none());
}

// What contracts, however little, counts nothing; what is said of it must not disagree.
TEST(GateCheck, OnlyTheUnitCircleCounts) {
  const auto nearly = check("[-0.9999999995]");
  EXPECT_EQ(nearly.certificate, "definite");
  EXPECT_TRUE(nearly.periodic.empty());
  ASSERT_FALSE(nearly.near_roots.empty());
  EXPECT_FALSE(nearly.near_roots[0].eigenvalue.may_be(nearly.near_roots[0].distance));
  EXPECT_TRUE(check("[[[0,-0.9999999995],[0.9999999995,0]]]").periodic.empty());
  EXPECT_EQ(check("[-1]").periodic.size(), 2u);  // a and aaa
  const auto sixth = check("[[[0.5,-0.8660254037844386],[0.8660254037844386,0.5]]]");
  EXPECT_EQ(sixth.periodic.size(), 4u);
}

// What rounds to the identity holds its state; it does not stand still because it collapsed.
TEST(GateCheck, GatesCollapseAsTheTypeHasThem) {
  EXPECT_FALSE(check("[0.999]").collapse.empty());
  EXPECT_TRUE(check("[0.999]", NumberType::kBf16).collapse.empty());
}

// A turn by a third keeps its state, though fp32 stores it a little short; two of them are one eigenvalue.
TEST(GateCheck, TurnsThatRoundingShortensCount) {
  const double c = std::cos(2 * M_PI / 3), s = std::sin(2 * M_PI / 3);
  const std::string third = fmt::format("[[{0},{1}],[{2},{0}]]", c, -s, s);
  for (const NumberType type : {NumberType::kFp64, NumberType::kFp32})
    EXPECT_TRUE(check("[" + third + "]", type).collapse.empty());
  const auto both =
      check(fmt::format("[[[{0},{1},0,0],[{2},{0},0,0],[0,0,{0},{1}],[0,0,{2},{0}]]]", c, -s, s));
  EXPECT_TRUE(both.collapse.empty());
  std::set<GateWord> words;
  for (const auto& e : both.periodic) EXPECT_TRUE(words.insert(e.word).second) << e.value.real();
  EXPECT_EQ(words.size(), 3u) << "a, aa and aaaa turn, aaa is at rest";
  // A turn that does shrink, and numbers as near to 1 as the type has them, are as they were.
  EXPECT_FALSE(check("[[[0,-0.999],[0.999,0]]]").collapse.empty());
  EXPECT_FALSE(check("[-0.99609375]", NumberType::kBf16).collapse.empty());
  EXPECT_FALSE(check("[0.99999994]").collapse.empty());
}

// A double eigenvalue 1, computed as 1 +- 3e-8 i.
TEST(GateCheck, DoubleEigenvaluesDoNotCount) { EXPECT_TRUE(check("[[[2,1],[-1,0]]]").periodic.empty()); }

TEST(GateCheck, LargeGatesTakeBoundedTime) {
  std::string row, gate;
  for (int i = 0; i < 64; ++i) {
    row.clear();
    for (int j = 0; j < 64; ++j) row += (j ? "," : "") + std::string(i == j ? "0.9999" : "0");
    gate += (i ? ",[" : "[") + row + "]";
  }
  const auto r = check("[[" + gate + "],[" + gate + "]]");
  ASSERT_EQ(r.collapse.size(), 6u);
  EXPECT_FALSE(r.collapse.back().measured);  // the runs before it spent what may be spent
}

TEST(GateCheck, CountingGatesDoNotCollapse) {
  EXPECT_TRUE(check("[[[-1]]]").collapse.empty());
  EXPECT_FALSE(incomplete(check("[[[-1]]]")));
}

// A product that overflows is neither a collapse nor a witness of anything.
TEST(GateCheck, GrowthIsNotCollapse) {
  for (const char* text :
       {"[1e200]", "[1e308,-1e308]", "[[[1e308,-1e308],[1e308,1e308]]]", "[[[1e200,0],[0,0.5]]]"}) {
    const auto r = check(text);
    EXPECT_TRUE(r.collapse.empty()) << text;
    EXPECT_TRUE(r.periodic.empty()) << text;
    EXPECT_TRUE(incomplete(r)) << text;
    EXPECT_EQ(r.certificate, "") << text;
  }
  // All eigenvalues are 1, or some are and grow: nothing, or not everything, shrinks.
  for (const char* text : {"[[[1,1],[0,1]]]", "[[[1,1e-9],[0,1]]]", "[[[1,1,0],[0,1,0],[0,0,0.5]]]"})
    EXPECT_TRUE(check(text).collapse.empty()) << text;
  EXPECT_FALSE(check("[[[1,0],[0,0.5]]]").collapse.empty());
  // The eigenvalues lie within (-1,1], the gate is far from symmetric.
  EXPECT_EQ(check("[[[0.5,1e300],[0,0.5]]]").certificate, "");
  for (const auto& c : check("{\"gates\":[0.5],\"inputs\":[[1e300]]}").collapse)
    EXPECT_FALSE(c.measured);  // infinite in fp32
  EXPECT_TRUE(check("{\"gates\":[0.5],\"inputs\":[[1.7e308]]}").collapse.empty());
}

TEST(GateCheck, BadInputIsRefused) {
  for (const char* text : {"", "[]", "{}", "[1,[[1,2],[3,4]]]", "[[[1,2]]]", "[[[\"x\"]]]",
                           "{\"gates\":[1],\"x\":2}", "{\"gates\":[1],\"letters\":[1]}",
                           "{\"gates\":[1],\"inputs\":[[1,2]]}", "[[[1e999]]]", "[[[[[[[[1]]]]]]]]"})
    EXPECT_THROW(parse_gates(text, "test"), Error) << text;
}

// A turn by a fifth that shrinks a little, and a letter near -1: the words nearest to roots of unity.
TEST(GateCheck, FindsWordsThatNearlyCount) {
  const double c = 0.99 * std::cos(2 * M_PI / 5), s = 0.99 * std::sin(2 * M_PI / 5);
  const auto set =
      parse_gates(fmt::format("[[[{0},{1}],[{2},{0}]],[[-0.97,0],[0,-0.97]]]", c, -s, s), "test");
  GateCheckOptions options;
  options.max_steps = 10;
  const auto report = check_gates(set, options);
  EXPECT_TRUE(report.periodic.empty());
  std::map<int64_t, NearRoot> by_order;
  for (const auto& near : report.near_roots) by_order[near.order] = near;
  ASSERT_TRUE(by_order.count(2) && by_order.count(5) && by_order.count(10));
  EXPECT_NEAR(by_order[5].distance, 0.01, 1e-9);
  EXPECT_EQ(by_order[5].eigenvalue.word, GateWord({0}));
  EXPECT_NEAR(by_order[2].distance, 0.03, 1e-9);
  EXPECT_NEAR(by_order[10].distance, 1 - 0.99 * 0.97, 1e-9) << "both letters: a turn by a fifth and a half";
  EXPECT_FALSE(by_order.count(3));
}

}  // namespace
}  // namespace signet::theory
