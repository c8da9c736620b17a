// A run on disk as objects: configuration, task, model and weights. What `eval`, `report` and analysis start
// from.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "signet/io/checkpoint.h"
#include "signet/models/model.h"
#include "signet/tasks/task.h"
#include "signet/tensor/device.h"
#include "signet/train/config.h"

namespace signet::train {

class Run {
 public:
  // A fresh model at its start.
  explicit Run(const RunConfig& config);
  // The newest complete checkpoint of a run directory; throws kBadInput when there is none.
  static Run load(const std::string& directory);

  Run(Run&&) = default;

  RunConfig& config() { return config_; }
  const RunConfig& config() const { return config_; }
  // Throws kUsage for a run on text, which has none.
  const tasks::Task& task() const;
  // Another task to be evaluated on; throws kUsage unless it has the same tokens and classes.
  void set_task(std::unique_ptr<tasks::Task> task);
  const models::Model& model() const { return *model_; }
  DType dtype() const { return config_.dtype(); }
  void* weights() { return weights_.data(); }
  int64_t step() const { return step_; }

  // Views of a flat buffer of parameters().size() elements, one per parameter, for checkpoints.
  std::vector<io::NamedBuffer> named(void* values, const std::string& prefix = "") const;

 private:
  RunConfig config_;
  std::unique_ptr<tasks::Task> task_;
  std::unique_ptr<models::Model> model_;
  DeviceBuffer weights_;  // of the host
  int64_t step_ = 0;
};

}  // namespace signet::train
