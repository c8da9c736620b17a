#include "signet/cli/sweep_output.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/quiet.h"
#include "signet/base/text.h"
#include "signet/base/thread_pool.h"
#include "signet/cli/export.h"
#include "signet/cli/output.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/settings.h"
#include "signet/cli/wrap.h"
#include "signet/io/json.h"
#include "signet/io/provenance.h"
#include "signet/report/run_data.h"
#include "signet/report/run_report.h"
#include "signet/report/svg.h"

namespace signet::cli {

void SweepRunner::define(Options& options) {
  options_ = &options;
  options.values("--only", only_,
                 "axis=value;value: run only these, with --done show only these; may be repeated");
  options.values("--set", set_, "section.key=value for every run, over the file; may be repeated");
  options.offer("--set", setting_keys());
  options.value("--seeds", seeds_, "seeds 1 to N in place of those of the file");
  options.value("--jobs", jobs_, "runs at a time [one per core, or 4 on a GPU]");
  device_option(options, device_, "where the updates run");
  options.value("--export", export_,
                "also write the page's tables (CSV, LaTeX) and figures (SVG, CSV, PDF) into this folder");
  options.flag("--done", done_, "train nothing: the page of the runs that are done");
  options.flag("--force", force_,
               "replace the summary of another sweep in the same directory, and other files at --export");
}

void SweepRunner::restrict(train::SweepPlan& plan) const {
  if (options_->given("--seeds")) train::set_seeds(plan, seeds_);
  for (const auto& filter : only_) train::keep_only(plan, filter);
  plan.last = set_;
  // Here, so that a dry run refuses them, too; whether there is a GPU shows when it is opened.
  if (options_->given("--jobs") && (jobs_ < 1 || jobs_ > 256))
    fail(ErrorCode::kUsage, "--jobs {}: give 1 to 256", jobs_);
  check_device_name(device_);
  plan.device = done_ ? "" : device_;
}

namespace {

// The seeds in a summary. Throws kBadInput where its runs are not points of the plan's grid, seeds aside.
std::vector<std::string> seeds_of_summary(const std::string& file, const train::SweepPlan& plan) {
  constexpr char kAdvice[] = "choose another --out, or give --force to replace it";
  const auto summary = io::read_json_file(file);
  const auto runs = summary.find("runs");
  if (runs == summary.end() || !runs->is_array())
    bad_input("{} exists and is no summary of a sweep; {}", printable(file), kAdvice);
  std::vector<std::string> seeds;
  size_t unseeded = 0;
  for (const auto& run : *runs) {
    const auto values = run.is_object() ? run.value("values", nlohmann::ordered_json()) : run;
    bool ours = values.is_object();
    for (const auto& axis : plan.axes) {
      if (!ours || axis.name == train::kSeedAxis) continue;
      const auto value = values.find(axis.name);
      ours = value != values.end() && std::any_of(axis.values.begin(), axis.values.end(),
                                                  [&](const auto& known) { return *value == known.name; });
    }
    const auto seed = ours ? values.find(train::kSeedAxis) : values.end();
    const bool seeded = seed != values.end();
    const size_t others = plan.axes.size() - (plan.axis(train::kSeedAxis) ? 1 : 0);
    if (!ours || values.size() != others + (seeded ? 1 : 0) || (seeded && !seed->is_string()))
      bad_input("{} is the summary of another sweep{}; {}", printable(file),
                run.is_object() && run.value("name", nlohmann::ordered_json()).is_string()
                    ? ": it has the run " + printable(run["name"].get<std::string>())
                    : "",
                kAdvice);
    if (seeded)
      seeds.push_back(seed->get<std::string>());
    else
      ++unseeded;
  }
  // A grid has seeds or has none: its summary would lose the runs that were made otherwise.
  if (!seeds.empty() && !plan.axis(train::kSeedAxis))
    bad_input("{} has runs of several seeds; give --seeds N, {}", printable(file), kAdvice);
  if (unseeded > 0 && plan.axis(train::kSeedAxis))
    bad_input("{} has runs without seeds; leave out --seeds, {}", printable(file), kAdvice);
  return seeds;
}

}  // namespace

void SweepRunner::meet_summary(const std::string& file, train::SweepPlan& plan) const {
  const std::string directory = parent_directory(file);
  if (!force_ && exists(join_path(directory, "config.yaml")) && exists(join_path(directory, "metrics.jsonl")))
    bad_input("{} is a run, whose page this sweep would replace; choose another --out", printable(directory));
  if (!exists(file)) return;
  std::vector<std::string> seeds;
  try {
    seeds = seeds_of_summary(file, plan);
  } catch (const Error&) {
    if (!force_) throw;
  }
  train::add_seeds(plan, seeds);
}

train::SweepSummary SweepRunner::outline(const std::string& directory, const train::SweepPlan& plan,
                                         const std::vector<train::PlannedRun>& runs) {
  return train::summarize(directory, plan, runs, std::vector<train::RunOutcome>(runs.size()));
}

void SweepRunner::check_export(const report::SweepPage& outline,
                               const std::vector<train::PlannedRun>& runs) const {
  std::set<std::string> data;
  for (const auto& run : runs) data.insert(run.config.data.paths.begin(), run.config.data.paths.end());
  check_exports(export_, report::export_names(outline, data), force_);
}

bool SweepRunner::shows_choice() const { return done_ && (!only_.empty() || options_->given("--seeds")); }

void SweepRunner::print_plan(const std::vector<train::PlannedRun>& runs, bool json) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& run : runs) {
    if (!run.chosen) continue;
    list.push_back({{"name", printable(run.name, 1000)}, {"missing", nullptr}});
    if (!run.missing.empty()) list.back()["missing"] = run.missing;
    if (!json)
      fmt::print("{}{}\n", printable(run.name, 1000), run.missing.empty() ? "" : " (" + run.missing + ")");
  }
  if (json) print_as_json(nlohmann::ordered_json{{"runs", list}});
}

