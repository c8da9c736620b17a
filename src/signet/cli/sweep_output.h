// What the verbs sweep and reproduce share: running a plan, and showing its summary.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "signet/cli/options.h"
#include "signet/comm/launch.h"
#include "signet/report/sweep_report.h"
#include "signet/train/sweep_summary.h"

namespace signet::cli {

class SweepRunner {
 public:
  void define(Options& options);
  // Applies --only, --seeds and --set to a plan; refuses wrong values of the other options.
  void restrict(train::SweepPlan& plan) const;
  // Throws kBadInput when `file`, which the sweep will write, exists and is no summary of the plan: when rows
  // of another sweep would be lost. So does a directory that is a run. Seeds that it has join the plan, so
  // that they stay in the summary.
  void meet_summary(const std::string& file, train::SweepPlan& plan) const;
  // What there is to show before anything has run.
  static train::SweepSummary outline(const std::string& directory, const train::SweepPlan& plan,
                                     const std::vector<train::PlannedRun>& runs);
  // Whether this process writes files of --export.
  bool exports() const { return reports() && !export_.empty(); }
  // Refuses what is in the way of the files that --export may write for such a page of these runs.
  void check_export(const report::SweepPage& outline, const std::vector<train::PlannedRun>& runs) const;
  // Trains what is left of the chosen runs, and summarises them with all others that were done before; or,
  // where shows_choice(), only them. `runs` are all of the plan.
  train::SweepSummary run(const std::string& directory, const train::SweepPlan& plan,
                          std::vector<train::PlannedRun> runs) const;
  // Whether --done is to show some runs only. Then the summary on disk stays as it is.
  bool shows_choice() const;
  // Writes the page with what made it, and with --export its tables and figures. Returns the paths of the
  // latter.
  std::vector<std::string> write_page(const std::string& path, report::SweepPage page) const;
  // --dry-run: the chosen runs, a line each or as one object.
  static void print_plan(const std::vector<train::PlannedRun>& runs, bool json);
  nlohmann::ordered_json provenance() const;
  // Whether this process writes and prints the summary: the first of those that a launcher has started.
  static bool reports() { return comm::launch().rank == 0; }
  bool force() const { return force_; }
  bool done() const { return done_; }  // --done: nothing is trained
  const std::string& device() const { return device_; }

 private:
  Options* options_ = nullptr;
  std::vector<std::string> only_, set_;
  int64_t jobs_ = 0, seeds_ = 0;
  std::string device_ = "cpu", export_;
  bool force_ = false, done_ = false;
};

// Of a score such as the run's: an accuracy, scaled or of whole sequences. None where its 95% interval leaves
// open what it says (docs/report.md), as of a few samples.
report::Tone score_tone(double score, const train::RunSummary& run);

// One row per point of the grid: its values, learning rate chosen, seeds, best, median, deviation, seconds.
report::PageTable summary_table(const train::SweepSummary& summary);
// Whether some point of the grid has several learning rates, of which one was chosen.
bool chooses_rates(const train::SweepSummary& summary);
inline constexpr char kChosenRate[] =
    "The learning rate is the one with the highest median, of those with the most seeds done.";
// Adds the same for every learning rate, where some point of the grid has several.
void add_rates_table(std::vector<report::PageTable>& tables, const train::SweepSummary& summary);
std::string plain_text(const report::PageTable& table);  // for a terminal
std::string score_meaning(const train::SweepSummary& summary);
// Failed and missing runs, a line each.
std::vector<std::string> summary_notes(const train::SweepSummary& summary);

}  // namespace signet::cli
