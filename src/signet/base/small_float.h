// bfloat16 and IEEE half as storage types: 16 bits, rounded to nearest even on conversion. Arithmetic happens
// in float.
#pragma once

#include <bit>
#include <cstdint>

namespace signet {

struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

struct fp16 {
  uint16_t bits = 0;
  fp16() = default;
  explicit fp16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value), sign = (u >> 16) & 0x8000u,
                   magnitude = u & 0x7fffffffu;
    uint32_t half;
    if (magnitude > 0x7f800000u) {
      half = 0x7e00u;  // NaN
    } else if (magnitude >= 0x477ff000u) {
      half = 0x7c00u;  // rounds to infinity
    } else if (magnitude >= 0x38800000u) {
      half = (magnitude - 0x38000000u + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
    } else {
      // Subnormal: adding 0.5 leaves the rounded result in the low bits.
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      half = std::bit_cast<uint32_t>(shifted) - 0x3f000000u;
    }
    bits = static_cast<uint16_t>(sign | half);
  }
  explicit operator float() const {
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
    const float value = static_cast<float>(magnitude) * 0x1.0p-24f;
    return sign ? -value : value;
  }
};

// The type that sums and recurrent states use: never less than fp32.
template <class T>
struct AccumulatorOf {
  using type = T;
};
template <>
struct AccumulatorOf<bf16> {
  using type = float;
};
template <>
struct AccumulatorOf<fp16> {
  using type = float;
};
template <class T>
using Accumulator = typename AccumulatorOf<T>::type;

}  // namespace signet
