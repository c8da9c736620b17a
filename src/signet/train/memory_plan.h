// How much memory training takes, found without taking it: a dry pass of the largest batch shows it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "signet/train/config.h"
#include "signet/train/step_engine.h"

namespace signet::train {

struct MemoryPlan {
  int64_t parameters = 0;  // weights, and their copy in bf16
  int64_t gradient = 0;
  int64_t optimizer = 0;
  int64_t saving =
      0;  // the copy from which checkpoints are written meanwhile; 0 on the GPU: it is the host's
  StepMemory step;
  int64_t rows = 0, time = 0;  // sequences that go through the model at once, and their tokens
  int ranks = 1;
  int64_t sum() const { return parameters + gradient + optimizer + saving + step.sum(); }
  // Lines for people, each behind `prefix`.
  std::string text(const std::string& prefix) const;
  nlohmann::ordered_json json() const;  // in bytes
};

// Of batches of `rows` sequences of `time` tokens, which `ranks` share; of the first of them.
MemoryPlan plan_memory(const models::Model& model, const StepOptions& step, const OptimizerOptions& optimizer,
                       const Device& device, int64_t rows, int64_t time, bool dense, int ranks = 1);
// Of the longest batches of a run's task or text.
MemoryPlan plan_memory(const RunConfig& config, const Device& device, int ranks = 1);

// Bytes that the device can still give, to all processes together.
int64_t free_memory(const Device& device);
// Throws kResource that says what to lower if a rank may take less than it needs.
void require_memory(const MemoryPlan& plan, int64_t free);

}  // namespace signet::train
