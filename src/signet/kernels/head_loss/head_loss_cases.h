// The sizes at which the head with its loss is tested, differentiated and timed.
#pragma once

#include <cstdint>

namespace signet::kernels {

struct HeadLossCase {
  const char* name;
  int64_t rows, width, classes;
};
inline constexpr HeadLossCase kHeadLossCases[] = {
    {"parity", 1024, 128, 3},
    {"S5", 1024, 128, 120},
    {"bytes", 16384, 512, 257},
    {"GPT-2 words, 10M", 16384, 256, 50257},
    {"340M", 65536, 1024, 32000},
    {"1.3B", 16384, 2048, 32000},
    {"370M, GPT-NeoX words", 32768, 1024, 50280},
    {"340M, Qwen words", 16384, 1024, 151936},
};

}  // namespace signet::kernels
