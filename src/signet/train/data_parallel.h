// Training by several ranks. Each computes the gradient of its rows of every batch; the gradients are added
// in a fixed order, and each rank updates its shard of the parameters and gives it to all (ZeRO-1,
// Rajbhandari et al., 2020). So what the optimiser keeps is spread over the ranks, and the same number of
// ranks gives the same bits. The gradient of a segment of the parameters is sent as soon as backward has
// completed it, while backward goes on. `train.exact_reduction` gives the bits of one rank: its groups of
// rows (BatchGradient) are handed out whole, and their gradients are added one by one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "signet/comm/background.h"
#include "signet/comm/communicator.h"
#include "signet/io/checkpoint.h"
#include "signet/models/parameters.h"
#include "signet/tasks/task.h"
#include "signet/train/batch_gradient.h"
#include "signet/train/config.h"
#include "signet/train/optimizers/optimizer.h"

namespace signet::train {

class DataParallel {
 public:
  // Throws kUsage when so many ranks cannot share a batch. All arguments must outlive it.
  DataParallel(comm::Communicator& ranks, const models::Parameters& parameters, const TrainConfig& train);

  comm::Communicator& ranks() const { return ranks_; }
  bool root() const { return ranks_.root(); }
  bool exact() const { return exact_; }
  const comm::Range& rows() const { return rows_; }           // of every batch
  const std::vector<int64_t>& cuts() const { return cuts_; }  // of those rows into groups
  // Small segments of the parameters are sent together; segments here are those.
  const Sharding& sharding() const { return sharding_; }
  const Shard& shard() const { return shard_; }
  // The one that begins with segment `of_model` of the model's, and so is complete in backward, and needed in
  // forward, when that is; -1: none.
  int segment_at(int of_model) const;

  // What all ranks must know before an update.
  struct Sums {
    int64_t tokens = 0;  // of all rows
    int signal = 0;      // that some rank was sent; 0: none
    bool ready = true;   // all ranks are
  };
  // Fills batch.scored_of_all; with the exact reduction or noise all ranks pad to the longest row of all.
  Sums agree(tasks::Batch& batch, int signal, bool ready);
  int agree(int signal);

  // The groups have all of the gradient of segment `of_model`: adds it up over groups and ranks, in the
  // background but for the last one to come.
  void complete(int of_model, const BatchGradient& groups, DType dtype, void* gradient);
  // Once they have all of it. The shard of `gradient` has received the sum.
  void finish_gradients(const BatchGradient& groups, DType dtype, void* gradient);
  // The loss of the whole batch and the square of the whole gradient's norm.
  struct Measured {
    BatchLoss loss;
    double square_sum = 0;
  };
  Measured measure(const std::vector<BatchLoss>& losses, const std::vector<double>& squares);
  // Every rank's shard of `weights` reaches all.
  void gather(DType dtype, void* weights);
  // The first rank that says yes, or -1.
  int first_of(bool mine);

  // Of whole buffers of all weights: what is in the shard.
  void take_parts(std::vector<io::NamedBuffer>& weights) const;

 private:
  void add_gradients(int segment, const BatchGradient& groups, DType dtype, void* gradient);

  comm::Communicator& ranks_;
  const models::Parameters& parameters_;
  bool exact_;
  bool padded_;  // to the longest row of all ranks, whose length places the noise of every row
  comm::Range rows_;
  std::vector<int64_t> cuts_;
  Sharding sharding_;
  Shard shard_;
  std::vector<int> segment_at_;                // by the model's segment
  std::vector<int> terms_;                     // of the sum of gradients, per rank
  std::vector<comm::Range> measured_;          // what each rank says in measure(), in numbers
  std::vector<int64_t> losses_;                // of them, how many losses come first
  std::vector<std::vector<int64_t>> squares_;  // and then of each segment so many sums of squares
  comm::Background background_;
};

}  // namespace signet::train
