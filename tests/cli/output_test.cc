// What verbs write where the user says never replaces what they did not make.
#include <gtest/gtest.h>

#include "signet/base/files.h"
#include "signet/cli/automaton_report.h"
#include "support/command.h"

namespace signet::cli {
namespace {

using test::read_text;
using test::run_signet;
using test::TemporaryDirectory;
using test::write_text;

constexpr char kTiny[] =
    "train parity --set model.width=8 --set model.heads=2 --set model.blocks=1 --set train.batch=4 "
    "--set eval.samples=8 --steps 1 --quiet --out run";

TEST(Output, FilesOfARunAreNotReplacedByPagesAndPictures) {
  TemporaryDirectory directory;
  ASSERT_EQ(run_signet(kTiny, directory.path()).exit_code, 0);
  const std::string weights = "run/checkpoints/step-1/model.safetensors";
  for (const std::string& file : {std::string("run/config.yaml"), weights, std::string("run/metrics.jsonl")})
    for (const std::string& command :
         {"report run -o " + file, "analyze 'a*' --svg " + file, "decompose 'a*' --svg " + file,
          "compile 'a*' -o " + file, "demo --steps 1 --samples 8 --quiet --report " + file}) {
      const std::string before = read_text(directory / file);
      const auto result = run_signet(command, directory.path());
      EXPECT_EQ(result.exit_code, 3) << command;
      EXPECT_NE(result.err.find("--force"), std::string::npos) << result.err;
      EXPECT_EQ(read_text(directory / file), before) << command;
    }
}

// Other programs mean standard output by it: here it would be a file that is hard to remove.
TEST(Output, ALineIsNoFile) {
  TemporaryDirectory directory;
  for (const char* command : {"compile 'a*' -o -", "analyze 'a*' --svg -", "tokenizer train . -o -"}) {
    const auto result = run_signet(command, directory.path());
    EXPECT_EQ(result.exit_code, 2) << command;
    EXPECT_NE(result.err.find("/dev/stdout"), std::string::npos) << result.err;
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Output, ANameThatCannotBeIsFoundBeforeTheWork) {
  TemporaryDirectory directory;
  const auto result = run_signet("analyze 'a*' --svg " + std::string(300, 'n'), directory.path());
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("name too long"), std::string::npos) << result.err;
}

TEST(Output, WhatAVerbWroteItReplacesAndTheRestOnlyWithForce) {
  TemporaryDirectory directory;
  ASSERT_EQ(run_signet(kTiny, directory.path()).exit_code, 0);
  write_text(directory / "empty.html", "");
  for (const char* command :
       {"report run -o page.html", "report run -o page.html", "report run -o empty.html",
        "report run -o /dev/null", "analyze 'a*' --svg a.svg", "decompose 'b*' --svg a.svg"})
    EXPECT_EQ(run_signet(command, directory.path()).exit_code, 0) << command;
  write_text(directory / "mine.html", "<!DOCTYPE html><p>by hand</p>");
  EXPECT_EQ(run_signet("report run -o mine.html", directory.path()).exit_code, 3);
  EXPECT_EQ(run_signet("analyze 'a*' --svg page.html", directory.path()).exit_code, 3);
  EXPECT_EQ(run_signet("report run -o mine.html --force", directory.path()).exit_code, 0);
  EXPECT_EQ(read_text(directory / "mine.html").find("by hand"), std::string::npos);
}

// The second would replace the first.
TEST(Output, TwoOutputsAreTwoFiles) {
  TemporaryDirectory directory;
  ASSERT_EQ(run_signet(kTiny, directory.path()).exit_code, 0);
  ASSERT_EQ(run_signet("compile 'a*' -o net", directory.path()).exit_code, 0);
  std::filesystem::create_directory(directory / "out");
  std::filesystem::create_symlink("out", directory / "link");
  for (const char* command :
       {"solve '(aa)*' -o same --page same --force", "analyze 'a*' --svg same --dot ./same",
        "extract net -o out/same --att link/same", "verify net --certificate same --svg same",
        "report run -o out/results.csv --export out --force"}) {
    const auto refused = run_signet(command, directory.path());
    EXPECT_EQ(refused.exit_code, 2) << command << ": " << refused.err;
    EXPECT_NE(refused.err.find("is named for two outputs"), std::string::npos) << command << refused.err;
  }
  EXPECT_FALSE(exists(directory / "same") || exists(directory / "runs") || exists(directory / "out/same"));
  EXPECT_EQ(run_signet("analyze 'a*' --svg /dev/null --dot /dev/null", directory.path()).exit_code, 0);
}

// An hour of work must not end with a folder that was never there: the tokenizer's text is not even opened.
TEST(Output, AFolderThatIsMissingIsFoundBeforeTheWork) {
  TemporaryDirectory directory;
  for (const char* command :
       {"tokenizer train no-text -o no/file", "crystallise no-run -o no/file", "extract no-run -o no/file",
        "report no-run -o no/file", "analyze 'a*' --svg no/file"}) {
    const auto refused = run_signet(command, directory.path());
    EXPECT_EQ(refused.exit_code, 3) << command;
    EXPECT_NE(refused.err.find("there is no folder no"), std::string::npos) << command << ": " << refused.err;
  }
}

TEST(Output, ADemoReplacesRunsOfDemosAlone) {
  TemporaryDirectory directory;
  const std::string demo = "demo --steps 1 --samples 8 --quiet --out ";
  ASSERT_EQ(run_signet(demo + "runs", directory.path()).exit_code, 0);
  EXPECT_EQ(run_signet("demo --steps 2 --samples 4 --seed 2 --quiet --out runs", directory.path()).exit_code,
            0)
      << "its own";
  ASSERT_EQ(run_signet(std::string(kTiny) + "s/'parity-mamba-[0,1]' --force", directory.path()).exit_code, 0);
  const std::string file = directory / "runs/parity-mamba-[0,1]/config.yaml", before = read_text(file);
  const auto refused = run_signet(demo + "runs", directory.path());
  EXPECT_EQ(refused.exit_code, 3) << refused.err;
  EXPECT_NE(refused.err.find("give --force"), std::string::npos) << refused.err;
  EXPECT_EQ(read_text(file), before);
  EXPECT_EQ(run_signet(demo + "runs --force", directory.path()).exit_code, 0);
  EXPECT_NE(read_text(file), before);
}

// A link to a device in a file's place would take what is written and lose it, or fill the disk of another.
TEST(Output, LinksToDevicesAreRefusedAndStandardOutputIsWritten) {
  TemporaryDirectory directory;
  ASSERT_EQ(run_signet(kTiny, directory.path()).exit_code, 0);
  std::filesystem::remove(directory / "run/results.json");
  for (const char* link : {"run/results.json", "report.html", "page.html", "a.safetensors"})
    std::filesystem::create_symlink("/dev/zero", directory / link);
  for (const char* command : {"train --resume run --quiet", "report run", "report run -o page.html --force",
                              "compile 'a*' -o a.safetensors"}) {
    const auto refused = run_signet(command, directory.path());
    EXPECT_EQ(refused.exit_code, 3) << command;
    EXPECT_NE(refused.err.find("link to a device"), std::string::npos) << command << ": " << refused.err;
  }
  std::filesystem::remove(directory / "run/results.json");
  ASSERT_EQ(run_signet("train --resume run --quiet", directory.path()).exit_code, 0);
  for (const char* end : {"", " | cat", " > file; cat file"}) {
    const auto page = test::run_command("'" SIGNET_BINARY "' report run -o /dev/stdout" + std::string(end),
                                        directory.path());
    EXPECT_EQ(page.exit_code, 0) << page.err;
    EXPECT_NE(page.out.find("</html>"), std::string::npos) << end;
  }
}

TEST(Output, TokenizersDocumentsAndAutomataDoNotReplaceOtherFiles) {
  TemporaryDirectory directory;
  ASSERT_EQ(run_signet("compile --language parity -o parity.safetensors", directory.path()).exit_code, 0);
  write_text(directory / "text.txt", "some text, some more text");
  for (const std::string command :
       {"tokenizer train text.txt --vocabulary 260 -o mine.jsonl", "extract parity.safetensors -o mine.jsonl",
        "tokenize --task parity --documents 4 --tokenizer bytes -o mine",
        "extract parity.safetensors --dot mine.jsonl", "extract parity.safetensors --tikz mine.jsonl"}) {
    write_text(directory / "mine.jsonl", "by hand");
    const auto refused = run_signet(command, directory.path());
    EXPECT_EQ(refused.exit_code, 3) << command;
    EXPECT_NE(refused.err.find("--force"), std::string::npos) << refused.err;
    EXPECT_EQ(read_text(directory / "mine.jsonl"), "by hand") << command;
    EXPECT_EQ(run_signet(command + " --force", directory.path()).exit_code, 0) << command;
    EXPECT_NE(read_text(directory / "mine.jsonl"), "by hand") << command;
  }
  const std::string documents = "tokenize --task parity --documents 4 --tokenizer bytes -o data";
  EXPECT_EQ(run_signet(documents, directory.path()).exit_code, 0);
  EXPECT_NE(run_signet(documents, directory.path()).err.find("data is complete"), std::string::npos)
      << "the same command is not in its own way";
  EXPECT_EQ(run_signet("extract parity.safetensors --dot a.dot", directory.path()).exit_code, 0);
  EXPECT_EQ(run_signet("analyze 'a*' --dot a.dot", directory.path()).exit_code, 0) << "both are graphs";
}

TEST(Output, NumbersOfSomebodyElseAreKept) {
  TemporaryDirectory directory;
  ASSERT_EQ(run_signet(kTiny, directory.path()).exit_code, 0);
  write_text(directory / "figures/results.csv", "day,series,low,high\n1,2,3,4\n");
  EXPECT_EQ(run_signet("report run --export figures", directory.path()).exit_code, 3);
  EXPECT_EQ(run_signet("report run --export ours", directory.path()).exit_code, 0);
  EXPECT_EQ(run_signet("report run --export ours", directory.path()).exit_code, 0) << "ours are replaced";
  // Their columns say whose they are, without a picture or a table beside them,
  for (const auto& entry : std::filesystem::directory_iterator(directory / "ours"))
    if (entry.path().extension() != ".csv") std::filesystem::remove(entry.path());
  EXPECT_EQ(run_signet("report run --export ours", directory.path()).exit_code, 0);
  // and no picture beside other numbers makes them ours.
  ASSERT_EQ(run_signet("analyze 'a*' --svg figures/results.svg", directory.path()).exit_code, 0);
  EXPECT_EQ(run_signet("report run --export figures", directory.path()).exit_code, 3);
  EXPECT_EQ(read_text(directory / "figures/results.csv").rfind("day,", 0), 0u);
}

// docs/sweep.md: --export looks for what is in the way before anything is trained, and replaces its own
// files.
TEST(Output, ASweepLooksForFilesInTheWayBeforeItTrains) {
  TemporaryDirectory directory;
  write_text(
      directory / "grid.yaml",
      "base: {task: {name: parity}, model: {width: 8, heads: 2, blocks: 1}, train: {steps: 1, batch: 4}, "
      "eval: {samples: 8}}\ngrid: {train.lr: [1e-3, 1e-2], train.seed: [1, 2]}\n");
  const std::string sweep = "sweep grid.yaml --quiet --export figures ";
  for (const char* mine : {"summary.csv", "rates.tex", "runs-accuracy.svg", "runs-accuracy.csv"}) {
    const std::string path = directory / "figures/" + mine;
    write_text(path, "length,value,low,high\nby hand\n");
    const auto refused = run_signet(sweep, directory.path());
    EXPECT_EQ(refused.exit_code, 3) << mine;
    EXPECT_NE(refused.err.find(mine), std::string::npos) << refused.err;
    EXPECT_FALSE(std::filesystem::exists(directory / "runs/grid/lr=1e-3,seed=1")) << mine;
    std::filesystem::remove(path);
  }
  ASSERT_EQ(run_signet(sweep + "--only train.seed=1", directory.path()).exit_code, 0);
  const std::string before = read_text(directory / "figures/summary.csv");
  const auto more = run_signet(sweep, directory.path());
  EXPECT_EQ(more.exit_code, 0) << "its own files are not in its way: " << more.err;
  EXPECT_NE(read_text(directory / "figures/summary.csv"), before);
}

TEST(Output, AnotherSweepIsRefusedInAUsedDirectory) {
  TemporaryDirectory directory;
  const std::string base =
      "base: {task: {name: parity}, model: {width: 8, heads: 2, blocks: 1}, train: {steps: 1, batch: 4}, "
      "eval: {samples: 8}}\n";
  write_text(directory / "one.yaml", base + "grid: {model.eigenvalues: [[0,1], [-1,1]], train.seed: [1]}\n");
  write_text(directory / "two.yaml", base + "grid: {train.lr: [1e-3, 1e-2]}\n");
  write_text(directory / "less.yaml", base + "grid: {model.eigenvalues: [[0,1]]}\n");
  const auto sweep = [&](const std::string& rest) {
    return run_signet("sweep " + rest + " --out out --quiet", directory.path());
  };
  ASSERT_EQ(sweep("one.yaml").exit_code, 0);
  const std::string before = read_text(directory / "out/summary.json");
  for (const char* other : {"two.yaml", "less.yaml"}) {
    const auto refused = sweep(other);
    EXPECT_EQ(refused.exit_code, 3) << refused.err;
    EXPECT_NE(refused.err.find("another sweep"), std::string::npos) << refused.err;
    EXPECT_EQ(read_text(directory / "out/summary.json"), before);
  }
  EXPECT_EQ(sweep("one.yaml --seeds 2").exit_code, 0) << "more seeds are the same sweep";
  EXPECT_EQ(sweep("one.yaml --only 'model.eigenvalues=[0,1]'").exit_code, 0) << "and so is a part of it";
  EXPECT_EQ(sweep("two.yaml --force").exit_code, 0);
  write_text(directory / "new/report.html", "by hand");
  EXPECT_EQ(run_signet("sweep two.yaml --out new", directory.path()).exit_code, 3);
}

}  // namespace
}  // namespace signet::cli
