// Training steps on one device: loss and gradient of a batch, and the optimiser's update. The engine owns the
// weights while it runs; `to_host` and `from_host` move them and what the optimiser keeps between the device
// and the buffers that checkpoints and evaluation see. On the GPU steps are submitted ahead of their results,
// so that it never waits for the host. Several engines may run in one process, each on a device of its own
// (open_device) and from a thread of its own; each computes the bits it would compute alone.
#pragma once

#include <cstdint>
#include <memory>

#include "signet/models/model.h"
#include "signet/tasks/task.h"
#include "signet/tensor/device.h"
#include "signet/train/batch_gradient.h"
#include "signet/train/data_parallel.h"
#include "signet/train/optimizers/optimizer.h"

namespace signet::train {

struct StepResult {
  int64_t step = 0;
  BatchLoss batch;
  double norm = 0;       // of the gradient, before clipping
  bool updated = false;  // false when the loss or the norm is not finite: the weights are as before
  int bad_rank = -1;     // of several: the first on which it was not
};

class StepEngine {
 public:
  virtual ~StepEngine() = default;
  // Takes a step; at most depth() may be in flight. Once a step was not updated, none after it is.
  virtual void submit(const tasks::Batch& batch, double lr, int64_t step) = 0;
  // Waits for the oldest step in flight.
  virtual StepResult collect() = 0;
  virtual int depth() const = 0;
  virtual int in_flight() const = 0;
  // Both wait for all steps in flight.
  virtual void to_host() = 0;
  virtual void from_host() = 0;
};

// What a step of `rows` sequences of `time` tokens takes on the device besides parameters, their gradient and
// what the optimiser keeps; on the CPU in `groups` groups.
StepMemory step_memory(const Device& device, const models::Model& model, const StepOptions& options,
                       int64_t rows, int64_t time, bool dense, int64_t groups = BatchGradient::kGroups);
// kResource that says what to lower.
[[noreturn]] void fail_too_large(int64_t need, int64_t free, int64_t rows, int64_t time);

// `weights` is the host's buffer. The optimizer lives on the same device. Both must outlive the engine. Of
// several ranks, `parallel` is what this one does; its batches are then parts.
std::unique_ptr<StepEngine> make_step_engine(const Device& device, const models::Model& model,
                                             const StepOptions& options, void* weights, Optimizer& optimizer,
                                             DataParallel* parallel = nullptr);

#ifdef SIGNET_WITH_CUDA
StepMemory cuda_step_memory(const models::Model& model, const StepOptions& options, int64_t rows,
                            int64_t time, bool dense);
std::unique_ptr<StepEngine> make_cuda_step_engine(const Device& device, const models::Model& model,
                                                  const StepOptions& options, void* weights,
                                                  Optimizer& optimizer, DataParallel* parallel);
#endif

}  // namespace signet::train
