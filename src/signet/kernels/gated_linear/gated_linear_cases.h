// The sizes at which the gated linear recurrence is tested, differentiated and timed; every preset's are
// among them.
#pragma once

#include <cstdint>

#include "signet/kernels/gated_linear/gated_linear.h"

namespace signet::kernels {

struct GatedLinearCase {
  const char* name;
  int64_t batch, time, heads, dk, dv;
  bool channel_gates;
  bool tasks = false;  // of tasks rather than text: in fp32, too
  int64_t groups = 0;  // of heads that share q and k

  GatedLinearShape shape() const { return {batch, time, heads, dk, dv, channel_gates, groups}; }
};
inline constexpr GatedLinearCase kGatedLinearCases[] = {
    {"tasks, gate per head", 1024, 40, 4, 32, 32, false, true},
    {"tasks, gate per channel", 1024, 40, 4, 32, 32, true, true},
    {"table 3, gate per head", 512, 40, 4, 64, 64, false},
    {"table 3, gate per channel", 512, 40, 4, 64, 64, true},
    {"simple GLA", 8, 2048, 16, 128, 128, false},
    {"KDA's sizes", 8, 2048, 16, 128, 128, true},
    {"GLA 125M", 16, 2048, 12, 32, 64, true},
    {"GLA 340M", 16, 2048, 8, 64, 128, true},
    {"GLA 340M, four heads", 16, 2048, 4, 128, 256, true},
    {"GLA 1.3B, four heads", 8, 2048, 4, 256, 512, true},
    {"Mamba-2 370M", 8, 2048, 32, 128, 64, false, false, 1},
    {"Mamba-2 1.3B", 4, 2048, 64, 128, 64, false, false, 1},
    {"Mamba-2 370M, q and k of its own", 8, 2048, 32, 128, 64, false},
    {"mLSTM 10M", 16, 512, 4, 128, 136, false},
    {"mLSTM 35M", 8, 1024, 4, 256, 264, false},
    {"mLSTM 125M", 8, 2048, 4, 384, 392, false},
    {"mLSTM 370M", 8, 2048, 4, 512, 520, false},
    {"mLSTM 1.3B", 2, 2048, 4, 1024, 1032, false},
    {"one long document", 1, 32768, 16, 128, 128, false},
};

}  // namespace signet::kernels
