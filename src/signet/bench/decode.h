// Decoding with a language model at the sizes of the literature, with random weights and tokens: how long a
// prompt and a token take, what the bytes that must be moved would take, and how much memory it all needs.
#pragma once

#include <cstdint>
#include <string>

#include "signet/bench/lm.h"

namespace signet::bench {

struct DecodeReport {
  std::string preset, model, precision;
  int64_t parameters = 0, slots = 0, prompt = 0, tokens = 0;
  double error = 0,
         tolerance = 0;  // logits of the first two blocks after a prompt and some steps, against fp64
  bool correct = false;  // what follows is measured only then
  double prefill_seconds = 0, step_seconds = 0;
  double weight_bytes = 0, state_bytes = 0;   // read once a step; read and written once
  int64_t memory_short = 0, memory_long = 0;  // of states and passes, after 10 tokens and at the end
  int64_t tokens_read = 0;                    // then, by each slot
  double floor_bytes() const { return weight_bytes + 2 * state_bytes; }
};
// options.batch slots (0 = 1) and prompts of options.context tokens (0 = the preset's); with `narrow`
// matrices in bf16.
DecodeReport run_decode(const LmOptions& options, bool narrow, const Device& device);

}  // namespace signet::bench
