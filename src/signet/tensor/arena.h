// Memory of one step's activations, gradients and workspaces, on the CPU or the GPU. What is released is
// given out again; reset() forgets everything and keeps the memory, so that a step of the same size allocates
// nothing. A sequence of calls always gives the same places: an arena that only measures shows how much
// another one needs for it. Blocks are 256-byte aligned. One arena per thread of work.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "signet/tensor/device.h"
#include "signet/tensor/tensor.h"

namespace signet {

class Arena {
 public:
  explicit Arena(DeviceKind kind = DeviceKind::kCpu) : kind_(kind) {}
  // Gives out addresses without memory: nothing may be read or written there.
  static Arena measuring(DeviceKind kind);

  void* allocate(int64_t bytes);
  // `bytes` as they were asked for.
  void release(void* p, int64_t bytes);
  Tensor tensor(Shape shape, DType dtype) {
    return Tensor(allocate(shape.size() * dtype_size(dtype)), shape, dtype, kind_);
  }
  // Forgets every allocation; merges the blocks of a grown arena into one, at new addresses.
  void reset();
  // The same, with one block of at least `bytes`. What runs on the memory must have ended if it has less.
  void reserve(int64_t bytes);
  bool grown() const { return blocks_.size() > 1; }
  // Changes when the memory has moved: what remembers addresses must be made again.
  int64_t generation() const { return generation_; }
  DeviceKind kind() const { return kind_; }
  int64_t bytes_reserved() const { return reserved_; }
  int64_t peak() const { return peak_; }  // what one block would need for everything since the last reset
  int64_t used() const { return used_; }  // bytes given out and not released

 private:
  void add_block(int64_t bytes);
  void give_back(char* begin, int64_t bytes);

  DeviceKind kind_;
  bool measuring_ = false;
  std::vector<DeviceBuffer> blocks_;
  char *top_ = nullptr, *end_ = nullptr;  // of the last block: what has never been given out
  std::map<char*, int64_t> free_;         // released places, none beside another
  int64_t reserved_ = 0, generation_ = 0, closed_ = 0, peak_ = 0, used_ = 0;
};

}  // namespace signet
