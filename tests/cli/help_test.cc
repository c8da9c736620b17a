// signet help: topics, and the manual page that `make install` writes.
#include <gtest/gtest.h>

#include <regex>

#include "signet/base/text.h"
#include "signet/cli/wrap.h"
#include "signet/report/table.h"
#include "support/command.h"

namespace signet::cli {
namespace {

using test::run_signet;

TEST(Help, ShowsVerbsPagesAndTheManual) {
  const auto overview = run_signet("help");
  EXPECT_EQ(overview.exit_code, 0);
  EXPECT_NE(overview.out.find("signet help TOPIC"), std::string::npos);
  EXPECT_EQ(run_signet("help info").out, run_signet("info --help").out) << "a verb without a page";
  for (const std::string name : {"formats", "train"})
    EXPECT_EQ(run_signet("help " + name).out,
              test::read_text(std::string(SIGNET_SOURCE_DIR) + "/docs/" + name + ".md"));
  const auto unknown = run_signet("help formts");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.err.find("formats"), std::string::npos) << unknown.err;
  const auto manual = run_signet("help --man");
  EXPECT_EQ(manual.out.rfind(".TH SIGNET 1", 0), 0u);
  EXPECT_NE(manual.out.find("\\-\\-eigenvalues"), std::string::npos);
  EXPECT_NE(manual.out.find(".SH EXIT STATUS"), std::string::npos);
  // The manual has what the page of the command line has.
  const std::string page = test::read_text(std::string(SIGNET_SOURCE_DIR) + "/docs/cli.md");
  const std::string status = manual.out.substr(manual.out.find(".SH EXIT STATUS"));
  const std::regex row(R"(\n\| `?([A-Z_]+|[0-9]+)(=[^`]*)?`?(, `([A-Z_]+)`)? \|)");
  int rows = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), row), end; at != end; ++at, ++rows)
    for (const int group : {1, 4}) EXPECT_NE(status.find((*at)[group].str()), std::string::npos) << at->str();
  EXPECT_EQ(rows, 14);
}

// On a terminal a page keeps within it: sentences, items and tables are broken between words, code is not.
TEST(Help, PagesFitTheTerminal) {
  EXPECT_EQ(
      wrapped_page(
          "# Title of the page\n\none two\nthree four\n\n    code  that stays as it is\n\n"
          "- an item of words\n  and more\n- next\n\n| a | b |\n|---|---|\n| x\\|y | many words here |\n"
          "```\nfenced code that stays\n```\n",
          14),
      "# Title of the page\n\none two three\nfour\n\n    code  that stays as it is\n\n"
      "- an item of\n  words and\n  more\n- next\n\n  a\n      b\n  x\\|y\n      many\n      words\n"
      "      here\n```\nfenced code that stays\n```\n");
  EXPECT_EQ(wrapped_page("| a | b |\n|---|---|\n", 14), "| a | b |\n|---|---|\n");
  const std::string page = test::read_text(std::string(SIGNET_SOURCE_DIR) + "/docs/report.md");
  for (const auto& line : split(wrapped_page(page, 72), '\n'))
    if (!line.starts_with("    signet")) {
      EXPECT_LE(report::display_width(line), 72u) << line;
    }
}

}  // namespace
}  // namespace signet::cli
