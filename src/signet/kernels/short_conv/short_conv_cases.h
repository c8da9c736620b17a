// The sizes at which the convolution of four taps is tested, differentiated and timed; every preset's are
// among them.
#pragma once

#include <cstdint>

namespace signet::kernels {

struct ShortConvCase {
  const char* name;
  int64_t batch, time, channels;
  static constexpr int64_t kTaps = 4;
};
inline constexpr ShortConvCase kShortConvCases[] = {
    {"Mamba and mLSTM 10M", 16, 512, 512},
    {"DeltaNet and Mamba-2 10M", 16, 512, 768},
    {"Mamba and mLSTM 35M", 16, 1024, 1024},
    {"DeltaProduct 10M, Mamba-2 35M", 16, 1024, 1280},
    {"DeltaNet 35M, Mamba 125M", 16, 2048, 1536},
    {"Mamba-2 125M", 16, 2048, 1792},
    {"Mamba and mLSTM 370M", 16, 2048, 2048},
    {"DeltaNet 125M, Mamba-2 370M", 16, 2048, 2304},
    {"DeltaProduct 35M", 16, 1024, 2560},
    {"DeltaNet 340M", 32, 2048, 3072},
    {"DeltaProduct 125M", 16, 2048, 3840},
    {"Mamba and mLSTM 1.3B", 8, 2048, 4096},
    {"Mamba-2 1.3B", 8, 2048, 4352},
    {"DeltaProduct 340M", 16, 2048, 5120},
    {"DeltaNet 1.3B", 8, 2048, 6144},
    {"DeltaProduct 1.3B", 4, 2048, 10240},
};

}  // namespace signet::kernels
