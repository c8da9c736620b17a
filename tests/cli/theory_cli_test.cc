// The verbs as a user runs them: output, exit codes, files.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "signet/base/text.h"
#include "signet/theory/network_file.h"
#include "support/command.h"
#include "support/process.h"

namespace signet {
namespace {

struct Outcome {
  int code;
  std::string out;
};

Outcome run(const std::string& arguments) {
  const auto result = test::run_signet(arguments);
  return {result.exit_code, result.out + result.err};
}
nlohmann::json json_of(const std::string& arguments, int code = 0) {
  const auto result = test::run_signet(arguments + " --json");  // what takes long says so on standard error
  EXPECT_EQ(result.exit_code, code) << result.err;
  return nlohmann::json::parse(result.out, nullptr, false);
}
std::string temporary(const char* name) {
  static const signet::test::TemporaryDirectory folder;
  return folder / name;
}

// What `run --json` says, a line a word.
std::vector<nlohmann::json> answers_to(const std::string& arguments) {
  const auto result = test::run_signet(arguments + " --json");
  EXPECT_EQ(result.exit_code, 0) << arguments << "\n" << result.err;
  std::vector<nlohmann::json> answers;
  for (const auto& line : split(result.out, '\n'))
    if (!line.empty()) answers.push_back(nlohmann::json::parse(line));
  return answers;
}

TEST(TheoryVerbs, CompileVerifyRun) {
  const std::string model = temporary("parity.safetensors");
  std::filesystem::remove(model);
  const auto compiled = json_of("compile --language parity -o " + model);
  for (const char* key : {"layers", "dimension", "householders", "exact", "dtype", "horizon", "parameters"})
    EXPECT_TRUE(compiled.contains(key)) << key;
  EXPECT_EQ(compiled["layers"], 1);
  EXPECT_EQ(compiled["exact"], true);
  EXPECT_EQ(compiled["rounding"], "none");
  EXPECT_EQ(json_of("compile --group Z7 --construction rotation")["rounding"], "grows");
  EXPECT_EQ(json_of("compile --language tomita4 --target 'diagonal[0,1]'")["rounding"], "bounded");
  // A limit is no theorem, and kth-last:12 is within all of them.
  EXPECT_EQ(json_of("compile --language kth-last:12 --construction shift-register")["dimension"], 12);
  EXPECT_EQ(run("compile --language kth-last:10 --construction binary-code").code, 3);
  EXPECT_EQ(run("compile --language parity -o " + model).code, 3);  // exists
  EXPECT_EQ(run("compile --language parity --force -o " + model).code, 0);

  // The cascade by elimination is too large; the one by reflections is built in its place.
  EXPECT_EQ(json_of("compile --task modular-arithmetic --force -o " + model)["layers"], 13);
  EXPECT_EQ(run("compile --language parity --force -o " + model).code, 0);

  const auto verified = json_of("verify " + model + " --dtype bf16");
  EXPECT_EQ(verified["correct"], true);
  EXPECT_EQ(verified["proved"], true);
  EXPECT_EQ(verified["method"], "orbit-closure");
  EXPECT_TRUE(verified["longest"].is_null());
  EXPECT_TRUE(verified["counterexample"].is_null());
  const std::string proof = temporary("proof.json");
  EXPECT_EQ(json_of("verify " + model + " --certificate " + proof)["file"], proof);
  EXPECT_EQ(run("verify " + model + " --certificate " + proof).code, 0);  // a certificate may be replaced
  EXPECT_EQ(run("verify " + model + " --certificate " + model).code, 3);  // a model may not
  const std::string none = temporary("none.json");
  EXPECT_EQ(run("verify " + model + " --method random --length 10 --certificate " + none).code, 4);
  EXPECT_FALSE(std::filesystem::exists(none));
  // A model has been compiled: what would say how is refused.
  EXPECT_EQ(run("verify " + model + " --target one-hot").code, 2);
  EXPECT_EQ(run("verify " + model + " --max-states 5").code, 2);
  EXPECT_EQ(run("verify " + testing::TempDir() + " --max-messages 5").code, 2);  // nor has a run
  const auto open = run("verify --language mod:5 --method closure --orbit 1");
  EXPECT_EQ(open.code, 4);
  EXPECT_NE(open.out.find("raise --orbit"), std::string::npos) << open.out;

  const auto results = answers_to("run " + model + " 1 11 10110 ''");
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[0]["word"], "1");
  EXPECT_NE(results[0]["accepted"], results[1]["accepted"]);
  EXPECT_EQ(results[2]["accepted"], results[0]["accepted"]);
  EXPECT_EQ(results[3]["accepted"], results[1]["accepted"]);
  EXPECT_EQ(run("run " + model + " 12").code, 3);

