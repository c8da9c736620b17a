// Accuracy by length. Sequences run through the recurrent form in segments, so memory does not grow with
// their length.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "signet/models/model.h"
#include "signet/tasks/task.h"

namespace signet::train {

struct LengthAccuracy {
  int64_t length = 0, samples = 0, correct = 0;
  double accuracy() const {
    return samples ? static_cast<double>(correct) / static_cast<double>(samples) : 0;
  }
};

struct Evaluation {
  int64_t samples = 0, correct = 0;
  double loss = 0;                        // mean cross-entropy over scored positions
  std::vector<LengthAccuracy> by_length;  // ascending
  double accuracy() const {
    return samples ? static_cast<double>(correct) / static_cast<double>(samples) : 0;
  }
};

// (accuracy - chance) / (1 - chance)
double scaled_accuracy(double accuracy, double chance);

struct EvaluationRequest {
  uint64_t seed = 0;
  tasks::Split split = tasks::Split::kTest;
  tasks::LengthRange lengths;
  int64_t samples = 0;
};

// Sequences of a dense task count as correct when every position is. `progress` (may be null) hears how many
// samples are done and may return false to stop early; the evaluation then covers what was done.
Evaluation evaluate(const models::Model& model, DType dtype, void* weights, const tasks::Task& task,
                    const EvaluationRequest& request, const std::function<bool(int64_t)>& progress = nullptr);

// The shortest length, searched by doubling from the longest test length and then by bisection to within 5 %,
// at which accuracy falls below `threshold`; `limit` when it never does up to there.
struct Horizon {
  int64_t length = 0;
  bool reached_limit = false;  // accuracy still holds at `length` = limit
  std::vector<LengthAccuracy> probes;
};
Horizon find_horizon(const models::Model& model, DType dtype, void* weights, const tasks::Task& task,
                     uint64_t seed, int64_t samples, double threshold, int64_t limit,
                     const std::function<void(const LengthAccuracy&)>& progress = nullptr);

// Mean eigenvalues by token, per block: [group][token] -> values. From random samples of the task.
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
