// The sizes at which SwiGLU is tested, differentiated and timed; every preset's are among them.
#pragma once

#include <cstdint>

namespace signet::kernels {

struct SwigluCase {
  const char* name;
  int64_t rows, width;
};
inline constexpr SwigluCase kSwigluCases[] = {
    {"10M", 16 * 512, 768},    {"35M", 32 * 1024, 1536}, {"125M", 16 * 2048, 2048},
    {"340M", 32 * 2048, 2816}, {"1.3B", 8 * 2048, 5632},
};

}  // namespace signet::kernels
