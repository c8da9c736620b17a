#include "signet/theory/gate_check.h"

#include <gtest/gtest.h>

#include "signet/base/error.h"

namespace signet::theory {
namespace {

GateReport check(const std::string& text, NumberType type = NumberType::kFp32) {
  GateCheckOptions options;
  options.type = type;
  return check_gates(parse_gates(text, "test"), options);
}

TEST(GateCheck, StructureCertifies) {
  EXPECT_EQ(check("[[[0.5]],[[0.25]]]").certificate, "definite");
  EXPECT_EQ(check("[[[1]],[[0]]]").certificate, "star-free");
  EXPECT_EQ(check("[[[1]],[[-1]]]").certificate, "2-groups");
  EXPECT_EQ(check("[[[1,0],[0.5,0.5]],[[1,0],[0,1]]]").certificate, "");  // triangular, but of norm above 1
  EXPECT_EQ(check("[[[0,1],[1,0]],[[1,0],[0,-1]]]").certificate, "");
  // I - v v^T at 0 and 60 degrees: beta = 1 < 2.
  EXPECT_EQ(check("[[[0,0],[0,1]],[[0.75,-0.4330127018922193],[-0.4330127018922193,0.25]]]").certificate,
            "star-free");
}

TEST(GateCheck, TheoremOneAndTwoFindTheirWitness) {
  const auto parity = check("[[[-1]],[[1]]]");
  ASSERT_TRUE(parity.theorem1);
  EXPECT_EQ(parity.theorem1->word, GateWord{0});
  EXPECT_FALSE(parity.theorem2[0]);
  EXPECT_FALSE(parity.theorem2[2]);
  // Two reflections: neither turns, their product does (layer 2 of Theorem 2).
  const auto reflections = check("[[[0,1],[1,0]],[[1,0],[0,-1]]]");
  EXPECT_FALSE(reflections.theorem2[0]);
  ASSERT_TRUE(reflections.theorem2[1]);
  EXPECT_EQ(reflections.theorem2[1]->word.size(), 2u);
  EXPECT_FALSE(check("[[[0.5]],[[1]]]").theorem1);
}

// (abab)*: both gates are nilpotent, all their eigenvalues 0, and yet the word ab counts modulo 2.
TEST(GateCheck, GroupsLiveOnWords) {
  const auto r = check(
      "{\"letters\":[\"a\",\"b\"],\"gates\":["
      "[[0,0,0,0],[1,0,0,0],[0,0,0,0],[0,0,1,0]],"
      "[[0,0,0,1],[0,0,0,0],[0,1,0,0],[0,0,0,0]]]}");
  EXPECT_FALSE(r.theorem1);
  ASSERT_FALSE(r.periodic.empty());
  EXPECT_EQ(r.periodic[0].word.size(), 2u);
  EXPECT_NEAR(r.periodic[0].value.real(), -1, 1e-9);
}

// The state stands still about when the theory says, in every type.
TEST(GateCheck, CollapseIsPredicted) {
  for (const char* text : {"[[[0.9]]]", "[[[0.5]]]", "{\"gates\":[[[0.99]]],\"inputs\":[[1]],\"state\":[0]}",
                           "{\"gates\":[[[0.9,0],[0,0.5]]],\"inputs\":[[1,1]],\"state\":[3,-2]}"})
    for (NumberType type : {NumberType::kFp64, NumberType::kFp32, NumberType::kBf16, NumberType::kFp16}) {
      const auto r = check(text, type);
      ASSERT_FALSE(r.collapse.empty());
      const Collapse& c = r.collapse[0];
      ASSERT_TRUE(c.measured) << text;
      // bf16 rounds the gate itself; elsewhere prediction and run agree closely.
      EXPECT_NEAR(static_cast<double>(*c.measured), static_cast<double>(c.predicted),
                  0.35 * static_cast<double>(c.predicted) + 12)
          << text << number_type_name(type);
    }
}

// Theorem 2 says nothing of products that were not looked at.
TEST(GateCheck, UnseenProductsAreKnown) {
  const auto set = parse_gates("[[[0,1],[1,0]],[[1,0],[0,-1]]]", "test");
  EXPECT_FALSE(check_gates(set, {}).incomplete);
  EXPECT_TRUE(check_gates(set, {.max_length = 1}).incomplete);
  EXPECT_TRUE(check_gates(set, {.max_words = 5}).incomplete);
}

// What rounds to the identity holds its state; it does not stand still because it collapsed.
TEST(GateCheck, GatesCollapseAsTheTypeHasThem) {
  EXPECT_FALSE(check("[0.999]").collapse.empty());
  EXPECT_TRUE(check("[0.999]", NumberType::kBf16).collapse.empty());
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
  EXPECT_FALSE(check("[[[-1]]]").incomplete);
}

// A product that overflows is neither a collapse nor a witness of anything.
TEST(GateCheck, GrowthIsNotCollapse) {
  for (const char* text :
       {"[1e200]", "[1e308,-1e308]", "[[[1e308,-1e308],[1e308,1e308]]]", "[[[1e200,0],[0,0.5]]]"}) {
    const auto r = check(text);
    EXPECT_TRUE(r.collapse.empty()) << text;
    EXPECT_TRUE(r.periodic.empty()) << text;
    EXPECT_TRUE(r.incomplete) << text;
    EXPECT_EQ(r.certificate, "") << text;
  }
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

}  // namespace
}  // namespace signet::theory
