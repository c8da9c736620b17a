#include "signet/report/table.h"

#include <gtest/gtest.h>

#include "signet/base/error.h"

namespace signet::report {
namespace {

Table sample() {
  Table table;
  table.column("model");
  table.column("accuracy", Table::kRight);
  table.row({"DeltaNet [−1, 1]", {"1.000", Tone::kGood}});
  table.row({"é"});
  return table;
}

TEST(Table, AlignsByCharacters) {
  EXPECT_EQ(sample().text({}),
            "model             accuracy\n"
            "----------------  --------\n"
            "DeltaNet [−1, 1]     1.000\n"
            "é\n");
}

TEST(Table, UnicodeAndColourOnlyOnRequest) {
  const std::string plain = sample().text({}), rich = sample().text({true, true});
  EXPECT_EQ(plain.find('\033'), std::string::npos);
  EXPECT_NE(rich.find("\033[32m1.000\033[0m"), std::string::npos);
  EXPECT_NE(rich.find("────"), std::string::npos);
}

TEST(Table, ControlCharactersOfNamesAreEscaped) {
  Table table;
  table.column("a\nb");
  table.row({"\033[31mred\r"});
  table.row({std::string(500, 'x')});
  const std::string text = table.text({});
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_EQ(text.rfind("a\\x0ab\n", 0), 0u) << text;
  EXPECT_NE(text.find("\\x1b[31mred\\x0d\n"), std::string::npos) << text;
  EXPECT_NE(text.find(std::string(500, 'x') + "\n"), std::string::npos);
}

TEST(Table, NamesLoseTheirMiddleWhereTheTerminalEnds) {
  Table table;
  table.column("run", Table::kName);
  table.column("model", Table::kName);
  table.column("score", Table::kRight);
  table.row(
      {"runs/reproduce/chomsky-quick/parity,lr=1e-3,seed=2", "DeltaNet [−1, 1]", {"1.000", Tone::kGood}});
  table.row({"runs/日本語日本語日本語日本語日本語日本語日本語", "é", "0.5"});
  EXPECT_EQ(table.text({false, true}, 44),
            "run                  model             score\n"
            "───────────────────  ────────────────  ─────\n"
            "runs/r…=1e-3,seed=2  DeltaNet [−1, 1]  1.000\n"
            "runs/…日本語日本語   é                   0.5\n");
  const std::string whole = table.text({});
  EXPECT_NE(whole.find("chomsky-quick/parity"), std::string::npos);
  EXPECT_EQ(table.text({}, 200), whole);
  EXPECT_EQ(table.text({}, 1), table.text({}, 20)) << "numbers stay whole";
  EXPECT_EQ(without_middle("abcdefghi", 7, ".."), "a..fghi");
  EXPECT_EQ(without_middle("abc", 0, "…"), "…");
  EXPECT_EQ(without_middle("日本語", 5, "…"), "…本語");
  EXPECT_EQ(without_middle("", 0, "…"), "");
}

TEST(Table, EdgeCases) {
  EXPECT_EQ(Table().text({}), "\n\n");
  Table table;
  table.column("a");
  EXPECT_THROW(table.row({"1", "2"}), Error);
  EXPECT_EQ(display_width("−1…é"), 4u);
  EXPECT_EQ(display_width("日本 a"), 6u);
}

TEST(CsvField, IsForPrograms) {
  EXPECT_EQ(csv_field("Mamba"), "Mamba");
  EXPECT_EQ(csv_field("DeltaNet [−1, 1], \"a\""), "\"DeltaNet [-1, 1], \"\"a\"\"\"");
}

// The font of a plain LaTeX document shows other signs for | < >, a bracket behind \\\\ is an option of that,
// and a hyphen is no minus.
TEST(LatexText, ShowsWhatItIsGiven) {
  EXPECT_EQ(latex_text("(a|b)* <c> 5% a_b"), "(a\\textbar{}b)* \\textless{}c\\textgreater{} 5\\% a\\_b");
  EXPECT_EQ(latex_text("[-1,1]"), "{[}$-$1,1]");
  EXPECT_EQ(latex_text("*x"), "{*}x");
  EXPECT_EQ(latex_text("DeltaNet [−1, 1], 1e-2, x-2, 0.1 ± 0.2"),
            "DeltaNet [$-$1, 1], 1e-2, x-2, 0.1 $\\pm$ 0.2");
}

}  // namespace
}  // namespace signet::report
