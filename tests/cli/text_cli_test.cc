// From a folder of text to a model that is measured and writes, as docs/text.md says.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "signet/report/svg.h"
#include "support/command.h"
#include "support/small_run.h"
#include "support/temporary_directory.h"
#include "support/text_file.h"

namespace signet::cli {
namespace {

using nlohmann::ordered_json;
using test::run_signet;

class TextCommands : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 40; ++i) {
      std::string text;
      for (int k = 0; k < 30 + i; ++k) text += "the cat of " + std::to_string(i % 7) + " sat on the mat.\n";
      test::write_text(directory_ / ("text/" + std::to_string(i % 4) + "/" + std::to_string(i) + ".txt"),
                       text);
    }
  }
  std::string run(const std::string& command) {
    const auto result = run_signet(command, directory_.path());
    EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.err;
    return result.out;
  }
  ordered_json json(const std::string& command) { return ordered_json::parse(run(command + " --json")); }

  test::TemporaryDirectory directory_;
};

TEST_F(TextCommands, FourOfThemLeadFromAFolderToAModelThatWrites) {
  run("tokenizer train text -o tokenizer.json --vocabulary 300 --quiet");
  run("tokenize text --tokenizer tokenizer.json -o data --held-out 0.2 --quiet");
  const auto splits = json("data data")["splits"];
  EXPECT_EQ(splits["train"]["documents"].get<int>() + splits["held_out"]["documents"].get<int>(), 40);
  run("train --data data --preset deltanet-10m --eigenvalues=-1,1 --out run --quiet --steps 12" +
      test::as_options({"model.width=16", "model.blocks=2", "model.heads=1", "data.context=32",
                        "train.batch=8", "train.lr=0.02", "train.warmup=2", "eval.samples=8"}));
  const auto trained = ordered_json::parse(test::read_text(directory_ / "run/results.json"));
  const double loss = trained["loss"].get<double>();
  EXPECT_LT(loss, 5.5);  // log 300 is 5.7
  EXPECT_EQ(trained["spectra"].size(), 2u);

  // The rows on which training ended, unless a seed asks for others.
  EXPECT_EQ(json("eval run --quiet")["loss"], trained["loss"]);
  EXPECT_NE(json("eval run --seed 1 --quiet")["loss"], trained["loss"]);
  // Fewer rows than were asked for, and none that anybody asked for.
  EXPECT_NE(test::run_signet("eval run --samples 9999", directory_.path()).err.find("9999 were asked for"),
            std::string::npos);
  EXPECT_EQ(test::run_signet("eval run --context 9999 --quiet", directory_.path()).err, "");
  // Far beyond the rows of training, on the same documents, with what tokens do to the state.
  const auto measured = json("eval run --context 512 --samples 4 --eigenvalues --quiet");
  EXPECT_EQ(measured["context"], 512);
  EXPECT_EQ(measured["by_position"].back()["last"], 512);
  EXPECT_EQ(measured["split"], "held out");
  EXPECT_NEAR(measured["loss"].get<double>(), loss, 1);
  int64_t counted = 0;
  for (const auto& count : measured["eigenvalues"][1]["kinds"]["letters"]["histogram"])
    counted += count.get<int64_t>();
  EXPECT_EQ(counted, measured["eigenvalues"][1]["kinds"]["letters"]["count"]);
  EXPECT_EQ(measured["eigenvalues"][0]["block"], 0);
  const auto table = run("eval run --context 32 --samples 1 --eigenvalues --quiet");
  EXPECT_TRUE(std::regex_search(table, std::regex("\n *2 +-?0\\.[0-9]"))) << "people count from 1\n" << table;

  const auto first = json("generate run --prompt 'the cat' --tokens 12 --seed 3 --past-end");
  EXPECT_EQ(first["tokens"].size(), 12u);
  EXPECT_EQ(json("generate run --prompt 'the cat' --tokens 12 --seed 3 --past-end")["tokens"],
            first["tokens"]);
  EXPECT_NE(json("generate run --prompt 'the cat' --tokens 12 --seed 4 --past-end")["tokens"],
            first["tokens"]);
  run("report run -o page.html");
  EXPECT_NE(test::read_text(directory_ / "page.html").find("by kind of token"), std::string::npos);
  // For papers: the loss with its interval in place of an accuracy.
  run("report run -o page.html --export out");
  const double error = trained["loss_error"].get<double>();
  EXPECT_NE(test::read_text(directory_ / "out/results.csv")
                .find(fmt::format(",{:.6g},{:.6g},{:.6g},", loss, loss - error, loss + error)),
            std::string::npos);
  EXPECT_NE(test::read_text(directory_ / "out/results.tex").find("text, loss & DeltaNet"), std::string::npos);
}

