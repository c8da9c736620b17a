#include "signet/report/run_report.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <sstream>

#include "report/fixture_runs.h"
#include "report/well_formed.h"
#include "signet/models/registry.h"
#include "signet/report/figures.h"
#include "support/command.h"

namespace signet::report {
namespace {

using test::FixtureRun;

size_t occurrences(const std::string& text, const std::string& piece) {
  size_t n = 0;
  for (size_t at = text.find(piece); at != text.npos; at = text.find(piece, at + 1)) ++n;
  return n;
}

std::string exported(const std::vector<RunData>& runs, const std::string& name) {
  for (const auto& file : export_report(runs))
    if (file.name == name) return file.content;
  ADD_FAILURE() << "no " << name;
  return "";
}

std::vector<RunData> four_runs(const test::TemporaryDirectory& directory) {
  const FixtureRun runs[] = {
      {"deltanet", 0, 1, 0.04}, {"deltanet", -1, 1, 1}, {"mamba", 0, 1, 0}, {"mamba", -1, 1, 1}};
  std::vector<RunData> read;
  for (const auto& run : runs) {
    const std::string name = run.model + (run.low < 0 ? "-signed" : "-positive");
    test::write_fixture_run(directory / name, run);
    read.push_back(read_run(directory / name, models::architecture_title));
  }
  return read;
}

TEST(RunReport, RunsOnTextAreMeasuredByTheirLoss) {
  const test::TemporaryDirectory directory;
  test::write_text(directory / "run/results.json",
                   R"({"text": true, "task": "text", "model": "deltanet", "eigenvalues": [-1, 1], "loss": 2.5,
                       "loss_error": 0.125, "bits_per_byte": 1.5, "samples": 8, "steps": 20, "seconds": 3,
                       "train_lengths": [64, 64], "accuracy": 0.4, "provenance": {"signet": "9.8.7"},
                       "by_position": [{"first": 1, "last": 1, "nll": 5, "nll_error": 0.5},
                                       {"first": 2, "last": 64, "nll": 2.5, "nll_error": 0.1}],
                       "spectra": [{"block": 0, "histogram": [1, 3, 0, 4],
                                    "kinds": {"letters": {"histogram": [1, 1, 0, 4]},
                                              "<b>": {"histogram": [0, 2, 1e300, "x"]}, "none": 7}},
                                   {"block": 1, "histogram": [0, 0, 2, 6]}, 5]})");
  test::write_text(directory / "run/metrics.jsonl",
                   "{\"step\": 10, \"loss\": 3}\n{\"step\": 20, \"loss\": 2.6}\n"
                   "{\"step\": 20, \"eval\": {\"text\": true, \"loss\": 2.7}}\n");
  const auto run = read_run(directory / "run", models::architecture_title);
  EXPECT_TRUE(run.finished());
  EXPECT_EQ(verdict(run), Verdict::kMeasured);
  EXPECT_EQ(verdict_sentence(run),
            "DeltaNet [−1, 1] predicts text: 2.5000 ± 0.1250 nats a token, 1.5000 bits a byte on held-out "
            "documents (rows of 64 tokens).");
  ASSERT_EQ(run.held_out.size(), 1u);
  const std::string html = render_report({run}, "page");
  EXPECT_EQ(test::parse_document(html).error, "");
  EXPECT_NE(html.find("Loss by position"), std::string::npos);
  EXPECT_NE(html.find("Made by signet 9.8.7"), std::string::npos);
  // Histograms by kind of token, of which blocks are added up, and by block, of
  // which the first is 1: 4 of 16, 2 of 6; 4 of 8, 0 of 8.
  EXPECT_NE(html.find("DeltaNet [−1, 1], by kind of token"), std::string::npos);
  for (const char* share : {"25% &lt; 0", "33% &lt; 0", "50% &lt; 0", "block 1", "block 2", "&lt;b&gt;"})
    EXPECT_NE(html.find(share), std::string::npos) << share;
  EXPECT_EQ(html.find("caled accuracy"), std::string::npos);
}

// Seeds that drew few samples were tested at different lengths: what they have in common is a range of
// lengths and not a place in their tables.
TEST(RunReport, SeedsAreComparedAtTheSameLengths) {
  std::vector<RunData> runs(3);
  for (size_t seed = 0; seed < runs.size(); ++seed)
    for (int length = 1; length <= 100; ++length)
      if (length > 50 || seed == 0)  // two of them begin later
        runs[seed].by_length.push_back({static_cast<double>(length), length > 50 ? 0.0 : 1.0, 10});
  Series series{&runs[0], "model", {}};
  for (const auto& run : runs) series.seeds.push_back(&run);
  Figures figures;
  accuracy_figure({series}, &figures);
  ASSERT_EQ(figures.size(), 1u);
  std::istringstream csv(figures[0].csv);
  std::string line;
  std::getline(csv, line);
  int points = 0;
  for (; std::getline(csv, line); ++points) {
    double x = 0, value = 0, low = 0, high = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "model,%lf,%lf,%lf,%lf", &x, &value, &low, &high), 4) << line;
    if (x > 48 && x < 53) continue;  // one bin lies astride
    for (const double y : {value, low, high}) EXPECT_EQ(y, x > 50 ? 0 : 1) << line;
  }
  EXPECT_EQ(points, 28);
}