nlohmann::ordered_json SweepRunner::provenance() const {
  const OpenDevice device = open_device(device_);
  return io::provenance(device);
}

std::vector<std::string> SweepRunner::write_page(const std::string& path, report::SweepPage page) const {
  page.made = io::provenance_text(provenance());
  report::ExportedFiles files;
  write_output(path, FileKind::kPage, force_, report::render_sweep(page, export_.empty() ? nullptr : &files));
  if (!export_.empty()) files = ready_exports(export_, std::move(files), force_);
  return write_exports(export_, files, force_);
}

train::SweepSummary SweepRunner::run(const std::string& directory, const train::SweepPlan& plan,
                                     std::vector<train::PlannedRun> runs) const {
  if (done_)
    for (auto& run : runs)
      run.chosen = run.chosen && exists(join_path(join_path(directory, run.name), "results.json"));
  const auto chosen = train::chosen_runs(runs);
  if (chosen.empty()) fail(ErrorCode::kUsage, "no run of {} is done", printable(directory));
  const int64_t jobs = jobs_ > 0 ? jobs_ : device_ == "cpu" ? thread_count() : 4;
  const comm::Launch& launch = comm::launch();
  const std::string device = comm::local_device(launch, device_);
  const auto shown = shows_choice() ? chosen : train::runs_to_show(directory, plan, std::move(runs), force_);
  const auto outcomes =
      train::run_sweep(directory, plan, chosen, {jobs, device, quiet() || !reports(), launch});
  std::vector<train::RunOutcome> all;
  for (auto outcome = outcomes.begin(); const auto& run : shown)
    all.push_back(run.chosen ? *outcome++ : train::RunOutcome{train::RunOutcome::kDone, "", 0, true});
  return train::summarize(directory, plan, shown, all);
}

report::Tone score_tone(double score, const train::RunSummary& run) {
  const auto raw = report::wilson(run.chance + score * (1 - run.chance), run.samples);
  const double low = (raw.low - run.chance) / (1 - run.chance),
               high = (raw.high - run.chance) / (1 - run.chance);
  if (score >= report::kSolvedScore)
    return low >= report::kNearlyScore ? report::Tone::kGood : report::Tone::kPlain;
  if (score <= 0.1) return high <= 0.5 ? report::Tone::kPoor : report::Tone::kPlain;
  return low >= 0 ? report::Tone::kFair : report::Tone::kPlain;
}

namespace {

// seeds, best, median, quartiles, mean and standard deviation and, if wanted, horizon; `none` in place of the
// best where no run is done
void append_seeds(std::vector<report::Cell>& row, const train::SweepSummary& summary,
                  const train::SeedsSummary& seeds, bool horizons, const char* none) {
  row.emplace_back(std::to_string(seeds.runs.size()));
  if (seeds.runs.empty()) {
    row.emplace_back(none, report::Tone::kMuted);
    for (int i = 0; i < 3 + horizons; ++i) row.emplace_back("");
    return;
  }
  // The score of a run on text is minus its loss, which is what people read; no loss is good or poor by
  // itself.
  const train::RunSummary& best = summary.runs[seeds.best_run];
  const bool text = best.text;
  const auto number = [&](double score) { return report::fixed_number(text ? -score : score, 3); };
  const auto tone = [&](double score) { return text ? report::Tone::kPlain : score_tone(score, best); };
  row.emplace_back(number(seeds.best), tone(seeds.best));
  row.emplace_back(number(seeds.median), tone(seeds.median));
  const bool spread = seeds.runs.size() > 1;  // one seed shows none
  const double first = text ? seeds.third_quartile : seeds.first_quartile,
               third = text ? seeds.first_quartile : seeds.third_quartile;
  row.emplace_back(spread ? number(first) + " to " + number(third) : "");
  row.emplace_back(number(seeds.mean) +
                   (spread ? " ± " + report::fixed_number(seeds.standard_deviation, 3) : ""));
  if (horizons)
    row.emplace_back(fmt::format("{}{:.0f}", seeds.horizon_held ? ">" : "", seeds.horizon_median));
}

}  // namespace

