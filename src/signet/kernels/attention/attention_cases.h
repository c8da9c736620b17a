// The sizes at which softmax attention is tested, differentiated and timed; every preset's are among them.
#pragma once

#include <cmath>
#include <cstdint>

#include "signet/kernels/attention/attention.h"

namespace signet::kernels {

struct AttentionCase {
  const char* name;
  int64_t batch, time, heads, width;
  bool tasks = false;  // of tasks rather than text: in fp32, too

  AttentionShape shape() const {
    AttentionShape s;
    s.batch = batch, s.time = time, s.heads = heads, s.width = width, s.rotary_base = 10000;
    s.scale = 1 / std::sqrt(static_cast<double>(width));
    return s;
  }
};
inline constexpr AttentionCase kAttentionCases[] = {
    {"table 3", 1024, 40, 4, 32, true}, {"lengths of evaluation", 64, 256, 4, 32},
    {"125M", 8, 2048, 16, 64},          {"340M", 16, 2048, 8, 128},
    {"1.3B", 8, 2048, 16, 128},         {"one long document", 1, 16384, 16, 64},
};

}  // namespace signet::kernels