// Nothing in the page may make a browser ask the network, and nothing may be script.
void expect_self_contained(const std::string& html) {
  const auto document = test::parse_document(html);
  ASSERT_EQ(document.error, "");
  const std::set<std::string> allowed = {
      "html",    "head",    "meta",       "title", "link",  "style", "body", "header", "main",
      "section", "footer",  "h1",         "h2",    "h3",    "p",     "ul",   "li",     "span",
      "div",     "figure",  "figcaption", "table", "thead", "tbody", "tr",   "th",     "td",
      "details", "summary", "pre",        "svg",   "g",     "path",  "rect", "text"};
  for (const auto& element : document.elements) {
    EXPECT_TRUE(allowed.count(element.name)) << element.name;
    for (const auto& [name, value] : element.attributes) {
      EXPECT_NE(name.rfind("on", 0), 0u) << name;
      const bool address = name == "href" || name == "src" || name == "xlink:href";
      EXPECT_TRUE(!address || value.rfind("data:", 0) == 0) << value;
    }
  }
  EXPECT_EQ(html.find("url("), std::string::npos);
  EXPECT_EQ(html.find("@import"), std::string::npos);
  EXPECT_EQ(html.find("http:"), std::string::npos);
  EXPECT_EQ(html.find("https:"), std::string::npos);
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

TEST(RunReport, FourRunsMakeACompletePage) {
  test::TemporaryDirectory directory;
  const auto runs = four_runs(directory);
  const std::string html = render_report(runs, "Parity");
  expect_self_contained(html);
  EXPECT_NE(html.find("<h1>Parity</h1>"), std::string::npos);
  EXPECT_NE(html.find("4 runs, 2 solved"), std::string::npos);
  EXPECT_NE(html.find("trained on"), std::string::npos);
  EXPECT_NE(html.find("guessing"), std::string::npos);
  // Two legends of four samples, overlay twice (for phones, too), four tiles, loss, accuracy, four spectra.
  EXPECT_EQ(occurrences(html, "<svg"), 2u * 4 + 2 + 4 + 2 + 4);
  EXPECT_EQ(occurrences(html, "<details>"), 4u);
  EXPECT_LT(html.size(), 400'000u);
  EXPECT_EQ(html, render_report(runs, "Parity"));  // the same bytes for the same runs
}

TEST(RunReport, CurvesBelowChanceStayInsideTheirPictures) {
  test::TemporaryDirectory directory;
  test::write_fixture_run(directory / "worse", {"deltanet", -1, 1, -0.3});
  const std::string html = render_report({read_run(directory / "worse")}, "Parity");
  size_t curves = 0;
  double height = 0;
  for (const auto& element : test::parse_document(html).elements) {
    for (const auto& [name, value] : element.attributes) {
      double width = 0;
      if (name == "viewBox") std::sscanf(value.c_str(), "0 0 %lf %lf", &width, &height);
      if (element.name != "path" || name != "d" || height < 100) continue;
      ++curves;
      double x = 0, y = 0;
      for (size_t at = value.find_first_of("ML"); at != value.npos; at = value.find_first_of("ML", at + 1))
        if (std::sscanf(value.c_str() + at + 1, "%lf %lf", &x, &y) == 2) {
          EXPECT_LE(y, height - 30);
        }
    }
  }
  EXPECT_GT(curves, 3u);
}

TEST(RunReport, TheTrainedLengthsAreShown) {
  test::TemporaryDirectory directory;
  auto results = test::fixture_results({"deltanet", 0, 1, 0});
  results["trained"] = {{"scaled_accuracy", 0.98}, {"accuracy", 0.99}, {"samples", 512}};
  for (int length = 3; length <= 40; ++length)
    results["trained"]["by_length"].push_back({{"length", length}, {"accuracy", 0.99}, {"samples", 14}});
  test::write_fixture_run(directory / "run", {"deltanet", 0, 1, 0}, results);
  const RunData run = read_run(directory / "run");
  EXPECT_NE(verdict_sentence(run).find(", 0.980 at the lengths it was trained on"), std::string::npos)
      << verdict_sentence(run);
  EXPECT_NE(render_report({run}, "Parity").find("<th>trained lengths</th>"), std::string::npos);
  const std::string csv = exported({run}, "parity-accuracy.csv");
  double length = 0;
  ASSERT_EQ(std::sscanf(csv.c_str() + csv.find("\",") + 2, "%lf", &length), 1) << csv;
  EXPECT_LT(length, 10);
}

// Every model has an entry in the legend, however many there are, and runs of one model share one.
TEST(RunReport, LegendsNameEveryModelOnce) {
  test::TemporaryDirectory directory;
  std::vector<RunData> runs;
  for (int model = 0; model < 9; ++model) {
    test::write_fixture_run(directory / "run", {"deltanet", -1, 1, 0});
    runs.push_back(read_run(directory / "run"));
    runs.back().model = runs.back().title = fmt::format("model{}", model);
  }
  runs.push_back(runs.front());
  runs.back().seed = "2";
  const std::string page = render_report(runs, "page");
  const size_t begin = page.find("class=\"legend\"");
  const std::string legend = page.substr(begin, page.find("</ul>", begin) - begin);
  EXPECT_EQ(occurrences(legend, "<li>"), 9u) << legend;
  const std::string svg = exported(runs, "parity-accuracy.svg");
  EXPECT_EQ(occurrences(svg, "model0 [−1, 1] · 2 runs<"), 1u);
  EXPECT_EQ(occurrences(svg, "model8 [−1, 1]<"), 1u);
}

// A mean over two widths would be that of no model. Only seeds are taken together.
TEST(RunReport, RunsThatDifferByMoreThanTheirSeedStandApart) {
  test::TemporaryDirectory directory;
  std::vector<RunData> runs;
  for (int i = 0; i < 4; ++i) {
    test::write_fixture_run(directory / "run", {"deltanet", -1, i + 1, 0});
    runs.push_back(read_run(directory / "run"));
    runs.back().config = fmt::format("model: {{architecture: deltanet, width: {}}}\ntrain: {{seed: {}}}\n",
                                     i < 2 ? 8 : 32, i + 1);
  }
  auto many = runs;
  name_variants(runs);
  EXPECT_EQ(runs[0].variant, "width 8");
  EXPECT_EQ(runs[3].variant, "width 32");
  const std::string tex = exported(runs, "results.tex"), svg = exported(runs, "parity-accuracy.svg");
  EXPECT_EQ(occurrences(tex, ", width 8 & 2 & "), 1u) << tex;
  EXPECT_EQ(occurrences(tex, ", width 32 & 2 & "), 1u) << tex;
  EXPECT_EQ(occurrences(svg, ", width 8 · 2 runs<"), 1u) << svg;
  EXPECT_NE(svg.find("class=\"s s0\""), svg.npos);
  EXPECT_NE(svg.find("class=\"s s1\""), svg.npos);
  EXPECT_EQ(occurrences(render_report(runs, "page"), "<details><summary>deltanet [−1, 1]: "), 1u)
      << "one card";
  many[0].config = "model: {a: 1, b: 1, c: 1, d: 1, width: 8}\ntrain: {seed: 1}";
  many[1].config = "model: {a: 2, b: 2, c: 2, d: 2, width: 8}\ntrain: {seed: 2}";
  many.resize(2);
  name_variants(many);
  EXPECT_EQ(many[1].variant, "settings 2");
  many[1].config = "model: {width: 8, new: 1}\neval: {samples: 4}\ntrain: {seed: 2}";
  many[0].variant = many[1].variant = "";
  name_variants(many);
  EXPECT_EQ(many[1].variant, "") << "what the other lacks, seeds and samples do not count";
}

TEST(RunReport, RunsOnTextFoldIntoTheirLosses) {
  RunData run;
  run.text = true, run.task = "text", run.model = run.title = "deltanet", run.held_out_loss = 2.5;
  RunData other = run;
  run.seed = "1", other.seed = "2", other.held_out_loss = 2.25;
  const std::string page = render_report({run, other}, "page");
  EXPECT_NE(page.find("deltanet: 2 runs, 2.2500 to 2.5000 nats a token</summary>"), std::string::npos);
  EXPECT_EQ(page.find("solve it"), std::string::npos);
}

// Tasks whose names differ by marks alone keep their figures apart.
TEST(RunReport, EveryExportedFileHasItsName) {
  test::TemporaryDirectory directory;
  std::vector<RunData> runs;
  for (const char* task : {"regex (ab)*", "regex (ab)+", "regex (ab)?"}) {
    test::write_fixture_run(directory / "run", {"deltanet", 0, 1, 0});
    runs.push_back(read_run(directory / "run"));
    runs.back().task = task;
  }
  std::set<std::string> names;
  for (const auto& file : export_report(runs)) EXPECT_TRUE(names.insert(file.name).second) << file.name;
  EXPECT_TRUE(names.count("regex--ab---3-loss.csv"));
}

TEST(RunReport, LatexHasAMinusAndNoHyphen) {
  test::TemporaryDirectory directory;
  auto results = test::fixture_results({"deltanet", 0, 1, 0});
  results["scaled_accuracy"] = -0.25;
  test::write_fixture_run(directory / "run", {"deltanet", 0, 1, 0}, results);
  const std::string tex = exported({read_run(directory / "run")}, "results.tex");
  EXPECT_NE(tex.find("& $-$0.250 & $-$0.250 "), std::string::npos) << tex;
}

TEST(RunReport, Verdicts) {
  test::TemporaryDirectory directory;
  const auto runs = four_runs(directory);
  EXPECT_EQ(verdict(runs[0]), Verdict::kChance);
  EXPECT_EQ(verdict(runs[1]), Verdict::kSolved);
  EXPECT_EQ(verdict_sentence(runs[1]),
            "DeltaNet [−1, 1] solves parity at lengths 40–256 (trained on 3–40): scaled accuracy 1.000.");
  RunData run = runs[1];
  run.scaled_accuracy = 0.95;
  EXPECT_EQ(verdict(run), Verdict::kNearly);
  run.scaled_accuracy = 0.5;
  EXPECT_EQ(verdict(run), Verdict::kPartly);
  run.constant = {"0", 0.73, 0.73};
  EXPECT_EQ(verdict(run), Verdict::kChance) << "close to one answer to everything";
  EXPECT_NE(verdict_sentence(run).find("close to guessing (always answering 0: 0.460)."), std::string::npos)
      << verdict_sentence(run);
  run.constant.accuracy = 0.51;  // what even answers give in some thousand samples
  EXPECT_EQ(run.constant_score(), 0);
  EXPECT_EQ(verdict(run), Verdict::kPartly);
  // Few whole sequences are right, and yet the model does not guess.
  RunData dense = run;
  dense.dense = true;
  dense.scaled_accuracy = 0.02;
  dense.accuracy = 0.861;
  dense.constant = {"()", 0.168, 0};
  dense.horizon = 171;
  EXPECT_NE(verdict_sentence(dense).find(
                "sequence accuracy 0.020, 0.861 of the answers right (always answering (): 0.168)."),
            std::string::npos)
      << verdict_sentence(dense);
  EXPECT_NE(
      verdict_sentence(dense).find("The accuracy of whole sequences is below the threshold at length 171"),
      std::string::npos)
      << verdict_sentence(dense);
  dense.scaled_accuracy = 0.952;
  dense.constant = {"0", 0.99, 0.95};
  EXPECT_EQ(verdict(dense), Verdict::kChance) << "0.952 is nothing where one answer has 0.95";
  dense.scaled_accuracy = 0.98;
  EXPECT_EQ(verdict(dense), Verdict::kNearly);
  dense.scaled_accuracy = 1;
  dense.constant = {"0", 1, 1};
  EXPECT_NE(verdict_sentence(dense).find("(always answering 0: 1.000)"), std::string::npos);
  run.scaled_accuracy = 1;
  run.far = {{1000000, 0.6, 64}};
  EXPECT_NE(verdict_sentence(run).find("At length 1,000,000 it is down to 0.200."), std::string::npos);
  run.horizon = 123456;
  run.horizon_threshold = 0.9;
  // docs/eval.md: the horizon is the shortest length seen to fail.
  EXPECT_NE(verdict_sentence(run).find("Accuracy is below 0.9 at length 123,456, the shortest seen to fail."),
            std::string::npos)
      << verdict_sentence(run);
  run.horizon_held = true;
  EXPECT_NE(verdict_sentence(run).find("Accuracy holds up to length 123,456"), std::string::npos);
  dense.horizon_held = true;
  EXPECT_NE(verdict_sentence(dense).find("The accuracy of whole sequences holds up to length 171"),
            std::string::npos);
  // One sample that is right is no accuracy.
  run.horizon_samples = 35;
  EXPECT_NE(verdict_sentence(run).find("holds up to"), std::string::npos) << verdict_sentence(run);
  run.horizon_samples = 1;
  EXPECT_NE(verdict_sentence(run).find("No length up to 123,456, the longest tried, was seen to fail, with 1 "
                                       "sample a length: too few to tell."),
            std::string::npos)
      << verdict_sentence(run);
  run.horizon_held = false;
  EXPECT_NE(verdict_sentence(run).find("Length 123,456 is the shortest seen to fail, with 1 sample a length"),
            std::string::npos)
      << verdict_sentence(run);
  run.horizon_held = true;
  run.horizon_samples = kUnknown;  // of an older file
  run.horizon = 1e308;
  EXPECT_NE(verdict_sentence(run).find("holds up to length 1e+308"), std::string::npos)
      << verdict_sentence(run);
  EXPECT_EQ(verdict(RunData{}), Verdict::kUnfinished);
}

TEST(RunReport, AFarLengthIsJudgedByItsInterval) {
  test::TemporaryDirectory directory;
  RunData run = four_runs(directory)[1];
  const auto says = [&](double accuracy, double samples, const std::string& part) {
    run.far = {{50000, accuracy, samples}};
    EXPECT_NE(verdict_sentence(run).find(part), std::string::npos) << verdict_sentence(run);
  };
  says(1, 1,
       "At length 50,000 it scores 1.000 of 1 sample, anything from −0.587 to 1.000 with 95% confidence.");
  says(1, 64, "scores 1.000 of 64 samples, anything from 0.887 to 1.000");
  says(1, 100, "At length 50,000 it still scores 1.000.");
  says(0, 1, "At length 50,000 it is down to −1.000.");
  says(0.9, 20, "scores 0.800 of 20 samples");
  says(0.9, 1000, "At length 50,000 it is down to 0.800.");
  says(1, kUnknown, "At length 50,000 it still scores 1.000.");
}

TEST(RunReport, OneAnswerToEverythingIsALineOfItsOwn) {
  test::TemporaryDirectory directory;
  auto runs = four_runs(directory);
  EXPECT_EQ(render_report(runs, "t").find(">always 0<"), std::string::npos);
  runs[1].constant = {"0", 0.6, 0.6};
  EXPECT_NE(render_report(runs, "t").find(">always 0<"), std::string::npos);
  runs[1].constant.answer = "<script>";
  EXPECT_NE(render_report(runs, "t").find(">constant<"), std::string::npos);
  EXPECT_EQ(render_report(runs, "t").find("<script>"), std::string::npos);
}

TEST(RunReport, FarLengthsGetALogarithmicFigure) {
  test::TemporaryDirectory directory;
  auto runs = four_runs(directory);
  EXPECT_EQ(render_report(runs, "t").find("Far beyond"), std::string::npos);
  runs[1].far = {{1000, 1, 64}, {0, 1, 64}, {1e6, 0.9, 64}};
  const std::string html = render_report(runs, "t");
  EXPECT_NE(html.find("Far beyond"), std::string::npos);
  EXPECT_NE(html.find("<th>at 1M</th>"), std::string::npos);
  expect_self_contained(html);
  // What the search for the horizon measured joins the curve, not the table; more samples win.
  runs[1].probes = {{1000, 0.5, 8}, {2000, 0.75, 64}};
  const std::string probed = render_report(runs, "t");
  EXPECT_NE(probed.find("length 2000: scaled accuracy 0.500"), std::string::npos);
  EXPECT_EQ(probed.find("length 1000: scaled accuracy 0.000"), std::string::npos);
  EXPECT_EQ(probed.find("<th>at 2k</th>"), std::string::npos);
  // Of many lengths the table has the nearest and the farthest.
  runs[1].far.clear();
  for (const double thousands : {1, 2, 3, 4, 5, 6, 7, 8}) runs[1].far.push_back({1000 * thousands, 1, 64});
  const std::string many = render_report(runs, "t");
  for (const auto& [length, shown] : {std::pair{"1k", true}, {"3k", false}, {"4k", true}, {"8k", true}})
    EXPECT_EQ(many.find(fmt::format("<th>at {}</th>", length)) != many.npos, shown) << length;
}

TEST(RunReport, SeedsShareALegendEntryAndKeepTheirNames) {
  test::TemporaryDirectory directory;
  std::vector<RunData> runs;
  for (int seed : {1, 2, 2}) {
    const std::string path = directory / ("run" + std::to_string(runs.size()));
    test::write_fixture_run(path, {"deltanet", -1, seed, 1});
    runs.push_back(read_run(path, models::architecture_title));
  }
  const std::string html = render_report(runs, "t");
  EXPECT_NE(html.find("DeltaNet [−1, 1] · 3 runs"), std::string::npos);
  EXPECT_NE(html.find("DeltaNet [−1, 1], seed 1 solves"), std::string::npos);
  EXPECT_NE(html.find("DeltaNet [−1, 1], seed 2, run1 solves"), std::string::npos);
  EXPECT_NE(html.find("DeltaNet [−1, 1], seed 2, run2 solves"), std::string::npos);
}

TEST(RunReport, EverythingIsEscaped) {
  test::TemporaryDirectory directory;
  const std::string bad = "<img src=x onerror=alert(1)>\"'&\x01";
  auto results = test::fixture_results({});
  for (const char* key : {"task", "model", "seed"}) results[key] = bad;
  for (auto& spectrum : results["spectra"]) spectrum["token"] = bad;
  const std::string run_path = directory / "<b>&run\"";
  test::write_fixture_run(run_path, {}, results);
  test::write_text(std::filesystem::path(run_path) / "config.yaml", bad + "</pre><script>\xff");
  const std::string html = render_report({read_run(run_path)}, bad);
  EXPECT_EQ(test::parse_document(html).error, "");
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("<b>"), std::string::npos);
  EXPECT_NE(html.find("&lt;img"), std::string::npos);
}

TEST(RunReport, EmptyAndHugeRuns) {
  test::TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "empty");
  test::write_text(directory / "empty/config.yaml", "");
  RunData empty = read_run(directory / "empty");
  expect_self_contained(render_report({empty}, "t"));
  expect_self_contained(render_report({}, "t"));

  RunData huge = empty;
  huge.task = "parity";
  huge.chance = 0.5;
  for (int i = 0; i < 1'000'000; ++i) {
    huge.loss.push_back({double(i), i % 1000 ? 0.5 : kUnknown});
    huge.training_accuracy.push_back({double(i), 0.3});
    if (i < 300'000) huge.by_length.push_back({double(i), i % 7 ? 0.6 : kUnknown, 1});
  }
  const std::string html = render_report({huge}, "t");
  expect_self_contained(html);
  EXPECT_LT(html.size(), 300'000u);

  RunData unknown = empty;  // every number NaN
  unknown.by_length = {{5, kUnknown, kUnknown}, {kUnknown, 1, 1}};
  unknown.loss = {{kUnknown, kUnknown}, {1, -3}, {2, 0}};
  unknown.spectra = {{0, -1, "", {kUnknown}}, {0, 2, "a", {}}};
  expect_self_contained(render_report({unknown}, "t"));
}

// The page in a real browser: it must draw, and the console must stay silent.
TEST(RunReport, ChromiumShowsIt) {
  if (test::run_command("command -v chromium").exit_code != 0) GTEST_SKIP() << "chromium is not installed";
  test::TemporaryDirectory directory;
  test::write_text(directory / "report.html", render_report(four_runs(directory), "Parity"));
  const auto shot =
      test::run_command("HOME='" + directory.path() +
                        "' timeout 60 chromium --headless --no-sandbox --disable-gpu --enable-logging=stderr "
                        "--window-size=1000,2400 --screenshot='" +
                        (directory / "page.png") + "' 'file://" + (directory / "report.html") + "'");
  if (!std::filesystem::exists(directory / "page.png"))
    GTEST_SKIP() << "chromium does not run here: " << shot.err.substr(0, 300);
  EXPECT_EQ(shot.err.find("CONSOLE"), std::string::npos) << shot.err;
  EXPECT_GT(std::filesystem::file_size(directory / "page.png"), 60'000u);  // an empty page has a tenth of it
}

TEST(RunReport, AVerdictNeedsEnoughSamples) {
  RunData run;
  run.title = "DeltaNet", run.task = "parity", run.chance = 0.5;
  const auto of = [&](double right, double samples) {
    run.samples = samples, run.accuracy = right / samples, run.scaled_accuracy = run.scaled(run.accuracy);
    return verdict(run);
  };
  EXPECT_EQ(of(4, 4), Verdict::kTooFew);
  EXPECT_EQ(verdict_sentence(run),
            "DeltaNet has too few test samples for a verdict on parity: scaled accuracy 1.000 of 4 samples, "
            "anything from 0.020 to 1.000 with 95% confidence.");
  EXPECT_EQ(of(64, 64), Verdict::kTooFew);
  EXPECT_EQ(of(80, 80), Verdict::kSolved);
  EXPECT_EQ(of(36, 64), Verdict::kTooFew) << "0.125 of 64 samples may be guessing";
  EXPECT_EQ(of(4608, 8192), Verdict::kPartly);
  EXPECT_EQ(of(2, 4), Verdict::kTooFew);
  EXPECT_EQ(of(32, 64), Verdict::kChance);
  EXPECT_EQ(of(20, 21), Verdict::kNearly);
  EXPECT_EQ(of(8150, 8192), Verdict::kNearly);
  run.constant = {"0", 0.9, 0.9};
  EXPECT_EQ(of(20, 21), Verdict::kTooFew) << "one answer to everything may have scored this";
  run.constant = {};
  // Of a file that does not say how many, or says none.
  for (const double samples : {kUnknown, 0.0})
    for (const double accuracy : {0.5, 0.75, 0.96, 1.0}) {
      run.samples = samples, run.accuracy = accuracy, run.scaled_accuracy = run.scaled(accuracy);
      EXPECT_EQ(verdict(run), Verdict::kTooFew) << accuracy;
    }
  EXPECT_EQ(verdict_sentence(run),
            "DeltaNet has too few test samples for a verdict on parity: scaled accuracy 1.000 of an unknown "
            "number of samples.");
}

}  // namespace
}  // namespace signet::report
