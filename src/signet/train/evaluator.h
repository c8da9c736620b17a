// Accuracy by length. Sequences run through the recurrent form in segments, so memory does not grow with
// their length.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "signet/models/model.h"
#include "signet/tasks/task.h"
#include "signet/tensor/device.h"

namespace signet::train {

class StateCodebook;

inline double share(int64_t part, int64_t whole) {
  return whole ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// Two accuracies, which are one where a sequence has one answer: of the answers, and of whole sequences (all
// their answers right).
struct LengthAccuracy {
  int64_t length = 0, samples = 0;
  int64_t correct = 0;            // sequences
  int64_t scored = 0, right = 0;  // answers
  double accuracy() const { return share(right, scored); }
  double sequence_accuracy() const { return share(correct, samples); }
};

// by_length of a task with one answer: the samples of that length. Of a dense task: the first `length` tokens
// of every sample that is at least as long; `right` counts the answer at that length, `correct` the samples
// without an error so far. One pass over long sequences thus gives the whole curve.
struct Evaluation {
  int64_t samples = 0, correct = 0;       // sequences
  int64_t scored = 0, right = 0;          // answers
  double loss = 0;                        // mean cross-entropy over scored positions
  int64_t shortest = 0, longest = 0;      // size of a sample; equal where one length was asked for
  int32_t commonest = 0;                  // the most frequent right answer, a class
  LengthAccuracy constant;                // of whoever gives it to everything
  std::vector<LengthAccuracy> by_length;  // ascending
  LengthAccuracy total(int64_t length) const { return {length, samples, correct, scored, right}; }
  double accuracy() const { return share(right, scored); }
  double sequence_accuracy() const { return share(correct, samples); }
};

// (accuracy - chance) / (1 - chance)
double scaled_accuracy(double accuracy, double chance);
// By which runs are compared and training may stop: the scaled accuracy, or the sequence accuracy of a dense
// task.
double score(const Evaluation& evaluation, const tasks::Task& task);

struct EvaluationRequest {
  uint64_t seed = 0;
  tasks::Split split = tasks::Split::kTest;
  tasks::LengthRange lengths;
  int64_t samples = 0;
  const StateCodebook* snap = nullptr;  // round the states to it every snap_every tokens
  int64_t snap_every = 0;
  // The GPU evaluates in float32; models whose state it cannot carry go to the CPU beyond 256 tokens.
  Device device = {};
};

// `progress` (may be null) hears, on the caller's thread, how many samples are done; `go_on` (may be null) is
// asked more often, from any thread, and stops the evaluation by false, which then covers what was done.
Evaluation evaluate(const models::Model& model, DType dtype, void* weights, const tasks::Task& task,
                    const EvaluationRequest& request, const std::function<void(int64_t)>& progress = nullptr,
                    const std::function<bool()>& go_on = nullptr);

// The shortest length, searched from the task's longest training length by doubling (or halving, where that
// fails) and then by bisection to within 5 %, at which the accuracy of whole sequences falls below
// `threshold`; `limit` (or as much as the memory of a Transformer takes) when it never does up to there. Of a
// dense task the first probe that fails shows where it began to, so nothing is halved or bisected.
// Lengths are those of the samples: of a task that lacks some, the nearest below the ones asked for.
// `progress` (may be null) hears every probe; the search ends with `stopped` set once `go_on` (may be null)
// says no.
struct Horizon {
  int64_t length = 0;
  bool reached_limit = false;  // accuracy still holds at `length`, the limit
  bool stopped = false;
  std::vector<LengthAccuracy> probes;
};
Horizon find_horizon(const models::Model& model, DType dtype, void* weights, const tasks::Task& task,
                     uint64_t seed, int64_t samples, double threshold, int64_t limit,
                     const std::function<void(const LengthAccuracy&)>& progress = nullptr,
                     const std::function<bool()>& go_on = nullptr, const StateCodebook* snap = nullptr,
                     int64_t snap_every = 0, const Device& device = {});

// Mean eigenvalues by token, per block: [group][token] -> values. From random samples of the task. Of more
// than kMostSpectrumValues in all, every so-and-so-many-th of a group: an odd number, which meets every state
// of a diagonal model. (Five blocks of Mamba with the 120 letters of S5 have 2.5 million.)
inline constexpr int64_t kMostSpectrumValues = 1 << 16;
struct TokenSpectrum {
  size_t block = 0;
  int64_t group = 0;  // head and factor; 0 for a diagonal model
  bool grouped = false;
  std::string token;
  std::vector<double> values;
};
std::vector<TokenSpectrum> token_spectra(const models::Model& model, DType dtype, void* weights,
                                         const tasks::Task& task, uint64_t seed);

}  // namespace signet::train
