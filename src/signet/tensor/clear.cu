#include "signet/tensor/clear.h"

#include "signet/tensor/launch.cuh"

namespace signet {
namespace {

constexpr int kMost = 256, kThreads = 256;
constexpr int64_t kLong = 1 << 16;  // elements from which on a range is a launch of its own
struct ShortRanges {                // goes with the launch
  int64_t begin[kMost];
  int32_t size[kMost];
};

__global__ void __launch_bounds__(kThreads) clear_kernel(float* data, ShortRanges ranges) {
  begin_kernel();
  float* const range = data + ranges.begin[blockIdx.x];
  for (int i = static_cast<int>(threadIdx.x); i < ranges.size[blockIdx.x]; i += kThreads) range[i] = 0.0f;
}

}  // namespace

void clear_ranges(float* data, const std::vector<ElementRange>& ranges, Cuda device) {
  ShortRanges held;
  int count = 0;
  const auto clear_held = [&] {
    if (count > 0)
      launch("clearing", clear_kernel, static_cast<unsigned>(count), kThreads, 0, device, data, held);
    count = 0;
  };
  for (const ElementRange& range : ranges) {
    if (range.size() >= kLong) {
      check_cuda(cudaMemsetAsync(data + range.begin, 0, static_cast<size_t>(range.size()) * sizeof(float),
                                 stream_of(device)),
                 "clearing");
      continue;
    }
    held.begin[count] = range.begin, held.size[count] = static_cast<int32_t>(range.size());
    if (++count == kMost) clear_held();
  }
  clear_held();
}

}  // namespace signet
