// What the GPU of one of several ranks does besides computing. The gradient of a segment of the parameters is
// summed over the ranks as soon as backward has completed it, while backward goes on; the weights that each
// rank has updated reach the others while the next forward begins, which waits for each segment when it comes
// to it. In bf16 the copies that products read are sent in bf16. Only for files that are compiled when
// SIGNET_WITH_CUDA is set.
#pragma once

#include <memory>
#include <vector>

#include "signet/autograd/tape.h"
#include "signet/comm/device_collectives.h"
#include "signet/tensor/cuda_graph.h"
#include "signet/train/data_parallel.h"

namespace signet::train {

class CudaExchange final : public autograd::Segments {
 public:
  // Buffers of all parameters on the GPU; `narrow` is null unless products read bf16. Called by all ranks.
  CudaExchange(DataParallel& parallel, const models::Parameters& parameters, const Device& device,
               const Update& buffers);

  // A pass over the first or the last part of a batch is about to run or to be captured.
  void begin_pass(CudaPieces& pieces, bool first, bool last) {
    pieces_ = &pieces, first_ = first, last_ = last;
  }
  void needed(int of_model) override;
  void complete(int of_model) override;

  // Behind the last pass of a batch: the update of all ranks. The stop of one is the stop of all.
  void update(Optimizer& optimizer, Schedule* schedule, Outcome* outcome);
  // The sums of squares of this rank's own gradient by segment, on the GPU.
  const double* own_squares() const { return own_squares_.as<double>(); }
  int64_t segments() const { return static_cast<int64_t>(parallel_.sharding().segments.size()); }

  // What comes next in the stream sees all weights of all ranks, in fp32.
  void collect_weights();
  // The host has given new weights.
  void forget();

 private:
  DataParallel& parallel_;
  Device device_;
  Update buffers_;
  std::unique_ptr<comm::DeviceCollectives> collectives_;
  DeviceBuffer own_squares_;                             // [segments], and workspace
  std::vector<std::vector<SignetPiece>> wanted_, wide_;  // by segment: what passes read, and all in fp32
  std::vector<int64_t> gathering_;                       // by segment, -1: nothing is under way
  int64_t summing_ = -1;
  CudaPieces* pieces_ = nullptr;
  bool first_ = false, last_ = false;
};

}  // namespace signet::train
