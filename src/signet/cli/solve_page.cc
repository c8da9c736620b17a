#include "signet/cli/solve_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "signet/automata/dfa_io.h"
#include "signet/base/text.h"
#include "signet/cli/automaton_report.h"
#include "signet/io/provenance.h"
#include "signet/models/registry.h"
#include "signet/report/figures.h"
#include "signet/report/html.h"
#include "signet/report/run_data.h"

namespace signet::cli {
namespace {

using report::escape;

std::string paragraph(const std::string& text) { return fmt::format("<p>{}</p>\n", escape(text)); }

std::string section(int number, const std::string& title, bool good, const std::string& verdict,
                    const std::string& body) {
  return fmt::format(
      "<section>\n<h2>{}. {}</h2>\n<ul class=\"verdicts\"><li class=\"{}\"><span class=\"mark\" "
      "aria-hidden=\"true\">{}</span><span>{}</span></li></ul>\n{}</section>\n",
      number, escape(title), good ? "good" : "poor", good ? "✓" : "✗", escape(verdict), body);
}

std::string picture(const std::string& title, const automata::Dfa& dfa) {
  if (dfa.states() > kMaxPictured)
    return paragraph(fmt::format("{} states: too many for a picture.", dfa.states()));
  return "<figure>" + automaton_picture(title, dfa) + "</figure>\n";
}

constexpr size_t kFigure = 30;  // characters; what is longer is a sentence, which may be broken into lines

std::string table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<div class=\"scroll\"><table>\n<thead><tr>";
  std::vector<const char*> style;
  for (size_t c = 0; c < header.size(); ++c) {
    const bool words =
        std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row[c].size() > kFigure; });
    style.push_back(words ? " class=\"words\"" : "");
    html += fmt::format("<th{}>{}</th>", style.back(), escape(header[c]));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& row : rows) {
    html += "<tr>";
    for (size_t c = 0; c < row.size(); ++c) html += fmt::format("<td{}>{}</td>", style[c], escape(row[c]));
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string training(const SolveStory& story) {
  std::vector<std::vector<std::string>> rows;
  std::vector<report::RunData> runs;
  for (const auto& a : story.attempts) {
    rows.push_back({a.directory, std::to_string(a.seed), a.targets, std::to_string(a.steps),
                    fmt::format("{:.1f} s", a.seconds), share_text(a.score), a.outcome});
    runs.push_back(report::read_run(a.directory, models::architecture_title));
  }
  std::string html =
      paragraph("Settings: " + story.recipe + ".") +
      table({"attempt", "seed", "answers", "updates", "time", "right at 4 times the length", "then"}, rows);
  std::vector<report::Series> series;
  for (size_t i = 0; i < runs.size(); ++i)
    series.push_back({&runs[i], fmt::format("attempt {}", i + 1), {static_cast<int>(i), 0, 2}});
  if (!series.empty()) html += report::training_figures(series) + report::eigenvalue_figures({series.back()});
  return html;
}

std::string components(const analysis::Extraction& found) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& part : found.parts) {
    const auto& c = part.components;
    rows.push_back({part.name(), c.gathered ? std::to_string(c.count) : "does not gather",
                    c.gathered && c.count > 1 ? fmt::format("{:.3g}", c.gap) : "",
                    c.gathered ? fmt::format("{:.2g}", c.within) : ""});
  }
  return table({"head", "components", "gap", "longest step within"}, rows);
}

std::string agreement(const analysis::Extraction& found) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& a : found.agreement)
    rows.push_back({std::to_string(a.length), share_text(a.answers), share_text(a.whole)});
  return table({"letters", "answers as the automaton's", "whole words"}, rows);
}

}  // namespace

std::string solve_page(const SolveStory& story) {
  std::string body = fmt::format("<main>\n<h1>{}</h1>\n", escape(story.title));
  body += paragraph(
      story.solved
          ? fmt::format("Solved: a {} was trained, its automaton read off, made exact and proved for "
                        "all lengths. The network: {}.",
                        models::architecture_title(story.model), story.network)
          : std::string("Not solved: there is no proof. The steps below say how far it went."));
  int number = 0;
  body += section(++number, "Theory", story.possible.value_or(true),
                  story.target.empty() ? story.verdict
                                       : fmt::format("{} {}: {}", story.target,
                                                     !story.possible   ? "is not decided"
                                                     : *story.possible ? "can"
                                                                       : "cannot",
                                                     story.verdict),
                  (story.witness.empty() ? "" : paragraph("Witness: " + story.witness)) +
                      picture("the language", story.automaton));
  if (!story.attempts.empty()) {
    const auto& last = story.attempts.back();
    body += section(
        ++number, "Training", last.score >= 0.99,
        fmt::format(
            "right in every position: {} of the words that are four times as long as in training, after {}",
            share_text(last.score), count_of(story.attempts.size(), "attempt")),
        training(story));
  }
  if (story.extraction) {
    const auto& found = *story.extraction;
    body += section(
        ++number, "What it has learned", found.found(),
        found.found() ? fmt::format("an automaton of {}, by {}", count_of(story.learned->states(), "state"),
                                    found.method)
                      : std::string("no small automaton explains it"),
        components(found) + (found.found() ? picture("learned", *story.learned) + agreement(found) : ""));
    if (found.equivalent) {
      std::string difference = "the learned automaton and the wanted one are the same";
      if (!*found.equivalent)
        difference = "the learned automaton and the wanted one differ first on " +
                     automata::word_text(story.automaton, found.distinguishing);
      body += section(++number, "Learned and wanted", *found.equivalent, difference, "");
    }
  }
  if (story.crystal) {
    const auto& crystal = *story.crystal;
    std::vector<std::vector<std::string>> rows;
    for (const auto& head : crystal.heads)
      rows.push_back({head.name, std::to_string(head.components), head.construction,
                      fmt::format("{:.2g}", head.residual)});
    body +=
        section(++number, "Crystallised", true,
                crystal.in_place ? "in place: the trained heads, made exact"
                                 : fmt::format("compiled as {} ({})", crystal.network.target, crystal.reason),
                crystal.in_place ? table({"head", "states", "exact form", "residual, in gaps"}, rows)
                                 : paragraph(crystal.network.construction));
    body +=
        section(++number, "Proof", story.solved, crystal.proof.certificate,
                paragraph(fmt::format("Check it: signet verify {} --dtype {}", story.network, story.dtype)));
  }
  return report::page("signet solve: " + story.title, body + "</main>\n",
                      io::provenance_text(io::provenance()));
}

}  // namespace signet::cli
