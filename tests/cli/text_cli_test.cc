// From a folder of text to a model that is measured and writes, as docs/text.md says.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

  const auto first = json("generate run --prompt 'the cat' --tokens 12 --seed 3 --past-end");
  EXPECT_EQ(first["tokens"].size(), 12u);
  EXPECT_EQ(json("generate run --prompt 'the cat' --tokens 12 --seed 3 --past-end")["tokens"],
            first["tokens"]);
  EXPECT_NE(json("generate run --prompt 'the cat' --tokens 12 --seed 4 --past-end")["tokens"],
            first["tokens"]);
  run("report run -o page.html");
  EXPECT_NE(test::read_text(directory_ / "page.html").find("by kind of token"), std::string::npos);
}

}  // namespace
}  // namespace signet::cli
