#include "signet/report/html.h"

#include <gtest/gtest.h>

#include "report/well_formed.h"

namespace signet::report {
namespace {

TEST(Html, EscapesWhatHasAMeaning) {
  EXPECT_EQ(escape("<script>alert('x') & \"y\"</script>"),
            "&lt;script&gt;alert(&#39;x&#39;) &amp; &quot;y&quot;&lt;/script&gt;");
  EXPECT_EQ(escape("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(escape("−1 … é 😀"), "−1 … é 😀");
  EXPECT_EQ(escape(""), "");
}

TEST(Html, ReplacesWhatIsNotText) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(escape(std::string_view("\0", 1)), mark);
  EXPECT_EQ(escape("\x1b[31m"), mark + "[31m");
  EXPECT_EQ(escape("\x7f"), mark);
  EXPECT_EQ(escape("\xff\xfe"), mark + mark);
  EXPECT_EQ(escape("\xc3"), mark);                                   // cut off
  EXPECT_EQ(escape("\xc0\xaf"), mark + mark);                        // overlong '/'
  EXPECT_EQ(escape("\xed\xa0\x80"), mark + mark + mark);             // a surrogate
  EXPECT_EQ(escape("\xf4\x90\x80\x80"), mark + mark + mark + mark);  // past U+10FFFF
  EXPECT_EQ(escape("\xf4\x8f\xbf\xbf"), "\xf4\x8f\xbf\xbf");
  EXPECT_EQ(escape("a\xef\xbf\xbf"
                   "b\xef\xbf\xbe"),
            "a" + mark + "b" + mark);  // no characters of XML
  EXPECT_EQ(escape("\xef\xbf\xbd\xef\xbf\xbc"), "\xef\xbf\xbd\xef\xbf\xbc");
}

TEST(Html, LongNamesLeaveRoomForTheNumbersBesideThem) {
  const std::string text = page("t", "");
  const size_t rule = text.find("td:first-child {");
  ASSERT_NE(rule, std::string::npos);
  EXPECT_LT(text.find("white-space: normal;", rule), text.find('}', rule));
  EXPECT_LT(rule, text.find("@media (max-width: 44rem)")) << "not on phones alone";
}

TEST(Html, PageIsWellFormedAndAllowsNoNetwork) {
  const auto document = test::parse_document(page("<title> & co", "<p>text</p>\n"));
  EXPECT_EQ(document.error, "");
  bool policy = false;
  for (const auto& element : document.elements)
    if (element.attributes.count("http-equiv"))
      policy |= element.attributes.at("content").find("default-src 'none'") != std::string::npos;
  EXPECT_TRUE(policy);
}

}  // namespace
}  // namespace signet::report
