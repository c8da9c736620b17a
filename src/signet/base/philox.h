// Philox4x32-10 (Salmon et al., SC 2011): four random words that are a pure function of a counter of 128 bits
// and a key of 64, on the CPU and the GPU alike.
#pragma once

#include <cstdint>

#include "signet/base/host_device.h"

namespace signet {

struct PhiloxBlock {
  uint32_t words[4];
};

SIGNET_HOST_DEVICE inline PhiloxBlock philox(const PhiloxBlock& counter, uint64_t key) {
  uint32_t c0 = counter.words[0], c1 = counter.words[1], c2 = counter.words[2], c3 = counter.words[3];
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace signet
