// The sizes at which norms are tested, differentiated and timed; those of every preset's blocks and heads are
// among them.
#pragma once

#include <cstdint>

#include "signet/kernels/norm/norm.h"

namespace signet::kernels {

struct NormCase {
  const char* name;
  NormKind kind;
  int64_t rows, width;
  bool tasks = false;  // of tasks rather than text: in fp32, too
};
inline constexpr NormCase kNormCases[] = {
    {"table 3", NormKind::kRms, 1024L * 40, 128, true},
    {"table 3, layer norm", NormKind::kLayer, 1024L * 40, 128, true},
    {"table 3, heads", NormKind::kRms, 4L * 1024 * 40, 32, true},
    {"10M", NormKind::kRms, 16L * 512, 256, true},
    {"35M", NormKind::kRms, 32L * 1024, 512},
    {"heads of 64", NormKind::kRms, 12L * 16 * 2048, 64},
    {"125M", NormKind::kRms, 16L * 2048, 768},
    {"340M", NormKind::kRms, 32L * 2048, 1024},
    {"heads of 128", NormKind::kRms, 8L * 32 * 2048, 128},
    {"mLSTM's heads", NormKind::kRms, 4L * 8 * 2048, 384},
    {"Mamba-2 125M", NormKind::kRms, 16L * 2048, 1536},
    {"1.3B", NormKind::kRms, 8L * 2048, 2048, true},
    {"Mamba-2 1.3B", NormKind::kRms, 8L * 2048, 4096},
};

}  // namespace signet::kernels
