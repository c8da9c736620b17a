#include "signet/base/text.h"

#include <gtest/gtest.h>

#include <cmath>

#include "signet/base/decimal.h"
#include "signet/base/rng.h"

namespace signet {
namespace {

TEST(Utf8, AcceptsTextAndFindsTheFirstBadByte) {
  const auto npos = std::string_view::npos;
  EXPECT_EQ(find_invalid_utf8(""), npos);
  EXPECT_EQ(find_invalid_utf8("plain"), npos);
  EXPECT_EQ(find_invalid_utf8("é € 😀 \xEE\x80\x80 \xF4\x8F\xBF\xBF"), npos);
  const struct {
    const char* text;
    size_t at;
  } cases[] = {
      {"a\xFF", 1},             // never a byte of UTF-8
      {"\x80", 0},              // continuation without a start
      {"ab\xC3", 2},            // cut off
      {"\xE2\x82", 0},          // cut off
      {"\xC0\x80", 0},          // overlong
      {"\xC1\xBF", 0},          // overlong
      {"\xE0\x80\x80", 0},      // overlong
      {"\xF0\x80\x80\x80", 0},  // overlong
      {"\xED\xA0\x80", 0},      // surrogate
      {"\xF4\x90\x80\x80", 0},  // above U+10FFFF
      {"\xF5\x80\x80\x80", 0},
      {"x\xC3(", 1},
  };
  for (const auto& c : cases) EXPECT_EQ(find_invalid_utf8(c.text), c.at) << c.text;
}

TEST(CountOf, OneThingIsNoPlural) {
  EXPECT_EQ(count_of(0, "letter"), "0 letters");
  EXPECT_EQ(count_of(size_t{1}, "letter"), "1 letter");
  EXPECT_EQ(count_of(-1, "letter"), "-1 letters");
  EXPECT_EQ(count_of(1, "entry", "entries"), "1 entry");
  EXPECT_EQ(count_of(12, "entry", "entries"), "12 entries");
  EXPECT_EQ(count_of("1,000", "sample"), "1,000 samples") << "a number as a page writes it";
}

// 9999 of 10,000 and more are not all.
TEST(Text, AShareOfOneIsWhole) {
  EXPECT_EQ(share_text(1), "1.0000");
  EXPECT_EQ(share_text(0.99999), "0.9999");
  EXPECT_EQ(share_text(0.57), "0.5700");
  EXPECT_EQ(share_text(-0.25), "-0.2500") << "a scaled accuracy may be";
}

TEST(BoundText, HoldsAsItIsPrinted) {
  EXPECT_EQ(bound_text(0.7079, Bound::kLower), "0.707");
  EXPECT_EQ(bound_text(0.7071, Bound::kUpper), "0.708");
  EXPECT_EQ(bound_text(0.707, Bound::kLower), "0.707");
  EXPECT_EQ(bound_text(0.707, Bound::kUpper), "0.707");
  EXPECT_EQ(bound_text(9.996, Bound::kLower), "9.99");
  EXPECT_EQ(bound_text(99.96, Bound::kUpper), "100");
  EXPECT_EQ(bound_text(0, Bound::kLower), "0");
  EXPECT_EQ(bound_text(INFINITY, Bound::kUpper), "inf");
  EXPECT_EQ(bound_text(1.23e-7, Bound::kUpper, 2), "1.3e-07");
  Rng rng(1, 2);
  for (int i = 0; i < 20'000; ++i) {
    const double x = std::pow(10.0, 40 * rng.uniform() - 20);
    for (const double y :
         {x, -x, std::nextafter(std::stod(bound_text(x, Bound::kLower)), i % 2 ? 0.0 : 1e30)}) {
      const double low = std::stod(bound_text(y, Bound::kLower)),
                   high = std::stod(bound_text(y, Bound::kUpper));
      ASSERT_TRUE(low <= y && y <= high) << y;
      ASSERT_LE(high - low, 0.0101 * std::abs(y)) << y;
    }
  }
}

TEST(ShellWord, QuotesWhatAShellWouldChange) {
  for (const char* plain : {"runs/parity-lstm-1", "a.b,c=d:e@f%g+h_i"}) EXPECT_EQ(shell_word(plain), plain);
  EXPECT_EQ(shell_word("my run 2"), "'my run 2'");
  EXPECT_EQ(shell_word("runs/parity-deltanet-[-1,1]-1"), "'runs/parity-deltanet-[-1,1]-1'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
  for (const char* special :
       {"~x", "$HOME", "a;b", "a&b", "#a", "`a`", "a\\b", "=ls", "!a", "{a,b}", "\xc3\xa9"})
    EXPECT_EQ(shell_word(special), "'" + std::string(special) + "'");
}

TEST(Printable, EscapesAndCuts) {
  EXPECT_EQ(printable("plain é"), "plain é");
  EXPECT_EQ(printable(std::string_view("a\0b\n\x1b[31m\x7f\xff", 11)), "a\\x00b\\x0a\\x1b[31m\\x7f\\xff");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m\xc2\xa0"),
            "\\xc2\\x9b"
            "31m\xc2\xa0");
  EXPECT_EQ(printable(std::string(1000, 'x'), 10), "xxxxxxxxxx...");
  EXPECT_EQ(printable("xxxxxxxxxx", 10), "xxxxxxxxxx");
}

}  // namespace
}  // namespace signet
