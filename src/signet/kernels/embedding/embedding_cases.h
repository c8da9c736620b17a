// The sizes at which the gradient of an embedding is tested and timed.
#pragma once

#include <cstdint>

namespace signet::kernels {

struct EmbeddingCase {
  const char* name;
  int64_t rows, width, words;
};
inline constexpr EmbeddingCase kEmbeddingCases[] = {
    {"340M", 32 * 2048, 1024, 32000},
    {"1.3B, GPT-2 words", 8 * 2048, 2048, 50257},
    {"340M, Qwen words", 8 * 2048, 1024, 151936},
};

}  // namespace signet::kernels