  const std::string words = temporary("words.txt");
  std::ofstream(words) << "1\n11\n" << std::string(300'001, '1');
  const auto lines = answers_to("run " + model + " --file " + words);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[2]["accepted"], lines[0]["accepted"]);
  EXPECT_EQ(lines[2]["length"], 300'001);
}

// Long words are shown by their first 400 bytes, here to the middle of a letter; the output is JSON still.
TEST(TheoryVerbs, CutWordsAreJson) {
  const std::string model = temporary("accent.safetensors");
  ASSERT_EQ(run("compile 'a*é*' --alphabet aé --force -o " + model).code, 0);
  const auto results = answers_to("run " + model + " " + std::string(399, 'a') + "éé");
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0]["accepted"], true);
  EXPECT_EQ(results[0]["length"], 401);
}

// Trained models through the same verb: by word, and in pieces from a file; what is predicted does not depend
// on which.
TEST(TheoryVerbs, RunsTrainedModels) {
  const std::string directory = temporary("trained"), words = temporary("trained_words.txt");
  const auto train = [&](const std::string& task, int steps = 3) {
    std::filesystem::remove_all(directory);
    const Outcome trained =
        run("train " + task + " --quiet --set model.width=16 --set train.batch=8 --set eval.samples=8 " +
            "--steps " + std::to_string(steps) + " --out " + directory);
    ASSERT_EQ(trained.code, 0) << trained.out;
  };
  train("parity");
  std::string word;
  for (int i = 0; i < 1500; ++i) word += i % 7 % 3 ? '1' : '0';
  std::ofstream(words) << "1011\n" << word << "\n\n";
  const auto given = answers_to("run " + directory + " 1011 " + word + " ''"),
             read = answers_to("run " + directory + " --file " + words);
  ASSERT_EQ(given.size(), 3u);
  EXPECT_EQ(given, read);
  EXPECT_TRUE(given[0]["accepted"].is_boolean());
  EXPECT_EQ(given[1]["length"], 1500);
  const auto traced = answers_to("run " + directory + " 1011 --trace")[0];
  EXPECT_EQ(traced["states"].size(), 4u);
  std::string likeliest;  // after the last letter
  for (const auto& [name, p] : traced["probabilities"].items())
    if (likeliest.empty() || p > traced["probabilities"][likeliest]) likeliest = name;
  const std::string shown = run("run " + directory + " 1011 --trace").out;
  EXPECT_TRUE(shown.ends_with(" " + likeliest + "\n")) << "classes have their names: " << shown;
  EXPECT_EQ(run("run " + directory + " 12").code, 3);
  EXPECT_EQ(run("run " + directory + " 1 --dtype bf16").code, 2);

  // No task asks about the empty word.
  EXPECT_TRUE(given[2]["accepted"].is_null());
  EXPECT_FALSE(given[2].contains("lost"));
  EXPECT_EQ(run("run " + directory + " ''").out, "none\t\n");

  train("cycle-navigation", 100);  // more than two answers; enough to predict one of them
  const auto position = answers_to("run " + directory + " +1.-1.stay")[0];
  EXPECT_EQ(position["length"], 3);
  EXPECT_TRUE(position["output"].is_number());
  EXPECT_TRUE(position["label"].is_string());

  train("--regex '(aa)*' --targets state");  // two states, of which the first accepts
  const auto state = answers_to("run " + directory + " aaa")[0];
  EXPECT_TRUE(state["output"].is_number());
  EXPECT_FALSE(state.contains("accepted"));
}

