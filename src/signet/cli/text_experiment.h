// The part of `signet reproduce lm` that experiments on tasks do not have: text to train on, losses far
// beyond the training context, eigenvalues on text, and tables of differences between the two ranges.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "signet/cli/options.h"
#include "signet/report/sweep_report.h"
#include "signet/tensor/device.h"
#include "signet/train/sweep_summary.h"

namespace signet::cli {

class TextExperiment {
 public:
  void define(Options& options);
  bool asked() const {
    return options_->given("--text") || options_->given("--data") || options_->given("--earlier");
  }

  // Puts the folder of the data before the names in the plan: --data, or <out>/data.
  void place(train::SweepPlan& plan, const std::string& out);
  // Makes what is missing there: english and code out of --text, tracking by itself.
  void prepare(bool quick) const;
  // Nothing is measured yet.
  void expect(const train::SweepSummary& summary) { far_.assign(summary.runs.size(), nullptr); }
  // Measures every run that is done, or takes what was measured before (<run>/far.json).
  void measure(const std::string& out, const train::SweepSummary& summary, bool quick, const Device& device);
  // Adds the runs of --earlier that the summary lacks, with what was measured of them.
  void add_earlier(train::SweepSummary& summary);

  std::vector<report::PageTable> tables(const train::SweepSummary& summary) const;
  // Of each kind of model on text alone: the loss by position in both ranges, and the eigenvalues of [-1,1].
  // A kind of which nothing has been measured has no members.
  std::vector<report::PageTexts> figures(const train::SweepSummary& summary) const;
  void add_json(nlohmann::ordered_json& json, const train::SweepSummary& summary) const;

 private:
  std::string folder(const std::string& name) const;
  report::PageTable loss_table(const train::SweepSummary& summary) const;
  report::PageTable eigenvalue_table(const train::SweepSummary& summary) const;

  Options* options_ = nullptr;
  std::vector<std::string> texts_;
  std::string data_, earlier_;
  std::vector<nlohmann::ordered_json> far_;  // of every run of the summary; null where it is not done
  std::optional<nlohmann::ordered_json> earlier_provenance_;
};

}  // namespace signet::cli
