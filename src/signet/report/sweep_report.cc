#include "signet/report/sweep_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "signet/base/error.h"
#include "signet/base/text.h"
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

// Keys may break behind their dots where a phone has no room: model.<wbr/>eigenvalues.
std::string breakable(std::string html) {
  for (size_t dot = 0; (dot = html.find('.', dot)) != html.npos; ++dot)
    if (dot + 1 < html.size() && std::isalpha(static_cast<unsigned char>(html[dot + 1])))
      html.insert(dot + 1, "<wbr/>");
  return html;
}

std::string table_html(const PageTable& table) {
  std::string html =
      fmt::format("<h3>{}</h3>\n<div class=\"scroll\"><table>\n<thead><tr>", escape(table.caption));
  std::vector<const char*> style;
  for (size_t c = 0; c < table.header.size(); ++c) {
    style.push_back(is_numeric(table, c) ? "" : " class=\"name\"");
    html += fmt::format("<th{}>{}</th>", style.back(), breakable(escape(table.header[c])));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    html += "<tr>";
    for (size_t c = 0; c < row.size(); ++c)
      html += fmt::format("<td{}{}>{}</td>", c < style.size() ? style[c] : "", tone_style(row[c].tone),
                          escape(row[c].text));
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string table_csv(const PageTable& table) {
  const auto line = [](const std::vector<std::string>& fields) {
    std::vector<std::string> safe;
    for (const auto& field : fields) safe.push_back(csv_field(field));
    return join(safe, ",") + "\n";
  };
  // A program finds a column by its name: the second "published" of a page is that of the column before it.
  std::vector<std::string> header = table.header;
  for (size_t c = 1; c < header.size(); ++c)
    if (std::count(table.header.begin(), table.header.end(), table.header[c]) > 1)
      header[c] = table.header[c - 1] + " " + table.header[c];
  std::string csv = line(header);
  for (const auto& row : table.rows) {
    std::vector<std::string> fields;
    for (const auto& cell : row) fields.push_back(cell.text);
    fields.resize(table.header.size());
    csv += line(fields);
  }
  return csv;
}

std::string table_latex(const PageTable& table) {
  std::string columns;
  std::vector<std::string> header;
  for (size_t c = 0; c < table.header.size(); ++c) {
    columns += is_numeric(table, c) ? 'r' : 'l';
    header.push_back(latex_text(table.header[c]));
  }
  std::string tex = fmt::format("% signet {}; {}\n\\begin{{tabular}}{{{}}}\n\\hline\n{} \\\\\n\\hline\n",
                                SIGNET_VERSION, table.caption, columns, join(header, " & "));
  for (const auto& row : table.rows) {
    std::vector<std::string> cells;
    for (const auto& cell : row) cells.push_back(latex_text(cell.text));
    tex += join(cells, " & ") + " \\\\\n";
  }
  return tex + "\\hline\n\\end{tabular}\n";
}

std::vector<SeriesStyle> styles_of_members(const std::vector<RunData>& runs) {
  std::vector<const RunData*> members;
  for (const auto& run : runs) members.push_back(&run);
  return styles_of(members, /*apart=*/true);
}

// "parity with DeltaNet; trained on lengths 3–40, tested on 40–256; score: scaled accuracy (0 is guessing, 1
// is perfect)", or "text; trained on rows of 2048 tokens; measured by the loss in nats a token"
std::string what_was_measured(const std::vector<RunData>& runs) {
  const RunData& run = runs.front();
  std::string text = run.task;
  if (std::all_of(runs.begin(), runs.end(), [&](const auto& other) { return other.model == run.model; }) &&
      !run.title.empty())
    text += " with " + run.title;
  const auto lengths = [](double low, double high) {
    return low == high ? whole_number(low) : fmt::format("{}–{}", whole_number(low), whole_number(high));
  };
  if (run.text)
    return text +
           (std::isfinite(run.train_high)
                ? fmt::format("; trained on rows of {} tokens", whole_number(run.train_high))
                : "") +
           "; measured by the loss in nats a token";
  if (std::isfinite(run.train_low)) text += "; trained on lengths " + lengths(run.train_low, run.train_high);
  if (std::isfinite(run.test_low)) text += ", tested on " + lengths(run.test_low, run.test_high);
  return text +
         fmt::format("; score: {}{}", run.measure(), run.dense ? "" : " (0 is guessing, 1 is perfect)");
}

std::string runs_html(const PageRuns& group, ModelTitle title, std::vector<std::string>& notes,
                      Figures* figures) {
  std::vector<RunData> runs;
  std::vector<std::vector<RunData>> seeds;
  std::vector<std::string> labels;
  bool chosen = false;  // one of several seeds
  for (const auto& member : group.members) {
    try {
      runs.push_back(read_run(member.directory, title));
      labels.push_back(member.label);
      chosen |= member.seeds.size() > 1;
      auto& others = seeds.emplace_back();
      if (member.seeds.size() >= kSeedsForABand)
        for (const auto& directory : member.seeds) others.push_back(read_run(directory, title));
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
  std::string html = fmt::format(
      "<section>\n<h2>{}</h2>\n<p class=\"lead\">{}.{}</p>\n", escape(group.heading),
      escape(what_was_measured(runs)),
      !chosen             ? ""
      : runs.front().text ? " What follows is of the best seed."
                          : " Eigenvalues, and curves of fewer than three seeds, are of the best seed.");
  if (runs.front().text)
    html += text_table(series) + position_figure(series, figures) + text_eigenvalue_figures(series);
  else
    html += accuracy_figure(series, figures) + far_figure(series, figures) + eigenvalue_figures(series);
  return html + "</section>\n";
}

std::string figure_title(const PageRuns& group) { return group.name.empty() ? group.heading : group.name; }

std::string texts_html(const PageTexts& group, Figures* figures) {
  if (group.members.empty()) return "";
  std::vector<RunData> runs;
  for (const auto& [label, run] : group.members) runs.push_back(run);
  const auto styles = styles_of_members(runs);
  std::vector<Series> series;
  for (size_t i = 0; i < runs.size(); ++i)
    series.push_back(Series{&runs[i], group.members[i].first, styles[i]});
  return fmt::format("<section>\n<h2>{}</h2>\n", escape(group.heading)) + position_figure(series, figures) +
         text_eigenvalue_figures(series) + "</section>\n";
}

}  // namespace

bool is_numeric(const PageTable& table, size_t column) {
  // 0.97, −0.1 ± 0.2, 0.1 to 0.3, 0.98 / 0.97, >1000 812, 1e-2: numbers and what stands between them. "1
  // token" is a name.
  const auto number = [](std::string_view word) {
    for (const std::string_view sign : {">", "-", "−"})
      if (word.starts_with(sign)) word.remove_prefix(sign.size());
    return !word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) &&
           word.find_first_not_of("0123456789.e+-") == word.npos;
  };
  return std::all_of(table.rows.begin(), table.rows.end(), [&](const auto& row) {
    const std::string& cell = column < row.size() ? row[column].text : "";
    if (cell.empty() || cell == "missing" || cell == "failed" || cell == "–") return true;
    const auto words = split(cell, ' ');
    return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
      return word == "to" || word == "and" || word == "±" || word == "/" || number(word);
    });
  });
}