// Classes of these tasks are tokens; a model that has learned little predicts some that no answer has.
TEST(TheoryVerbs, WhatIsNoAnswerOfTheTaskIsLost) {
  const std::string directory = temporary("untrained");
  std::filesystem::remove_all(directory);
  ASSERT_EQ(run("train modular-arithmetic --quiet --set model.width=16 --set train.batch=8 "
                "--set eval.samples=8 --steps 1 --out " +
                directory)
                .code,
            0);
  const std::string words = " 0 1 2 3 4 + - = 1+2 3*4= ''";
  const auto results = answers_to("run " + directory + words + " --trace");
  const auto lines = split(run("run " + directory + words).out, '\n');
  ASSERT_EQ(results.size(), 11u);
  int lost = 0;
  for (size_t i = 0; i + 1 < results.size(); ++i) {
    const auto& result = results[i];
    const int predicted = result["states"].back();
    const bool answer = predicted >= 5 && predicted <= 9;
    EXPECT_EQ(result.contains("lost"), !answer) << result;
    EXPECT_EQ(result["output"].is_null(), !answer) << result;
    EXPECT_EQ(result["label"].is_null(), !answer) << result;
    EXPECT_EQ(lines[i].rfind("lost\t", 0) == 0, !answer) << lines[i];
    lost += !answer;
  }
  EXPECT_GT(lost, 0);
  EXPECT_TRUE(results.back()["output"].is_null());
  EXPECT_EQ(lines[10], "none\t");
}

// A Mealy machine's outputs belong to letters, and the empty word has none.
TEST(TheoryVerbs, MealyMachinesHaveNoOutputForTheEmptyWord) {
  const std::string machine = temporary("seven.json"), model = temporary("seven.safetensors");
  std::ofstream(machine) << R"({"alphabet":["a"],"start":0,"output":[[7]],"delta":[[0]]})";
  ASSERT_EQ(run("compile --dfa " + machine + " --force -o " + model).code, 0);
  EXPECT_EQ(run("run " + model + " a ''").out, "7\ta\nnone\t\n");
  const auto results = answers_to("run " + model + " a ''");
  EXPECT_EQ(results[0]["output"], 7);
  EXPECT_EQ(results[0]["label"], "7");
  EXPECT_TRUE(results[1]["output"].is_null());
  EXPECT_TRUE(results[1]["label"].is_null());
  EXPECT_FALSE(results[1].contains("lost"));
}

// Every line is an object, also when a word cannot be read.
TEST(TheoryVerbs, WrongLettersLeaveWholeJson) {
  const std::string model = temporary("whole.safetensors");
  ASSERT_EQ(run("compile --language parity --force -o " + model).code, 0);
  const auto printed = [&](const std::string& words, int code) {
    const auto result = test::run_signet("run " + model + " --json " + words);
    EXPECT_EQ(result.exit_code, code) << result.err;
    return result.out;
  };
  EXPECT_EQ(nlohmann::json::parse(printed("12", 3))["exit_code"], 3);
  const auto lines = split(printed("1 12", 3), '\n');
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(nlohmann::json::parse(lines[0])["accepted"], true);
  EXPECT_NE(nlohmann::json::parse(lines[1])["error"].get<std::string>().find("'2' is no letter"),
            std::string::npos);
  EXPECT_EQ(printed("--file /dev/null", 0), "");
  const std::string words = temporary("words.txt");
  test::write_text(words, "1\n11\n121\n1\n");
  EXPECT_NE(printed("--file " + words, 3).find("words.txt:3: '2' is no letter"), std::string::npos);
}

// docs/cli.md: words are inputs like expressions, so a wrong one ends with 3 wherever it is given.
TEST(TheoryVerbs, WrongLettersEndWithThree) {
  const std::string model = temporary("letters.safetensors");
  ASSERT_EQ(run("compile --language parity --force -o " + model).code, 0);
  for (const std::string& arguments : {"run " + model + " 17", "collapse " + model + " --word 7",
                                       "collapse " + model + " --word 1 --first 7 --second 1"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 3) << arguments;
    EXPECT_NE(outcome.out.find("'7' is no letter of this model; its letters are 0 1"), std::string::npos)
        << outcome.out;
  }
}

