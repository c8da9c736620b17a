#include <fmt/core.h>
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

// Every "<<...>>" that a shell has printed.
std::vector<std::string> shown_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; (at = text.find("<<", at)) != text.npos;) {
    const size_t end = text.find(">>", at);
    lines.push_back(text.substr(at + 2, end == text.npos ? end : end - at - 2));
    at += 2;
  }
  return lines;
}

// What the user's line is after a tab: values as they stand, names of files quoted.
TEST(Completion, BashCompletesALineOnATerminal) {
  if (run_command("command -v script").exit_code != 0) GTEST_SKIP() << "script(1) is not installed";
  test::TemporaryDirectory directory;
  const std::string path = script(directory, "bash");
  test::write_text(directory / "files/a word.txt", "");
  test::write_text(directory / "rc",
                   "source '" + path +
                       "'\nbind 'set enable-bracketed-paste off'\n"
                       "shown() { printf '<<%s>>\\n' \"$READLINE_LINE\"; READLINE_LINE=; }\n"
                       "bind -x '\"\\C-g\": shown'\n");
  std::string keys;
  for (const char* line : {"train parity --set model.wid", "compile --target householder-p", "report a",
                           "report x --output=a", "train par"})
    keys += fmt::format("signet {}\t\a", line);
  test::write_text(directory / "keys", keys + "exit\n");
  const auto typed = run_command("cat ../keys | TERM=dumb script -qec 'bash --rcfile ../rc -i' /dev/null",
                                 directory / "files");
  EXPECT_EQ(
      shown_lines(typed.out),
      (std::vector<std::string>{
          "signet train parity --set model.width=", "signet compile --target householder-product[-1,1] ",
          "signet report a\\ word.txt ", "signet report x --output=a\\ word.txt ", "signet train parity "}))
      << typed.out;
}

TEST(Completion, ZshCompletesALineOnATerminal) {
  if (run_command("command -v zsh").exit_code != 0) GTEST_SKIP() << "zsh is not installed";
  test::TemporaryDirectory directory;
  const std::string path = script(directory, "zsh");
  test::write_text(directory / "files/model.safetensors", "");
  test::write_text(directory / "drive.zsh", R"(zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "autoload -Uz compinit; compinit -u -D; source $1; shown() { print -r -- \"<<\$BUFFER>>\"; BUFFER=; }
zle -N shown; bindkey '^X' shown; print REA'DY'"
zpty -r shell said '*READY*'
for line in "${@:2}"; do
  zpty -n -w shell "signet $line"$'\t\x18'
  zpty -r shell said '*<<*>>*'
  print -r -- "<<${${said##*<<}%%>>*}>>"
done
zpty -d shell
)");
  const auto typed =
      run_command("timeout 60 zsh -f ../drive.zsh '" + path +
                      "' 'tokenizer sh' 'tokenizer show mod' 'run mod' 'run x mod' 'compile --language kth' "
                      "'compile --target householder-p' 'train S5:4' 'verify x --dtype=bf16+'",
                  directory / "files");
  EXPECT_EQ(shown_lines(typed.out),
            (std::vector<std::string>{"signet tokenizer show ", "signet tokenizer show model.safetensors ",
                                      "signet run model.safetensors ", "signet run x model.safetensors ",
                                      "signet compile --language kth-last: ",
                                      "signet compile --target householder-product\\[-1,1\\] ",
                                      "signet train S5:4tokens ", "signet verify x --dtype=bf16+fp32 "}))
      << typed.out << typed.err;
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
