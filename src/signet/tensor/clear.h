// Zero in several ranges of one buffer on the GPU, in stream order: the short ones in one launch.
#pragma once

#include <cstdint>
#include <vector>

#include "signet/base/isa.h"

namespace signet {

struct ElementRange {
  int64_t begin = 0, end = 0;  // in elements
  int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

void clear_ranges(float* data, const std::vector<ElementRange>& ranges, Cuda);

}  // namespace signet