TEST(TheoryVerbs, ImpossibleTargetsAreRefusedWithAWitness) {
  const Outcome outcome = run("compile --language parity --target 'diagonal[0,1]'");
  EXPECT_EQ(outcome.code, 4);
  EXPECT_NE(outcome.out.find("star-free"), std::string::npos);
  EXPECT_NE(outcome.out.find("0 -> 1 -> 0"), std::string::npos);
  EXPECT_EQ(run("compile --group A5 --target complex-diagonal").code, 4);
  EXPECT_EQ(run("compile --language parity --target diagonal").code, 2);
}

// Rounding is not in what a network is proved to bear, in whatever type its weights are stored.
TEST(TheoryVerbs, RobustNamesItsArithmetic) {
  const std::string model = temporary("robust.safetensors");
  json_of("compile --language flip-flop --target 'diagonal[0,1]' -o " + model);
  EXPECT_EQ(json_of("robust " + model + " --dtype bf16")["bounds"]["arithmetic"], "real");
  const std::string text = run("robust " + model + " --dtype bf16").out;
  size_t claims = 0;
  for (size_t at = text.find("proved"); at != text.npos; at = text.find("proved", at + 1), ++claims)
    EXPECT_EQ(text.substr(at, 22), "proved in real numbers") << text;
  EXPECT_GE(claims, 3u) << text;
}

// What is not proved is not denied, and numbers are bounds as they are printed.
TEST(TheoryVerbs, RobustPrintsWhatIsProved) {
  const std::string model = temporary("robust2.safetensors");
  json_of("compile --language kth-last:3 --target 'diagonal[0,1]' -o " + model);
  const auto bounds = json_of("robust " + model)["bounds"];
  std::string text = run("robust " + model).out;
  const auto printed = [&](const std::string& before) {
    const size_t at = text.find(before);
    return at == text.npos ? INFINITY : std::stod(text.substr(at + before.size()));
  };
  EXPECT_LE(printed("one disturbance of "), bounds["once"].get<double>()) << text;
  EXPECT_LE(printed("a disturbance of "), bounds["every_letter"].get<double>()) << text;
  EXPECT_LE(printed("each may be off by "), bounds["weights"].get<double>()) << text;
  EXPECT_GE(printed("a step rounds by "), bounds["rounding"].get<double>()) << text;
  EXPECT_EQ(bounds["strongly_robust"], true);

  json_of("compile --language flip-flop --target one-hot --force -o " + model);
  const auto exact = json_of("robust " + model);
  EXPECT_EQ(exact["proved"], true);
  EXPECT_TRUE(exact["bounds"]["strongly_robust"].is_null());
  EXPECT_NEAR(exact["bounds"]["once"].get<double>(), 0.707, 1e-3) << "by the 1-norm";
  text = run("robust " + model + " --max-states 1").out;
  EXPECT_NE(text.find("more than 1 tuple of code words; raise --max-states"), text.npos) << text;
  EXPECT_EQ(run("robust " + model + " --max-states 100000001").code, 2);
  text = run("robust " + model).out;
  EXPECT_NE(text.find("eta-finite, proved in real numbers: 2 components"), text.npos) << text;
  for (const char* denial : {"not robust", "drift", "disturbance of 0 ", "off by 0 "})
    EXPECT_EQ(text.find(denial), text.npos) << text;

  json_of("compile --language flip-flop --target mamba-gcs --force -o " + model);
  text = run("robust " + model).out;
  EXPECT_NE(text.find("its states are not seen to gather"), text.npos) << text;
  EXPECT_NE(text.find("nor is it proved: "), text.npos) << text;
}

// Heads without a prediction come first; what is not shown settles only if it has one. While states move,
// what was looked at is all that is known.
TEST(TheoryVerbs, CollapseSaysNoMoreOfHeadsAndAnswersThanItLookedAt) {
  const std::string trained = temporary("drifts");
  ASSERT_EQ(run("train parity --steps 60 --force --quiet --out " + trained).code, 0);
  const std::string arguments = "collapse " + trained + " --word 1 --limit 100";
  const auto found = json_of(arguments);
  ASSERT_TRUE(found["parts"][3]["predicted"].is_null());
  ASSERT_EQ(found["end"], "open");
  const std::string text = run(arguments).out;
  EXPECT_NE(text.find("more heads\n"), std::string::npos) << text;
  EXPECT_NE(text.find("at n = 1, 2, 4, ... up to 100\n"), std::string::npos) << text;
}

