// What the documents say is what the repository holds.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>

#include <nlohmann/json.hpp>

#include "signet/base/text.h"
#include "signet/io/json.h"
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

// With few updates: whether the model learns is for people to see.
TEST(Docs, TheTutorialsCommandsWork) {
  test::TemporaryDirectory directory;
  int run = 0;
  for (std::string line : split(test::read_text(kRoot + "/docs/tutorial.md"), '\n')) {
    if (line.rfind("    signet ", 0) != 0) continue;
    line = line.substr(11);
    if (line.rfind("train ", 0) == 0) line += " --steps 3";
    const auto result = test::run_signet(line, directory.path());
    const bool of_learning = line.rfind("extract ", 0) == 0 && result.exit_code == 4;
    EXPECT_TRUE(result.exit_code == 0 || of_learning) << line << "\n" << result.err;
    if (line.rfind("run ", 0) == 0) {
      EXPECT_EQ(result.out, "accepted\taaa\nrejected\tab\nrejected\tabba\naccepted\t\n");
    }
    ++run;
  }
  EXPECT_GE(run, 8);
  const auto grid = test::run_signet("sweep " + kRoot + "/examples/grid.yaml --dry-run");
  EXPECT_EQ(std::count(grid.out.begin(), grid.out.end(), '\n'), 6) << grid.err;
}

}  // namespace
}  // namespace signet::cli
