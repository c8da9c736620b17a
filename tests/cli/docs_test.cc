// What the documents say is what the repository holds.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "signet/io/json.h"
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

}  // namespace
}  // namespace signet::cli
