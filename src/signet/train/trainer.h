// The training loop: batch -> gradient -> clip -> AdamW -> every so often a validation and a checkpoint ->
// results.json. A run can be stopped by a signal or killed at any moment and resumed with the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "signet/comm/communicator.h"
#include "signet/io/run_directory.h"
#include "signet/tensor/device.h"
#include "signet/train/config.h"

namespace signet::train {

struct TrainOptions {
  bool quiet = false;
  std::string label;  // of the progress line
  OpenDevice device;  // where updates and evaluations run
  // Hears the number of every update made and the seconds that the run has taken so far, those before it was
  // resumed included; may be null.
  std::function<void(int64_t step, double seconds)> on_step = nullptr;
  bool tensorboard = false;             // writes what metrics.jsonl holds for TensorBoard as well
  comm::Communicator* ranks = nullptr;  // that train the run together; null: this process alone
  double ceiling = 0;  // operations a second that a rank's device can do, for the progress line; 0: unknown
};

// Trains from the start into a directory just created, or from its newest complete checkpoint. Returns the
// object written to results.json; of several ranks only the first writes and returns it. Throws kNumerical
// before an update with a non-finite loss or gradient, and kInterrupted or kStopped after saving when a
// signal asked to stop.
nlohmann::ordered_json train(const RunConfig& config, io::RunDirectory& directory, bool resume,
                             const TrainOptions& options);

}  // namespace signet::train
