// What a run and an evaluation say to programs: the objects of results.json and of `signet eval --json`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "signet/train/evaluator.h"
#include "signet/train/run.h"

namespace signet::train {

// {task, model, eigenvalues, dense, scaled_accuracy, accuracy, sequence_accuracy, loss, samples,
//  by_length: [{length, accuracy, sequence_accuracy, samples}]}
nlohmann::ordered_json evaluation_json(const Run& run, const Evaluation& evaluation);
nlohmann::ordered_json by_length_json(const std::vector<LengthAccuracy>& by_length);
// {length, reached_limit, threshold, samples, probes}
inline constexpr double kHorizonThreshold = 0.9;
nlohmann::ordered_json horizon_json(const Horizon& horizon, int64_t samples);
// The score (evaluator.h) in the object of an evaluation.
double score_of(const nlohmann::ordered_json& evaluation);
nlohmann::ordered_json spectra_json(const std::vector<TokenSpectrum>& spectra);

}  // namespace signet::train
