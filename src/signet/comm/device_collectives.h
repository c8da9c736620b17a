// Sums and exchanges of numbers that lie in the memory of the ranks' GPUs. They go on beside what the GPU
// computes. By NCCL, on a stream of their own, where its plugin is there and each rank has a GPU of its own;
// otherwise through host memory and the messages of the Communicator, on a thread of their own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "signet/comm/communicator.h"
#include "signet/comm/plugin.h"
#include "signet/tensor/device.h"

namespace signet::comm {

class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;
  virtual std::string name() const = 0;

  // Each begins when what is in the device's stream by now has run, and they go on in the order in which they
  // began. Returns their number, for wait_for. Until then nobody may use the memory, nor send by the
  // Communicator if stays_on_device() is false.
  // Like Communicator's, in place and with one term of each rank:
  virtual int64_t begin_reduce_scatter(float* data, const std::vector<Range>& parts) = 0;
  virtual int64_t begin_all_gather(const std::vector<SignetPiece>& pieces) = 0;
  virtual int64_t begin_all_reduce(double* data, int64_t size) = 0;
  // What comes later in the device's stream waits for that one and those before it.
  virtual void wait_for(int64_t number) = 0;
  virtual bool stays_on_device() const = 0;
};

// Called by all ranks. Both arguments must outlive it.
std::unique_ptr<DeviceCollectives> open_device_collectives(Communicator& ranks, const Device& device);

}  // namespace signet::comm
