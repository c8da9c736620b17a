// The page `signet report` writes: accuracy against length, training curves, learned eigenvalues,
// configurations.
#pragma once

#include <string>
#include <vector>

#include "signet/report/run_data.h"

namespace signet::report {

enum class Verdict { kSolved, kNearly, kPartly, kChance, kUnfinished };

// How well a run does at the tested lengths: solved from 0.999 scaled accuracy; below, chance up to a tenth
// of the way from what one answer to everything would score to 1; nearly from 0.9.
Verdict verdict(const RunData& run);
// `label` names the run; run_label(run) by default.
std::string verdict_sentence(const RunData& run, const std::string& label = "");

// One self-contained HTML document.
std::string render_report(const std::vector<RunData>& runs, const std::string& title);

}  // namespace signet::report
