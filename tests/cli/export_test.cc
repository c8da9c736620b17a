// Figures, tables and graphs for papers.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/well_formed.h"
#include "signet/base/files.h"
#include "signet/cli/sweep_output.h"
#include "signet/report/svg.h"
#include "support/command.h"
#include "support/small_run.h"

namespace signet::cli {
namespace {

using test::read_text;
using test::run_signet;

TEST(Export, AReportsFiguresAndTablesStandAlone) {
  test::TemporaryDirectory directory;
  for (const char* seed : {"1", "2"})
    test::train_small(directory / ("runs/" + std::string(seed)),
                      {"train.steps=20", "train.validate_every=5", std::string("train.seed=") + seed});
  const std::string command = "report runs -o page.html --export out --json";
  const auto result = run_signet(command, directory.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  size_t pictures = 0;
  const auto summary = nlohmann::json::parse(result.out);
  for (const auto& path : summary["exported"]) {
    const std::string name = path, text = read_text(directory / name);
    if (name.ends_with(".svg")) {
      EXPECT_EQ(test::parse_document(text).error, "") << name;
      EXPECT_EQ(text.find("var(--"), std::string::npos) << "a figure by itself has no style sheet";
      EXPECT_NE(text.find("· 2 runs"), std::string::npos) << "but a legend";
      ++pictures;
    }
    if (name.ends_with("-accuracy.csv")) {
      EXPECT_EQ(text.rfind("series,length,value,low,high\n", 0), 0u) << text;
    }
  }
  EXPECT_GE(pictures, 3u);
  if (test::run_command("command -v rsvg-convert").exit_code == 0) {
    EXPECT_EQ(read_text(directory / "out/parity-accuracy.pdf").rfind("%PDF-", 0), 0u);
  }
  const auto without =
      test::run_command("PATH= '" SIGNET_BINARY "' report runs -o page.html --export svg", directory.path());
  EXPECT_EQ(without.exit_code, 0) << without.err;
  EXPECT_NE(without.err.find("apt-get install librsvg2-bin"), std::string::npos) << without.err;
  EXPECT_EQ(read_text(directory / "svg/parity-accuracy.svg"),
            read_text(directory / "out/parity-accuracy.svg"));
  const std::string csv = read_text(directory / "out/results.csv"),
                    tex = read_text(directory / "out/results.tex");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3) << csv;
  EXPECT_NE(tex.find(" & 2 & "), std::string::npos) << "two runs of one model: " << tex;
  EXPECT_NE(tex.find("$\\pm$"), std::string::npos) << tex;
  EXPECT_EQ(run_signet(command, directory.path()).exit_code, 0) << "its own files are replaced";
  test::write_text(directory / "out/results.tex", "mine");
  test::write_text(directory / "page.html", "");
  EXPECT_EQ(run_signet(command, directory.path()).exit_code, 3);
  EXPECT_EQ(read_text(directory / "out/results.tex"), "mine");
  EXPECT_EQ(read_text(directory / "page.html"), "") << "refused before anything is written";
}

TEST(Export, AutomataForGraphvizAndTikz) {
  test::TemporaryDirectory directory;
  ASSERT_EQ(run_signet("analyze --language parity --dot a.dot --tikz a.tex --svg a.svg", directory.path())
                .exit_code,
            0);
  const std::string dot = read_text(directory / "a.dot"), tikz = read_text(directory / "a.tex"),
                    svg = read_text(directory / "a.svg");
  for (const char* part : {"start -> q0;", "q1 [label=\"1\", shape=doublecircle]", "q0 -> q1 [label=\"1\"]"})
    EXPECT_NE(dot.find(part), std::string::npos) << dot;
  for (const char* part : {"state,initial", "accepting", "\\draw[->] (q0) .. controls", "\\node[letter] at"})
    EXPECT_NE(tikz.find(part), std::string::npos) << tikz;
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_EQ(run_signet("analyze --language parity --dot a.tex", directory.path()).exit_code, 3);
  // Letters of an edge stay apart, also where their names have spaces.
  test::write_text(directory / "map.json",
                   R"({"alphabet":["New York","b"],"start":0,"accept":[1],"delta":[[1,1],[0,0]]})");
  ASSERT_EQ(run_signet("analyze --dfa map.json --dot a.dot", directory.path()).exit_code, 0);
  EXPECT_NE(read_text(directory / "a.dot").find("\"New York, b\""), std::string::npos);
}

// Scores 0, 0.66, 0 have a median absolute deviation of 0, and yet they differ.
TEST(Export, ASweepsPageHasSpreadNamesAndBands) {
  test::TemporaryDirectory directory;
  test::write_text(
      directory / "grid.yaml",
      "base: {task: {name: parity}, model: {width: 8, heads: 2, blocks: 1}, train: {steps: 2, batch: 4}, "
      "eval: {samples: 64}}\ngrid: {train.seed: [1, 2, 3]}\n");
  const auto result = run_signet("sweep grid.yaml --json --quiet --export out", directory.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto group = nlohmann::json::parse(result.out)["groups"][0];
  EXPECT_GT(group["standard_deviation"], 0);
  EXPECT_LE(group["quartiles"][0], group["quartiles"][1]);
  EXPECT_NE(read_text(directory / "runs/grid/seed=1/results.json").find("\"trained\""), std::string::npos);
  const std::string page = read_text(directory / "runs/grid/report.html"),
                    quartiles = report::fixed_number(group["quartiles"][0], 3) + " to " +
                                report::fixed_number(group["quartiles"][1], 3);
  for (const std::string part :
       {quartiles.c_str(), "mean ± sd", "parity with DeltaNet; trained on lengths 3–40, tested on 4",
        "first to the third quartile", "class=\"area s0\""})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(page.find("learning rate"), page.npos) << "there is but one";
  const std::string figure = read_text(directory / "out/runs-accuracy.svg"),
                    tex = read_text(directory / "out/summary.tex");
  EXPECT_EQ(test::parse_document(figure).error, "");
  EXPECT_NE(figure.find("class=\"area s0\""), figure.npos) << "with the band";
  EXPECT_NE(tex.find("\\begin{tabular}{rrrrr"), tex.npos) << tex;
  EXPECT_NE(read_text(directory / "out/summary.csv").find(quartiles.starts_with("−") ? " to " : quartiles),
            std::string::npos);
  const auto one = run_signet("sweep grid.yaml --done --only train.seed=1 --quiet", directory.path());
  EXPECT_EQ(one.out.find("±", one.out.find('\n')), std::string::npos)
      << "one seed has no spread: " << one.out;
}

// As the verdicts of a report: four right answers of four solve nothing.
TEST(Export, ColoursOfScoresGoByTheirIntervals) {
  using report::Tone;
  const auto of = [](double score, double samples) {
    train::RunSummary run;
    run.samples = samples;
    run.chance = 0.5;
    return score_tone(score, run);
  };
  EXPECT_EQ(of(1, 4), Tone::kPlain);
  EXPECT_EQ(of(1, 1024), Tone::kGood);
  EXPECT_EQ(of(0, 4), Tone::kPlain);
  EXPECT_EQ(of(0, 64), Tone::kPoor);
  EXPECT_EQ(of(0.125, 16), Tone::kPlain);
  EXPECT_EQ(of(0.125, 8192), Tone::kFair);
  EXPECT_EQ(of(0.5, 0), Tone::kPlain) << "how many there were is not known";
}

}  // namespace
}  // namespace signet::cli
