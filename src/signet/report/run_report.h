// The page `signet report` writes: accuracy against length, training curves, learned eigenvalues,
// configurations.
#pragma once

#include <string>
#include <vector>

#include "signet/report/figures.h"
#include "signet/report/run_data.h"

namespace signet::report {

enum class Verdict { kSolved, kNearly, kPartly, kChance, kTooFew, kMeasured, kUnfinished };

// How well a run does at the tested lengths: solved from 0.999 scaled accuracy; below, chance up to a tenth
// of the way from what one answer to everything would score to 1; nearly from 0.9. The 95% interval of the
// score must bear it out, or there were too few samples: solved wants all of it above 0.9, nearly above and
// chance below the middle between that one answer and 1, partly above that one answer. Runs on text are
// measured.
inline constexpr double kSolvedScore = 0.999, kNearlyScore = 0.9;
Verdict verdict(const RunData& run);
// `label` names the run; run_label(run) by default.
std::string verdict_sentence(const RunData& run, const std::string& label = "");

// One self-contained HTML document; `made` as of page() in html.h.
std::string render_report(const std::vector<RunData>& runs, const std::string& title,
                          const std::string& made = "");

// For papers: per task every figure as SVG and its numbers as CSV, and the results of all runs as CSV and as
// a LaTeX table (mean and standard deviation over the runs of a model).
ExportedFiles export_report(const std::vector<RunData>& runs);

}  // namespace signet::report
