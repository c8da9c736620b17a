// Bump allocator for one step's activations. reset() keeps the memory; after a first step has shown the need,
// a step of the same size allocates nothing. Blocks are 64-byte aligned. One arena per thread of work.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "signet/tensor/tensor.h"

namespace signet {

class Arena {
 public:
  void* allocate(int64_t bytes);
  Tensor tensor(Shape shape, DType dtype) {
    return Tensor(allocate(shape.size() * dtype_size(dtype)), shape, dtype);
  }
  // Forgets every allocation; merges the blocks of a grown arena into one.
  void reset();
  int64_t bytes_used() const { return used_total_; }
  int64_t bytes_reserved() const { return reserved_; }

 private:
  struct FreeDeleter {
    void operator()(void* p) const;
  };
  struct Block {
    std::unique_ptr<void, FreeDeleter> memory;
    int64_t size = 0;
  };
  void add_block(int64_t bytes);

  std::vector<Block> blocks_;
  int64_t used_in_block_ = 0, used_total_ = 0, reserved_ = 0;
};

}  // namespace signet
