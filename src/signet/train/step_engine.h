// One training step on one device: loss and gradient of a batch, clipping, AdamW. The engine owns the weights
// and moments while it runs; `to_host` and `from_host` move them between the engine and the buffers that
// checkpoints and evaluation see.
#pragma once

#include <cstdint>
#include <memory>

#include "signet/models/model.h"
#include "signet/tasks/task.h"
#include "signet/tensor/device.h"
#include "signet/train/batch_gradient.h"
#include "signet/train/optimizer.h"

namespace signet::train {

struct StepResult {
  BatchLoss batch;
  double norm = 0;       // of the gradient, before clipping
  bool updated = false;  // false when the loss or the norm is not finite: the weights are as before
};

class StepEngine {
 public:
  virtual ~StepEngine() = default;
  virtual StepResult step(const tasks::Batch& batch, double lr, int64_t step) = 0;
  virtual void to_host() = 0;
  virtual void from_host() = 0;
};

// `weights` and the moments of `optimizer` are the host buffers; they must outlive the engine.
std::unique_ptr<StepEngine> make_step_engine(const Device& device, const models::Model& model, DType dtype,
                                             double temperature, void* weights, Optimizer& optimizer);

#ifdef SIGNET_WITH_CUDA
std::unique_ptr<StepEngine> make_cuda_step_engine(const Device& device, const models::Model& model,
                                                  double temperature, void* weights, Optimizer& optimizer);
#endif

}  // namespace signet::train
