// Sums and exchanges of numbers that lie in the memory of the ranks' GPUs, in the order of their streams. By
// NCCL where its plugin is there and each rank has a GPU of its own; otherwise through host memory and the
// messages of the Communicator.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "signet/comm/communicator.h"
#include "signet/tensor/device.h"

namespace signet::comm {

class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;
  virtual std::string name() const = 0;
  // Like those of Communicator, in place and with one term of each rank.
  virtual void reduce_scatter(float* data, const std::vector<Range>& parts) = 0;
  virtual void all_gather(float* data, const std::vector<Range>& parts) = 0;
  virtual void all_reduce(double* data, int64_t size) = 0;
};

// Called by all ranks. Both arguments must outlive it.
std::unique_ptr<DeviceCollectives> open_device_collectives(Communicator& ranks, const Device& device);

}  // namespace signet::comm
