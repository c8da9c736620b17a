// Which token comes next, from logits [rows, classes] with a row stride:
//   argmax over the tokens that are allowed of   logit / temperature + g(seed, row, position, token)
// g is Gumbel noise, -log(-log u), and a pure function of its arguments, so that a token is drawn with the
// probability that softmax(logits / temperature) gives it among those allowed, and the same one, up to
// rounding, on every device. Temperature 0: the likeliest. Ties go to the smallest token. Allowed are the
// tokens that no k others are likelier than (top_k; 0 = all), and of these the likeliest that together have
// at least the share top_p of their probability; those as likely as the last of them, too.
#pragma once

#include <cmath>
#include <cstdint>

#include "signet/base/host_device.h"
#include "signet/base/isa.h"
#include "signet/kernels/noise/noise.h"

namespace signet::kernels {

struct SampleRule {
  float temperature = 1;
  int32_t top_k = 0;
  float top_p = 1;
  uint64_t seed = 0;
};

struct Sample {
  SampleRule rule;
  int64_t rows = 0, classes = 0;
  const float* logits = nullptr;
  int64_t stride = 0;
  int64_t* positions = nullptr;  // [rows], read and then one more
  int32_t* tokens = nullptr;     // [rows]; 0 where a logit is NaN or none is finite
  int32_t* ids = nullptr;        // [rows], the same, but -1 there
};

// The random words of tokens [4 packet, 4 packet + 4), and the noise of a word.
SIGNET_HOST_DEVICE inline PhiloxBlock sample_words(uint64_t seed, int64_t row, int64_t position,
                                                   int64_t packet) {
  constexpr uint64_t kSample = 0x73616d706c650000u;
  return philox({{static_cast<uint32_t>(packet), static_cast<uint32_t>(row), static_cast<uint32_t>(position),
                  static_cast<uint32_t>(position >> 32)}},
                seed ^ kSample);
}
SIGNET_HOST_DEVICE inline float gumbel(uint32_t word) {
  return -std::log(-std::log(noise_uniform<float>(word)));
}

void sample(const Sample& p, Cpu);
void sample(const Sample& p, Cuda);

}  // namespace signet::kernels
