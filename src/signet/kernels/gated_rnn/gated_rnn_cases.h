// The sizes at which sLSTM and LSTM are tested, differentiated and timed.
#pragma once

#include <cstdint>

#include "signet/kernels/gated_rnn/gated_rnn.h"

namespace signet::kernels {

struct GatedRnnCase {
  const char* name;
  GatedRnnCell cell;
  int64_t batch, time, heads, width;

  GatedRnnShape shape() const {
    GatedRnnShape s;
    s.cell = cell, s.batch = batch, s.time = time, s.heads = heads, s.width = width;
    return s;
  }
};
inline constexpr GatedRnnCase kGatedRnnCases[] = {
    {"sLSTM of table 3", GatedRnnCell::kSlstm, 1024, 40, 4, 32},
    {"sLSTM of one head", GatedRnnCell::kSlstm, 1024, 40, 1, 64},
    {"LSTM of table 3", GatedRnnCell::kLstm, 1024, 40, 1, 128},
};

}  // namespace signet::kernels
