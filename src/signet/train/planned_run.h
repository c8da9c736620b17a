// A run that is part of something larger (a sweep, signet solve), in a directory of its own: not begun, under
// way or finished. A finished run is one that has results. Whoever is stopped or killed goes on by asking for
// all its runs again.
#pragma once

#include <string>

#include "signet/train/config.h"
#include "signet/train/trainer.h"

namespace signet::train {

std::string results_path_of(const std::string& directory);
bool is_begun(const std::string& directory);
bool is_finished(const std::string& directory);

// The first setting of a run that was begun there which is not as wanted now: "train.lr was 0.1, now 0.2".
// Empty where all are, or nothing was begun. The device may differ: a run may go on elsewhere.
std::string changed_setting(const std::string& directory, const RunConfig& wanted);

// Trains the run, from its newest checkpoint where it was begun. Nothing to do for a finished one.
void train_or_resume(const RunConfig& config, const std::string& directory, const TrainOptions& options);

}  // namespace signet::train
