#include "signet/report/run_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "signet/base/text.h"
#include "signet/report/figures.h"
#include "signet/report/html.h"
#include "signet/report/svg.h"
#include "signet/report/table.h"

namespace signet::report {
namespace {

std::string score(double value) { return score_number(value); }

std::string lengths(double low, double high) {
  return low == high ? whole_number(low) : fmt::format("{}–{}", whole_number(low), whole_number(high));
}

struct VerdictLook {
  const char *style, *mark, *words;
};
VerdictLook look(Verdict v) {
  switch (v) {
    case Verdict::kSolved:
      return {"good", "✓", "solves"};
    case Verdict::kNearly:
      return {"good", "✓", "nearly solves"};
    case Verdict::kPartly:
      return {"fair", "~", "partly solves"};
    case Verdict::kChance:
      return {"poor", "✗", "fails"};
    case Verdict::kTooFew:
      return {"open", "?", "has too few test samples for a verdict on"};
    case Verdict::kMeasured:
      return {"open", "•", "predicts"};
    case Verdict::kUnfinished:
      break;
  }
  return {"open", "…", "has no results yet on"};
}

// Labels that tell the runs of one page apart: the seed, then the directory, only where they are needed.
std::vector<std::string> distinct_labels(const std::vector<const RunData*>& runs) {
  std::vector<std::string> labels;
  for (const auto* run : runs) labels.push_back(run_label(*run));
  for (const bool by_seed : {true, false}) {
    std::map<std::string, int> uses;
    for (const auto& label : labels) ++uses[label];
    for (size_t i = 0; i < runs.size(); ++i)
      if (uses[labels[i]] > 1 && !(by_seed && runs[i]->seed.empty()))
        labels[i] += by_seed ? fmt::format(", seed {}", runs[i]->seed) : fmt::format(", {}", runs[i]->name);
  }
  return labels;
}

std::string verdict_item(const Series& s) {
  const VerdictLook l = look(verdict(*s.run));
  return fmt::format(
      "<li class=\"{}\"><span class=\"mark\" aria-hidden=\"true\">{}</span><span>{}</span></li>\n", l.style,
      l.mark, escape(verdict_sentence(*s.run, s.label)));
}

// Several runs of a model in a few words.
std::string together(const std::vector<const Series*>& runs) {
  size_t solved = 0, measured = 0;
  double least = 1e300, most = 0;
  for (const auto* s : runs) {
    solved += verdict(*s->run) == Verdict::kSolved;
    if (verdict(*s->run) != Verdict::kMeasured) continue;
    ++measured;
    least = std::min(least, s->run->held_out_loss);
    most = std::max(most, s->run->held_out_loss);
  }
  if (measured == 0) return fmt::format("{} of {} runs solve it", solved, runs.size());
  return fmt::format("{}, {} to {} nats a token", count_of(measured, "run"), fixed_number(least, 4),
                     fixed_number(most, 4));
}

// One card a run; of a model with several runs they fold into one, which counts them.
std::string verdict_list(const std::vector<Series>& series) {
  std::vector<std::pair<std::string, std::vector<const Series*>>> models;
  for (const auto& s : series) {
    const std::string name = model_label(*s.run);
    auto found = std::find_if(models.begin(), models.end(), [&](const auto& m) { return m.first == name; });
    if (found == models.end()) found = models.insert(models.end(), {name, {}});
    found->second.push_back(&s);
  }
  std::string html;
  for (const auto& [name, members] : models) {
    std::string items;
    for (const auto* s : members) items += verdict_item(*s);
    const std::string list = "<ul class=\"verdicts\">\n" + items + "</ul>\n";
    html += members.size() == 1 ? list
                                : fmt::format("<details><summary>{}: {}</summary>\n{}</details>\n",
                                              escape(name), together(members), list);
  }
  return html;
}

std::string result_table(const std::vector<Series>& series) {
  std::set<double> far;
  for (const auto& s : series)
    for (const auto& row : s.run->far) far.insert(row.length);
  while (far.size() > 6) far.erase(std::next(far.begin()));  // the nearest and the farthest
  std::string html =
      fmt::format("<div class=\"scroll\"><table>\n<thead><tr><th>run</th><th>{}</th><th>accuracy</th>",
                  series.front().run->measure());
  const bool trained = std::any_of(series.begin(), series.end(),
                                   [](const auto& s) { return std::isfinite(s.run->trained_score); });
  if (trained) html += "<th>trained lengths</th>";
  for (double length : far) html += fmt::format("<th>at {}</th>", escape(short_number(length)));
  html += "<th>samples</th><th>steps</th><th>time</th></tr></thead>\n<tbody>\n";
  for (const auto& s : series) {
    const RunData& run = *s.run;
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td>", escape(s.label), score(run.score()),
                        score(run.accuracy));
    if (trained) html += fmt::format("<td>{}</td>", score(run.trained_score));
    for (double length : far) {
      double value = kUnknown;
      for (const auto& row : run.far)
        if (row.length == length) value = run.scaled(row.accuracy);
      html += fmt::format("<td>{}</td>", score(value));
    }
    html += fmt::format("<td>{}</td><td>{}</td><td>{}</td></tr>\n", whole_number(run.samples),
                        whole_number(run.steps), rough_duration(run.seconds));
  }
  return html + "</tbody></table></div>\n";
}

std::string configurations(const std::vector<Series>& series) {
  std::string html;
  for (const auto& s : series) {
    html += fmt::format("<details><summary>{} <span class=\"note\">({})</span></summary>\n", escape(s.label),
                        escape(s.run->name));
    for (const auto& note : s.run->notes)
      html += fmt::format("<p class=\"note\">Note: {}.</p>\n", escape(note));
    if (!s.run->provenance.empty())
      html += fmt::format("<p class=\"note\">Made by {}</p>\n", escape(s.run->provenance));
    html += s.run->config.empty() ? "<p class=\"note\">no config.yaml</p>\n"
                                  : fmt::format("<pre>{}</pre>\n", escape(s.run->config));
    html += "</details>\n";
  }
  return html;
}

std::string horizon_sentence(const RunData& run) {
  const std::string length = whole_number(run.horizon);
  // Not even samples that are all right show that accuracy is above the threshold.
  if (wilson(1, run.horizon_samples).low < run.horizon_threshold)
    return fmt::format(" {}, with {} a length: too few to tell.",
                       run.horizon_held
                           ? fmt::format("No length up to {}, the longest tried, was seen to fail", length)
                           : fmt::format("Length {} is the shortest seen to fail", length),
                       count_of(whole_number(run.horizon_samples), "sample"));
  const char* accuracy = run.dense ? "The accuracy of whole sequences" : "Accuracy";
  if (run.horizon_held) return fmt::format(" {} holds up to length {}, the longest tried.", accuracy, length);
  return fmt::format(
      " {} is below {} at length {}, the shortest seen to fail.", accuracy,
      std::isfinite(run.horizon_threshold) ? short_number(run.horizon_threshold) : "the threshold", length);
}

std::string far_sentence(const RunData& run) {
  const AccuracyPoint& farthest = run.far.back();
  const auto [low, high] = wilson(farthest.accuracy, farthest.samples);
  const double value = run.scaled(farthest.accuracy), least = run.scaled(low), most = run.scaled(high);
  const std::string at = fmt::format(" At length {} it", whole_number(farthest.length));
  if (value >= kNearlyScore ? least < kNearlyScore : most >= kNearlyScore)
    return at + fmt::format(" scores {} of {}, anything from {} to {} with 95% confidence.", score(value),
                            count_of(whole_number(farthest.samples), "sample"), score(least), score(most));
  return at + fmt::format(" {} {}.", value >= kNearlyScore ? "still scores" : "is down to", score(value));
}

std::vector<Series> series_of(const std::vector<const RunData*>& runs) {
  const auto labels = distinct_labels(runs);
  const auto styles = styles_of(runs, /*apart=*/false);
  std::vector<Series> series;
  for (size_t i = 0; i < runs.size(); ++i) series.push_back({runs[i], labels[i], styles[i]});
  return series;
}

std::string task_section(const std::string& task, const std::vector<const RunData*>& runs) {
  const auto series = series_of(runs);
  std::string html = fmt::format("<section>\n<h2>{}</h2>\n", escape(task.empty() ? "Unfinished runs" : task));
  html += verdict_list(series);
  if (runs[0]->text) {
    html += text_table(series);
    html += position_figure(series);
    html += training_figures(series);
    html += text_eigenvalue_figures(series);
  } else {
    html += result_table(series);
    html += accuracy_figure(series);
    html += far_figure(series);
    html += accuracy_tiles(series);
    html += training_figures(series);
    html += eigenvalue_figures(series);
  }
  html += "<h3>Configurations</h3>\n" + configurations(series);
  return html + "</section>\n";
}

}  // namespace

