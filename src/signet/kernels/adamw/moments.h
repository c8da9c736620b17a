// Moments of AdamW in bf16. A moment moves by a thousandth of itself in an update, and half a unit in the
// last place of bf16 is a 512th: rounded to nearest it would stay where it is for ever. So it is rounded up
// or down at random, with the probability that keeps its mean, by numbers that are a pure function of the
// parameter, the place and the update: the same bits on any number of threads, and after a resume.
#pragma once

#include <cstdint>
#include <cstring>

#include "signet/base/host_device.h"
#include "signet/base/philox.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

// Random words of four neighbours, the first at a multiple of four: the low half of a word is for the first
// moment, the high half for the second. `key` tells parameters apart.
SIGNET_HOST_DEVICE inline PhiloxBlock moment_bits(int64_t key, int64_t first, double step) {
  const int64_t group = first / 4;
  return philox({{static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32),
                  static_cast<uint32_t>(static_cast<int64_t>(step)), 0x6d6f6d65u}},
                static_cast<uint64_t>(key));
}

// x as the bits of bf16, rounded away from zero when its lost bits and `random` reach 2^16 together.
SIGNET_HOST_DEVICE inline uint16_t round_at_random(float x, uint32_t random) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u, nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(((finite ? bits + (random & 0xffffu) : bits) >> 16) | (nan ? 0x40u : 0u));
}

}  // namespace signet::kernels
