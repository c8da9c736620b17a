#include "signet/report/sweep_report.h"

#include <fmt/core.h>

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

std::string runs_html(const PageRuns& group, std::vector<std::string>& notes) {
  std::vector<RunData> runs;
  std::vector<std::string> labels;
  for (const auto& member : group.members) {
    try {
      runs.push_back(read_run(member.directory));
      labels.push_back(member.label);
    } catch (const Error& error) {
      notes.push_back(fmt::format("{}: {}", member.label, error.what()));
    }
  }
  if (runs.empty()) return "";
  std::vector<Series> series;
  for (size_t i = 0; i < runs.size(); ++i) {
    const int index = static_cast<int>(i);
    series.push_back({&runs[i], labels[i], {index % kColors, index / kColors, 2}});
  }
  return fmt::format("<section>\n<h2>{}</h2>\n", escape(group.heading)) + accuracy_figure(series) +
         far_figure(series) + eigenvalue_figures(series) + "</section>\n";
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
  if (!notes.empty()) {
    body += "<h3>Notes</h3>\n<ul>\n";
    for (const auto& note : notes) body += fmt::format("<li class=\"note\">{}</li>\n", escape(note));
    body += "</ul>\n";
  }
  return page(content.title, body + figures + "</main>\n", content.made);
}

}  // namespace signet::report
