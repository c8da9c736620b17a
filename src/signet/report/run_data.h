// What a report needs of a run directory. Any file in it may be missing, torn or hostile: what cannot be read
// becomes a note, and the rest is shown. Unknown numbers are NaN.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "signet/report/svg.h"

namespace signet::report {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct AccuracyPoint {
  double length = kUnknown, accuracy = kUnknown, samples = kUnknown;
};

// Rows [begin, end) taken together: mean length and accuracy, weighted by samples (1 where they are unknown).
// Rows of unknown accuracy do not count; NaN and 0 samples when none is left.
AccuracyPoint pool(const std::vector<AccuracyPoint>& rows, size_t begin, size_t end);

// The 95% interval (Wilson) of a share p of n samples; unknown without samples.
struct Interval {
  double low = kUnknown, high = kUnknown;
};
Interval wilson(double p, double samples);

// The eigenvalues that one token gives a block (and head, or -1): 1 - beta, or the diagonal.
struct Spectrum {
  int64_t block = 0, head = -1;
  std::string token;
  std::vector<double> values;
};

struct RunData {
  std::string name;  // of the directory
  std::string task, model, seed;
  std::string title;  // of the model on pages
  double eigenvalue_low = kUnknown, eigenvalue_high = kUnknown;
  double householders = 1;  // factors of a head, each with an eigenvalue: head h has h n to h n + n - 1
  double smoothing = 0;     // of the targets
  double train_low = kUnknown, train_high = kUnknown;  // lengths seen in training
  double test_low = kUnknown, test_high = kUnknown;    // and tested
  double chance = kUnknown;
  struct Constant {  // what giving the most frequent answer to everything would score
    std::string answer;
    double accuracy = kUnknown, sequence_accuracy = kUnknown;
  } constant;
  // Every position is scored: accuracies below are of whole sequences, and are not scaled.
  bool dense = false;
  double accuracy = kUnknown, scaled_accuracy = kUnknown, samples = kUnknown;
  double steps = kUnknown, seconds = kUnknown;  // of the results
  double planned_steps = kUnknown;              // as config.yaml has it
  bool outdated = false;                        // it has gone on after its results, or was begun anew
  // Sorted by length. Where every position is scored, by_length goes along the sequences.
  std::vector<AccuracyPoint> by_length, far;
  // At the lengths of training, where the test has none of them; the score is over all of these.
  std::vector<AccuracyPoint> trained;
  double trained_score = kUnknown;
  // The length at which accuracy falls under the threshold, with so many samples a length; held: it did not,
  // up to that length.
  double horizon = kUnknown, horizon_threshold = kUnknown, horizon_samples = kUnknown;
  bool horizon_held = false;
  std::vector<AccuracyPoint> probes;  // what the search for the horizon measured
  std::vector<Spectrum> spectra;
  // Several runs that differ by seed, taken together: intervals are over them.
  int64_t seeds_together = 0;
  // Trained on text: the measure is the loss on held-out documents in nats a token, with half its interval of
  // 95 %, and no accuracy.
  bool text = false;
  double held_out_loss = kUnknown, held_out_error = kUnknown, bits_per_byte = kUnknown;
  struct PositionLoss {
    double first = kUnknown, last = kUnknown, nll = kUnknown, error = kUnknown;
  };
  std::vector<PositionLoss> by_position;
  struct Domain {  // one of several sets of data that it was measured on
    std::string name;
    double loss = kUnknown, error = kUnknown, bits_per_byte = kUnknown;
    std::vector<PositionLoss> by_position;
  };
  std::vector<Domain> domains;
  struct TextSpectrum {  // how many eigenvalues of a block lie where on the text of a domain
    std::string domain;
    int64_t block = 0;
    // of all tokens ("all") and of each kind: how many lie in each of equal parts of [-1, 1]
    std::vector<std::pair<std::string, std::vector<double>>> kinds;
  };
  std::vector<TextSpectrum> text_spectra;
  std::vector<Point> held_out;           // step, loss on held-out text
  std::vector<Point> loss;               // step, loss
  std::vector<Point> training_accuracy;  // step, scaled accuracy
  std::string config;                    // config.yaml as it is
  std::string variant;                   // "width 8": beside others of its model, a part of its label
  std::string provenance;                // what made the results, when and where; one line
  std::vector<std::string> notes;        // what could not be read

  bool finished() const { return has_results() && !outdated; }
  bool has_results() const {
    return held_out_loss == held_out_loss || !by_length.empty() || scaled_accuracy == scaled_accuracy;
  }
  // (accuracy - chance) / (1 - chance); raw when chance is unknown or the run is dense
  double scaled(double raw) const;
  // Over the tested lengths, by the run's measure, and its 95% interval; unknown before there are results.
  double score() const;
  Interval score_interval() const;
  // What one answer to everything would score by the run's measure; 0 where that is unknown or does not
  // exceed chance by more than the samples may.
  double constant_score() const;
  // Of sequences of one length that are tested at every position (dense): the mean share of positions before
  // the first error, and its standard error over the sequences; otherwise unknown.
  struct Reach {
    double mean = kUnknown, error = kUnknown;
  };
  Reach reach() const;
  const char* measure() const { return dense ? "sequence accuracy" : "scaled accuracy"; }
};

// "DeltaNet [−1, 1], width 8": the title, the range and the variant.
std::string run_label(const RunData& run);
std::string model_label(const RunData& run);  // the same without the variant

// What the data in a folder are called.
std::string domain_of(const std::string& folder);

// Adds what train/text_spectra.h writes of a domain's text.
void add_text_spectra(const nlohmann::ordered_json& rows, const std::string& domain, RunData& run);

// The run directories a path stands for: itself, or those directly in it, by name. Throws kBadInput when
// there is none.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& path);

// Throws kBadInput when `directory` is no run directory at all. `title` says what pages call a model; its
// name without.
using ModelTitle = std::string (*)(const std::string& model);
RunData read_run(const std::filesystem::path& directory, ModelTitle title = nullptr);
// Tells runs of one task, model and range apart by the settings in which their configurations differ, but for
// the seed and what only says where and how often: sets `variant` of each.
void name_variants(std::vector<RunData>& runs);

}  // namespace signet::report
