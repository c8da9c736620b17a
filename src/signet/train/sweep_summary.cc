#include "signet/train/sweep_summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "signet/base/files.h"
#include "signet/base/text.h"
#include "signet/train/results.h"

namespace signet::train {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxText = 4000;  // of a title or a message, which may quote file names in any encoding

RunSummary read_run(const std::string& directory, const PlannedRun& run, const RunOutcome& outcome) {
  RunSummary summary;
  summary.name = run.name;
  summary.state = outcome.state;
  summary.message = printable(outcome.message, kMaxText);
  if (outcome.state != RunOutcome::kDone) return summary;
  const auto results = read_results(join_path(join_path(directory, run.name), "results.json"));
  summary.score = results.score;
  summary.text = results.text;
  summary.dense = results.dense;
  summary.error = results.error;
  summary.samples = results.samples;
  summary.chance = results.chance;
  summary.seconds = results.seconds;
  summary.flops = results.flops;
  if (results.horizon) {
    summary.horizon = static_cast<double>(results.horizon->length);
    summary.horizon_held = results.horizon->reached_limit;
  }
  return summary;
}

// Runs that held count as longer than those that failed at the same length.
void set_horizon(SeedsSummary& seeds, const std::vector<RunSummary>& runs) {
  std::vector<std::pair<double, bool>> ends;
  std::vector<double> lengths;
  for (size_t i : seeds.runs) {
    ends.emplace_back(runs[i].horizon, runs[i].horizon_held);
    lengths.push_back(runs[i].horizon);
  }
  seeds.horizon_median = median_of(lengths);
  std::sort(ends.begin(), ends.end());
  for (size_t i = 0; i <= ends.size() / 2 && i < ends.size(); ++i) seeds.horizon_held |= ends[i].second;
}

// Of the runs at one rate.
SeedsSummary summarize_seeds(const std::string& rate, const std::vector<size_t>& at_rate,
                             const std::vector<RunSummary>& runs) {
  SeedsSummary seeds;
  seeds.rate = rate;
  std::vector<double> scores;
  for (size_t i : at_rate) {
    if (runs[i].state != RunOutcome::kDone) continue;
    seeds.runs.push_back(i);
    scores.push_back(runs[i].score);
  }
  if (scores.empty()) return seeds;
  seeds.median = median_of(scores);
  seeds.deviation = deviation_of(scores);
  seeds.first_quartile = quantile_of(scores, 0.25);
  seeds.third_quartile = quantile_of(scores, 0.75);
  const auto count = static_cast<double>(scores.size());
  for (double score : scores) seeds.mean += score / count;
  double squares = 0;
  for (double score : scores) squares += (score - seeds.mean) * (score - seeds.mean);
  seeds.standard_deviation = count > 1 ? std::sqrt(squares / (count - 1)) : 0;
  const auto best = std::max_element(scores.begin(), scores.end());
  seeds.best = *best;
  seeds.best_run = seeds.runs[static_cast<size_t>(best - scores.begin())];
  set_horizon(seeds, runs);
  return seeds;
}

bool chosen_over(const SeedsSummary& a, const SeedsSummary& b) {
  return std::pair(a.runs.size(), a.median) > std::pair(b.runs.size(), b.median);
}

void put_seeds(ordered_json& entry, const SeedsSummary& seeds, const std::vector<RunSummary>& runs) {
  if (!seeds.rate.empty()) entry[kRateAxis] = seeds.rate;
  entry["seeds"] = seeds.runs.size();
  if (seeds.runs.empty()) return;
  entry["best"] = seeds.best;
  entry["median"] = seeds.median;
  entry["deviation"] = seeds.deviation;
  entry["mean"] = seeds.mean;
  entry["standard_deviation"] = seeds.standard_deviation;
  entry["quartiles"] = {seeds.first_quartile, seeds.third_quartile};
  entry["best_run"] = runs[seeds.best_run].name;
  if (seeds.horizon_median > 0) {
    entry["horizon"] = seeds.horizon_median;
    entry["horizon_reached_limit"] = seeds.horizon_held;
  }
}

}  // namespace

double quantile_of(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const double rest = at - static_cast<double>(low);
  return rest == 0 ? values[low] : (1 - rest) * values[low] + rest * values[low + 1];
}

double median_of(std::vector<double> values) { return quantile_of(std::move(values), 0.5); }

