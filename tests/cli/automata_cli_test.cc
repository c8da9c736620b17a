// signet analyze and signet decompose as a user or a program meets them.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "signet/base/files.h"
#include "signet/base/text.h"
#include "support/command.h"

namespace signet::cli {
namespace {

using test::run_signet;
using Json = nlohmann::ordered_json;

Json json_of(const std::string& arguments) {
  const auto result = run_signet(arguments + " --json");
  EXPECT_EQ(result.exit_code, 0) << arguments << "\n" << result.err;
  return Json::parse(result.out);
}

TEST(Analyze, JsonKeysAreStable) {
  const Json result = json_of("analyze '(aa|bb)*' --alphabet ab");
  std::vector<std::string> keys;
  for (const auto& [key, value] : result.items()) keys.push_back(key);
  keys.resize(18);
  EXPECT_EQ(keys, (std::vector<std::string>{"alphabet", "states", "accepting", "start", "delta", "output",
                                            "monoid_size", "j_classes", "idempotents", "definite", "group",
                                            "commutative", "aperiodic", "two_groups", "solvable", "groups",
                                            "one_layer_exact", "verdicts"}));
  EXPECT_EQ(result["states"], 4);
  EXPECT_EQ(result["monoid_size"], 15);
  EXPECT_EQ(result["groups"], Json::parse(R"([{"name":"Z2","order":2}])"));
  std::vector<std::string> classes;
  for (const auto& [name, verdict] : result["verdicts"].items()) {
    classes.push_back(name);
    for (const char* key : {"possible", "layers", "dimension", "householders", "reason", "witness"})
      EXPECT_TRUE(verdict.contains(key)) << name << " " << key;
  }
  EXPECT_EQ(classes,
            (std::vector<std::string>{"diagonal[0,1]", "diagonal[-1,1]", "complex-diagonal",
                                      "householder[0,1]", "householder[-1,1]", "householder-product[-1,1]",
                                      "one-hot", "mamba-real", "slstm"}));
  EXPECT_EQ(result["verdicts"]["diagonal[0,1]"]["possible"], false);
  EXPECT_EQ(result["verdicts"]["diagonal[0,1]"]["witness"]["words"][0], "a");
}

TEST(Analyze, EveryKindOfInput) {
  test::TemporaryDirectory directory;
  test::write_text(directory / "parity.json",
                   R"({"alphabet":["a","b"],"start":0,"accept":[1],"delta":[[1,0],[0,1]]})");
  test::write_text(directory / "delay.json",
                   R"({"alphabet":["a","b"],"start":0,"delta":[[0,1],[0,1]],"output":[[0,0],[1,1]]})");
  test::write_text(directory / "ab.att", "0\t1\ta\ta\n1\t0\tb\tb\n0\n");
  EXPECT_EQ(json_of("analyze --dfa '" + (directory / "parity.json") + "'")["groups"][0]["name"], "Z2");
  EXPECT_EQ(json_of("analyze --dfa '" + (directory / "delay.json") + "'")["definite"], true);
  EXPECT_EQ(json_of("analyze --att '" + (directory / "ab.att") + "'")["states"], 3);
  EXPECT_EQ(json_of("analyze --group S5 --generators all")["states"], 120);
  EXPECT_EQ(json_of("analyze --group S5 --generators swaps --action natural")["states"], 5);
  EXPECT_EQ(json_of("analyze --language dyck:3")["monoid_size"], 31);
  EXPECT_EQ(json_of("analyze 'a*'")["alphabet"], Json::parse(R"(["a"])"));
}

TEST(Analyze, ANameInPlaceOfAnExpressionIsPointedOut) {
  const auto note = [](const std::string& expression) {
    const Json notes = json_of("analyze '" + expression + "'")["notes"];
    return notes.empty() ? "" : notes[0].get<std::string>();
  };
  EXPECT_NE(note("parity").find("--language parity"), std::string::npos);
  EXPECT_NE(note("S5").find("--group S5"), std::string::npos);
  EXPECT_EQ(note("(ab)*"), "");
  EXPECT_EQ(note("..' --alphabet 'ab"), "");
  // So are paths, also when they are no expressions.
  const test::TemporaryDirectory directory;
  for (const char* name : {"dfa.json", "a-b.json"}) test::write_text(directory / name, "{}");
  make_directories(directory / "par");
  const auto said = [&](const std::string& arguments) {
    const auto result = run_signet(arguments, directory.path());
    return result.out + result.err;
  };
  EXPECT_NE(said("analyze dfa.json")
                .find("note: read as a regular expression; the file of that name is --dfa dfa.json"),
            std::string::npos);
  EXPECT_NE(said("compile par").find("there is a directory of that name"), std::string::npos);
  EXPECT_NE(said("analyze a-b.json").find("is not in the alphabet"), std::string::npos);
  EXPECT_NE(said("analyze a-b.json").find("the file of that name is --dfa a-b.json"), std::string::npos);
}

TEST(Analyze, BadInputIsBoundedAndExplained) {
  test::TemporaryDirectory directory;
  test::write_text(directory / "partial.json",
                   R"({"alphabet":["a","b"],"start":0,"accept":[0],"delta":[[0]]})");
  test::write_text(directory / "deep.json", std::string(1'000'000, '['));
  const struct {
    std::string arguments;
    int exit_code;
    const char* message;
  } kCases[] = {
      {"analyze", 2, "no automaton is named"},
      {"compile -o " + (directory / "partial.json"), 2, "no automaton is named"},  // not that the file exists
      {"analyze a --language parity", 2, "more than one"},
      {"analyze ''", 3, "the expression is empty"},
      {"analyze a --generators all", 2, "--group"},
      {"analyze '(a' --alphabet ab", 3, "position"},
      {"analyze 'abc' --alphabet ab", 3, "not in the alphabet"},
      {"analyze '()' ", 3, "--alphabet"},
      {"analyze 'a{1000000}' --alphabet ab", 3, "--max-states"},
      {"analyze '(a|b)*a(a|b){40}' --alphabet ab", 3, "--max-states"},
      {"analyze --group Z1000000000", 3, "2000"},
      {"analyze --group S13", 3, "--max-states"},
      {"analyze --task language:mod:50 --max-states 10", 3, "--max-states"},
      {"analyze --group X9", 3, "unknown group"},
      {"analyze --language parit", 3, "did you mean 'parity'"},
      {"analyze --dfa /nonexistent.json", 3, "nonexistent"},
      {"analyze --dfa '" + (directory / "partial.json") + "'", 3, "add a state"},
      {"analyze --dfa '" + (directory / "partial.json") + "'", 3, "partial.json: "},
      {"analyze --dfa '" + (directory / "deep.json") + "'", 3, "nested deeper"},
      {"analyze --language mod:100 --svg x.svg", 3, "legible"},
      {"decompose --language T:30", 3, "--max-sets"},
      {"decompose --language kth-last:7 --max-comparisons 1000", 3, "raise the limit with --max-comparisons"},
      {"decompose --language mod:100 --max-codes 100000001", 2, "--max-codes lies in 1..100000000"},
      {"decompose --language parity --max-table 0", 2, "--max-table lies in 1.."},
      {"analyze --language parity --max-comparisons 0", 2, "--max-comparisons lies in 1.."},
      {"decompose --language parity --max-codes 0", 2, "--max-codes"},
  };
  for (const auto& [arguments, exit_code, message] : kCases) {
    SCOPED_TRACE(arguments);
    const auto start = std::chrono::steady_clock::now();
    const auto result = run_signet(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  }
}

TEST(Analyze, WritesAPicture) {
  test::TemporaryDirectory directory;
  const auto path = directory / "x.svg";
  EXPECT_EQ(run_signet("analyze '(a<|&>b)*' --alphabet 'ab<>&' --svg '" + path + "'").exit_code,
            3);  // & is an operator
  EXPECT_EQ(run_signet("analyze '(a<|\\&>b)*' --alphabet 'ab<>&' --svg '" + path + "'").exit_code, 0);
  const std::string svg = test::read_text(path);
  EXPECT_EQ(svg.rfind("<svg", 0), 0u);
  EXPECT_NE(svg.find("&lt;"), std::string::npos);
  EXPECT_NE(svg.find("Holonomy"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  // A long title is cut between characters.
  std::string euros;
  for (int i = 0; i < 50; ++i) euros += "€";
  EXPECT_EQ(run_signet("analyze '" + euros + "' --svg '" + path + "'").exit_code, 0);
  EXPECT_EQ(find_invalid_utf8(test::read_text(path)), std::string::npos);
}

TEST(Decompose, ShowsBothCascades) {
  const Json result = json_of("decompose --language tomita3");
  EXPECT_EQ(result["holonomy"]["levels"].size(), 4u);
  EXPECT_EQ(result["holonomy"]["levels"][1][0]["group"]["name"], "Z2");
  EXPECT_EQ(result["elimination"]["levels"], 4);
  EXPECT_EQ(result["elimination"]["contexts"], Json::parse("[2,4,8,8]"));
  EXPECT_EQ(result["elimination"]["codes"], 14);
  const auto text = run_signet("decompose --language T:4");
  EXPECT_NE(text.out.find("1: (4,S4)"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("3: (2,Z2)"), std::string::npos);
}

// Many states are no reason to refuse: what the tables of all levels take together is bounded.
TEST(Decompose, LargeAutomataAreShownAsFarAsTablesGo) {
  const Json whole = json_of("decompose --language mod:600");
  EXPECT_EQ(whole["elimination"]["complete"], true);
  EXPECT_EQ(whole["elimination"]["codes"], 600);
  const Json part = json_of("decompose --language mod:600 --max-table 1000000");
  EXPECT_EQ(part["elimination"]["complete"], false);
  EXPECT_GT(part["elimination"]["codes"], 1);
  EXPECT_LT(part["elimination"]["codes"], 600);
  const auto met = [](const char* limit) {
    return run_signet(std::string("decompose --language T:5 ") + limit).out;
  };
  EXPECT_NE(met("--max-codes 10").find("at least 10 codes (--max-codes);"), std::string::npos);
  EXPECT_NE(met("--max-table 100").find("codes (--max-table);"), std::string::npos);
}

TEST(Analyze, ALimitOnComparisonsIsNamed) {
  const auto result = run_signet("analyze --language kth-last:7 --max-comparisons 1000");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.out.find("beyond the limit (--max-comparisons)"), std::string::npos) << result.out;
}

// The witness is a word of 86 letters of three bytes, which its text cuts.
TEST(Analyze, LongWitnessesAreUtf8) {
  const Json result = json_of("analyze '(€{42}√€{42}√)*'");
  EXPECT_NE(result["verdicts"]["diagonal[0,1]"]["witness"]["text"].get<std::string>().find("... ("),
            std::string::npos);
}

// A group on 720 states: its text has the first of them, and the list all.
TEST(Analyze, WitnessesOnManyStatesAreShort) {
  const Json witness = json_of("analyze --group S6")["verdicts"]["complex-diagonal"]["witness"];
  EXPECT_LT(witness["text"].get<std::string>().size(), 1000u);
  EXPECT_EQ(witness["states"].size(), 720u);
  EXPECT_LT(run_signet("compile --group S6 --target complex-diagonal").err.size(), 2000u);
}

TEST(Analyze, AnEmptyAlphabetIsNotTheDefault) {
  EXPECT_EQ(run_signet("analyze a --alphabet ''").exit_code, 3);
}

// Groups come from the image sets: past their limit they are not known, though the monoid tells of some.
TEST(Analyze, GroupsPastTheLimitAreNotNone) {
  const auto result = run_signet("analyze --language T:3 --max-sets 2");
  EXPECT_EQ(result.out.find("none but the trivial one"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("groups               beyond the limit (--max-sets)"), std::string::npos)
      << result.out;
  const Json beyond = json_of("analyze --language T:3 --max-sets 2");
  EXPECT_TRUE(beyond["groups"].is_null());
  EXPECT_EQ(beyond["aperiodic"], false);
  // Where the monoid has none, none are left to know.
  EXPECT_EQ(json_of("analyze --language tomita4 --max-sets 2")["groups"], Json::array());
}

TEST(Analyze, SaysWhatWasUsed) {
  const auto result = run_signet("analyze --language tomita3 --max-monoid 1 --max-sets 1");
  EXPECT_EQ(result.out.find("were used instead"), std::string::npos) << result.out;
}

}  // namespace
}  // namespace signet::cli
