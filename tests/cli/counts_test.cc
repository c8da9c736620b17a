// What verbs say of one letter, one state and one run.
#include <gtest/gtest.h>

#include <regex>

#include "signet/base/files.h"
#include "support/command.h"

namespace signet::cli {
namespace {

using test::run_signet;

TEST(Counts, OneThingIsNoPlural) {
  const test::TemporaryDirectory directory;
  test::write_text(directory / "one.txt", "a");
  test::write_text(directory / "short.safetensors", "a");
  test::write_text(directory / "grid.yaml",
                   "title: one\nbase:\n  task: {name: parity}\n  model: {width: 8, heads: 1, blocks: 1}\n"
                   "  train: {steps: 1, batch: 1}\n  eval: {samples: 1}\ngrid:\n  train.seed: [1]\n");
  const std::regex plural(
      "(^|[^0-9.,])1 (more |random |different |malformed |empty |Householder |holonomy )?"
      "(letter|state|component|token|element|idempotent|layer|level|set|code|factor|reflection|coordinate|"
      "bit|"
      "number|question|direction|update|step|run|document|word|gate|head|byte|shard|sample|row|value|tile|"
      "seed|"
      "sequence|attempt|point|parameter|power|pair|thread)s\\b");
  for (const char* command :
       {"analyze a",
        "analyze '(a|b)*'",
        "analyze '(a|b)*b'",
        "analyze '(aa)*'",
        "decompose 'a*'",
        "decompose '(aa)*'",
        "compile 'a*' -o one.safetensors",
        "compile '(aa)*' -o two.safetensors",
        "compile '(a|b)*b' --construction shift-register",
        "compile '(a|b)*b' --construction elimination",
        "compile '(a|b)*b' --target 'diagonal[0,1]' -o last.safetensors",
        "verify one.safetensors",
        "verify 'a*'",
        "verify last.safetensors --method random --words 1 --length 1",
        "verify short.safetensors",
        "verify last.safetensors --method closure --orbit 1",
        "factor '[[-1]]'",
        "factor '[[1,0]]'",
        "check '[[[-1]]]'",
        "check two.safetensors",
        "extract one.safetensors",
        "extract two.safetensors --max-states 1",
        "robust one.safetensors",
        "robust last.safetensors --length 1",
        "collapse two.safetensors --word a",
        "train parity --set model.width=8 --set model.heads=1 --set model.blocks=1 --set train.batch=1 "
        "--set eval.samples=1 --steps 1 --quiet --out run",
        "train parity --set train.batch=1 --set model.width=8 --dry-run",
        "train --resume run --steps 0",
        "report run",
        "eval run --lengths 9:9 --samples 1",
        "verify run --words 1 --length 1",
        "check run",
        "tokenize one.txt --tokenizer bytes -o data",
        "tokenize one.txt --tokenizer bytes -o data",
        "data data",
        "sweep grid.yaml --out sweep",
        "sweep grid.yaml --out sweep",
        "solve '(aa)*' --quiet --out solve",
        "info"}) {
    const auto said = run_signet(command, directory.path());
    std::smatch found;
    const std::string text = said.out + said.err;
    EXPECT_FALSE(std::regex_search(text, found, plural)) << command << ": " << found.str() << "\n" << text;
  }
  for (const char* page : {"report.html", "solve.html", "sweep/report.html"}) {
    std::smatch found;
    const std::string text = exists(directory / page) ? test::read_text(directory / page) : "";
    EXPECT_FALSE(std::regex_search(text, found, plural)) << page << ": " << found.str();
  }
}

}  // namespace
}  // namespace signet::cli