TEST(TheoryVerbs, AWordInBracketsIsRunAsItStands) {
  const std::string model = temporary("brackets.safetensors");
  json_of("compile '\\[(a|,)*\\]' -o " + model);
  EXPECT_EQ(run("run " + model + " '[a]' '[a,a]' '[]' a").out,
            "accepted\t[a]\naccepted\t[a,a]\naccepted\t[]\nrejected\ta\n");
  EXPECT_NE(run("eval nowhere --samples '[3]'").out.find("'[3]' is not a whole number"), std::string::npos);
}

// The first layer has the parity of the length, by a gate of -1. The second takes turns with two one-hot
// gates that each have the eigenvalues 0 and 1, and whose product turns three numbers. No theorem is about
// both.
TEST(TheoryVerbs, CheckRulesOutANetworkByATheoremThatHoldsOfAllItsHeads) {
  using theory::Block, theory::BlockKind, theory::Layer;
  theory::Network network;
  network.dfa.alphabet = {"a"};
  network.dfa.delta = {{1}, {2}, {0}};
  network.dfa.accept = {true, false, false};
  Block sign;
  sign.kind = BlockKind::kDiagonal;
  sign.dim = 1;
  theory::add_diagonal_context(sign, {-1}, {0});
  sign.initial = {1};
  sign.codes = {1, -1};
  network.layers.push_back({{sign}, 1, {0}, {0}, 1, {0, 1}});
  Block turn;
  turn.kind = BlockKind::kOneHot;
  turn.dim = 6;
  theory::add_one_hot_context(turn, {0, 1, 2, 1, 2, 0});  // after an even number of letters
  theory::add_one_hot_context(turn, {3, 4, 5, 3, 4, 5});  // after an odd number
  turn.initial = {1, 0, 0, 0, 0, 0};
  for (int i = 0; i < 36; ++i) turn.codes.push_back(i % 7 == 0);
  network.layers.push_back({{turn}, 2, {0, 1}, {0, 0}, 1, {0, 2, 1, 1, 0, 2}});
  network.final_state = {0, 1, 2};
  network.final_output = {1, 0, 0};
  const std::string model = temporary("turns.safetensors");
  theory::save_network(model, network);
  EXPECT_EQ(run("verify " + model).code, 0);
  const auto checked = run("check " + model + " --for mod:3");
  EXPECT_EQ(checked.code, 0) << checked.out;
  EXPECT_EQ(checked.out.find("impossible"), std::string::npos) << checked.out;
  json_of("compile --language parity --target 'diagonal[-1,1]' --force -o " + model);
  EXPECT_EQ(run("check " + model + " --for mod:3").code, 4);
  EXPECT_EQ(run("check " + model + " --for parity").code, 0);
}

TEST(TheoryVerbs, CheckOfANetworkWithoutLayersSaysSo) {
  const std::string model = temporary("layerless.safetensors");
  json_of("compile '(a|b)*' -o " + model);
  const Outcome outcome = run("check " + model);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.out.find("no layers"), std::string::npos) << outcome.out;
  EXPECT_EQ(run("check " + model + " --for parity").code, 4);
}

TEST(TheoryVerbs, WrongNetworksEndWithFour) {
  const auto result =
      json_of("verify --group Z60 --construction rotation --dtype bf16+fp32 --length 20000", 4);
  EXPECT_EQ(result["correct"], false);
  EXPECT_FALSE(result["counterexample"].is_null());
}

// Neither proved nor refuted nor tested is no wrong network.
TEST(TheoryVerbs, WhatStayedOpenIsNeitherCorrectNorWrong) {
  const auto result = json_of("verify --group Z60 --construction rotation --method closure --orbit 100", 4);
  EXPECT_TRUE(result["correct"].is_null());
  EXPECT_EQ(result["proved"], false);
  EXPECT_TRUE(result["counterexample"].is_null());
  EXPECT_EQ(json_of("verify --group Z60 --construction rotation --method random --length 10")["correct"],
            true);
}

