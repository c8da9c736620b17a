#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/text.h"
#include "signet/cli/output.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/sweep_output.h"
#include "signet/cli/text_experiment.h"
#include "signet/cli/verb.h"
#include "signet/io/json.h"
#include "signet/models/registry.h"
#include "signet/report/run_data.h"
#include "signet/report/svg.h"
#include "signet/train/experiment.h"

namespace signet::cli {
namespace {

using nlohmann::ordered_json;
using report::Cell;
using report::Tone;
using train::GroupSummary;
using train::Show;

class Reproduce final : public Verb {
 public:
  void define(Options& options) override {
    options_ = &options;
    options.positional("EXPERIMENT", name_, "one of: " + join(train::experiment_names(), ", "));
    options.offer("EXPERIMENT", train::experiment_names());
    options.value("--protocol", protocol_, "final, early or quick: the paper's versions, or ours in minutes");
    options.flag("--quick", quick_, "the same as --protocol quick");
    options.value("-o,--out", out_, "directory of the runs [runs/reproduce/SWEEP-PROTOCOL]");
    runner_.define(options);
    text_.define(options);
    options.flag("--dry-run", dry_run_, "list the runs and stop");
    options.flag("--json", json_, "print one JSON object");
    options.example("signet reproduce table3 --dry-run", "what the table's protocol would run");
    options.example("signet reproduce lm --quick --dry-run", "language models in both ranges, on text");
    options.example("signet reproduce figure6 --quick --only 'model=DeltaNet [-1,1]' --dry-run",
                    "a part of a small version; without --dry-run it runs and ends with a page");
  }

  int run() override {
    experiment_ = train::read_experiment(name_);
    if (quick_ && options_->given("--protocol") && protocol_ != "quick")
      fail(ErrorCode::kUsage, "--quick is --protocol quick; leave out --protocol {}", protocol_);
    if (quick_) protocol_ = "quick";
    if (protocol_ == "quick" && !experiment_.quick_bins.empty()) {
      experiment_.bins = experiment_.quick_bins;
      experiment_.published.clear();
    }
    if (!of_text() && text_.asked()) fail(ErrorCode::kUsage, "--text, --data and --earlier are for lm");
    // Tables and figures of one sweep share its runs.
    if (out_.empty()) out_ = fmt::format("runs/reproduce/{}-{}", experiment_.sweep, protocol_);
    train::SweepPlan plan = train::experiment_plan(experiment_, protocol_);
    if (of_text()) text_.place(plan, out_);
    runner_.restrict(plan);
    const std::string json_path = join_path(out_, name_ + ".json"),
                      page_path = join_path(out_, name_ + ".html");
    if (!dry_run_) {
      runner_.meet_summary(json_path, plan);
      check_replaceable(page_path, FileKind::kPage, runner_.force());
    }
    const auto runs = train::plan_runs(plan, /*allow_missing=*/true);
    if (dry_run_) {
      runner_.print_plan(runs, json_);
      return 0;
    }
    if (runner_.exports()) {
      summary_ = SweepRunner::outline(out_, plan, runs);
      if (of_text()) text_.expect(summary_);
      runner_.check_export(make_page(), runs);
    }
    if (of_text() && runner_.reports() && !runner_.done()) text_.prepare(protocol_ == "quick");
    summary_ = runner_.run(out_, plan, runs);
    if (!runner_.reports()) return 0;
    if (of_text()) {
      const OpenDevice device = open_device(runner_.device());
      text_.measure(out_, summary_, protocol_ == "quick", device);
      text_.add_earlier(summary_);
    }
    report::SweepPage page = make_page();
    auto json = to_json(page.notes);
    if (of_text()) text_.add_json(json, summary_);
    const auto exported = runner_.write_page(page_path, page);
    if (!runner_.shows_choice()) io::write_json_file(json_path, json);
    if (json_) {
      print_as_json(json);
    } else {
      fmt::print("{}\n", experiment_.title);
      for (const auto& table : page.tables)
        if (table.in_terminals) fmt::print("\n{}\n{}", table.caption, plain_text(table));
      for (const auto& note : page.notes) fmt::print("{}\n", printable(note, 2000));
      fmt::print("page: {}\n", page_path);
      for (const auto& path : exported) fmt::print("{}\n", printable(path, 4000));
    }
    const bool failed = std::any_of(summary_.runs.begin(), summary_.runs.end(),
                                    [](const auto& run) { return run.state == train::RunOutcome::kFailed; });
    return failed ? static_cast<int>(ErrorCode::kFailure) : 0;
  }

