#include "signet/automata/dfa_io.h"

#include "signet/automata/minimize.h"
#include "signet/automata/regex.h"
#include "signet/base/error.h"
#include "support/check.h"

namespace signet::automata {
namespace {

TEST(DfaJson, ReadsAndWritesLanguagesAndMealyMachines) {
  const Dfa parity = dfa_from_json(R"({"alphabet":["a","b"],"start":0,"accept":[1],"delta":[[1,0],[0,1]]})");
  EXPECT_EQ(parity.states(), 2);
  EXPECT_TRUE(parity.accept[parity.run(parity.start, {0, 1, 1})]);
  EXPECT_TRUE(equivalent(parity, dfa_from_json(dfa_to_json(parity))));
  const Dfa mealy = dfa_from_json(R"({"alphabet":["up"],"start":1,"delta":[[1],[0]],"output":[[7],[0]]})");
  EXPECT_TRUE(mealy.mealy());
  EXPECT_EQ(dfa_to_json(dfa_from_json(dfa_to_json(mealy))), dfa_to_json(mealy));
}

TEST(DfaJson, DropsUnreachableStatesWithANote) {
  std::vector<std::string> notes;
  const Dfa dfa =
      dfa_from_json(R"({"alphabet":["a"],"start":2,"accept":[2],"delta":[[0],[2],[2]]})", {}, &notes);
  EXPECT_EQ(dfa.states(), 1);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("2 of 3"), std::string::npos);
}

std::string json_error(const std::string& text, const Limits& limits = {}) {
  try {
    dfa_from_json(text, limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadInput);
    return error.what();
  }
  return "";
}

TEST(DfaJson, RefusesHostileInput) {
  for (const char* bad : {"",
                          "[]",
                          "{",
                          "null",
                          "{}",
                          R"({"alphabet":["a"],"start":0,"accept":[0]})",
                          R"({"alphabet":[],"start":0,"accept":[0],"delta":[[]]})",
                          R"({"alphabet":["a","a"],"start":0,"accept":[0],"delta":[[0,0]]})",
                          R"({"alphabet":["a"],"start":1,"accept":[0],"delta":[[0]]})",
                          R"({"alphabet":["a"],"start":-1,"accept":[0],"delta":[[0]]})",
                          R"({"alphabet":["a"],"start":0,"accept":[1],"delta":[[0]]})",
                          R"({"alphabet":["a"],"start":0,"accept":[0],"delta":[[1]]})",
                          R"({"alphabet":["a"],"start":0,"accept":[0],"delta":[[0.5]]})",
                          R"({"alphabet":["a"],"start":0,"accept":[0],"delta":[["0"]]})",
                          R"({"alphabet":["a"],"start":0,"accept":[0],"delta":[[18446744073709551615]]})",
                          R"({"alphabet":["a"],"start":0,"accept":[0],"delta":[[0]],"output":[[0]]})",
                          R"({"alphabet":["a"],"start":0,"start":0,"accept":[0],"delta":[[0]]})",
                          R"({"alphabet":[1],"start":0,"accept":[0],"delta":[[0]]})",
                          R"({"alphabet":["a"],"start":0,"accept":[],"delta":[]})",
                          R"({"alphabet":["a"],"start":0,"accept":[0],"delta":[[0]]} trailing)"})
    EXPECT_NE(json_error(bad), "") << bad;
  EXPECT_NE(
      json_error(R"({"alphabet":["a"],"start":0,"acept":[0],"delta":[[0]]})").find("did you mean 'accept'"),
      std::string::npos);
  for (const char* partial : {R"({"alphabet":["a","b"],"start":0,"accept":[0],"delta":[[0]]})",
                              R"({"alphabet":["a"],"start":0,"accept":[0],"delta":[[null]]})",
                              R"({"alphabet":["a"],"start":0,"accept":[0],"delta":[[-1]]})"})
    EXPECT_NE(json_error(partial).find("add a state that no word leaves"), std::string::npos);
  for (const char* output : {"-1", "null"})
    EXPECT_NE(
        json_error(fmt::format(R"({{"alphabet":["a"],"start":0,"output":[[{}]],"delta":[[0]]}})", output))
            .find("0..1000000"),
        std::string::npos);
  EXPECT_NE(json_error(std::string(5'000'000, '[')).find("deep"), std::string::npos);
  EXPECT_NE(json_error(R"({"alphabet":["\\\"[[[[[["],"start":0,"accept":[0],"delta":[[[[[[[0]]]]]]]})")
                .find("deep"),
            std::string::npos);
  std::string many = R"({"alphabet":["a"],"start":0,"accept":[0],"delta":[[0])";
  for (int i = 0; i < 20'000; ++i) many += ",[0]";
  EXPECT_EQ(json_error(many + "]}"), "automaton: more than 10000 states");
  EXPECT_NE(json_error(many + "]}", {.from_options = true}).find("--max-states"), std::string::npos);
  EXPECT_EQ(json_error(many + "]}", {.states = 30'000}), "");
}

TEST(DfaJson, MutatedFilesAreReadOrRefused) {
  const std::string good = R"({"alphabet":["a","b"],"start":0,"accept":[1],"delta":[[1,0],[0,1]]})";
  const std::string pieces = "{}[]\",:0123456789-.eab\\ ";
  Rng rng(14);
  int read = 0;
  for (int trial = 0; trial < 5'000; ++trial) {
    std::string text = good;
    for (uint32_t i = 1 + rng.below(3); i > 0; --i)
      text[rng.below(static_cast<uint32_t>(text.size()))] =
          pieces[rng.below(static_cast<uint32_t>(pieces.size()))];
    read += json_error(text).empty();
  }
  EXPECT_GT(read, 50);
  for (int trial = 0; trial < 5'000; ++trial) {
    std::string text = "0\t1\ta\ta\n1\t0\tb\tb\n0\n";
    for (uint32_t i = 1 + rng.below(3); i > 0; --i)
      text[rng.below(static_cast<uint32_t>(text.size()))] = "01ab\t\n @-"[rng.below(9)];
    try {
      dfa_from_att(text);
      ++read;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadInput) << text;
    }
  }
}

TEST(Att, IsReadAndCompleted) {
  std::vector<std::string> notes;
  // What foma 0.10 writes for `regex [a b]*;` with `write att`.
  const Dfa foma = dfa_from_att("0\t1\ta\ta\n1\t0\tb\tb\n0\n", {}, {}, &notes);
  EXPECT_TRUE(equivalent(foma, regex_to_dfa("(ab)*", {"a", "b"})));
  EXPECT_EQ(notes.size(), 1u);
  // OpenFst acceptors have three fields and may carry weights; the start need not be 0.
  EXPECT_TRUE(equivalent(dfa_from_att("7 3 a a 0.5\n3 7 b\n7 1.0\n"), regex_to_dfa("(ab)*", {"a", "b"})));
  EXPECT_EQ(dfa_from_att("0 0 a\n0\n", {"b", "a"}).states(), 2);
}

// The first line's state is the start, whatever its number.
TEST(Att, WritesWhatItReads) {
  const Dfa dfa =
      dfa_from_json(R"({"alphabet":["a","b"],"start":2,"accept":[1],"delta":[[1,0],[2,0],[0,1]]})");
  EXPECT_TRUE(equivalent(dfa_from_att(dfa_to_att(dfa)), dfa)) << dfa_to_att(dfa);
}

TEST(Att, RefusesWhatIsNotADfa) {
  for (const char* bad : {"", "\n\n", "0 1 a\n0 2 a\n", "0 1 a b\n", "0 1 @0@ @0@\n", "x 1 a\n",
                          "0 1 a a 1 2\n", "0 1 <eps>\n", "-1 0 a\n", "99999999999999999999 0 a\n", "0\n"})
    EXPECT_THROW(dfa_from_att(bad), Error) << bad;
  EXPECT_THROW(dfa_from_att("0 1 c\n", {"a"}), Error);
  std::string many;
  for (int i = 0; i < 20'000; ++i) many += std::to_string(i) + " " + std::to_string(i + 1) + " a\n";
  EXPECT_THROW(dfa_from_att(many), Error);
}

TEST(WordText, SeparatesLongLetters) {
  EXPECT_EQ(word_text(regex_to_dfa("a*", {"a", "b"}), {0, 1, 0}), "aba");
  EXPECT_EQ(
      word_text(dfa_from_json(R"({"alphabet":["up","x"],"start":0,"accept":[],"delta":[[0,0]]})"), {0, 1}),
      "up.x");
  EXPECT_EQ(word_text(dfa_from_json(R"({"alphabet":["up","a.b"],"start":0,"accept":[],"delta":[[0,0]]})"),
                      {0, 1, 0}),
            "up a.b up");
}

}  // namespace
}  // namespace signet::automata
