// Published experiments: experiments/*.yaml, which are compiled into the program. One file per table or
// figure says what was published and which sweep it shows; the sweep's file has one plan per protocol.
#pragma once

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "signet/train/sweep.h"

namespace signet::train {

struct Published {
  double value = std::numeric_limits<double>::quiet_NaN();
  double deviation = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> curve;  // by bin
};

// "On this task this model does better than that one."
struct Claim {
  std::string task, above, below;
};

// What the table or figure shows of a model: its best run or the median of its seeds, accuracy by length, the
// length at which it fails, every seed's score far beyond the training lengths, or losses on text.
enum class Show { kBest, kMedian, kCurve, kHorizon, kSolved, kText };

struct Experiment {
  std::string name, title, citation;
  std::string sweep;  // experiments/<sweep>.yaml
  Show show = Show::kBest;
  std::vector<std::pair<std::string, std::vector<std::string>>> only;  // axis, values
  std::vector<double> bins;                                            // of a curve: edges, ascending
  std::vector<double> quick_bins;  // of the quick protocol, whose curves are compared with nothing
  std::vector<std::string> remarks;
  std::map<std::string, std::map<std::string, std::map<std::string, Published>>>
      published;  // protocol, model, task
  std::vector<Claim> claims;
  std::map<std::string, std::string> predicted;  // task: the theorem that says what to expect

  // What was published under this protocol, or the final one where the protocol is ours; null when nothing
  // was.
  const Published* find(const std::string& protocol, const std::string& model, const std::string& task) const;
};

std::vector<std::string> experiment_names();
// Throws kUsage that names the nearest.
Experiment read_experiment(const std::string& name);
std::vector<std::string> protocols_of(const Experiment& experiment);
SweepPlan experiment_plan(const Experiment& experiment, const std::string& protocol);

// The text of every file of experiments/, by its name without .yaml; made by CMake.
const std::map<std::string, std::string>& experiment_files();

}  // namespace signet::train