 private:
  // Values of an axis in the order of the grid.
  std::vector<std::string> values_of(const std::string& axis) const {
    std::vector<std::string> values;
    for (const auto& group : summary_.groups) {
      const std::string value = at(group, axis);
      if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    }
    return values;
  }
  std::string at(const GroupSummary& group, const std::string& axis) const {
    for (size_t a = 0; a < summary_.axes.size(); ++a)
      if (summary_.axes[a] == axis) return group.at[a];
    return "";
  }
  const GroupSummary* find(const std::string& model, const std::string& task) const {
    for (const auto& group : summary_.groups)
      if (at(group, "model") == model && at(group, "task") == task) return &group;
    return nullptr;
  }
  bool median() const { return experiment_.show == Show::kMedian; }
  bool of_text() const { return experiment_.show == Show::kText; }
  bool of_curves() const { return experiment_.show == Show::kCurve; }
  bool shows_seeds() const {
    return experiment_.show == Show::kHorizon || experiment_.show == Show::kSolved || of_text();
  }
  const report::RunData& data_of(size_t i) const {
    auto& read = read_[i];
    if (!read) read = report::read_run(join_path(out_, summary_.runs[i].name));
    return *read;
  }
  // What models are compared by, and its standard error over the test sequences. Where a figure shows how far
  // whole sequences are right, all may be wrong at the end of it: there it is how far they are right.
  struct Measure {
    double value, error;
  };
  Measure measure(size_t i) const {
    if (of_curves())
      if (const auto reach = data_of(i).reach(); std::isfinite(reach.mean)) return {reach.mean, reach.error};
    return {summary_.runs[i].score, summary_.runs[i].error};
  }
  size_t best_run(const GroupSummary& group) const {
    if (!of_curves()) return group.best_run;
    return *std::max_element(group.runs.begin(), group.runs.end(),
                             [&](size_t a, size_t b) { return measure(a).value < measure(b).value; });
  }
  Measure measure(const GroupSummary& group) const {
    if (experiment_.show == Show::kHorizon) return {group.horizon_median, 0};
    if (!median()) return measure(best_run(group));
    std::vector<double> errors;
    for (size_t i : group.runs) errors.push_back(summary_.runs[i].error);
    return {group.median, train::median_of(errors)};
  }

  static std::string number(double value) { return report::fixed_number(value, 3); }
  Cell ours_cell(const GroupSummary* group) const {
    if (!group) return Cell("–", Tone::kMuted);
    if (group->runs.empty()) return Cell(group->missing.empty() ? "failed" : "missing", Tone::kMuted);
    const double value = measure(*group).value;
    return Cell(median() ? number(value) + " ± " + number(group->deviation) : number(value),
                score_tone(value, summary_.runs[group->best_run]));
  }
  Cell published_cell(const std::string& model, const std::string& task) const {
    const auto* published = experiment_.find(protocol_, model, task);
    if (!published || !std::isfinite(published->value)) return Cell("–", Tone::kMuted);
    return Cell(std::isfinite(published->deviation)
                    ? number(published->value) + " ± " + number(published->deviation)
                    : number(published->value),
                Tone::kMuted);
  }

  // Models by tasks, ours and published side by side.
  report::PageTable score_table() const {
    report::PageTable table;
    table.name = "scores";
    table.caption = median() ? "Median and median absolute deviation over the seeds" : "Best of the seeds";
    if (chooses_rates(summary_)) table.caption += ", at the learning rate with the highest median";
    table.header = {"model"};
    const auto tasks = values_of("task");
    for (const auto& task : tasks) {
      table.header.push_back(task);
      table.header.emplace_back("published");
    }
    table.header.emplace_back("seconds");
    for (const auto& model : values_of("model")) {
      std::vector<Cell> row = {model};
      double seconds = 0;
      for (const auto& task : tasks) {
        const auto* group = find(model, task);
        row.push_back(ours_cell(group));
        row.push_back(published_cell(model, task));
        if (group) seconds += group->seconds;
      }
      row.emplace_back(fmt::format("{:.0f}", seconds));
      table.rows.push_back(std::move(row));
    }
    return table;
  }

