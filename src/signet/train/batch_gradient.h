// Loss and gradient of one batch on the CPU. The batch is cut into a fixed number of groups; each group runs
// forward and backward on one thread with a tape and a gradient buffer of its own, and the buffers are added
// in a fixed order: the same bits on any number of threads, and no synchronisation inside a step.
#pragma once

#include <cstdint>
#include <vector>

#include "signet/autograd/ops.h"
#include "signet/models/model.h"
#include "signet/tasks/task.h"
#include "signet/tensor/arena.h"

namespace signet::train {

struct BatchLoss {
  double loss = 0;      // mean over scored positions
  int64_t scored = 0;   // positions
  int64_t correct = 0;  // of them
};

class BatchGradient {
 public:
  BatchGradient(const models::Model& model, DType dtype, autograd::LossOptions loss = {},
                autograd::NoiseOptions noise = {}, autograd::Observer* observer = nullptr);

  // Overwrites `gradient` (parameters().size() elements). The noise is that of update `step`.
  BatchLoss compute(void* weights, const tasks::Batch& batch, void* gradient, int64_t step = 1);

  int64_t arena_bytes() const;

 private:
  static constexpr int64_t kGroups = 8;
  static constexpr int64_t kShardTokens = 1536;  // activations of a shard stay near the caches

  struct Group {
    Arena arena;
    std::vector<char> gradient;  // made when the group first has rows
    bool used = false;           // in the last batch
    std::vector<int32_t> scored, predictions;
    BatchLoss loss;
  };
  void run_group(Group& group, void* weights, const tasks::Batch& batch, int64_t begin, int64_t end,
                 int64_t scored, int64_t step);

  const models::Model& model_;
  DType dtype_;
  autograd::LossOptions loss_;
  autograd::NoiseOptions noise_;
  autograd::Observer* observer_;
  std::vector<Group> groups_;
};

}  // namespace signet::train