std::string render_sweep(const SweepPage& content, ExportedFiles* files) {
  std::string body = fmt::format("<header>\n<h1>{}</h1>\n", escape(content.title));
  for (const auto& paragraph : content.lead)
    body += fmt::format("<p class=\"lead\">{}</p>\n", escape(paragraph));
  body += "</header>\n<main>\n";
  for (const auto& table : content.tables) {
    body += table_html(table);
    if (!files) continue;
    add_table(*files, table.name, table_latex(table), table_csv(table));
  }
  std::vector<std::string> notes = content.notes;
  std::string shown;
  const auto add = [&](const std::string& heading, const auto& html) {
    Figures figures;
    shown += html(files ? &figures : nullptr);
    if (files) add_figures(*files, heading, figures);
  };
  for (const auto& group : content.runs)
    add(figure_title(group),
        [&](Figures* figures) { return runs_html(group, content.model_title, notes, figures); });
  for (const auto& group : content.texts)
    add(group.heading, [&](Figures* figures) { return texts_html(group, figures); });
  if (!notes.empty()) {
    body += "<h3>Notes</h3>\n<ul>\n";
    for (const auto& note : notes) body += fmt::format("<li class=\"note\">{}</li>\n", escape(note));
    body += "</ul>\n";
  }
  return page(content.title, body + shown + "</main>\n", content.made);
}

std::vector<std::string> export_names(const SweepPage& page, const std::set<std::string>& data) {
  Figures texts = {{kPositionFigure, "", ""}};
  for (const auto& folder : data) texts.push_back({position_figure_name(domain_of(folder)), "", ""});
  Figures figures = {{kAccuracyFigure, "", ""}, {kFarFigure, "", ""}};
  figures.insert(figures.end(), texts.begin(), texts.end());
  ExportedFiles files;
  for (const auto& table : page.tables) add_table(files, table.name, "", "");
  for (const auto& group : page.runs) add_figures(files, figure_title(group), figures);
  for (const auto& group : page.texts) add_figures(files, group.heading, texts);
  std::vector<std::string> names;
  for (auto& file : files) names.push_back(std::move(file.name));
  return names;
}

}  // namespace signet::report