  // The best run's accuracy by bins of length.
  std::vector<double> curve(const GroupSummary& group) const {
    std::vector<double> values;
    const auto& best = data_of(best_run(group));
    for (size_t b = 0; b + 1 < experiment_.bins.size(); ++b) {
      std::vector<report::AccuracyPoint> rows;
      for (const auto& row : best.by_length)
        if (row.length >= experiment_.bins[b] && row.length < experiment_.bins[b + 1]) rows.push_back(row);
      values.push_back(best.scaled(report::pool(rows, 0, rows.size()).accuracy));
    }
    return values;
  }

  // Bins of length for which there is a value of ours or a published one.
  std::vector<size_t> bins_with_values(const std::string& task) const {
    std::vector<size_t> bins;
    for (size_t b = 0; b + 1 < experiment_.bins.size(); ++b) {
      bool any = false;
      for (const auto& model : values_of("model")) {
        const auto* group = find(model, task);
        const auto* published = experiment_.find(protocol_, model, task);
        any = any || (group && !group->runs.empty() && std::isfinite(curve(*group)[b])) ||
              (published && b < published->curve.size());
      }
      if (any) bins.push_back(b);
    }
    return bins;
  }

  std::vector<report::PageTable> curve_tables() const {
    std::vector<report::PageTable> tables;
    for (const auto& task : values_of("task")) {
      const auto bins = bins_with_values(task);
      bool any_published = false;
      report::PageTable table;
      table.header = {"model"};
      for (size_t b : bins)
        table.header.push_back(
            fmt::format("{:.0f}–{:.0f}", experiment_.bins[b], experiment_.bins[b + 1] - 1));
      table.header.emplace_back("seconds");
      for (const auto& model : values_of("model")) {
        const auto* group = find(model, task);
        if (!group) continue;
        std::vector<Cell> row = {model};
        const auto* published = experiment_.find(protocol_, model, task);
        const std::vector<double> ours = group->runs.empty() ? std::vector<double>{} : curve(*group);
        for (size_t b : bins) {
          std::string text = ours.empty() ? (group->missing.empty() ? "failed" : "missing")
                                          : report::fixed_number(ours[b], 2);
          if (published && b < published->curve.size()) {
            any_published = true;
            text += " / " + report::fixed_number(published->curve[b], 2);
          }
          row.emplace_back(text, ours.empty() || !std::isfinite(ours[b])
                                     ? Tone::kMuted
                                     : score_tone(ours[b], summary_.runs[group->best_run]));
        }
        row.emplace_back(fmt::format("{:.0f}", group->seconds));
        table.rows.push_back(std::move(row));
      }
      table.name = report::file_stem(task) + "-by-length";
      table.caption = task + ": best run by length" + (any_published ? ", ours / published" : "");
      tables.push_back(std::move(table));
    }
    return tables;
  }

  // Per task the models by their median horizon.
  std::vector<report::PageTable> horizon_tables() const {
    std::vector<report::PageTable> tables;
    for (const auto& task : values_of("task")) {
      report::PageTable table;
      table.name = report::file_stem(task) + "-horizons";
      table.caption = task;
      table.header = {"model", "horizon", "of the seeds", "score", "training FLOPs", "seconds"};
      std::vector<const GroupSummary*> groups;
      for (const auto& group : summary_.groups)
        if (at(group, "task") == task) groups.push_back(&group);
      std::stable_sort(groups.begin(), groups.end(), [](const auto* a, const auto* b) {
        return (a->runs.empty() ? -1 : a->horizon_median) > (b->runs.empty() ? -1 : b->horizon_median);
      });
      for (const auto* group : groups) {
        if (group->runs.empty()) {
          table.rows.push_back(
              {at(*group, "model"), Cell(group->missing.empty() ? "failed" : "missing", Tone::kMuted)});
          continue;
        }
        std::vector<double> flops, seconds;
        std::string each;
        for (size_t i : group->runs) {
          const auto& run = summary_.runs[i];
          flops.push_back(run.flops);
          seconds.push_back(run.seconds);
          each +=
              fmt::format("{}{}{:.0f}", each.empty() ? "" : " ", run.horizon_held ? ">" : "", run.horizon);
        }
        const bool beyond = group->horizon_held;
        table.rows.push_back(
            {at(*group, "model"),
             Cell(fmt::format("{}{:.0f}", beyond ? ">" : "", group->horizon_median),
                  beyond ? Tone::kGood : Tone::kPlain),
             each, Cell(number(group->median), score_tone(group->median, summary_.runs[group->best_run])),
             fmt::format("{:.2e}", train::median_of(flops)),
             fmt::format("{:.1f}", train::median_of(seconds))});
      }
      tables.push_back(std::move(table));
    }
    return tables;
  }