Verdict verdict(const RunData& run) {
  if (run.text) return std::isfinite(run.held_out_loss) ? Verdict::kMeasured : Verdict::kUnfinished;
  const double value = run.score();
  if (!std::isfinite(value)) return Verdict::kUnfinished;
  const double constant = run.constant_score(), half = (1 + constant) / 2;
  const auto [low, high] = run.score_interval();
  if (!std::isfinite(low)) return Verdict::kTooFew;  // how many samples there were is not known
  const auto unless = [](bool doubtful, Verdict v) { return doubtful ? Verdict::kTooFew : v; };
  if (value >= kSolvedScore) return unless(low < kNearlyScore, Verdict::kSolved);
  if (value <= constant + 0.1 * (1 - constant)) return unless(high > half, Verdict::kChance);
  if (value >= kNearlyScore) return unless(low < half, Verdict::kNearly);
  return unless(low < constant, Verdict::kPartly);
}

std::string verdict_sentence(const RunData& run, const std::string& label) {
  const Verdict v = verdict(run);
  const std::string task = run.task.empty() ? "its task" : run.task;
  std::string text = fmt::format("{} {} {}", label.empty() ? run_label(run) : label, look(v).words, task);
  if (v == Verdict::kUnfinished) return text + ".";
  if (v == Verdict::kMeasured)
    return text + fmt::format(": {}{} nats a token, {} bits a byte on held-out documents (rows of {}).",
                              fixed_number(run.held_out_loss, 4), plus_minus(run.held_out_error),
                              fixed_number(run.bits_per_byte, 4),
                              count_of(whole_number(run.train_high), "token"));
  if (std::isfinite(run.test_low) && std::isfinite(run.test_high))
    text += fmt::format(" at length{} {}", run.test_low == run.test_high ? "" : "s",
                        lengths(run.test_low, run.test_high));
  if (std::isfinite(run.train_low) && std::isfinite(run.train_high))
    text += fmt::format(" (trained on {})", lengths(run.train_low, run.train_high));
  text += fmt::format(": {} {}", run.measure(), score(run.score()));
  if (v == Verdict::kTooFew) {
    const auto [low, high] = run.score_interval();
    if (!std::isfinite(low)) return text + " of an unknown number of samples.";
    return text + fmt::format(" of {}, anything from {} to {} with 95% confidence.",
                              count_of(whole_number(run.samples), "sample"), score(low), score(high));
  }
  if (run.dense) {  // few sequences without an error say little of the answers
    if (v != Verdict::kSolved && std::isfinite(run.accuracy))
      text += fmt::format(", {} of the answers right", score(run.accuracy));
  } else if (v == Verdict::kChance) {
    text += run.score() < run.constant_score() + 0.03 ? ", no better than guessing" : ", close to guessing";
  }
  if (v != Verdict::kSolved && std::isfinite(run.trained_score))
    text += fmt::format(", {} at the lengths it was trained on", score(run.trained_score));
  const double constant = run.dense && v != Verdict::kSolved ? run.constant.accuracy : run.constant_score();
  if (constant >= 0.03)
    text += fmt::format(" (always answering {}: {})", run.constant.answer, score(constant));
  text += ".";
  if (v == Verdict::kSolved || v == Verdict::kNearly || std::isfinite(run.horizon)) {
    if (std::isfinite(run.horizon))
      text += horizon_sentence(run);
    else if (!run.far.empty())
      text += far_sentence(run);
  }
  return text;
}