TEST(TheoryVerbs, FactorAndCheck) {
  const auto cycle = json_of("factor '[[0,0,1],[1,0,0],[0,1,0]]'");
  EXPECT_EQ(cycle["count"], 2);
  EXPECT_EQ(cycle["residual"], 0.0);
  EXPECT_EQ(run("factor '[[2]]'").code, 4);
  EXPECT_EQ(run("factor '[[1,2]]'").code, 3);
  EXPECT_EQ(run("factor /no/such/file").code, 3);
  EXPECT_EQ(json_of("check '[[[0.5]],[[1]]]' --for parity", 4)["theorem1"]["holds"], false);
  EXPECT_EQ(json_of("check '[[[-1]],[[1]]]' --for parity")["certificate"], "2-groups");
  EXPECT_EQ(run("check '[[[-1]],[[1]]]' --for mod:3").code, 4);
  // Two reflections turn together, however large: a product that overflows proves nothing.
  EXPECT_EQ(run("check '[[[0,1e200],[1e200,0]],[[1e200,0],[0,-1e200]]]' --for mod:3").code, 0);
  // However slowly it turns, what turns is not shown as a real number.
  EXPECT_NE(run("check '[[[1,-5e-13],[5e-13,1]]]'").out.find("eigenvalue 1+5e-13i"), std::string::npos);
  EXPECT_NE(run("check '[[[0,1e-320],[-1e-320,0]]]'").out.find("e-321i"), std::string::npos);
}

TEST(TheoryVerbs, BadModelFilesAreRefused) {
  const std::string path = temporary("bad.safetensors");
  std::ofstream(path) << std::string(100, '\xff');
  EXPECT_EQ(run("verify " + path).code, 3);
  EXPECT_EQ(run("run " + path + " 1").code, 3);
  EXPECT_EQ(run("verify /no/such.safetensors").code, 3);
  const std::string picture = temporary("verified.svg");
  EXPECT_EQ(run("verify --group Z60 --construction rotation --dtype bf16 --svg " + picture).code, 4);
  std::stringstream drawn;
  drawn << std::ifstream(picture).rdbuf();
  EXPECT_NE(drawn.str().find("WRONG in bf16 on"), std::string::npos);
  const std::string graph = temporary("verified.dot"), latex = temporary("verified.tex");
  EXPECT_EQ(run("verify --language mod:70 --dot " + graph).code, 0);  // Graphviz draws any number of states
  EXPECT_EQ(run("verify --language parity --force --dot " + graph + " --tikz " + latex).code, 0);
  drawn << std::ifstream(graph).rdbuf() << std::ifstream(latex).rdbuf();
  EXPECT_NE(drawn.str().find("digraph"), std::string::npos);
  EXPECT_NE(drawn.str().find("tikzpicture"), std::string::npos);
  // A mistyped name is not proved right as an expression; a real expression says what it was taken for.
  EXPECT_EQ(run("verify runs/fist").code, 3);
  EXPECT_EQ(run("verify 'a/b' --alphabet 'ab/'").code, 0);
  EXPECT_NE(run("verify '(ab)*'").out.find("(ab)*: 3 states"), std::string::npos);
  for (const char* name : {"parity", "first-run", "parity.safetensors"})
    EXPECT_EQ(run(std::string("verify ") + name).code, 3) << name;
  EXPECT_NE(run("verify abba --alphabet ab").out.find("abba is no file or run"), std::string::npos);
}

// Two reflections at 60 degrees turn by 120; with words of one letter nobody has looked.
TEST(TheoryVerbs, CheckRulesNothingOutUnseen) {
  const std::string gates = "'[[[1,0],[0,-1]],[[-0.5,0.8660254037844386],[0.8660254037844386,0.5]]]'";
  EXPECT_EQ(run("check " + gates + " --for mod:3").code, 0);
  EXPECT_EQ(run("check " + gates + " --for mod:3 --length 1").code, 0);
  EXPECT_EQ(run("check '[1,-1]' --for mod:3 --length 1").code, 4);  // diagonal: no product turns
}

