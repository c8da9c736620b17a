// Bump allocator for one step's activations, on the CPU or the GPU. reset() keeps the memory; after a first
// step has shown the need, a step of the same size allocates nothing. Blocks are 64-byte aligned. One arena
// per thread of work.
#pragma once

#include <cstdint>
#include <vector>

#include "signet/tensor/device.h"
#include "signet/tensor/tensor.h"

namespace signet {

class Arena {
 public:
  explicit Arena(DeviceKind kind = DeviceKind::kCpu) : kind_(kind) {}

  void* allocate(int64_t bytes);
  Tensor tensor(Shape shape, DType dtype) {
    return Tensor(allocate(shape.size() * dtype_size(dtype)), shape, dtype, kind_);
  }
  // Forgets every allocation; merges the blocks of a grown arena into one, at new addresses.
  void reset();
  bool grown() const { return blocks_.size() > 1; }
  // Changes when reset() moved the memory: what remembers addresses must be made again.
  int64_t generation() const { return generation_; }
  DeviceKind kind() const { return kind_; }
  int64_t bytes_reserved() const { return reserved_; }

 private:
  void add_block(int64_t bytes);

  DeviceKind kind_;
  std::vector<DeviceBuffer> blocks_;
  int64_t used_in_block_ = 0, reserved_ = 0, generation_ = 0;
};

}  // namespace signet
