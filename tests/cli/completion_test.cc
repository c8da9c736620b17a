#include <gtest/gtest.h>

#include <algorithm>

#include "signet/base/text.h"
#include "signet/cli/verb.h"
#include "support/command.h"

namespace signet::cli {
namespace {

using test::run_command;

std::string script(const test::TemporaryDirectory& directory, const std::string& shell) {
  const std::string path = directory / ("signet." + shell);
  const auto result = test::run_signet("completion " + shell);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  test::write_text(path, result.out);
  return path;
}

// What bash offers for a line whose words are given ("" is an empty last word).
std::vector<std::string> bash_offers(const std::string& script, const std::string& words,
                                     const std::string& directory) {
  const auto result = run_command("bash -c 'source \"" + script + "\"; COMP_WORDS=(" + words +
                                      "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _signet; printf \"%s\\n\" "
                                      "\"${COMPREPLY[@]}\"'",
                                  directory);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  auto offers = split(result.out, '\n');
  offers.erase(std::remove(offers.begin(), offers.end(), ""), offers.end());
  std::sort(offers.begin(), offers.end());
  return offers;
}

bool has(const std::vector<std::string>& offers, const std::string& word) {
  return std::find(offers.begin(), offers.end(), word) != offers.end();
}

TEST(Completion, BashOffersVerbsOptionsValuesAndFiles) {
  test::TemporaryDirectory directory;
  const std::string path = script(directory, "bash");
  ASSERT_EQ(run_command("bash -n '" + path + "'").exit_code, 0);
  const auto offers = [&](const std::string& words) { return bash_offers(path, words, directory.path()); };

  const auto all = offers("signet \"\"");
  for (const auto& entry : verbs()) EXPECT_TRUE(has(all, entry.name)) << entry.name;
  EXPECT_EQ(offers("signet tra"), std::vector<std::string>{"train"});
  for (const auto& entry : verbs()) {
    const auto verb = entry.make();
    Options options(entry.name, entry.summary);
    verb->define(options);
    const auto offered = offers(std::string("signet ") + entry.name + " --");
    for (const auto& option : options.options()) EXPECT_TRUE(has(offered, option.name)) << option.name;
  }
  EXPECT_TRUE(has(offers("signet train \"\""), "parity"));
  EXPECT_EQ(offers("signet train parity --model deltan"), std::vector<std::string>{"deltanet"});
  EXPECT_EQ(offers("signet train parity --model = ml"), std::vector<std::string>{"mlstm"});
  EXPECT_TRUE(has(offers("signet train parity --model ="), "mamba"));
  EXPECT_EQ(offers("signet completion z"), std::vector<std::string>{"zsh"});
  EXPECT_TRUE(has(offers("signet train parity --set train.l"), "train.lr="));
  EXPECT_EQ(offers("signet train parity --eigenvalues -"), std::vector<std::string>{"-1,1"});
  EXPECT_TRUE(has(offers("signet compile --language tomita"), "tomita3"));
  EXPECT_TRUE(has(offers("signet compile --target house"), "householder[-1,1]"));
  EXPECT_TRUE(has(offers("signet help th"), "theory"));
  EXPECT_TRUE(has(offers("signet bench sel"), "selective_scan"));
  EXPECT_EQ(offers("signet verify x --dtype bf16+"), std::vector<std::string>{"bf16+fp32"});
  EXPECT_EQ(offers("signet verify x --method ho"), std::vector<std::string>{"horizon"});
  for (const std::string verb : {"train", "eval", "sweep x", "generate", "bench"})
    EXPECT_EQ(offers("signet " + verb + " --device c"), (std::vector<std::string>{"cpu", "cuda"})) << verb;
  for (const std::string verb : {"train", "generate", "bench"})
    EXPECT_EQ(offers("signet " + verb + " --precision b"), std::vector<std::string>{"bf16"}) << verb;
  EXPECT_TRUE(has(offers("signet report sig"), "signet.bash"));       // a file as argument
  EXPECT_TRUE(has(offers("signet report x -o sig"), "signet.bash"));  // and as value
}

TEST(Completion, ZshLoadsIt) {
  if (run_command("command -v zsh").exit_code != 0) GTEST_SKIP() << "zsh is not installed";
  test::TemporaryDirectory directory;
  const std::string path = script(directory, "zsh");
  EXPECT_EQ(run_command("zsh -n '" + path + "'").exit_code, 0);
  const auto loaded =
      run_command("zsh -f -c 'autoload -Uz compinit; compinit -u -d \"" + (directory / "dump") +
                  "\"; source \"" + path + "\"; print -r -- $_comps[signet]'");
  EXPECT_EQ(loaded.out, "_signet\n") << loaded.err;
  EXPECT_EQ(loaded.err, "");
  const auto offers = [&](const std::string& verb) {  // what it hands to zsh's _arguments
    const auto result = run_command("zsh -f -c 'compdef() { }; source \"" + path +
                                    "\"; _arguments() { print -rl -- \"$@\" }; words=(signet " + verb +
                                    " x); CURRENT=3; _signet'");
    EXPECT_EQ(result.err, "");
    return result.out;
  };
  EXPECT_NE(offers("train").find(" train.lr= "), std::string::npos);
  EXPECT_NE(offers("compile").find(" tomita3 "), std::string::npos);
  EXPECT_NE(offers("compile").find("householder"), std::string::npos);
}

TEST(Completion, FishOffersTheSame) {
  if (run_command("command -v fish").exit_code != 0) GTEST_SKIP() << "fish is not installed";
  test::TemporaryDirectory directory;
  const std::string path = script(directory, "fish");
  const auto offers = [&](const std::string& line) {
    const auto result = run_command("HOME='" + directory.path() + "' fish --no-config -c 'source \"" + path +
                                    "\"; complete -C \"" + line + "\"'");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_NE(offers("signet tr").find("train\t"), std::string::npos);
  EXPECT_NE(offers("signet train --mo").find("--model\t"), std::string::npos);
  EXPECT_EQ(offers("signet train --model mam").rfind("mamba", 0), 0u);
  EXPECT_NE(offers("signet train par").find("parity"), std::string::npos);
  EXPECT_NE(offers("signet train --set train.l").find("train.lr="), std::string::npos);
  EXPECT_NE(offers("signet compile --language tom").find("tomita3"), std::string::npos);
  EXPECT_NE(offers("signet help th").find("theory"), std::string::npos);
  EXPECT_NE(offers("signet compile --target hou").find("householder[-1,1]"), std::string::npos);
}

}  // namespace
}  // namespace signet::cli
