#include "signet/tensor/arena.h"

#include <algorithm>

namespace signet {
namespace {
constexpr int64_t kAlignment = 256;  // what the GPU's vector loads and cuBLAS like; the CPU needs 64
constexpr int64_t kFirstBlock = int64_t{1} << 20;
}  // namespace

void Arena::add_block(int64_t bytes) {
  const int64_t size = (std::max({bytes, kFirstBlock, reserved_}) + kAlignment - 1) / kAlignment * kAlignment;
  blocks_.emplace_back(kind_, size);
  reserved_ += size;
  used_in_block_ = 0;
}

void* Arena::allocate(int64_t bytes) {
  if (bytes < 0) fail(ErrorCode::kFailure, "negative allocation");
  const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (blocks_.empty() || used_in_block_ + rounded > blocks_.back().bytes()) add_block(rounded);
  void* p = blocks_.back().as<char>() + used_in_block_;
  used_in_block_ += rounded;
  return p;
}

void Arena::reset() {
  if (blocks_.size() > 1) {
    const int64_t need = reserved_;
    blocks_.clear();
    reserved_ = 0;
    ++generation_;
    add_block(need);
  }
  used_in_block_ = 0;
}

}  // namespace signet
