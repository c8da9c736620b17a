// Whole training steps of a language model at the sizes of the literature, on random tokens: tokens per
// second, share of the ceiling of matrix products, memory, and time by operator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "signet/bench/bench.h"
#include "signet/train/config.h"

namespace signet::bench {

// The model is that of presets/<model>.yaml at a size, but with a head of its own, as in the peers' figures.
struct LmOptions {
  std::string preset = "10m", model = "deltanet";
  int64_t batch = 0, context = 0;  // sequences and their tokens; 0 = some for the size, and the preset's
  std::vector<std::string> set;    // more settings
  // As train.micro_batch and train.recompute; 0 and nothing: as the preset has them.
  int64_t micro_batch = 0;
  std::string recompute;
  double seconds = 3;  // to spend on steps, at least three
};

struct LmOperator {
  std::string op;
  double forward = 0, backward = 0;  // seconds of one step; summed over threads on the CPU
};

struct LmReport {
  std::string preset, model, precision;
  int64_t parameters = 0, batch = 0, context = 0, steps = 0, micro_batch = 0;
  std::string recompute;
  double error = 0, tolerance = 0;  // loss and gradient norm of the first two blocks against fp64
  bool correct = false;             // what follows is measured only then
  double step_seconds = 0, first_step_seconds = 0, loss = 0;
  double matrix_flops = 0, recurrence_flops = 0;  // of one step: 6 per matrix weight and token, and apart
  int64_t peak_bytes = 0,
          first_peak_bytes = 0;       // GPU only: of later steps, and of the first, which tries products
  std::vector<LmOperator> operators;  // the slowest first
};
// The run that the options stand for.
train::RunConfig lm_config(const LmOptions& options);
LmReport run_lm(const LmOptions& options, const Device& device);

}  // namespace signet::bench