namespace {

std::vector<std::pair<std::string, std::vector<const RunData*>>> by_task(const std::vector<RunData>& runs) {
  std::vector<std::pair<std::string, std::vector<const RunData*>>> tasks;
  for (const auto& run : runs) {
    auto found = std::find_if(tasks.begin(), tasks.end(), [&](const auto& t) { return t.first == run.task; });
    if (found == tasks.end()) found = tasks.insert(tasks.end(), {run.task, {}});
    found->second.push_back(&run);
  }
  return tasks;
}

}  // namespace

ExportedFiles export_report(const std::vector<RunData>& runs) {
  ExportedFiles files;
  std::string
      csv = kResultColumns,
      tex = "% signet " SIGNET_VERSION
            "\n\\begin{tabular}{llrrr}\n\\hline\ntask & model & runs & mean $\\pm$ sd & best \\\\\n\\hline\n";
  const auto number = [](double value) { return std::isfinite(value) ? fmt::format("{:.6g}", value) : ""; };
  for (const auto& [task, members] : by_task(runs)) {
    Figures figures;
    const auto series = series_of(members);
    accuracy_figure(series, &figures);
    far_figure(series, &figures);
    position_figure(series, &figures);
    training_figures(series, &figures);
    add_figures(files, task, figures);
    std::vector<std::pair<std::string, std::vector<double>>> models;
    for (const auto* run : members) {
      const double score = run->text ? run->held_out_loss : run->score();
      const auto [low, high] = run->text ? Interval{score - run->held_out_error, score + run->held_out_error}
                                         : run->score_interval();
      csv += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", csv_field(task), csv_field(run->name),
                         csv_field(run_label(*run)), csv_field(run->seed), number(score), number(low),
                         number(high), number(run->accuracy), number(run->trained_score),
                         number(run->samples), number(run->steps), number(run->seconds));
      if (!std::isfinite(score)) continue;
      const std::string name = run_label(*run);
      auto found = std::find_if(models.begin(), models.end(), [&](const auto& m) { return m.first == name; });
      if (found == models.end()) found = models.insert(models.end(), {name, {}});
      found->second.push_back(score);
    }
    for (const auto& [model, scores] : models) {
      const auto n = static_cast<double>(scores.size());
      double mean = 0, squares = 0;
      for (double x : scores) mean += x / n;
      for (double x : scores) squares += (x - mean) * (x - mean);
      const auto figure = [](double value) { return latex_text(fixed_number(value, 3)); };
      tex += fmt::format("{} & {} & {} & {}{} & {} \\\\\n",
                         latex_text(members.front()->text ? task + ", loss" : task), latex_text(model),
                         scores.size(), figure(mean),
                         n > 1 ? " $\\pm$ " + figure(std::sqrt(squares / (n - 1))) : "",
                         figure(members.front()->text ? *std::min_element(scores.begin(), scores.end())
                                                      : *std::max_element(scores.begin(), scores.end())));
    }
  }
  add_table(files, "results", tex + "\\hline\n\\end{tabular}\n", csv);
  return files;
}

std::string render_report(const std::vector<RunData>& runs, const std::string& title,
                          const std::string& made) {
  size_t solved = 0, on_tasks = 0;
  for (const auto& run : runs) solved += verdict(run) == Verdict::kSolved, on_tasks += !run.text;
  std::string lead = count_of(runs.size(), "run");
  if (on_tasks > 0)
    lead += fmt::format(", {} solved. Scaled accuracy is 0 for guessing and 1 for perfect answers", solved);
  std::string body = fmt::format("<header>\n<h1>{}</h1>\n<p class=\"lead\">{}.</p>\n</header>\n<main>\n",
                                 escape(title), lead);
  for (const auto& [task, members] : by_task(runs)) body += task_section(task, members);
  return page(title, body + "</main>\n", made);
}

}  // namespace signet::report
