#include "signet/report/sweep_report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "report/fixture_runs.h"
#include "report/well_formed.h"
#include "signet/models/registry.h"
#include "support/command.h"

namespace signet::report {
namespace {

struct Look {
  int color;
  bool dashed;
  bool operator==(const Look&) const = default;
};

// Of the entries of the page's first legend.
std::vector<Look> looks(const std::string& page) {
  std::vector<Look> found;
  const size_t begin = page.find("class=\"legend\""), end = page.find("</ul>", begin);
  for (size_t at = page.find("<path class=\"s s", begin); at < end;
       at = page.find("<path class=\"s s", at + 1)) {
    const std::string path = page.substr(at, page.find("/>", at) - at);
    found.push_back({path[16] - '0', path.find("dasharray") != path.npos});
  }
  return found;
}

SweepPage page_of(const test::TemporaryDirectory& directory, const std::vector<test::FixtureRun>& runs) {
  SweepPage page;
  page.title = "sweep";
  page.model_title = models::architecture_title;
  auto& group = page.runs.emplace_back();
  group.heading = "Runs";
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto path = directory / std::to_string(i);
    test::write_fixture_run(path, runs[i]);
    group.members.push_back({"member " + std::to_string(i), path});
  }
  return page;
}

// Colour is the model and dash the range; of points that have both in common, such as two widths, those that
// differ by range alone keep their colour.
TEST(SweepReport, ColourIsTheModelAndDashTheRange) {
  test::TemporaryDirectory directory;
  EXPECT_EQ(looks(render_sweep(
                page_of(directory, {{"deltanet", 0}, {"deltanet", -1}, {"mamba", 0}, {"mamba", -1}}))),
            (std::vector<Look>{{0, true}, {0, false}, {1, true}, {1, false}}));
  EXPECT_EQ(looks(render_sweep(
                page_of(directory, {{"deltanet", 0}, {"deltanet", 0}, {"deltanet", -1}, {"deltanet", -1}}))),
            (std::vector<Look>{{0, true}, {1, true}, {0, false}, {1, false}}));
  // In whatever order, and beside whatever else: figures of two pages stand in one paper.
  EXPECT_EQ(looks(render_sweep(page_of(directory, {{"gated-deltanet", -1}, {"mamba", -1}, {"pd", -1}}))),
            (std::vector<Look>{{0, false}, {1, false}, {2, false}}));
  EXPECT_EQ(looks(render_sweep(page_of(directory, {{"mamba", -1}, {"kda", -1}, {"deltanet", -1}}))),
            (std::vector<Look>{{1, false}, {2, false}, {0, false}}));
}

// Few samples have other lengths for every seed, and the best seed need not have the longest.
TEST(SweepReport, TheAxisReachesTheLengthsOfEverySeed) {
  test::TemporaryDirectory directory;
  SweepPage page = page_of(directory, {{"deltanet", -1, 1}});
  auto& member = page.runs[0].members[0];
  member.seeds = {member.directory, directory / "2", directory / "3"};
  for (int seed = 2; seed <= 3; ++seed) {
    const test::FixtureRun run{"deltanet", -1, seed};
    auto results = test::fixture_results(run);
    for (auto& row : results["by_length"]) row["length"] = 2 * row["length"].get<int>();
    test::write_fixture_run(directory / std::to_string(seed), run, results);
  }
  ExportedFiles files;
  render_sweep(page, &files);
  const auto figure = std::find_if(files.begin(), files.end(),
                                   [](const auto& file) { return file.name.ends_with("accuracy.svg"); });
  ASSERT_NE(figure, files.end());
  EXPECT_NE(figure->content.find(">500<"), std::string::npos) << figure->content;
}

TEST(SweepReport, NamesStandOnTheLeftAndFilesHaveWhatIsShown) {
  test::TemporaryDirectory directory;
  SweepPage page = page_of(directory, {{"deltanet", -1}});
  page.tables.push_back(
      {"scores", "Scores", {"model.where", "score"}, {{"[-1,1]", "−0.5 ± 0.1"}, {"a, b", "–"}}});
  ExportedFiles files;
  const std::string html = render_sweep(page, &files);
  EXPECT_EQ(test::parse_document(html).error, "");
  EXPECT_NE(html.find("<th class=\"name\">model.<wbr/>where</th><th>score</th>"), html.npos);
  EXPECT_NE(html.find("parity with DeltaNet; "), html.npos);
  ASSERT_GE(files.size(), 4u);
  EXPECT_EQ(files[1].name, "scores.csv") << "after the table that says whose it is";
  EXPECT_EQ(files[1].content, "model.where,score\n\"[-1,1]\",-0.5 ± 0.1\n\"a, b\",–\n");
  EXPECT_NE(files[0].content.find(
                "{lr}\n\\hline\nmodel.where & score \\\\\n\\hline\n{[}$-$1,1] & $-$0.5 $\\pm$ 0.1 \\\\\n"),
            std::string::npos)
      << files[1].content;
  EXPECT_EQ(files[2].name, "Runs-accuracy.svg");
  // A name may begin with a digit. In a file every column has a name of its own.
  page.tables[0] = {"scores",
                    "Scores",
                    {"task", "parity", "published", "sums", "published", "horizon"},
                    {{"1 token", "0.98 / 0.97", "–", "0.1 to 0.3", "1e-2", ">1000 812"}}};
  files.clear();
  EXPECT_NE(render_sweep(page, &files).find("<th class=\"name\">task</th><th>parity</th>"), html.npos);
  EXPECT_TRUE(files[1].content.starts_with("task,parity,parity published,sums,sums published,horizon\n"));
  EXPECT_NE(files[0].content.find("{lrrrrr}"), std::string::npos) << files[0].content;
}

// A file that was not asked for would be replaced, or be in the way after hours of training.
TEST(SweepReport, ExportNamesAreKnownBeforeThereIsARun) {
  SweepPage page;
  page.tables.push_back({"summary", "", {}, {}});
  page.runs.push_back({"Runs", {}, "text"});
  page.texts.push_back({"DeltaNet", {}});
  const auto names = export_names(page, {"/data/english", "/data/c code/"});
  for (const char* name : {"summary.tex", "summary.csv", "text-accuracy.svg", "text-far.csv",
                           "text-position.svg", "text-position-english.csv", "DeltaNet-position-english.svg",
                           "DeltaNet-position-c-code.csv", "DeltaNet-position.svg"})
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  page.texts[0].members.emplace_back("[-1,1]", RunData());
  auto& run = page.texts[0].members[0].second;
  run.text = true;
  run.domains.push_back({"english", 1, 0, 1, {{1, 2, 1, 0}, {3, 4, 1, 0}}});
  ExportedFiles files;
  page.runs.clear();
  render_sweep(page, &files);
  ASSERT_EQ(files.size(), 4u) << "a table and a figure";
  for (const auto& file : files) EXPECT_EQ(std::count(names.begin(), names.end(), file.name), 1) << file.name;
}

}  // namespace
}  // namespace signet::report
