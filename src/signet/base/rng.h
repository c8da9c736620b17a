// Counter-based random numbers (base/philox.h). A generator is a pure function of (seed, stream, position),
// so any sample can be made again on any number of threads.
#pragma once

#include <cmath>
#include <cstdint>

#include "signet/base/philox.h"

namespace signet {

class Rng {
 public:
  Rng(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  uint32_t next_u32() {
    if (used_ == 4) refill();
    return block_.words[used_++];
  }
  // Goes on as if `words` had been drawn.
  void skip(uint64_t words) {
    const uint64_t at = 4 * counter_ + static_cast<uint64_t>(used_) - 4 + words;
    counter_ = at / 4, used_ = 4;
    if (at % 4 == 0) return;
    refill();
    used_ = static_cast<int>(at % 4);
  }
  uint64_t next_u64() {
    const uint64_t low = next_u32();
    return low | (uint64_t{next_u32()} << 32);
  }
  // Uniform integer in [0, bound), without bias (Lemire's multiply and reject).
  uint32_t below(uint32_t bound) {
    uint64_t product = uint64_t{next_u32()} * bound;
    if (static_cast<uint32_t>(product) < bound) {
      const uint32_t threshold = (0u - bound) % bound;
      while (static_cast<uint32_t>(product) < threshold) product = uint64_t{next_u32()} * bound;
    }
    return static_cast<uint32_t>(product >> 32);
  }
  // Uniform integer in [low, high].
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint32_t>(high - low + 1)));
  }
  // Uniform in [0, 1) with 53 bits.
  double uniform() { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // Standard normal (Box-Muller, one value per call so that the stream position is simple).
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }

 private:
  void refill() {
    block_ = philox({{static_cast<uint32_t>(counter_), static_cast<uint32_t>(counter_ >> 32),
                      static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)}},
                    seed_);
    ++counter_;
    used_ = 0;
  }

  uint64_t seed_, stream_, counter_ = 0;
  PhiloxBlock block_{};
  int used_ = 4;
};

}  // namespace signet
