// What the documents say is what the repository holds.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include <nlohmann/json.hpp>

#include "signet/automata/named_language.h"
#include "signet/base/rounding.h"
#include "signet/base/text.h"
#include "signet/cli/verb.h"
#include "signet/io/json.h"
#include "signet/models/registry.h"
#include "signet/tasks/registry.h"
#include "signet/theory/compile.h"
#include "support/command.h"
#include "support/text_file.h"

namespace signet::cli {
namespace {

const std::string kRoot = SIGNET_SOURCE_DIR;

TEST(Docs, TheReadmeComparesWhatIsStored) {
  const std::string readme = test::read_text(kRoot + "/README.md");
  const auto stored = io::read_json_file(kRoot + "/results/gpu/comparison_h200.json");
  ASSERT_FALSE(stored["rows"].empty());
  for (const auto& row : stored["rows"]) {
    const std::string line =
        fmt::format("| {} | {} | {} ({}) |", row["work"].get<std::string>(), row["signet_ms"].dump(),
                    row["peer_ms"].dump(), row["peer"].get<std::string>());
    EXPECT_NE(readme.find(line), std::string::npos) << line;
    EXPECT_NE(test::read_text(kRoot + "/results/gpu/" + row["from"].get<std::string>()), "");
  }
}

// The anchor that GitHub gives a heading: small letters, digits and hyphens; spaces become hyphens.
std::string anchor(const std::string& heading) {
  std::string result;
  for (const char c : heading.substr(heading.find_first_not_of("# ")))
    if (c == ' ')
      result += '-';
    else if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_')
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}
bool has_anchor(const std::string& file, const std::string& name) {
  for (const std::string& line : split(test::read_text(file), '\n'))
    if (line.rfind('#', 0) == 0 && anchor(line) == name) return true;
  return false;
}

TEST(Docs, EveryLinkLeadsToAFileAndAHeading) {
  namespace fs = std::filesystem;
  std::vector<fs::path> pages;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot + "/docs")) pages.push_back(entry.path());
  for (const auto& entry : fs::directory_iterator(kRoot)) pages.push_back(entry.path());
  const std::regex link(R"(\]\(([^)\s]+)\))");
  int links = 0;
  for (const fs::path& page : pages) {
    if (page.extension() != ".md") continue;
    const std::string text = test::read_text(page);
    for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at) {
      const std::string target = (*at)[1];
      if (target.find("://") != target.npos) continue;
      const size_t hash = std::min(target.find('#'), target.size());
      const fs::path file = hash == 0 ? page : page.parent_path() / target.substr(0, hash);
      EXPECT_TRUE(fs::exists(file)) << page << " links to " << target;
      if (hash < target.size()) {
        EXPECT_TRUE(has_anchor(file, target.substr(hash + 1))) << page << " links to " << target;
      }
      ++links;
    }
  }
  EXPECT_GE(links, 100);
}

// In the verb's page, or in one that several verbs share.
TEST(Docs, EveryOptionIsExplained) {
  std::string shared;
  for (const char* page : {"cli", "automata", "text", "tokenize", "list"})
    shared += test::read_text(kRoot + "/docs/" + page + ".md");
  for (const auto& entry : verbs()) {
    const std::string own = kRoot + "/docs/" + entry.name + ".md",
                      text = shared + (std::filesystem::exists(own) ? test::read_text(own) : "");
    const auto verb = entry.make();
    Options options(entry.name, entry.summary);
    verb->define(options);
    for (const auto& option : options.options()) {
      const auto named = [&](const std::string& name) {
        return !name.empty() && std::regex_search(text, std::regex(name + "([^a-z-]|$)"));
      };
      EXPECT_TRUE(named(option.name) || named(option.short_name)) << entry.name << " " << option.name;
    }
  }
}

bool has_word(const std::string& text, const std::string& word) {
  const auto inside = [&](size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_');
  };
  for (size_t at = 0; (at = text.find(word, at)) != text.npos; ++at)
    if (!inside(at - 1) && !inside(at + word.size())) return true;
  return false;
}

// What a line of a table adds is on the page that lists its like. Tasks of Sarrof et al. share rows there.
TEST(Docs, EveryNameIsOnItsPage) {
  std::vector<std::pair<std::string, std::string>> names;  // page, name
  for (const auto& entry : verbs()) names.emplace_back("cli", entry.name);
  for (const auto& model : models::architectures()) names.emplace_back("models", model.name);
  for (const auto& language : automata::language_catalogue()) names.emplace_back("automata", language.name);
  for (const std::string& type : number_type_names()) names.emplace_back("compile", type);
  for (const std::string& name : theory::construction_names()) names.emplace_back("compile", name);
  for (const auto& task : tasks::tasks())
    if (const std::string name = task.name; !name.starts_with("sarrof:")) names.emplace_back("tasks", name);
  for (const auto& [page, name] : names)
    EXPECT_TRUE(has_word(test::read_text(kRoot + "/docs/" + page + ".md"), name))
        << "docs/" << page << ".md says nothing of " << name;
}