// A document is a file, so that of few files none may be held out. Both commands say what helps.
TEST_F(TextCommands, FewDocumentsAreTold) {
  test::write_text(directory_ / "one.txt", "To be, or not to be.\n\nThat is the question.\n");
  const auto raw = run_signet("train --data one.txt --out run", directory_.path());
  EXPECT_NE(raw.err.find("is not tokenized: signet tokenize"), std::string::npos) << raw.err;
  for (const auto& [share, side] :
       {std::pair{"0.0001", "held out to measure on"}, {"0.9999", "left to train on"}}) {
    const auto made = run_signet(
        std::string("tokenize one.txt --tokenizer bytes -o data --force --json --held-out ") + share,
        directory_.path());
    EXPECT_EQ(made.exit_code, 0);
    EXPECT_EQ(ordered_json::parse(made.out)["held_out"], share[2] == '9' ? 1 : 0);
    const auto trained = run_signet("train --data data --out run", directory_.path());
    EXPECT_EQ(trained.exit_code, 3);
    for (const std::string& told : {made.err, trained.err}) {
      EXPECT_NE(told.find(side), std::string::npos) << told;
      EXPECT_NE(told.find("--separator"), std::string::npos) << told;
    }
  }
}

// Whatever keeps the new run from starting, the old one is still there.
TEST_F(TextCommands, ForceReplacesNoRunByOneThatCannotStart) {
  const std::string small = test::as_options({"model.width=16", "model.blocks=1", "model.heads=1",
                                              "data.context=16", "train.batch=1", "eval.samples=1"}),
                    train = " --preset deltanet-10m --quiet --steps 1" + small;
  run("tokenizer train text -o tokenizer.json --vocabulary 300 --quiet");
  const std::pair<const char*, const char*> sets[] = {{"data", "--tokenizer bytes --held-out 0.2"},
                                                      {"nameless", "--tokenizer bytes --held-out 0.2"},
                                                      {"torn", "--tokenizer bytes --held-out 0.2"},
                                                      {"untrained", "--tokenizer bytes --held-out 0.9999"},
                                                      {"words", "--tokenizer tokenizer.json --held-out 0.2"}};
  for (const auto& [name, options] : sets)
    run(std::string("tokenize text -o ") + name + " --quiet " + options);
  std::filesystem::remove(directory_ / "nameless/tokenizer.bytes");
  std::filesystem::remove(directory_ / "torn/000000.safetensors");
  run("train --out run --data data" + train);
  run("train --out other --data words" + train);
  const auto bytes = [&] {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_ / "run"))
      if (entry.is_regular_file() && entry.path().filename() != ".lock")
        files[entry.path()] = test::read_text(entry.path());
    return files;
  };
  const auto before = bytes();
  ASSERT_GE(before.size(), 6u);
  for (const std::string& line :
       {"--data torn" + train, "--data untrained" + train, "--data nameless" + train,
        "--data data --data words" + train, std::string("--from run --set model.width=32"),
        std::string("--from other --data data --set data.vocabulary=300"),
        std::string("--from other --data data")}) {
    const auto refused = run_signet("train --quiet --force --out run " + line, directory_.path());
    EXPECT_NE(refused.exit_code, 0) << line;
    EXPECT_TRUE(bytes() == before) << line << "\n" << refused.err;
  }
  run("train --quiet --force --out run --from run --set train.seed=2");
  EXPECT_TRUE(std::filesystem::exists(directory_ / "run/results.json"));
  EXPECT_FALSE(bytes() == before);
}

