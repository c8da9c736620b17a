#include "signet/tensor/arena.h"

#include <algorithm>

namespace signet {
namespace {
constexpr int64_t kAlignment = 256;  // what the GPU's vector loads and cuBLAS like; the CPU needs 64
constexpr int64_t kFirstBlock = int64_t{1} << 20;
constexpr int64_t kMostAhead = int64_t{256} << 20;  // a growing arena doubles up to here
constexpr int64_t kMeasured = int64_t{1} << 46;     // more than any machine has

int64_t rounded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
}  // namespace

Arena Arena::measuring(DeviceKind kind) {
  Arena arena(kind);
  arena.measuring_ = true;
  arena.top_ = reinterpret_cast<char*>(kMeasured);  // never read
  arena.end_ = arena.top_ + kMeasured;
  return arena;
}

void Arena::add_block(int64_t bytes) {
  if (end_ > top_) give_back(top_, end_ - top_);
  if (!blocks_.empty()) closed_ += blocks_.back().bytes();
  const int64_t size = rounded(std::max({bytes, kFirstBlock, std::min(reserved_, kMostAhead)}));
  // Behind a block some bytes stay unused, so that free memory of two blocks that happen to be neighbours is
  // never taken for one piece: copies on the GPU must lie within one allocation.
  blocks_.emplace_back(kind_, size + kAlignment);
  reserved_ += size;
  top_ = blocks_.back().as<char>();
  end_ = top_ + size;
}

void Arena::give_back(char* begin, int64_t bytes) {
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && begin + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first, bytes += before->second;
      free_.erase(before);
    }
  }
  free_.emplace(begin, bytes);
}

void* Arena::allocate(int64_t bytes) {
  if (bytes < 0) fail(ErrorCode::kFailure, "negative allocation");
  const int64_t size = rounded(bytes);
  used_ += size;
  auto best = free_.end();  // the smallest that is large enough, the first of equal ones
  for (auto each = free_.begin(); each != free_.end(); ++each)
    if (each->second >= size && (best == free_.end() || each->second < best->second)) best = each;
  if (best != free_.end()) {
    char* const p = best->first;
    const int64_t left = best->second - size;
    free_.erase(best);
    if (left > 0) free_.emplace(p + size, left);
    return p;
  }
  if (!top_ || end_ - top_ < size) add_block(size);
  char* const p = top_;
  top_ += size;
  const char* const base = measuring_ ? reinterpret_cast<char*>(kMeasured) : blocks_.back().as<char>();
  peak_ = std::max<int64_t>(peak_, closed_ + (top_ - base));
  return p;
}

void Arena::release(void* p, int64_t bytes) {
  auto* const begin = static_cast<char*>(p);
  const int64_t size = rounded(bytes);
  if (size == 0) return;
  used_ -= size;
  give_back(begin, size);
  // What lies at the end of all that was given out is as if it had never been.
  if (const auto last = free_.empty() ? free_.end() : free_.upper_bound(top_); last != free_.begin()) {
    const auto before = std::prev(last);
    if (before->first + before->second == top_) {
      top_ = before->first;
      free_.erase(before);
    }
  }
}

void Arena::reset() {
  free_.clear();
  peak_ = closed_ = used_ = 0;
  if (measuring_) {
    top_ = reinterpret_cast<char*>(kMeasured);
    return;
  }
  if (blocks_.size() > 1) return reserve(reserved_);
  if (!blocks_.empty()) top_ = blocks_.back().as<char>();
}

void Arena::reserve(int64_t bytes) {
  free_.clear();
  peak_ = closed_ = used_ = 0;
  if (blocks_.size() != 1 || blocks_.back().bytes() < bytes + kAlignment) {
    blocks_.clear();
    top_ = end_ = nullptr;
    reserved_ = 0;
    ++generation_;
    add_block(bytes);
  }
  top_ = blocks_.back().as<char>();
}

}  // namespace signet
