// The figures of a report, each an HTML fragment over the runs of one task; empty when there is nothing to
// show.
#pragma once

#include <string>
#include <vector>

#include "signet/report/run_data.h"

namespace signet::report {

struct Series {
  const RunData* run;
  std::string label;
  SeriesStyle style;
};

std::string accuracy_figure(const std::vector<Series>& series);     // all runs over the tested lengths
std::string far_figure(const std::vector<Series>& series);          // all runs over far lengths, logarithmic
std::string accuracy_tiles(const std::vector<Series>& series);      // one small picture per run
std::string training_figures(const std::vector<Series>& series);    // loss, and accuracy during training
std::string eigenvalue_figures(const std::vector<Series>& series);  // one picture per run and block

}  // namespace signet::report
