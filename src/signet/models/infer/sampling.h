// Which token comes next, from logits.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "signet/base/rng.h"

namespace signet::models {

struct SamplingOptions {
  double temperature = 1;  // 0: always the likeliest
  int64_t top_k = 0;       // only among the k likeliest; 0 = all
  double top_p = 1;        // only among the likeliest that together have at least this probability
};

class TokenSampler {
 public:
  TokenSampler(const SamplingOptions& options, uint64_t seed) : options_(options), rng_(seed, 0x6E57) {}
  // Ties go to the smaller id. Throws kNumerical when a logit is NaN or none is finite.
  int32_t next(const float* logits, int64_t classes);

 private:
  SamplingOptions options_;
  Rng rng_;
  std::vector<std::pair<double, int32_t>> weights_;
};

}  // namespace signet::models
