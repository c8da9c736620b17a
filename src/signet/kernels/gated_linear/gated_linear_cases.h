// The sizes at which the gated linear recurrence is tested, differentiated and timed in bf16.
#pragma once

#include <cstdint>

#include "signet/kernels/gated_linear/gated_linear.h"

namespace signet::kernels {

struct GatedLinearCase {
  const char* name;
  int64_t batch, time, heads, dk, dv;
  bool channel_gates;

  GatedLinearShape shape() const { return {batch, time, heads, dk, dv, channel_gates}; }
};
inline constexpr GatedLinearCase kGatedLinearCases[] = {
    {"table 3, gate per head", 512, 40, 4, 64, 64, false},
    {"table 3, gate per channel", 512, 40, 4, 64, 64, true},
    {"simple GLA", 8, 2048, 16, 128, 128, false},
    {"KDA's sizes", 8, 2048, 16, 128, 128, true},
    {"GLA 340M", 16, 2048, 4, 128, 256, true},
    {"GLA 1.3B", 8, 2048, 4, 256, 512, true},
    {"Mamba-2 370M", 8, 2048, 32, 128, 64, false},
    {"Mamba-2 1.3B", 4, 2048, 64, 128, 64, false},
    {"mLSTM 340M", 8, 2048, 4, 512, 520, false},
    {"one long document", 1, 32768, 16, 128, 128, false},
};

}  // namespace signet::kernels