  // Per task and model the scores far beyond the training lengths.
  report::PageTable solved_table() const {
    report::PageTable table;
    table.name = "scores";
    table.caption = "Score at the tested length, every seed";
    table.header = {"task", "model", "trained to", "tested at", "scores", "seconds"};
    for (const auto& group : summary_.groups) {
      const std::string task = at(group, "task");
      std::vector<Cell> row = {task, at(group, "model")};
      if (group.runs.empty()) {
        row.emplace_back(group.missing.empty() ? "failed" : "missing", Tone::kMuted);
        row.resize(6, Cell(""));
      } else {
        const auto& best = data_of(best_run(group));
        std::vector<double> seconds;
        std::string scores;
        for (size_t i : group.runs) {
          seconds.push_back(summary_.runs[i].seconds);
          scores += (scores.empty() ? "" : " ") + number(summary_.runs[i].score);
        }
        row.emplace_back(report::fixed_number(best.train_high, 0));
        row.emplace_back(report::fixed_number(best.test_high, 0));
        row.emplace_back(scores, score_tone(group.median, summary_.runs[group.best_run]));
        row.emplace_back(fmt::format("{:.1f}", train::median_of(seconds)));
      }
      table.rows.push_back(std::move(row));
    }
    return table;
  }

  struct Verdict {
    const train::Claim* claim;
    const GroupSummary *above, *below;
    double lead = 0, error = 0;  // of the better over the worse, and the standard error of that
    bool known() const { return !above->runs.empty() && !below->runs.empty(); }
    // A lead within its standard error, or that does not show in three decimals, is none.
    double noise() const { return std::max(error, 0.001); }
    bool holds() const { return lead >= noise(); }
    bool tie() const { return std::abs(lead) < noise(); }
  };
  // Claims about what this protocol runs.
  std::vector<Verdict> verdicts() const {
    std::vector<Verdict> list;
    for (const auto& claim : experiment_.claims) {
      Verdict verdict{&claim, find(claim.above, claim.task), find(claim.below, claim.task)};
      if (!verdict.above || !verdict.below) continue;
      if (verdict.known()) {
        const Measure above = measure(*verdict.above), below = measure(*verdict.below);
        verdict.lead = above.value - below.value;
        verdict.error = std::hypot(above.error, below.error);
      }
      list.push_back(verdict);
    }
    return list;
  }

  report::PageTable claim_table() const {
    report::PageTable table;
    table.name = "orderings";
    table.caption =
        experiment_.predicted.empty() ? "Orderings that the paper shows" : "Orderings that theory predicts";
    table.caption += " (tie: a lead within its standard error over the test sequences";
    const bool how_far =
        of_curves() && std::any_of(summary_.groups.begin(), summary_.groups.end(), [&](const auto& group) {
          return !group.runs.empty() && data_of(best_run(group)).dense;
        });
    table.caption += how_far ? "; ours: the share of a sequence before its first error, in the mean)" : ")";
    table.header = {"task", "better", "worse", "ours", "holds"};
    for (const auto& verdict : verdicts()) {
      std::vector<Cell> row = {verdict.claim->task, verdict.claim->above, verdict.claim->below};
      if (!verdict.known()) {
        row.emplace_back("not run", Tone::kMuted);
        row.emplace_back("–", Tone::kMuted);
      } else {
        row.emplace_back(number(measure(*verdict.above).value) + " and " +
                         number(measure(*verdict.below).value));
        row.push_back(verdict.holds() ? Cell("yes", Tone::kGood)
                      : verdict.tie() ? Cell("tie", Tone::kMuted)
                                      : Cell("no", Tone::kPoor));
      }
      table.rows.push_back(std::move(row));
    }
    return table;
  }

  std::vector<report::PageTable> tables() const {
    switch (experiment_.show) {
      case Show::kText:
        return text_.tables(summary_);
      case Show::kCurve:
        return curve_tables();
      case Show::kHorizon:
        return horizon_tables();
      case Show::kSolved:
        return {solved_table()};
      case Show::kBest:
      case Show::kMedian:
        break;
    }
    return {score_table()};
  }

