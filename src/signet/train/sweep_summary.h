// What a sweep found: per point of the grid, seeds and learning rates aside, the best run, the median and the
// median absolute deviation over the seeds, at the learning rate whose median is highest (as in Grazzi et
// al., ICLR 2025). A rate with fewer seeds done does not compete with one that has more: what diverges would
// otherwise win by its survivors.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "signet/train/sweep.h"

namespace signet::train {

struct RunSummary {
  std::string name, message;
  std::vector<std::pair<std::string, std::string>> values;  // of every axis, by its name
  RunOutcome::State state = RunOutcome::kWaiting;
  double score = 0, error = 0, seconds = 0, flops = 0;  // error: the standard error of the score
  double samples = 0, chance = 0;                       // of StoredResults
  bool text = false;                                    // its score is minus its loss
  bool dense = false;                                   // its score is the accuracy of whole sequences
  double horizon = 0;                                   // 0 without one
  bool horizon_held = false;
};

// The seeds at one learning rate.
struct SeedsSummary {
  std::string rate;          // "" without that axis
  std::vector<size_t> runs;  // those that are done
  size_t best_run = 0;       // meaningful when `runs` is not empty
  double best = 0, median = 0, deviation = 0;
  double mean = 0, standard_deviation = 0;  // of the seeds as a sample; 0 of one
  double first_quartile = 0, third_quartile = 0;
  double horizon_median = 0;
  bool horizon_held = false;  // the median is only a bound: a run that could move it held up to its limit
};

// A point of the grid: itself the seeds at the learning rate chosen.
struct GroupSummary : SeedsSummary {
  std::vector<std::string> at;      // values on SweepSummary::axes
  std::vector<SeedsSummary> rates;  // every learning rate, in the order of the grid
  double seconds = 0;               // of all its runs
  size_t failed = 0;
  std::string missing;
};

struct SweepSummary {
  std::string title;
  std::vector<std::string> axes;  // but seeds and learning rates
  std::vector<RunSummary> runs;
  std::vector<GroupSummary> groups;
};

SweepSummary summarize(const std::string& directory, const SweepPlan& plan,
                       const std::vector<PlannedRun>& runs, const std::vector<RunOutcome>& outcomes);
nlohmann::ordered_json summary_json(const SweepSummary& summary);

double median_of(std::vector<double> values);                  // 0 of none; the mean of the middle two
double quantile_of(std::vector<double> values, double share);  // between neighbours; 0 of none
double deviation_of(const std::vector<double>& values);        // median of the distances to the median

}  // namespace signet::train