// Enough documents for some to be held out.
void write_documents(const test::TemporaryDirectory& directory) {
  for (int i = 0; i < 60; ++i)
    test::write_text(directory / fmt::format("mytext/{}.txt", i),
                     std::string(200, static_cast<char>('A' + i)));
}

// The keys of a document of JSON. What lies below these is named by the user's data: settings, letters, axes.
void add_keys(const nlohmann::ordered_json& json, std::set<std::string>& keys) {
  static const std::set<std::string> kOfData = {"settings", "values", "probabilities"};
  for (const auto& [key, value] : json.items()) {
    if (json.is_object() && key.find('.') == key.npos) keys.insert(key);
    if (value.is_structured() && !(json.is_object() && kOfData.contains(key))) add_keys(value, keys);
  }
}

// On the page of the verb, or on one that it refers to.
TEST(Docs, EveryKeyOfJsonIsExplained) {
  const std::string small =
      " --set model.width=16 --set model.blocks=1 --set model.heads=1 --set train.batch=4"
      " --set eval.samples=4 --steps 2 --force";
  const std::string text_run =
      small + " --set data.context=32 --set train.warmup=2 --set train.validate_samples=4";
  test::TemporaryDirectory directory;
  write_documents(directory);
  test::write_text(directory / "ids.txt", "65 66\n");
  test::write_text(directory / "grid.yaml",
                   "base: {task: {name: parity}, model: {width: 16}, train: {steps: 2, batch: 4},"
                   " eval: {samples: 4}}\n"
                   "grid: {train.lr: [1e-2, 1e-3], train.seed: [1, 2]}\nhorizon: 50\nhorizon_samples: 4\n");
  struct Case {
    std::string command;
    std::vector<const char*> pages;
    int exit_code = 0;
  };
  const std::vector<const char*> results = {"train", "eval", "formats"}, text = {"text", "eval", "formats"};
  for (const auto& [command, pages, exit_code] : std::vector<Case>{
           {"train parity --model deltanet --recipe paper --out run" + small, results},
           {"train parity --list-keys", {"train"}},
           {"train parity --dry-run", {"train"}},
           {"eval run --samples 4 --horizon 100 --snap 16", {"eval", "formats"}},
           {"demo --steps 2 --samples 16 --out demo --report demo.html", {"demo", "eval", "formats"}},
           {"report run -o run.html --export figures", {"report"}},
           {"list .", {"list"}},
           {"watch run --once", {"list"}},
           {"sweep grid.yaml --out sweep", {"sweep", "formats"}},
           {"sweep grid.yaml --out sweep --dry-run", {"sweep"}},
           {"reproduce table3 --quick --dry-run", {"sweep"}},
           {"analyze '(aa|bb)*'", {"analyze"}},
           {"decompose '(ab|ba)*'", {"decompose"}},
           {"compile '(aa)*' -o aa.safetensors", {"compile"}},
           {"verify aa.safetensors", {"verify"}},
           {"run aa.safetensors aa --trace", {"run"}},
           {"run run 11 --trace", {"run"}},
           {"solve --language parity --model mamba --eigenvalues=0,1", {"solve"}, 4},
           {"extract aa.safetensors", {"extract", "automata"}},
           {"robust aa.safetensors", {"robust"}},
           {"collapse aa.safetensors --word a", {"collapse"}},
           {"crystallise aa.safetensors -o exact.safetensors", {"crystallise"}},
           {"factor '[[0,1],[1,0]]'", {"factor"}},
           {"check '[[[0,1],[1,0]],[[1,0],[0,-1]]]' --for mod:4", {"check"}},
           {"check '[[[0.99]]]'", {"check"}},
           {"check aa.safetensors", {"check"}},
           {"bench norm --filter 2048x128 --seconds 0.01", {"bench", "formats"}},
           {"bench norm --list", {"bench"}},
           {"bench lm --set model.width=32 --batch 1 --context 32 --seconds 0.01", {"bench", "formats"}},
           {"bench decode --set model.width=32 --batch 1 --context 32 --seconds 0.01", {"bench", "formats"}},
           {"info", {"cli"}},
           {"tokenize mytext --tokenizer bytes -o data --held-out 0.2", {"tokenize"}},
           {"data data", {"tokenize"}},
           {"tokenizer train mytext --vocabulary 300 -o tokenizer.json", {"tokenizer"}},
           {"tokenizer show --tokenizer bytes", {"tokenizer"}},
           {"tokenizer encode mytext/1.txt --tokenizer bytes", {"tokenizer"}},
           {"tokenizer decode ids.txt --tokenizer bytes", {"tokenizer"}},
           {"train --data data --out text" + text_run, text},
           {"eval text --eigenvalues", text},
           {"generate text --prompt ab --tokens 2 --logits", {"text"}},
           {"export text --format fla -o theirs", {"text"}},
           {"import theirs -o imported", {"text"}},
       }) {
    const auto result = test::run_signet(command + " --json", directory.path());
    ASSERT_EQ(result.exit_code, exit_code) << command << "\n" << result.err;
    std::string page;
    for (const char* name : pages) page += test::read_text(kRoot + "/docs/" + name + ".md");
    std::set<std::string> keys;
    add_keys(nlohmann::ordered_json::parse(result.out), keys);
    EXPECT_FALSE(keys.empty()) << command;
    for (const std::string& key : keys)
      EXPECT_TRUE(has_word(page, key))
          << "signet " << command << " --json: nothing says what '" << key << "' is";
  }
}

