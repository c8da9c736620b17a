// The sizes at which SwiGLU is tested, differentiated and timed; every preset's are among them.
#pragma once

#include <cstdint>

namespace signet::kernels {

struct SwigluCase {
  const char* name;
  int64_t rows, width;
  int64_t layer;  // the width of the layer that it is in the middle of (kernels/mlp/glu_product.h)
};
inline constexpr SwigluCase kSwigluCases[] = {
    {"10M", 16 * 512, 768, 256},     {"35M", 32 * 1024, 1536, 512},  {"125M", 16 * 2048, 2048, 768},
    {"340M", 32 * 2048, 2816, 1024}, {"1.3B", 8 * 2048, 5632, 2048},
};

}  // namespace signet::kernels