double deviation_of(const std::vector<double>& values) {
  const double median = median_of(values);
  std::vector<double> distances;
  for (double value : values) distances.push_back(std::abs(value - median));
  return median_of(distances);
}

SweepSummary summarize(const std::string& directory, const SweepPlan& plan,
                       const std::vector<PlannedRun>& runs, const std::vector<RunOutcome>& outcomes) {
  SweepSummary summary;
  summary.title = printable(plan.title, kMaxText);
  std::vector<size_t> shown;
  size_t rate_axis = plan.axes.size();
  for (size_t a = 0; a < plan.axes.size(); ++a) {
    if (plan.axes[a].name == kRateAxis) rate_axis = a;
    if (plan.axes[a].name == kRateAxis || plan.axes[a].name == kSeedAxis) continue;
    shown.push_back(a);
    summary.axes.push_back(plan.axes[a].name);
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    RunSummary& run = summary.runs.emplace_back(read_run(directory, runs[i], outcomes[i]));
    for (size_t a = 0; a < plan.axes.size(); ++a)
      run.values.emplace_back(plan.axes[a].name, plan.axes[a].values[runs[i].at[a]].name);
  }

  // Members of each group by learning rate, in the order of the grid.
  std::vector<std::vector<size_t>> order;
  std::map<std::vector<size_t>, std::map<size_t, std::vector<size_t>>> members;
  for (size_t i = 0; i < runs.size(); ++i) {
    std::vector<size_t> key;
    for (size_t a : shown) key.push_back(runs[i].at[a]);
    if (!members.count(key)) order.push_back(key);
    members[key][rate_axis < plan.axes.size() ? runs[i].at[rate_axis] : 0].push_back(i);
  }
  for (const auto& key : order) {
    GroupSummary group;
    for (size_t s = 0; s < shown.size(); ++s) group.at.push_back(plan.axes[shown[s]].values[key[s]].name);
    for (const auto& [rate, at_rate] : members[key]) {
      for (size_t i : at_rate) {
        const RunSummary& run = summary.runs[i];
        group.seconds += run.seconds;
        group.failed += run.state == RunOutcome::kFailed;
        if (run.state == RunOutcome::kMissing) group.missing = run.message;
      }
      const std::string name = rate_axis < plan.axes.size() ? plan.axes[rate_axis].values[rate].name : "";
      const auto& seeds = group.rates.emplace_back(summarize_seeds(name, at_rate, summary.runs));
      if (chosen_over(seeds, group)) static_cast<SeedsSummary&>(group) = seeds;
    }
    summary.groups.push_back(std::move(group));
  }
  return summary;
}

ordered_json summary_json(const SweepSummary& summary) {
  ordered_json groups = ordered_json::array(), runs = ordered_json::array();
  for (const auto& group : summary.groups) {
    ordered_json entry = ordered_json::object();
    for (size_t a = 0; a < summary.axes.size(); ++a) entry[summary.axes[a]] = group.at[a];
    put_seeds(entry, group, summary.runs);
    if (group.rates.size() > 1)
      for (const auto& seeds : group.rates) put_seeds(entry["rates"].emplace_back(), seeds, summary.runs);
    entry["seconds"] = group.seconds;
    if (group.failed) entry["failed"] = group.failed;
    if (!group.missing.empty()) entry["missing"] = group.missing;
    groups.push_back(std::move(entry));
  }
  const char* const states[] = {"done", "failed", "missing", "waiting"};
  for (const auto& run : summary.runs) {
    ordered_json entry = {
        {"name", run.name}, {"values", ordered_json::object()}, {"state", states[run.state]}};
    for (const auto& [axis, value] : run.values) entry["values"][axis] = value;
    if (run.state == RunOutcome::kDone) {
      entry["score"] = run.score;
      entry["standard_error"] = error_json(run.error);
      entry["seconds"] = run.seconds;
      entry["train_flops"] = run.flops;
      if (run.horizon > 0) {
        entry["horizon"] = run.horizon;
        entry["horizon_reached_limit"] = run.horizon_held;
      }
    }
    if (!run.message.empty()) entry["message"] = run.message;
    runs.push_back(std::move(entry));
  }
  return {{"title", summary.title}, {"groups", std::move(groups)}, {"runs", std::move(runs)}};
}

}  // namespace signet::train