// Of two tokenizers in a run the one of the run that was replaced would be found.
TEST_F(TextCommands, ARunThatReplacesAnotherWritesWithItsOwnTokenizer) {
  const std::string train = " --preset deltanet-10m --quiet --force --steps 1" +
                            test::as_options({"model.width=16", "model.blocks=1", "model.heads=1",
                                              "data.context=16", "train.batch=1", "eval.samples=1"});
  run("tokenizer train text -o tokenizer.json --vocabulary 300 --quiet");
  run("tokenize text -o bytes --tokenizer bytes --held-out 0.2 --quiet");
  run("tokenize text -o words --tokenizer tokenizer.json --held-out 0.2 --quiet");
  for (const char* data : {"words", "bytes"}) run(std::string("train --out run --data ") + data + train);
  const std::string text = "the cat of the mat";
  EXPECT_EQ(json("generate run --tokens 1 --prompt '" + text + "'")["prompt_tokens"], text.size() + 1);
}

// Else the configuration could not be read again, nor a checkpoint written: all training would be lost.
TEST_F(TextCommands, FoldersWhoseNamesAreNotUtf8AreRefusedBeforeTraining) {
  run("tokenize text --tokenizer bytes -o \"$(printf 'data\\377')\" --held-out 0.2 --quiet");
  run("train parity --quiet --steps 0 --out \"$(printf 'from\\377')\"" +
      test::as_options({"model.width=8", "model.heads=2", "eval.samples=4"}));
  for (const auto& [option, key] : {std::pair{"--data \"$(printf 'data\\377')\"", "data.paths"},
                                    {"--from \"$(printf 'from\\377')\"", "train.from"}}) {
    const auto refused = run_signet(std::string("train --out run ") + option, directory_.path());
    EXPECT_EQ(refused.exit_code, 3) << refused.err;
    EXPECT_NE(refused.err.find(key), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find("\\xff is not UTF-8"), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find("rename the folder"), std::string::npos) << refused.err;
    EXPECT_FALSE(std::filesystem::exists(directory_ / "run"));
  }
}