// A computation of minutes tells what it is at from its third second on, and Ctrl-C ends it at once.
TEST(TheoryVerbs, LongWorkIsShownAndCanBeStopped) {
  struct Case {
    std::vector<std::string> arguments;
    const char* shown;
  };
  const std::vector<Case> cases = {
      {{"decompose", "--language", "divisible:509", "--max-codes", "1000000", "--max-table", "100000000000"},
       "codes of the elimination"},
      {{"verify", "--language", "parity", "--method", "random", "--length", "1000000000000"},
       "verify  letters of a test word"}};
  std::vector<std::unique_ptr<test::Process>> running;
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<std::string> command = {SIGNET_BINARY};
    command.insert(command.end(), cases[i].arguments.begin(), cases[i].arguments.end());
    std::filesystem::remove(temporary(("long" + std::to_string(i)).c_str()));
    running.push_back(
        std::make_unique<test::Process>(command, temporary(("long" + std::to_string(i)).c_str())));
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto printed = [&] {
      std::ifstream file(temporary(("long" + std::to_string(i)).c_str()));
      return std::string(std::istreambuf_iterator<char>(file), {});
    };
    EXPECT_TRUE(running[i]->until([&] { return printed().find('\n') != std::string::npos; }));
    EXPECT_NE(printed().find(cases[i].shown), std::string::npos) << printed();
    running[i]->signal(SIGINT);
    EXPECT_EQ(running[i]->wait(), 128 + SIGINT);
  }
}

TEST(TheoryVerbs, RefusalsSayWhatWouldDo) {
  const auto large = run("compile --language mod:1500");
  EXPECT_EQ(large.code, 3);
  EXPECT_NE(large.out.find("--construction rotation"), std::string::npos) << large.out;
  EXPECT_EQ(run("compile --language mod:1500 --construction rotation").code, 0);
  const auto larger = run("compile --language mod:3000 --construction rotation");
  EXPECT_EQ(larger.code, 3);
  EXPECT_NE(larger.out.find("raise --max-layer-states"), std::string::npos) << larger.out;
  EXPECT_EQ(run("compile --language mod:3000 --construction rotation --max-layer-states 3000").code, 0);
  const std::string registers = "compile '(a|b)*b(a|b){9}' --construction shift-register --max-codes ";
  const auto contents = run(registers + "2046");
  EXPECT_EQ(contents.code, 3);
  EXPECT_NE(contents.out.find("raise --max-codes"), std::string::npos) << contents.out;
  EXPECT_EQ(run(registers + "2047").code, 0);
  EXPECT_EQ(run(registers + "134217728").code, 0);
  EXPECT_EQ(run(registers + "134217729").code, 2);
  // What the file can hold is a limit of its own.
  EXPECT_EQ(run("compile '(a|b)*ba{25}' --construction shift-register --max-codes 134217728").code, 3);
  const auto wide = run("compile --language mod:2100 --target one-hot");
  EXPECT_EQ(wide.code, 3);
  EXPECT_NE(wide.out.find("raise --max-layer-states"), std::string::npos) << wide.out;
  EXPECT_EQ(run("compile --language mod:200 --target one-hot --max-layer-states 199").code, 3);
  EXPECT_EQ(run("compile --language mod:200 --target one-hot --max-layer-states 200").code, 0);
  const auto compared =
      run("compile --language kth-last:7 --target 'diagonal[0,1]' --construction holonomy "
          "--max-comparisons 1000");
  EXPECT_EQ(compared.code, 3);
  EXPECT_NE(compared.out.find("raise the limit with --max-comparisons"), std::string::npos) << compared.out;
}

// A word of a million letters that has not ended yet.
TEST(TheoryVerbs, ALongWordIsShown) {
  const std::string model = temporary("long.safetensors"), words = temporary("long.txt");
  ASSERT_EQ(run("compile --language parity --force -o " + model).code, 0);
  std::ofstream(words) << std::string(1'200'000, '1');
  const std::string command = "(cat " + words + "; sleep 2.3) | " + SIGNET_BINARY + " run " + model + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string out(1000, '\0');
  out.resize(std::fread(out.data(), 1, out.size(), pipe));
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_EQ(out.rfind("run  letters  1", 0), 0u) << out;
  EXPECT_NE(out.find("rejected\t111"), std::string::npos) << out;
  const std::string traced = test::run_signet("run " + model + " --trace --file " + words).out;
  EXPECT_EQ(traced.substr(traced.size() - 9), " 1 0 ...\n") << "of the first 100,000 letters";
}

}  // namespace
}  // namespace signet