report::PageTable summary_table(const train::SweepSummary& summary) {
  report::PageTable table;
  table.name = "summary";
  table.caption = "Best, median, quartiles, mean and standard deviation over the seeds";
  table.header = summary.axes;
  const bool rates = std::any_of(summary.groups.begin(), summary.groups.end(),
                                 [](const auto& g) { return !g.rate.empty(); });
  const bool horizons = std::any_of(summary.groups.begin(), summary.groups.end(),
                                    [](const auto& g) { return g.horizon_median > 0; });
  if (rates) table.header.push_back("lr");
  for (const char* name : {"seeds", "best", "median", "quartiles", "mean ± sd"})
    table.header.emplace_back(name);
  if (horizons) table.header.emplace_back("horizon");
  table.header.emplace_back("seconds");
  for (const auto& group : summary.groups) {
    std::vector<report::Cell> row(group.at.begin(), group.at.end());
    if (rates) row.emplace_back(group.rate);
    append_seeds(row, summary, group, horizons, group.missing.empty() ? "failed" : "missing");
    row.emplace_back(fmt::format("{:.1f}", group.seconds));
    table.rows.push_back(std::move(row));
  }
  return table;
}

bool chooses_rates(const train::SweepSummary& summary) {
  return std::any_of(summary.groups.begin(), summary.groups.end(),
                     [](const auto& g) { return g.rates.size() > 1; });
}

void add_rates_table(std::vector<report::PageTable>& tables, const train::SweepSummary& summary) {
  if (!chooses_rates(summary)) return;
  report::PageTable& table = tables.emplace_back();
  table.name = "rates";
  table.caption = "Every learning rate";
  table.header = summary.axes;
  for (const char* name : {"lr", "chosen", "seeds", "best", "median", "quartiles", "mean ± sd"})
    table.header.emplace_back(name);
  for (const auto& group : summary.groups)
    for (const auto& seeds : group.rates) {
      std::vector<report::Cell> row(group.at.begin(), group.at.end());
      row.emplace_back(seeds.rate);
      row.emplace_back(!seeds.runs.empty() && seeds.rate == group.rate ? "yes" : "");
      append_seeds(row, summary, seeds, /*horizons=*/false, group.missing.empty() ? "failed" : "missing");
      table.rows.push_back(std::move(row));
    }
}

std::string plain_text(const report::PageTable& table) {
  report::Table text;
  for (size_t c = 0; c < table.header.size(); ++c)
    text.column(table.header[c], is_numeric(table, c) ? report::Table::kRight : report::Table::kName);
  for (const auto& row : table.rows) text.row(row);
  return text.text(report::text_style(stdout), terminal_width());
}

std::string score_meaning(const train::SweepSummary& summary) {
  bool text = false, dense = false, scaled = false;
  for (const auto& run : summary.runs) {
    if (run.state != train::RunOutcome::kDone) continue;
    (run.text ? text : run.dense ? dense : scaled) = true;
  }
  std::vector<std::string> kinds;
  if (scaled) kinds.emplace_back("scaled accuracies (0 is guessing, 1 is perfect)");
  if (dense) kinds.emplace_back("accuracies of whole sequences where every position is scored");
  if (text) kinds.emplace_back("losses in nats a token on text (the less the better)");
  return kinds.empty() ? "no run has a score" : "scores are " + join(kinds, ", or ");
}

std::vector<std::string> summary_notes(const train::SweepSummary& summary) {
  std::vector<std::string> notes;
  std::set<std::string> missing;
  for (const auto& run : summary.runs) {
    if (run.state == train::RunOutcome::kFailed)
      notes.push_back(fmt::format("{} failed: {}", run.name, run.message));
    if (run.state == train::RunOutcome::kMissing && missing.insert(run.message).second)
      notes.push_back(run.message);
  }
  return notes;
}

}  // namespace signet::cli
