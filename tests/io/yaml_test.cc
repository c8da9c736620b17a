#include "signet/io/yaml.h"

#include <ctime>

#include "signet/base/files.h"
#include "support/temporary_directory.h"

namespace signet::io {
namespace {

using test::expect_bad_input;
using Kind = ConfigNode::Kind;

ConfigNode parse(const std::string& text) { return parse_yaml(text, "c.yaml"); }
void refuses(const std::string& text, const std::string& part) {
  SCOPED_TRACE(text.substr(0, 100));
  expect_bad_input([&] { parse(text); }, part);
}

TEST(Yaml, ReadsMapsListsAndScalars) {
  const ConfigNode root = parse(
      "# comment\na: 1\nb:\n  c: [x, 'y z', \"q\"]\n  d: {e: 2.5}\nf: |\n  text\n  more\ng:\n- 1\n- h: ~\n");
  ASSERT_EQ(root.kind, Kind::kMap);
  EXPECT_EQ(root.keys, (std::vector<std::string>{"a", "b", "f", "g"}));
  EXPECT_EQ(root.find("a")->text, "1");
  EXPECT_EQ(root.find("a")->line, 2);
  EXPECT_EQ(root.find("a")->column, 4);
  const ConfigNode* list = root.find("b")->find("c");
  ASSERT_EQ(list->items.size(), 3u);
  EXPECT_FALSE(list->items[0].quoted);
  EXPECT_TRUE(list->items[1].quoted);
  EXPECT_EQ(list->items[1].text, "y z");
  EXPECT_EQ(root.find("b")->find("d")->find("e")->text, "2.5");
  EXPECT_EQ(root.find("f")->text, "text\nmore\n");
  EXPECT_EQ(root.find("g")->items[1].find("h")->kind, Kind::kNull);
  EXPECT_EQ(root.find("nothing"), nullptr);
}

TEST(Yaml, EmptyTextIsAnEmptyMap) {
  for (const char* text : {"", "\n", "# only a comment\n", "---\n", "---\n...\n", "\xEF\xBB\xBF"}) {
    SCOPED_TRACE(text);
    EXPECT_EQ(parse(text).kind, Kind::kMap);
    EXPECT_TRUE(parse(text).items.empty());
  }
}

TEST(Yaml, ByteOrderMarkAndCrlf) {
  const ConfigNode root = parse(
      "\xEF\xBB\xBF"
      "a: 1\r\nb:\r\n  c: 2\r\n");
  EXPECT_EQ(root.find("a")->text, "1");
  EXPECT_EQ(root.find("b")->find("c")->text, "2");
  refuses(std::string("\xFF\xFE"
                      "a\0:\0",
                      6),
          "UTF-16");
}

TEST(Yaml, RefusesWithThePlace) {
  refuses("a: 1\nb: 2\na: 3\n", "c.yaml:3:1: key 'a' appears twice");
  refuses("a: {b: 1, b: 2}", "key 'b' appears twice");
  refuses("a:\n\tb: 1\n", "c.yaml:2:1: a tab as indentation");
  refuses("a: 1\nb: \xFF\n", "c.yaml:2:4: not UTF-8");
  refuses("a: \x01", "control character \\x01");
  refuses(std::string("a: 1\0", 5), "control character \\x00");
  refuses("a: 1\rb: 2\n", "control character \\x0d");
  refuses("a: [1, 2\n", "c.yaml:");
  refuses("a: b: c\n", "c.yaml:1:");
  for (const char* text :
       {"a: 'x", "a: 'x\n", "a: \"x\n", "a: 'x''\n", "a: \"x\\\"\n", "a: 'x\nb: 1\n", "'x\n"})
    refuses(text, "c.yaml:1:");
  refuses("a: 1\n---\nb: 2\n", "more than one YAML document");
  refuses("? [a, b]\n: 1\n", "a key must be plain text");
  refuses("{a: 1}: 2\n", "a key must be plain text");
  refuses(": 1\n", "a key must be plain text");
  refuses("a: !!int 3\n", "tags are not supported");
  refuses("a: !python/object:os.system x\n", "tags are not supported");
  refuses("%YAML 3.0\n---\na: 1\n", "c.yaml:");
}

TEST(Yaml, AliasesAndSelfReferenceAreRefused) {
  refuses("a: &x 1\nb: *x\n", "anchors (&name) are not supported");
  refuses("a: &a [*a]\n", "anchors");
  refuses("&a a: 1\n", "anchors");
  refuses("a: *undefined\n", "c.yaml:1:");
  refuses("<<: *base\n", "c.yaml:1:");
  std::string bomb = "a0: &a0 [x, x]\n";  // each level doubles the one before
  for (int i = 1; i < 64; ++i) {
    const auto before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before + ", " + before + "]\n";
  }
  refuses(bomb, "anchors");
}

TEST(Yaml, DepthIsBounded) {
  const auto repeat = [](const std::string& text, int n) {
    std::string result;
    for (int i = 0; i < n; ++i) result += text;
    return result;
  };
  parse(repeat("[", 64) + repeat("]", 64));
  refuses(repeat("[", 65) + repeat("]", 65), "nested deeper than the 64 levels");
  refuses(repeat("[", 100'000), "c.yaml:1:");
  for (const char* opener : {"{a: ", "- ", "? ", "[{a: ", "- [", "[? ", "{? ", "- - ? "})
    refuses(repeat(opener, 10'000), "c.yaml:1:");
  std::string indented;  // block maps, each a column further in
  for (int i = 0; i < 1000; ++i) indented += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  refuses(indented, "nested deeper");
  refuses("a: " + repeat("[", 400) + repeat("]", 400), "nested deeper");
}

TEST(Yaml, LengthIsBounded) {
  refuses(std::string((1 << 20) + 1, '#'), "at most 1048576");
  test::TemporaryDirectory directory;
  write_file_atomic(directory / "giant.yaml", "a: 1\n");
  std::filesystem::resize_file(directory / "giant.yaml", int64_t{2} << 30);
  expect_bad_input([&] { read_yaml_file(directory / "giant.yaml"); }, "2147483648 bytes long");
  expect_bad_input([&] { read_yaml_file(directory / "none.yaml"); }, "No such file");
}

// A long text of anything that used to be quadratic or worse in some parser must end in milliseconds.
TEST(Yaml, LongInputTakesLinearTime) {
  const size_t size = 1 << 17;
  for (const std::string& piece :
       {std::string("a"), std::string("'"), std::string("\""), std::string("a: b\n"), std::string("- "),
        std::string("a\n"), std::string("#"), std::string(" "), std::string("\n"), std::string("? "),
        std::string(": "), std::string("|\n"), std::string("- a\n"), std::string("\xC3\xA9"),
        std::string("[],")}) {
    std::string text;
    while (text.size() + piece.size() <= size) text += piece;
    const std::clock_t start = std::clock();  // processor time: other programs do not count
    test::error_of([&] { parse(text); });
    EXPECT_LT(std::clock() - start, 3 * CLOCKS_PER_SEC) << piece;  // quadratic would be minutes
  }
}

TEST(Yaml, ScalarsReadBackAsTheSameString) {
  for (const std::string& text : {std::string("plain"),     std::string("two words"),
                                  std::string(""),          std::string(" "),
                                  std::string("1"),         std::string("-1,1"),
                                  std::string("true"),      std::string("No"),
                                  std::string("NULL"),      std::string("~"),
                                  std::string("a: b"),      std::string("a #b"),
                                  std::string("'"),         std::string("\""),
                                  std::string("\\"),        std::string("line\nbreak"),
                                  std::string("\t"),        std::string("\x7f"),
                                  std::string("é€😀"),       std::string("*a"),
                                  std::string("&a"),        std::string("!a"),
                                  std::string("%a"),        std::string("@a"),
                                  std::string("- a"),       std::string("[a"),
                                  std::string("{a"),        std::string("a]"),
                                  std::string("a,b"),       std::string("a:"),
                                  std::string("(a|b)*abb"), std::string("path/to.file-1"),
                                  std::string("x ")}) {
    const ConfigNode back = parse("k: " + yaml_scalar(text) + "\nl: [" + yaml_scalar(text) + ", z]\n");
    EXPECT_EQ(back.find("k")->text, text) << yaml_scalar(text);
    ASSERT_EQ(back.find("l")->items.size(), 2u) << yaml_scalar(text);
    EXPECT_EQ(back.find("l")->items[0].text, text) << yaml_scalar(text);
  }
}

}  // namespace
}  // namespace signet::io
