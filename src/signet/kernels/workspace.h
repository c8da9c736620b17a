// Scratch memory of the CPU kernels: starts at a cache line wherever the caller's buffer does, so that
// vectors in it do not straddle two lines.
#pragma once

#include <cstdint>

namespace signet::kernels {

constexpr int64_t kCacheLine = 64;  // bytes

// Rows of scratch are padded to a whole number of vectors in every instruction set.
constexpr int64_t kPadding = 16;  // elements
constexpr int64_t padded(int64_t n) { return (n + kPadding - 1) / kPadding * kPadding; }

// Elements to ask for beyond what is used.
constexpr int64_t kAlignmentSlack = kCacheLine / static_cast<int64_t>(sizeof(float));

template <class T>
T* align_to_cache_line(T* p) {
  const auto misaligned = reinterpret_cast<uintptr_t>(p) % kCacheLine;
  return p + (misaligned ? (kCacheLine - misaligned) / sizeof(T) : 0);
}

// The memory of one of the plan's parts, which work side by side.
template <class T, class Plan>
T* part_memory(T* workspace, const Plan& plan, int64_t part) {
  return align_to_cache_line(workspace) + part * plan.part_size;
}

}  // namespace signet::kernels
