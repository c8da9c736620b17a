// What a run learns from and how it is measured. The trainer asks for batches and for evaluations and knows
// of neither what they are about: tasks are one workload (task_workload.cc), text is another
// (text_workload.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "signet/comm/communicator.h"
#include "signet/io/run_directory.h"
#include "signet/tasks/task.h"
#include "signet/tensor/device.h"
#include "signet/train/batch_gradient.h"
#include "signet/train/run.h"

namespace signet::train {

class Workload {
 public:
  virtual ~Workload() = default;

  // Throws where a new run cannot begin as the configuration says: nothing of its directory is touched
  // before.
  virtual void require_start() const {}
  // Puts into the directory of a new run what it needs beside its configuration, and into that of one that
  // goes on what is missing of it: the run may have been killed before.
  virtual void prepare(const io::RunDirectory&, bool /*anew*/) const {}

  // These rows of the batch of an update, counted from 1: a pure function of the configuration and the step.
  // From any thread.
  virtual void make_batch(int64_t step, const comm::Range& rows, tasks::Batch& out) const = 0;
  // What a run is trained on beside its configuration: the hash of each folder of data, in their order.
  virtual std::vector<std::string> data_hashes() const { return {}; }

  // The part of the progress line that tells of a batch.
  virtual std::string batch_text(const BatchLoss& loss) const = 0;

  struct Validation {
    double score = 0;                                      // train.stop_at is compared with it
    std::string text;                                      // for the progress line
    std::shared_ptr<const nlohmann::ordered_json> object;  // for metrics.jsonl
  };
  using GoOn = std::function<bool()>;
  // Nothing when go_on said no before it was done.
  virtual std::optional<Validation> validate(Run& run, const Device& device, const GoOn& go_on) const = 0;

  // What the trained model can do: the first part of results.json. `progress` hears how many of
  // config.eval.samples are done. Null when go_on said no.
  virtual std::shared_ptr<nlohmann::ordered_json> results(Run& run, const Device& device,
                                                          const std::function<void(int64_t)>& progress,
                                                          const GoOn& go_on) const = 0;
};

// Of the run's configuration; `run` must outlive it.
std::unique_ptr<Workload> make_workload(const Run& run);
std::unique_ptr<Workload> make_task_workload(const Run& run);
std::unique_ptr<Workload> make_text_workload(const Run& run);

}  // namespace signet::train