TEST_F(TextCommands, WhatCannotBeMeantIsRefused) {
  run("tokenize text --tokenizer bytes -o data --held-out 0.2 --quiet");
  run("train --data data --preset deltanet-10m --out run --quiet --steps 1" +
      test::as_options({"model.width=16", "model.blocks=1", "model.heads=1", "data.context=16",
                        "train.batch=1", "eval.samples=1"}));
  const auto exported = json("export run --format fla -o theirs");
  EXPECT_EQ(exported["folder"], "theirs");
  EXPECT_EQ(exported["model"], "deltanet");
  EXPECT_GT(exported["parameters"], 0);
  EXPECT_EQ(exported["tokenizer"], true);
  auto config = ordered_json::parse(test::read_text(directory_ / "theirs/config.json"));
  config.erase("hidden_size");
  test::write_text(directory_ / "theirs/config.json", config.dump());
  std::string shard = test::read_text(directory_ / "data/000000.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, shard.data(), sizeof length);
  const auto header = ordered_json::parse(shard.substr(sizeof length, length));
  shard[sizeof length + length + header["bytes"]["data_offsets"][0].get<size_t>()] ^= 1;  // changes no bound
  test::write_text(directory_ / "data/000000.safetensors", shard);
  struct Case {
    const char *command, *word;
    int exit_code;
  };
  for (const auto& [command, word, exit_code] :
       {Case{"eval run --context -5", "--context -5: give 1 or more", 2},
        Case{"generate run --stop ''", "--stop: the value is empty", 2},
        Case{"generate run --precision fp8", "--precision: there is no 'fp8'", 2},
        Case{"import theirs -o mine", "theirs/config.json: hidden_size is missing", 3},
        Case{"data data", "is damaged (its hash is another)", 3}}) {
    const auto result = run_signet(command, directory_.path());
    EXPECT_EQ(result.exit_code, exit_code) << command;
    EXPECT_NE(result.err.find(word), std::string::npos) << command << "\n" << result.err;
  }
  // A reader that has gone, and a signal, end a text of sixteen million tokens.
  const std::string endless = "'" SIGNET_BINARY "' generate run --past-end --tokens 16000000";
  test::run_command("(timeout 20 " + endless + "; echo $? >code) | head -c 5", directory_.path());
  EXPECT_EQ(test::read_text(directory_ / "code"), "141\n") << "the reader went away";
  const auto stopped =
      test::run_command("timeout --preserve-status 2 " + endless + " --json", directory_.path());
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_EQ(ordered_json::parse(stopped.out)["exit_code"], 75);
  // Matrices in bf16 on the CPU: nearly the same logits, in the same form.
  const auto exact = json("generate run --ids '1 2 3' --tokens 1 --logits"),
             narrow = json("generate run --ids '1 2 3' --tokens 1 --logits --precision bf16");
  ASSERT_EQ(exact["logits"].size(), narrow["logits"].size());
  EXPECT_NE(exact["logits"], narrow["logits"]);
  for (size_t i = 0; i < exact["logits"].size(); ++i)
    EXPECT_NEAR(exact["logits"][i].get<double>(), narrow["logits"][i].get<double>(), 0.05);
}

// A loss is no accuracy: tables and pages of a sweep say what its scores are.
TEST_F(TextCommands, ASweepOnTextSaysThatScoresAreLosses) {
  run("tokenize text --tokenizer bytes -o data --held-out 0.2 --quiet");
  test::write_text(directory_ / "grid.yaml",
                   "title: two seeds\n"
                   "base:\n"
                   "  data: {paths: [data], context: 16}\n"
                   "  model: {width: 16, blocks: 1, heads: 1}\n"
                   "  train: {steps: 2, batch: 2}\n"
                   "  eval: {samples: 2}\n"
                   "grid: {train.seed: [1, 2]}\n");
  const auto shown = run_signet("sweep grid.yaml --out grid --quiet", directory_.path());
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  const std::string meaning = "losses in nats a token on text",
                    page = test::read_text(directory_ / "grid/report.html");
  EXPECT_NE(shown.out.find(meaning), std::string::npos) << shown.out;
  EXPECT_NE(page.find(meaning), std::string::npos);
  EXPECT_EQ(page.find("scaled accurac"), std::string::npos);
  EXPECT_NE(page.find("Loss by position"), std::string::npos) << "and draws them";
  const auto summary = ordered_json::parse(test::read_text(directory_ / "grid/summary.json"));
  const auto results = ordered_json::parse(test::read_text(
      directory_ / ("grid/" + summary["runs"][0]["name"].get<std::string>() + "/results.json")));
  EXPECT_EQ(summary["runs"][0]["score"].get<double>(), -results["loss"].get<double>());
  // Tables have the loss as people write it.
  EXPECT_EQ(shown.out.find("−"), std::string::npos) << shown.out;
  EXPECT_NE(page.find(report::fixed_number(-summary["groups"][0]["median"].get<double>(), 3)), page.npos);
  const auto listed = run_signet("list grid", directory_.path());
  EXPECT_NE(listed.out.find(report::fixed_number(results["loss"].get<double>(), 3) + " nats"),
            std::string::npos)
      << listed.out;
}

// Of one row nothing says how far its loss is from that of others.
TEST_F(TextCommands, OneRowHasNoInterval) {
  run("tokenize text --tokenizer bytes -o data --held-out 0.2 --quiet");
  test::write_text(directory_ / "grid.yaml",
                   "base:\n"
                   "  data: {paths: [data], context: 16}\n"
                   "  model: {width: 16, blocks: 1, heads: 1}\n"
                   "  train: {steps: 1, batch: 1}\n"
                   "  eval: {samples: 1}\n"
                   "grid: {train.seed: [1]}\n");
  const auto summary = json("sweep grid.yaml --out grid --quiet");
  EXPECT_TRUE(summary["runs"][0]["standard_error"].is_null());
  const std::string directory = "grid/" + summary["runs"][0]["name"].get<std::string>();
  EXPECT_TRUE(ordered_json::parse(test::read_text(directory_ / (directory + "/results.json")))["loss_error"]
                  .is_null());
  for (const std::string verb : {"train --quiet --resume ", "eval --quiet ", "report "}) {
    const std::string shown = run(verb + directory);
    EXPECT_NE(shown.find(" nats a token"), shown.npos) << shown;
    EXPECT_EQ(shown.find("0.0000"), shown.npos) << shown;
    EXPECT_EQ(shown.find("nan"), shown.npos) << shown;
  }
  const std::string page = test::read_text(directory_ / "report.html");
  EXPECT_EQ(page.find("± "), page.npos);
  EXPECT_EQ(page.find("nan"), page.npos);
}

// What tools/lm-results kept of earlier runs stands beside new ones, and a variant of [-1,1] is compared with
// the plain [0,1] by seed.
TEST_F(TextCommands, EarlierRunsOfTheExperimentStandBesideNewOnes) {
  ordered_json kept = {{"provenance", {{"commit", "earlier"}}}, {"runs", ordered_json::array()}};
  for (int seed = 1; seed <= 2; ++seed) {
    ordered_json set = {{"trained",
                         {{"loss", 5 + 0.25 * seed},
                          {"loss_error", 0.1},
                          {"bits_per_byte", 2.0},
                          {"accuracy", 0.1},
                          {"tokens", 4096},
                          {"context", 256}}},
                        {"share_negative_by_block", {0.0}},
                        {"mean_eigenvalue_by_block", {0.5}},
                        {"share_negative_by_kind", {{{"letters", 0.0}}}}};
    ordered_json far = set;
    far["far"] = {
        {"loss", 5.5},
        {"context", 1024},
        {"by_position",
         {{{"last", 256}, {"nll", 5.0}, {"error", 0.1}}, {{"last", 1024}, {"nll", 6.0}, {"error", 0.1}}}}};
    const std::string number = std::to_string(seed);
    kept["runs"].push_back(
        {{"name", "DeltaNet_1M_[0,1],text,seed=" + number},
         {"values", {{"model", "DeltaNet 1M [0,1]"}, {"text", "text"}, {"train.seed", number}}},
         {"seconds", 7.0},
         {"sets", {{"english", far}, {"code", far}, {"tracking", set}}}});
  }
  test::write_text(directory_ / "kept.json", kept.dump());
  const std::string command =
      "reproduce lm --quick -o out --text english=text --text code=text --only 'model=DeltaNet 1M [-1,1] "
      "from "
      "0.5' --only text=text --seeds 2 --quiet --force" +
      test::as_options({"model.width=16", "model.blocks=1", "model.heads=1", "train.steps=1", "train.batch=1",
                        "eval.samples=2"});
  run(command);
  const auto merged = json(command + " --done --earlier kept.json");
  EXPECT_EQ(merged["runs"].size(), 4u);
  EXPECT_EQ(merged["runs"][2]["measured"]["sets"]["english"]["far"]["by_position"][1]["first"], 257);
  EXPECT_EQ(merged["earlier"]["commit"], "earlier");
  bool found = false;
  for (const auto& each : merged["comparisons"]) {
    EXPECT_TRUE(each["model"] == "DeltaNet 1M from 0.5" || each["model"] == "DeltaNet 1M");
    if (each["model"] != "DeltaNet 1M from 0.5" || each["measured_on"] != "code" ||
        each["where"] != "trained context")
      continue;
    found = true;
    EXPECT_EQ(each["[0,1]"], (ordered_json{{"1", 5.25}, {"2", 5.5}}));
    EXPECT_EQ(each["verdict"], "within noise") << each;
    EXPECT_NEAR(each["difference"].get<double>(),
                (each["[-1,1]"]["1"].get<double>() + each["[-1,1]"]["2"].get<double>()) / 2 - 5.375, 1e-9);
  }
  EXPECT_TRUE(found);
  // Losses far out are called by the positions that they are means of, which depend on the bins: the kept
  // runs have one that begins at 257, the new ones at 263.
  std::set<std::string> places;
  for (const auto& each : merged["comparisons"])
    if (each["measured_on"] == "english") places.insert(each["where"]);
  EXPECT_EQ(places,
            (std::set<std::string>{"trained context", "positions 257 to 1024", "positions 263 to 1024"}));
  test::write_text(directory_ / "other.json", "{\"runs\": [{\"name\": 3}]}");
  const auto refused = run_signet(command + " --done --earlier other.json", directory_.path());
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.err.find("other.json is not what tools/lm-results keeps"), std::string::npos)
      << refused.err;
}

}  // namespace
}  // namespace signet::cli
