// The sizes at which the delta rule is tested, differentiated and timed; every preset's are among them.
#pragma once

#include <cstdint>

#include "signet/kernels/delta_rule/delta_rule.h"

namespace signet::kernels {

struct DeltaRuleCase {
  const char* name;
  int64_t batch, time, heads, width, factors = 1, gate_channels = 0;
  bool tasks = false;  // of tasks rather than text: in fp32, too

  DeltaRuleShape shape() const {
    DeltaRuleShape s{batch, time, heads, width, width, factors};
    s.gate_channels = gate_channels;
    return s;
  }
};
inline constexpr DeltaRuleCase kDeltaRuleCases[] = {
    {"table 3", 1024, 40, 4, 32, 1, 0, true},
    {"table 3, wide heads", 1024, 40, 4, 128},
    {"DeltaProduct's tasks", 1024, 40, 4, 32, 2, 0, true},
    {"DeltaProduct's tasks, four factors", 1024, 40, 4, 32, 4, 0, true},
    {"Gated DeltaNet's tasks", 1024, 40, 4, 32, 1, 1, true},
    {"KDA's tasks", 1024, 40, 4, 32, 1, 32, true},
    {"S5", 512, 32, 4, 32, 1, 0, true},
    {"DeltaNet 125M", 16, 2048, 12, 64},
    {"DeltaProduct 125M", 16, 2048, 12, 64, 2},
    {"Gated DeltaNet 125M", 16, 2048, 12, 64, 1, 1},
    {"KDA 125M", 16, 2048, 12, 64, 1, 64},
    {"DeltaNet 340M", 16, 2048, 8, 128},
    {"DeltaProduct 340M", 16, 2048, 8, 128, 2},
    {"Gated DeltaNet 340M", 16, 2048, 8, 128, 1, 1},
    {"KDA 340M", 16, 2048, 8, 128, 1, 128},
    {"DeltaNet 1.3B", 4, 2048, 16, 128},
    {"as others measure", 8, 2048, 16, 128},
    {"as others measure, two factors", 8, 2048, 16, 128, 2},
    {"one long document", 1, 32768, 16, 128},
};

}  // namespace signet::kernels
