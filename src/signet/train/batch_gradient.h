// Loss and gradient of one batch on the CPU. The batch is cut into a fixed number of groups; each group runs
// forward and backward on one thread with a tape and a gradient buffer of its own, and the buffers are added
// in a fixed order: the same bits on any number of threads, and no synchronisation inside a step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "signet/autograd/ops.h"
#include "signet/models/model.h"
#include "signet/tasks/task.h"
#include "signet/tensor/arena.h"
#include "signet/train/config.h"

namespace signet::train {

// How steps are computed.
struct StepOptions {
  DType dtype = DType::kF32;
  Precision precision = Precision::kFp32;
  autograd::LossOptions loss = {};
  autograd::NoiseOptions noise = {};
  models::Recompute recompute = models::Recompute::kNone;
  // The most sequences that go through the model at once; 0 = all of a batch. Gradients of the parts add up.
  int64_t micro_batch = 0;
  autograd::Observer* observer = nullptr;  // of every step; on the GPU they are then not replayed as graphs
};

struct BatchLoss {
  double loss = 0;      // mean over scored positions
  int64_t scored = 0;   // positions
  int64_t correct = 0;  // of them
};

// Of parts whose losses are sums over their positions, added in order.
BatchLoss mean_loss(const std::vector<BatchLoss>& sums);

// Bytes that one pass takes besides parameters and their gradient.
struct StepMemory {
  int64_t activations = 0;  // what lives from forward to backward
  int64_t workspaces = 0;   // what comes on top at the highest point: workspaces and gradients of activations
  int64_t gradients = 0;    // copies of the parameters' gradient besides the one
  int64_t sum() const { return activations + workspaces + gradients; }
};

class BatchGradient {
 public:
  BatchGradient(const models::Model& model, const StepOptions& options);

  // Overwrites `gradient` (parameters().size() elements). The noise is that of update `step`.
  BatchLoss compute(void* weights, const tasks::Batch& batch, void* gradient, int64_t step = 1);

  // The halves of it. Groups of rows from cuts[g] to cuts[g + 1], at most kGroups; each has a loss, a sum
  // over its scored positions,
  // `complete(segment)`, if given, is called once all groups have the gradient of a segment of the
  // parameters, last segment first, from any thread.
  std::vector<BatchLoss> run(void* weights, const tasks::Batch& batch, const std::vector<int64_t>& cuts,
                             int64_t step, const std::function<void(int)>& complete = {});
  // and a gradient, which stays until the next run; null where the group has no rows.
  std::vector<const void*> gradients() const;
  bool finite() const;  // all of them
  // Their sum in order, of elements [begin, end) or of all.
  void add_up(void* gradient, int64_t begin, int64_t end) const;
  void add_up(void* gradient) const { add_up(gradient, 0, model_.parameters().size()); }

  static constexpr int64_t kGroups = 8;
  // Every group costs passes over a gradient of its own: all ranks together have as many as one alone, and
  // more only where threads of a rank would have nothing to do.
  static int64_t groups_of(int ranks, int64_t threads) {
    return ranks == 1 ? kGroups : std::clamp<int64_t>(threads, (kGroups + ranks - 1) / ranks, kGroups);
  }
  // Where `rows` rows are cut into groups.
  static std::vector<int64_t> cuts_of(int64_t rows, int64_t groups = kGroups);

  int64_t arena_bytes() const;
  // Of a batch of `rows` sequences of `time` tokens: what arenas and gradients of groups take.
  static StepMemory memory(const models::Model& model, const StepOptions& options, int64_t rows, int64_t time,
                           bool dense, int64_t groups = kGroups);

 private:
  // Sequences that go through the model at once: their activations stay near the caches.
  static int64_t shard_rows(const StepOptions& options, int64_t time);

  struct Group {
    Arena arena, host;
    std::vector<char> gradient;  // made when the group first has rows
    bool used = false;           // in the last batch
    std::vector<int32_t> scored, predictions;
    BatchLoss loss;
  };
  void run_group(Group& group, void* weights, const tasks::Batch& batch, int64_t begin, int64_t end,
                 int64_t scored, int64_t step, autograd::Segments* segments);

  const models::Model& model_;
  StepOptions options_;
  std::vector<Group> groups_;
};

}  // namespace signet::train
