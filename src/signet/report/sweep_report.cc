#include "signet/report/sweep_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "signet/base/error.h"
#include "signet/report/figures.h"
#include "signet/report/html.h"

namespace signet::report {
namespace {

const char* tone_style(Tone tone) {
  switch (tone) {
    case Tone::kGood:
      return " style=\"color: var(--good)\"";
    case Tone::kFair:
      return " style=\"color: var(--fair)\"";
    case Tone::kPoor:
      return " style=\"color: var(--poor)\"";
    case Tone::kMuted:
      return " style=\"color: var(--muted)\"";
    case Tone::kPlain:
      break;
  }
  return "";
}

std::string table_html(const PageTable& table) {
  std::string html =
      fmt::format("<h3>{}</h3>\n<div class=\"scroll\"><table>\n<thead><tr>", escape(table.caption));
  for (const auto& text : table.header) html += fmt::format("<th>{}</th>", escape(text));
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    html += "<tr>";
    for (const auto& cell : row)
      html += fmt::format("<td{}>{}</td>", tone_style(cell.tone), escape(cell.text));
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

// Colour is the model, dash the range, as on a report's page; points that have both in common differ by
// colour.
std::vector<SeriesStyle> styles_of_members(const std::vector<RunData>& runs) {
  std::vector<std::pair<std::string, bool>> kinds;
  std::vector<std::string> models;
  for (const auto& run : runs) {
    kinds.emplace_back(run.model, run.eigenvalue_low >= 0);
    if (std::find(models.begin(), models.end(), run.model) == models.end()) models.push_back(run.model);
  }
  auto distinct = kinds;
  std::sort(distinct.begin(), distinct.end());
  const bool shared = std::adjacent_find(distinct.begin(), distinct.end()) != distinct.end();
  std::vector<SeriesStyle> styles;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto index = static_cast<int>(i);
    const auto model =
        static_cast<int>(std::find(models.begin(), models.end(), runs[i].model) - models.begin());
    styles.push_back(shared ? SeriesStyle{index % kColors, index / kColors, 2}
                            : SeriesStyle{model % kColors, kinds[i].second ? 1 : 0, 2});
  }
  return styles;
}

// "parity; trained on lengths 3–40, tested on 40–256; score: scaled accuracy (0 is guessing, 1 is perfect)",
// or "text; trained on lengths 2048; measured by the loss in nats a token"
std::string what_was_measured(const RunData& run) {
  std::string text = run.task;
  const auto lengths = [](double low, double high) {
    return low == high ? whole_number(low) : fmt::format("{}–{}", whole_number(low), whole_number(high));
  };
  if (std::isfinite(run.train_low)) text += "; trained on lengths " + lengths(run.train_low, run.train_high);
  if (run.text) return text + "; measured by the loss in nats a token";
  if (std::isfinite(run.test_low)) text += ", tested on " + lengths(run.test_low, run.test_high);
  return text +
         fmt::format("; score: {}{}", run.measure(), run.dense ? "" : " (0 is guessing, 1 is perfect)");
}

std::string runs_html(const PageRuns& group, std::vector<std::string>& notes) {
  std::vector<RunData> runs;
  std::vector<std::vector<RunData>> seeds;
  std::vector<std::string> labels;
  for (const auto& member : group.members) {
    try {
      runs.push_back(read_run(member.directory));
      labels.push_back(member.label);
      auto& others = seeds.emplace_back();
      if (member.seeds.size() >= kSeedsForABand)
        for (const auto& directory : member.seeds) others.push_back(read_run(directory));
    } catch (const Error& error) {
      notes.push_back(fmt::format("{}: {}", member.label, error.what()));
      seeds.resize(runs.size());
    }
  }
  if (runs.empty()) return "";
  const auto styles = styles_of_members(runs);
  std::vector<Series> series;
  for (size_t i = 0; i < runs.size(); ++i) {
    auto& s = series.emplace_back(Series{&runs[i], labels[i], styles[i]});
    for (const auto& run : seeds[i]) s.seeds.push_back(&run);
  }
  return fmt::format("<section>\n<h2>{}</h2>\n<p class=\"lead\">{}.</p>\n", escape(group.heading),
                     escape(what_was_measured(runs.front()))) +
         accuracy_figure(series) + far_figure(series) + eigenvalue_figures(series) + "</section>\n";
}

std::string texts_html(const PageTexts& group) {
  std::vector<RunData> runs;
  for (const auto& [label, run] : group.members) runs.push_back(run);
  const auto styles = styles_of_members(runs);
  std::vector<Series> series;
  for (size_t i = 0; i < runs.size(); ++i)
    series.push_back(Series{&runs[i], group.members[i].first, styles[i]});
  return fmt::format("<section>\n<h2>{}</h2>\n", escape(group.heading)) + position_figure(series) +
         text_eigenvalue_figures(series) + "</section>\n";
}

}  // namespace

std::string render_sweep(const SweepPage& content) {
  std::string body = fmt::format("<header>\n<h1>{}</h1>\n", escape(content.title));
  for (const auto& paragraph : content.lead)
    body += fmt::format("<p class=\"lead\">{}</p>\n", escape(paragraph));
  body += "</header>\n<main>\n";
  for (const auto& table : content.tables) body += table_html(table);
  std::vector<std::string> notes = content.notes;
  std::string figures;
  for (const auto& group : content.runs) figures += runs_html(group, notes);
  for (const auto& group : content.texts) figures += texts_html(group);
  if (!notes.empty()) {
    body += "<h3>Notes</h3>\n<ul>\n";
    for (const auto& note : notes) body += fmt::format("<li class=\"note\">{}</li>\n", escape(note));
    body += "</ul>\n";
  }
  return page(content.title, body + figures + "</main>\n", content.made);
}

}  // namespace signet::report