  report::SweepPage make_page() const {
    report::SweepPage page;
    page.title = experiment_.title;
    page.model_title = models::architecture_title;
    page.lead = {experiment_.citation,
                 fmt::format("Protocol {}, {} in {} on {}. {}{}Seconds are {}.", protocol_,
                             count_of(summary_.runs.size(), "run"), out_, runner_.device(),
                             chooses_rates(summary_) ? kChosenRate : "", chooses_rates(summary_) ? " " : "",
                             shows_seeds() ? "of one run's training, the median over the seeds"
                                           : "of all runs together")};
    if (protocol_ == "quick" && !of_text())
      page.lead.emplace_back(
          "This is our small version, with smaller models, easier tasks (permutations of three points for "
          "five, "
          "sums mod 4 for 60, short expressions) and shorter lengths: orderings can be compared, values "
          "cannot.");
    for (const auto& remark : experiment_.remarks) page.lead.push_back(remark);
    page.tables = tables();
    if (of_text()) page.texts = text_.figures(summary_);
    if (!verdicts().empty()) page.tables.push_back(claim_table());
    const size_t shown = page.tables.size();
    if (!shows_seeds()) page.tables.push_back(summary_table(summary_));
    add_rates_table(page.tables, summary_);
    for (size_t t = shown; t < page.tables.size(); ++t) page.tables[t].in_terminals = false;
    page.notes = summary_notes(summary_);
    if (of_text()) return page;
    for (const auto& task : values_of("task")) {
      const auto predicted = experiment_.predicted.find(task);
      if (predicted != experiment_.predicted.end()) page.notes.push_back(task + ": " + predicted->second);
      report::PageRuns runs{task + ": best runs", {}, task};
      for (const auto& group : summary_.groups)
        if (at(group, "task") == task && !group.runs.empty()) {
          auto& member = runs.members.emplace_back();
          member.label = at(group, "model");
          member.directory = join_path(out_, summary_.runs[best_run(group)].name);
          for (size_t i : group.runs) member.seeds.push_back(join_path(out_, summary_.runs[i].name));
        }
      if (!runs.members.empty()) {
        const auto any = report::read_run(runs.members.front().directory);
        if (any.constant_score() >= 0.03)
          page.notes.push_back(fmt::format("{}: always answering {} scores {:.3f}", task, any.constant.answer,
                                           any.constant_score()));
      }
      page.runs.push_back(std::move(runs));
    }
    return page;
  }

  ordered_json to_json(const std::vector<std::string>& notes) const {
    ordered_json json = {
        {"experiment", name_},   {"title", experiment_.title},         {"citation", experiment_.citation},
        {"protocol", protocol_}, {"directory", printable(out_, 4000)}, {"device", runner_.device()}};
    const auto summary = train::summary_json(summary_);
    json["groups"] = ordered_json::array();
    for (size_t i = 0; i < summary_.groups.size(); ++i) {
      auto entry = summary["groups"][i];
      const auto& group = summary_.groups[i];
      if (const auto* published = experiment_.find(protocol_, at(group, "model"), at(group, "task"))) {
        if (std::isfinite(published->value)) entry["published"] = published->value;
        if (std::isfinite(published->deviation)) entry["published_deviation"] = published->deviation;
        if (!published->curve.empty()) entry["published_curve"] = published->curve;
      }
      if (!experiment_.bins.empty() && !group.runs.empty()) {
        entry["bins"] = experiment_.bins;
        entry["curve"] = curve(group);
      }
      json["groups"].push_back(std::move(entry));
    }
    json["claims"] = ordered_json::array();
    for (const auto& verdict : verdicts()) {
      ordered_json entry = {
          {"task", verdict.claim->task}, {"above", verdict.claim->above}, {"below", verdict.claim->below}};
      for (const char* key : {"lead", "standard_error", "holds", "tie"}) entry[key] = nullptr;
      if (verdict.known()) {
        entry["lead"] = verdict.lead;
        entry["standard_error"] = verdict.error;
        entry["holds"] = verdict.holds();
        entry["tie"] = verdict.tie();
      }
      json["claims"].push_back(std::move(entry));
    }
    json["notes"] = notes;
    json["runs"] = summary["runs"];
    json["provenance"] = runner_.provenance();
    return json;
  }

  Options* options_ = nullptr;
  SweepRunner runner_;
  TextExperiment text_;
  train::Experiment experiment_;
  train::SweepSummary summary_;
  mutable std::map<size_t, std::optional<report::RunData>> read_;  // of its runs
  std::string name_, out_, protocol_ = "final";
  bool quick_ = false, dry_run_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_reproduce() { return std::make_unique<Reproduce>(); }

}  // namespace signet::cli
