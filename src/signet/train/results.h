// What a run and an evaluation say to programs: the objects of results.json and of `signet eval --json`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "signet/train/evaluator.h"
#include "signet/train/run.h"

namespace signet::train {

// {task, model, eigenvalues, dense, scaled_accuracy, accuracy, sequence_accuracy,
//  constant: {answer, accuracy, sequence_accuracy}, loss, samples, lengths: [shortest, longest],
//  by_length: [{length, accuracy, sequence_accuracy, samples}]}; accuracy is null where nothing is scored
nlohmann::ordered_json evaluation_json(const Run& run, const Evaluation& evaluation);
// {scaled_accuracy, accuracy, samples, by_length} at lengths of the training range.
nlohmann::ordered_json trained_json(const Run& run, const Evaluation& evaluation);
// What the run is evaluated on: the task it was trained on by its title, another by its name.
std::string task_title(const Run& run);
std::string lengths_text(int64_t shortest, int64_t longest);  // "length 9", "lengths 3 to 9"
nlohmann::ordered_json by_length_json(const std::vector<LengthAccuracy>& by_length);
// {length, reached_limit, threshold, limit, samples, seed, probes}: what was found and how it was searched.
inline constexpr double kHorizonThreshold = 0.9;
nlohmann::ordered_json horizon_json(const Horizon& horizon, int64_t limit, int64_t samples, int64_t seed);
// Puts another evaluation in the place of that in `results`. The scores of the first one, by which runs are
// compared, stay under "final".
void replace_evaluation(nlohmann::ordered_json& results, const nlohmann::ordered_json& evaluation);
nlohmann::ordered_json spectra_json(const std::vector<TokenSpectrum>& spectra);
nlohmann::ordered_json error_json(double error);  // null where it is unknown, as of a single row of text

struct FoundHorizon {
  int64_t length = 0, limit = 0, samples = 0, seed = 0;
  bool reached_limit = false;
};
// What a sweep reads back from a run's results.json.
struct StoredResults {
  double score = 0;  // evaluator.h; of the evaluation with which training ended; of text minus the loss
  bool text = false, dense = false;
  double error = 0;  // the standard error of the score over the test sequences; NaN of a single row of text
  double samples = 0, chance = 0;  // sequences, and the accuracy of guessing (0 where sequences are scored)
  double seconds = 0, flops = 0;
  std::optional<FoundHorizon> horizon;
};
// Throws kBadInput that names the file and the key when something is missing or has another type, and says
// what to do.
StoredResults read_results(const std::string& path);

}  // namespace signet::train
