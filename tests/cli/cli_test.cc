// The command line as a user meets it: every verb's help and examples, exit codes, streams, start-up time.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "signet/base/text.h"
#include "signet/cli/verb.h"
#include "signet/report/table.h"
#include "support/command.h"
#include "support/small_run.h"

namespace signet::cli {
namespace {

using test::run_command;
using test::run_signet;

struct VerbDefinition {
  std::unique_ptr<Verb> verb;
  std::unique_ptr<Options> options;
};
VerbDefinition define(const VerbEntry& entry) {
  VerbDefinition definition{entry.make(), std::make_unique<Options>(entry.name, entry.summary)};
  definition.verb->define(*definition.options);
  return definition;
}

TEST(Cli, EveryVerbHasHelpAndAnExample) {
  for (const auto& entry : verbs()) {
    SCOPED_TRACE(entry.name);
    const auto help = run_signet(std::string(entry.name) + " --help");
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_EQ(help.err, "");
    EXPECT_NE(help.out.find(entry.summary), std::string::npos);
    const auto definition = define(entry);
    EXPECT_FALSE(definition.options->examples().empty());
    // All but the commands of examples, which are there to be copied, fits a terminal.
    const auto& examples = definition.options->examples();
    for (const auto& line : split(help.out, '\n')) {
      if (std::none_of(examples.begin(), examples.end(),
                       [&](const auto& example) { return line == "  " + example.first; })) {
        EXPECT_LE(line.size(), 80u) << line;
      }
    }
    EXPECT_NE(help.out.find("--quiet"), std::string::npos) << "any may take long";
    for (const auto& argument : definition.options->arguments())
      EXPECT_NE(help.out.find("\n  " + argument.name + " TEXT"), std::string::npos) << argument.name;
    for (const auto& option : definition.options->options()) {
      EXPECT_NE(help.out.find(option.name), std::string::npos);
      EXPECT_FALSE(option.help.empty()) << option.name;
    }
    EXPECT_EQ(run_signet(std::string("help ") + entry.name).exit_code, 0);
  }
}

TEST(Cli, HelpListsEveryVerb) {
  const auto help = run_signet("--help");
  EXPECT_EQ(help.exit_code, 0);
  for (const auto& entry : verbs())
    EXPECT_NE(help.out.find(std::string("\n  ") + entry.name), std::string::npos);
  for (const auto& line : split(help.out, '\n')) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_EQ(run_signet("-h").out, help.out);
  EXPECT_EQ(run_signet("help").out, help.out);
  EXPECT_EQ(run_signet("--version").out, "signet " SIGNET_VERSION "\n");
}

TEST(Cli, LeadsSomebodyWhoIsNewHere) {
  const auto nothing = run_signet("");
  EXPECT_NE(nothing.out.find("\nBegin here\n  demo "), std::string::npos) << nothing.out;
  EXPECT_NE(nothing.out.find("`signet help tutorial`"), std::string::npos) << nothing.out;
  EXPECT_NE(run_signet("version").err.find("did you mean '--version'?"), std::string::npos);
  EXPECT_NE(run_signet("hlep").err.find("did you mean 'help'?"), std::string::npos);
  EXPECT_NE(run_signet("train").err.find("name one, such as parity, or give --regex"), std::string::npos);
  EXPECT_NE(run_signet("eval runs/none").err.find("`signet list`"), std::string::npos);
}

// What to type next is for people: on a terminal, in words that a shell takes as they stand.
TEST(Cli, TrainingEndsWithWhatToTypeNext) {
  if (run_command("command -v script").exit_code != 0) GTEST_SKIP() << "script(1) is not installed";
  test::TemporaryDirectory directory;
  const std::string train = "'" SIGNET_BINARY "' train parity --steps 1 --set eval.samples=4 --out ";
  const auto people = run_command("script -qec \"" + train + "'a run'\" log", directory.path());
  ASSERT_EQ(people.exit_code, 0) << people.out;
  EXPECT_NE(people.out.find("signet extract 'a run'"), std::string::npos) << people.out;
  EXPECT_EQ(run_command("script -qec \"" + train + "b --quiet\" log", directory.path()).out.find("Next"),
            std::string::npos);
  EXPECT_EQ(run_command(train + "c", directory.path()).err.find("Next"), std::string::npos);
  EXPECT_EQ(run_signet("report 'a run'", directory.path()).exit_code, 0);
}

TEST(Cli, WatchFitsTheTerminal) {
  if (run_command("command -v script").exit_code != 0) GTEST_SKIP() << "script(1) is not installed";
  test::TemporaryDirectory directory;
  const std::string run = "run-in-a-folder-whose-name-is-longer-than-a-line-of-the-terminal-and-ends-here";
  test::train_small(directory / run, {"train.steps=20", "train.validate_every=10"});
  const auto shown = run_command(
      "script -qec \"stty cols 80 rows 24; '" SIGNET_BINARY "' watch " + run + "\" log", directory.path());
  const auto lines = split(shown.out.substr(shown.out.find("run-in")), '\n');
  EXPECT_LE(lines.size(), 24u) << shown.out;
  EXPECT_NE(lines[0].find("ends-here: "), std::string::npos) << shown.out;
  for (const auto& line : lines) EXPECT_LE(report::display_width(line), 81u) << "with its \\r: " << line;
  EXPECT_EQ(run_signet("watch " + run, directory.path()).out.rfind(run + ": ", 0), 0u) << "whole in a pipe";
}

// Every example, in the order of --help, so that a later verb may use what an earlier one wrote.
TEST(Cli, ExamplesRun) {
  test::TemporaryDirectory directory;
  const std::string folder = std::filesystem::path(SIGNET_BINARY).parent_path();
  for (const auto& entry : verbs()) {
    const auto definition = define(entry);
    for (const auto& [command, meaning] : definition.options->examples()) {
      const auto start = std::chrono::steady_clock::now();
      test::write_text(directory / "example.sh", command);
      const auto result = run_command("PATH='" + folder + "':$PATH bash example.sh", directory.path());
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      std::printf("%6.2f s  %s\n", seconds, command.c_str());
      EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.err;
    }
  }
}

TEST(Cli, ExitCodes) {
  const struct {
    const char* arguments;
    int exit_code;
    const char* message;  // part of stderr
  } kCases[] = {
      {"info", 0, ""},
      {"info --json", 0, ""},
      {"", 2, ""},
      {"inof", 2, "did you mean 'info'"},
      {"help inof", 2, "did you mean 'info'"},
      {"--hlep", 2, "did you mean '--help'"},
      {"--json info", 2, "options follow"},
      {"info --jsn", 2, "did you mean '--json'"},
      {"report --outptu page.html", 2, "did you mean '--output'"},
      {"info extra", 2, "unexpected argument 'extra'; see signet info --help"},
      {"info --json=true", 2, "--json takes no value"},
      {"info -- --json extra", 2, "unexpected argument '--json'"},
      {"help train parity", 2, "leave out 'parity'"},
      {"report", 2, "RUN"},
      {"report missing", 3, "missing: not a run directory"},
      {"report empty", 3, "none of config.yaml"},
      {"report run -o", 2, "--output needs a value"},
      {"report run -o no/such/folder/report.html", 3, "no/such/folder"},
      {"report run -o run", 3, "run"},
      {"completion", 2, "SHELL"},
      {"completion bsh", 2, "did you mean 'bash'"},
      {"train pariti --model deltanet", 2, "did you mean 'parity'"},
      {"train parity --model deltanett", 2, "did you mean 'deltanet'"},
      {"train parity --steps 1e3", 2, "--steps: '1e3' is not a whole number"},
      {"train parity --steps -5", 2, "signet: train.steps must be"},
      {"train parity --lr 0.1", 2, "--set section.key=value"},
      {"train parity --steps 0x10", 2, "--steps: '0x10' is not a whole number"},
      {"train parity --dry-run --model ''", 2, "--model: the value is empty"},
      {"train parity --dry-run --config ''", 2, "--config: the value is empty"},
      {"train parity --from ''", 2, "--from: the value is empty"},
      {"train parity --set ''", 2, "--set: the value is empty"},
      {"report run -o ''", 2, "--output: the value is empty"},
      {"run run --file ''", 2, "--file: the value is empty"},
      {"train --regex ''", 3, "the expression is empty"},
      {"train parity --model mlstm+", 2, "unknown model ''; there are"},
      {"train parity --model mlstm+slstm --set model.heads=2", 2,
       "did you mean 'model.mlstm.heads' or 'model.slstm.heads'"},
      {"train --dfa run/config.yaml", 3, "run/config.yaml: "},
      {"train parity --steps 99999999999999999999", 2, "99999999999999999999"},
      {"train parity --steps -99999999999999999999", 2, "-99999999999999999999"},
      {"train parity --eigenvalues=1,-1", 2, "model.eigenvalues"},
      {"train --config run/empty.yaml", 3, "run/empty.yaml"},
      {"train --config run/short.yaml", 3, "run/short.yaml: parity: lengths 3:1 are empty"},
      {"train parity --alphabet ab", 2, "--alphabet goes with --regex or --dfa"},
      {"verify --language parity --method closur", 2, "did you mean 'closure'?"},
      {"completion tcsh", 2, "SHELL: there is no 'tcsh' (did you mean 'bash'?); there are bash, zsh, fish"},
      {"demo --steps -1", 2, "--steps -1"},
      {"demo --samples 0", 2, "--samples 0"},
      {"eval run --lengths 40-256", 2, "MIN:MAX"},
      {"bench norm --seconds soon", 2, "'soon' is not a number"},
      {"bench norm --filter nothing", 2, "no case"},
      {"compile ab -o run", 3, "run is a directory"},
      {"verify run", 3, "run holds no complete checkpoint"},
      {"factor missing.csv", 3, "there is no file 'missing.csv'"},
      {"factor 'run[0,1]/matrix.csv'", 0, ""},
      {"train --config grid.yaml", 3, "signet sweep grid.yaml"},
      {"train --config '" SIGNET_SOURCE_DIR "/experiments/table3.yaml'", 3, "signet reproduce"},
      {"sweep '" SIGNET_SOURCE_DIR "/experiments/s5.yaml'", 3, "signet reproduce"},
      {"sweep run/config.yaml", 3, "signet train --config run/config.yaml"},
      {"sweep grid.yaml --dry-run --jobs 0", 2, "--jobs 0"},
      {"sweep grid.yaml --dry-run --device foo", 2, "--device foo"},
      {"sweep grid.yaml --dry-run --set train.device=cuda", 2, "leave the key out"},
      {"sweep grid.yaml --dry-run --set train.precision=bf16", 2, "is for the GPU"},
      {"reproduce table3 --dry-run --device foo", 2, "--device foo"},
      {"train --language parity", 2, "--language (a named language is a task: signet train language:parity)"},
      {"train --group=S5", 2, "--group (a group is a task: signet train S5)"},
      {"train --task parity", 2, "signet train parity)"},
      {"train parity --seed 1 --seed=2", 2, "--seed is given more than once"},
      {"train parity --steps= --seed 1", 2, "--steps needs a value"},
      {"train parity --set train.eval_every=40", 2,
       "did you mean 'train.validate_every' or 'train.checkpoint_every'"},
      {"train parity --set eval.every=40", 2, "'train.validate_every'"},
      {"train parity --set wibble.wobble=1", 2, "--list-keys"},
      {"train parity --device gpu --out run", 2, "gpu"},
      {"train --resume missing --device gpu", 2, "gpu"},
      {"train parity --out no-run", 3, "no-run holds files but no run of ours; choose another --out"},
      {"train parity --out run", 3, "train --resume run`, or choose another --out"},
      {"sweep run/empty.yaml", 3, "run/empty.yaml is empty; a sweep has the keys"},
      {"verify no-run/dfa.json", 3, "--dfa no-run/dfa.json"},
      {"train parity --model 'householder-product[-1,1]'", 2, "--model deltaproduct --eigenvalues=-1,1"},
      {"solve 'a*' --model 'one-hot'", 2, "--model pd"},
      {"compile --language parity --target deltanet", 2, "householder[0,1] or householder[-1,1]"},
      {"compile --language kth-last:12 --target 'diagonal[0,1]'", 3, "--max-comparisons"},
      {"compile --language parity --target gla", 2, "diagonal[0,1] or diagonal[-1,1]"},
      {"compile --language parity --target gated-deltaproduct", 2,
       "householder[0,1] or householder-product[-1,1]"},
      {"list run/config.yaml", 3, "run/config.yaml is not a directory"},
      {"import missing -o imported", 3, "there is no file or folder missing"},
  };
  test::TemporaryDirectory directory;
  test::write_text(directory / "run/config.yaml", "task:\n  name: parity\n");
  test::write_text(directory / "run[0,1]/matrix.csv", "0,1\n1,0\n");
  test::write_text(directory / "run/empty.yaml", "");
  test::write_text(directory / "run/short.yaml", "task: {name: parity}\ntrain: {max_length: 1}\n");
  test::write_text(directory / "grid.yaml", "base: {task: {name: parity}}\ngrid: {train.seed: [1, 2]}\n");
  test::write_text(directory / "no-run/dfa.json", R"({"alphabet": ["a"], "transitions": [[0]]})");
  std::filesystem::create_directory(directory / "empty");
  for (const auto& c : kCases) {
    const auto result = run_signet(c.arguments, directory.path());
    EXPECT_EQ(result.exit_code, c.exit_code) << "signet " << c.arguments << "\n" << result.err;
    EXPECT_NE(result.err.find(c.message), std::string::npos) << "signet " << c.arguments << "\n"
                                                             << result.err;
    if (c.exit_code == 0) continue;
    EXPECT_EQ(result.err.find("terminate"), std::string::npos) << result.err;
    EXPECT_TRUE(!*c.message || result.err.rfind("signet: ", 0) == 0) << result.err;
  }
}

TEST(Cli, LostOutputIsAnError) {
  const auto closed = run_command("'" SIGNET_BINARY "' info >&-");
  EXPECT_EQ(closed.exit_code, 1);
  EXPECT_NE(closed.err.find("cannot write to standard output"), std::string::npos) << closed.err;
  const auto full = run_command("'" SIGNET_BINARY "' info >/dev/full");
  EXPECT_EQ(full.exit_code, 6) << full.err;
  EXPECT_EQ(run_command("'" SIGNET_BINARY "' info 2>&-").exit_code, 0);
  EXPECT_EQ(run_command("'" SIGNET_BINARY "' info <&-").exit_code, 0);
  EXPECT_EQ(run_command("'" SIGNET_BINARY "' inof 2>&-").exit_code, 2);
  EXPECT_EQ(run_command("'" SIGNET_BINARY "' inof 2>/dev/full").exit_code, 2);
}

// A page but for its foot, which has the command and the date.
std::string above_foot(const std::string& path) {
  const std::string html = test::read_text(path);
  const size_t foot = html.find("<footer>"), end = html.find("</footer>");
  EXPECT_NE(foot, std::string::npos) << html.size();
  return html.substr(0, foot) + html.substr(end);
}

// A note that nobody can read is no reason to stop.
TEST(Cli, MessagesThatCannotBeShownStopNothing) {
  test::TemporaryDirectory directory;
  test::write_text(directory / "run/config.yaml", "task:\n  name: parity\n");
  const auto shown = run_command("'" SIGNET_BINARY "' report run -o page.html", directory.path());
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_NE(shown.err.find("signet: run: "), std::string::npos) << shown.err;
  const auto lost = run_command("'" SIGNET_BINARY "' report run -o full.html 2>/dev/full", directory.path());
  EXPECT_EQ(lost.exit_code, 0);
  EXPECT_EQ(lost.out.find("full.html") == std::string::npos,
            shown.out.find("page.html") == std::string::npos);
  EXPECT_EQ(above_foot(directory / "full.html"), above_foot(directory / "page.html"));
}

// With stdout closed a page must not receive what was meant for stdout.
TEST(Cli, FilesNeverTakeAStandardStream) {
  test::TemporaryDirectory directory;
  test::write_text(directory / "run/config.yaml", "task:\n  name: parity\n");
  run_command("'" SIGNET_BINARY "' report run -o page.html", directory.path());
  const std::string expected = above_foot(directory / "page.html");
  run_command("'" SIGNET_BINARY "' report run -o closed.html >&- 2>&-", directory.path());
  EXPECT_EQ(above_foot(directory / "closed.html"), expected);
}

// Names in files may hold escape sequences; every verb that shows one shows \xNN.
TEST(Cli, ControlCharactersOfFilesStayOffTheTerminal) {
  test::TemporaryDirectory directory;
  // Flips on its first letter, so that witnesses spell it.
  test::write_text(directory / "flip.json",
                   R"({"alphabet":["\u001b[31m","\u009b\n"],"start":0,"accept":[1],"delta":[[1,0],[0,1]]})");
  test::write_text(directory / "gates.json", R"({"gates":[[[-1]]],"letters":["\u001b[31m"]})");
  test::write_text(directory / "words.txt", "x\033[31m\n");
  test::write_text(directory / "bad.att", "0\t0\t\033[31m\n0\t1\t\033[31m\n");
  test::write_text(directory / "key.json", R"({"\u001b[31m":1})");
  test::write_text(directory / "run/results.json",
                   R"({"task":"\u001b]0;own\u0007","model":"\u001b[2J\n","chance":0.5,"accuracy":1,)"
                   R"("scaled_accuracy":1,"train_lengths":[1,1e308],"by_length":[{"length":1e308,)"
                   R"("accuracy":1,"samples":1}]})");
  const struct {
    const char* arguments;
    int exit_code;
    const char* shown;  // in what is printed
  } kCases[] = {
      {"analyze --dfa flip.json", 0, "\\x1b[31m"},
      {"decompose --dfa flip.json", 0, ""},
      {"compile --dfa flip.json -o flip.safetensors", 0, ""},
      {"compile --dfa flip.json --target 'diagonal[0,1]'", 4, "\\x1b[31m"},
      {"verify flip.safetensors", 0, ""},
      {"run flip.safetensors x", 3, "\\x1b[31m"},
      {"run flip.safetensors --file words.txt", 3, "x\\x1b[31m"},
      {"run flip.safetensors \"$(printf '\\033[31m')\"", 0, "\\x1b[31m"},
      {"check gates.json", 0, "\\x1b[31m"},
      {"analyze --att bad.att", 3, "\\x1b[31m"},
      {"analyze --dfa key.json", 3, "\\x1b[31m"},
      {"report run", 0, "\\x1b[2J"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.arguments);
    const auto result = run_signet(c.arguments, directory.path());
    EXPECT_EQ(result.exit_code, c.exit_code) << result.err;
    const std::string all = result.out + result.err;
    EXPECT_NE(all.find(c.shown), std::string::npos) << all;
    EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](unsigned char b) {
      return (b >= 0x20 && b != 0x7F) || b == '\n' || b == '\t';
    })) << all;
    EXPECT_EQ(all.find("\xc2\x9b"), std::string::npos);
  }
  // A length of 1e308 does not fill the line with digits.
  EXPECT_LT(run_signet("report run", directory.path()).out.size(), 300u);
}

TEST(Cli, NoColourOutsideATerminal) {
  for (const char* environment : {"NO_COLOR=1 ", "TERM=xterm-256color ", "CLICOLOR=1 "})
    for (const char* arguments : {"--help", "info", "train --help"}) {
      const auto result = run_command(environment + ("'" SIGNET_BINARY "' " + std::string(arguments)));
      EXPECT_EQ(result.out.find('\033'), std::string::npos);
      EXPECT_EQ(result.err.find('\033'), std::string::npos);
    }
}

TEST(Cli, JsonIsOneObjectOnStdout) {
  const auto result = run_signet("info --json");
  EXPECT_EQ(result.out.front(), '{');
  EXPECT_EQ(result.out.substr(result.out.size() - 2), "}\n");
  EXPECT_NE(result.out.find("\"commit\": "), std::string::npos) << "which build this is";
}

// Processor time of the program and the shell around it: other programs do not count. The least of several,
// for the first may find the libraries on the disk.
TEST(Cli, HelpStartsQuickly) {
#ifdef SIGNET_WITH_CUDA
  constexpr double kLimit = 100;  // the loader alone takes 60 for cuBLASLt
#else
  constexpr double kLimit = 20;
#endif
  const auto milliseconds = [] {
    rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    const auto of = [](const timeval& t) { return 1e3 * double(t.tv_sec) + 1e-3 * double(t.tv_usec); };
    return of(used.ru_utime) + of(used.ru_stime);
  };
  double least = INFINITY;
  for (int run = 0; run < 20 && least >= kLimit; ++run) {
    const double before = milliseconds();
    ASSERT_EQ(std::system("'" SIGNET_BINARY "' --help >/dev/null"), 0);
    least = std::min(least, milliseconds() - before);
  }
  EXPECT_LT(least, kLimit) << "milliseconds, shell included";
}

}  // namespace
}  // namespace signet::cli