// What a page tells its reader to type, line by line, without the comments and the lists of options.
std::vector<std::string> commands_of(const std::string& page) {
  static const std::regex command(R"(^ *signet (.*?)( +# .*)?$)");
  std::vector<std::string> commands;
  std::smatch match;
  for (const std::string& line : split(test::read_text(kRoot + page), '\n'))
    if (std::regex_match(line, match, command) && line.find("[--") == line.npos) commands.push_back(match[1]);
  EXPECT_FALSE(commands.empty()) << page;
  return commands;
}

// With few updates: whether the model learns is for people to see.
TEST(Docs, TheTutorialsCommandsWork) {
  test::TemporaryDirectory directory;
  for (std::string line : commands_of("/docs/tutorial.md")) {
    if (line.starts_with("train ")) line += " --steps 3";
    const auto result = test::run_signet(line, directory.path());
    const bool of_learning = line.starts_with("extract ") && result.exit_code == 4;
    EXPECT_TRUE(result.exit_code == 0 || of_learning) << line << "\n" << result.err;
    if (line.starts_with("run ")) {
      EXPECT_EQ(result.out, "accepted\taaa\nrejected\tab\nrejected\tabba\naccepted\t\n");
    }
  }
}

// One after the other in one directory, as a reader types them; only what takes minutes is cut short.
void expect_commands_work(const std::string& page, const test::TemporaryDirectory& directory) {
  static const std::map<std::string, std::string> shorter = {
      {"reproduce", " --dry-run"},
      {"sweep", " --dry-run"},
      {"train --config", " --dry-run"},
      {"train --data",
       " --set model.width=32 --set model.blocks=1 --set model.heads=1 --set data.context=64 --set "
       "train.batch=4 "
       "--set train.warmup=2 --set eval.samples=4 --set train.validate_samples=4 --steps 2"}};
  for (std::string line : commands_of(page)) {
    for (const auto& [begin, rest] : shorter)
      if (line.starts_with(begin)) line += rest;
    const auto result = test::run_signet(line, directory.path());
    EXPECT_EQ(result.exit_code, 0) << page << ": signet " << line << "\n" << result.err;
    if (line.starts_with("sweep")) {
      EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 6);
    }
  }
}

TEST(Docs, CommandsOfThePagesWorkInTheirOrder) {
  test::TemporaryDirectory directory;
  write_documents(directory);
  for (const std::string folder : {"examples", "experiments"})
    std::filesystem::create_directory_symlink(kRoot + "/" + folder, directory / folder);
  for (const char* before :
       {"compile --language tomita6 -o t.safetensors", "extract t.safetensors -o machine.json",
        "demo --steps 3 --samples 16 --quiet"})  // `make demo` of the README
    ASSERT_EQ(test::run_signet(before, directory.path()).exit_code, 0) << before;
  expect_commands_work("/README.md", directory);
  for (const char* page :
       {"analyze", "automata", "compile", "verify", "check", "decompose", "deltanet", "eval", "extract",
        "factor", "list", "report", "robust", "run", "crystallise", "tasks", "theory"})
    expect_commands_work(std::string("/docs/") + page + ".md", directory);
}

TEST(Docs, CommandsForTextWork) {
  test::TemporaryDirectory directory;
  write_documents(directory);
  expect_commands_work("/docs/text.md", directory);
}

// The grid that docs/sweep.md shows, its point with negative eigenvalues: who types it in sees a model learn.
TEST(Docs, TheExampleOfASweepLearns) {
  const std::string page = test::read_text(kRoot + "/docs/sweep.md"), fence = "```yaml\n";
  const size_t begin = page.find(fence);
  ASSERT_NE(begin, page.npos);
  const size_t start = begin + fence.size();
  test::TemporaryDirectory directory;
  test::write_text(directory / "grid.yaml", page.substr(start, page.find("```", start) - start));
  const auto result = test::run_signet(
      "sweep grid.yaml --only 'model=DeltaNet [-1,1]' --only train.lr=1e-2 --seeds 1 --json --quiet",
      directory.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto runs = nlohmann::json::parse(result.out)["runs"];
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_GT(runs[0]["score"], 0.9);
}

}  // namespace
}  // namespace signet::cli
