// The sizes at which the selective scan is tested, differentiated and timed; every preset's are among them.
#pragma once

#include <cstdint>

#include "signet/kernels/selective_scan/selective_scan.h"

namespace signet::kernels {

struct SelectiveScanCase {
  const char* name;
  int64_t batch, time, channels;
  EigenvalueRange range = EigenvalueRange::kSigned;
  bool fp32 = false;  // that, too
  static constexpr int64_t kStates = 16;

  SelectiveScanShape shape() const {
    SelectiveScanShape s;
    s.batch = batch, s.time = time, s.channels = channels, s.states = kStates, s.range = range;
    return s;
  }
};
inline constexpr SelectiveScanCase kSelectiveScanCases[] = {
    {"table 3", 1024, 40, 256, EigenvalueRange::kSigned, true},
    {"table 3, [0,1]", 1024, 40, 256, EigenvalueRange::kPositive, true},
    {"S5", 512, 32, 256, EigenvalueRange::kSigned, true},
    {"Mamba 10M", 16, 512, 512},
    {"Mamba 35M", 16, 1024, 1024},
    {"Mamba 125M", 16, 2048, 1536},
    {"Mamba 370M", 8, 2048, 2048, EigenvalueRange::kSigned, true},
    {"Mamba 1.3B", 8, 2048, 4096},
    {"one long document", 1, 32768, 2048},
};

}  // namespace signet::kernels
