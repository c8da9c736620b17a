// The page `signet report` writes: accuracy against length, training curves, learned eigenvalues,
// configurations.
#pragma once

#include <string>
#include <vector>

#include "signet/report/run_data.h"

namespace signet::report {

enum class Verdict { kSolved, kNearly, kPartly, kChance, kUnfinished };

// How well a run does at the tested lengths: solved from 0.999 scaled accuracy, nearly from 0.9, chance up to
// 0.1 above what one answer to everything would score.
Verdict verdict(const RunData& run);
// `label` names the run; run_label(run) by default.
std::string verdict_sentence(const RunData& run, const std::string& label = "");

// One self-contained HTML document.
std::string render_report(const std::vector<RunData>& runs, const std::string& title);

}  // namespace signet::report
