// Number types as rules of rounding, for code whose every bit must be the same on every processor. A value of
// the type is held in `Value` (float for the 16-bit types); `round` takes a result computed in Value to the
// nearest number of the type, ties to even, and `round_lanes` does so for a vector of GCC's vector extension,
// always inline: its callers are compiled for different instruction sets. kUnit is half the distance from 1
// to the next number, kSmallest the smallest number above 0, and numbers up to kLargest stay finite when
// rounded. Whoever uses these must be compiled without contraction of a*b+c (CMakeLists.txt names the files).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "signet/base/small_float.h"

namespace signet {

struct Fp64 {
  using Value = double;
  static constexpr double kUnit = 0x1.0p-53, kSmallest = 0x1.0p-1074, kLargest = 0x1.fp1023;
  static Value round(Value x) { return x; }
  template <class Lanes>
  [[gnu::always_inline]] static Lanes round_lanes(Lanes x) {
    return x;
  }
};

struct Fp32 {
  using Value = float;
  static constexpr double kUnit = 0x1.0p-24, kSmallest = 0x1.0p-149, kLargest = 0x1.fp127;
  static Value round(Value x) { return x; }
  template <class Lanes>
  [[gnu::always_inline]] static Lanes round_lanes(Lanes x) {
    return x;
  }
};

struct Bf16 {
  using Value = float;
  static constexpr double kUnit = 0x1.0p-8, kSmallest = 0x1.0p-133, kLargest = 0x1.fp127;
  // No test for NaN: those that arithmetic makes have an empty payload and stay NaN.
  static Value round(Value x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    return std::bit_cast<float>((u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);
  }
  template <class Lanes>
  [[gnu::always_inline]] static Lanes round_lanes(Lanes x) {
    typedef uint32_t Bits __attribute__((vector_size(sizeof(Lanes))));
    const Bits u = reinterpret_cast<Bits>(x);
    return reinterpret_cast<Lanes>((u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);
  }
};

struct Fp16 {
  using Value = float;
  static constexpr double kUnit = 0x1.0p-11, kSmallest = 0x1.0p-24, kLargest = 65000;
  static Value round(Value x) { return static_cast<float>(fp16(x)); }
  template <class Lanes>
  [[gnu::always_inline]] static Lanes round_lanes(Lanes x) {
    for (size_t i = 0; i < sizeof(Lanes) / sizeof(float); ++i) x[i] = round(x[i]);
    return x;
  }
};

// What `--dtype` names: the type of the parameters and the type of the state. The last two are the usual
// mixed setting of training: 16-bit parameters, fp32 state.
enum class NumberType { kFp64, kFp32, kBf16, kFp16, kBf16Fp32, kFp16Fp32 };

inline const std::vector<std::string>& number_type_names() {
  static const std::vector<std::string> names = {"fp64", "fp32", "bf16", "fp16", "bf16+fp32", "fp16+fp32"};
  return names;
}
inline const std::string& number_type_name(NumberType type) {
  return number_type_names()[static_cast<size_t>(type)];
}

// A parameter, kept in fp64, as a model of this type stores it.
inline double round_parameter(NumberType type, double x) {
  const float single = static_cast<float>(x);
  switch (type) {
    case NumberType::kFp64:
      return x;
    case NumberType::kFp32:
      return single;
    case NumberType::kBf16:
    case NumberType::kBf16Fp32:
      return Bf16::round(single);
    case NumberType::kFp16:
    case NumberType::kFp16Fp32:
      return Fp16::round(single);
  }
  __builtin_trap();  // not reached: compilers name a type that has no case
}

// Calls f(Fp64{}), f(Fp32{}), f(Bf16{}) or f(Fp16{}): the rule by which the state is rounded.
template <class F>
auto with_state_type(NumberType type, F&& f) {
  switch (type) {
    case NumberType::kFp64:
      return f(Fp64{});
    case NumberType::kBf16:
      return f(Bf16{});
    case NumberType::kFp16:
      return f(Fp16{});
    case NumberType::kFp32:
    case NumberType::kBf16Fp32:
    case NumberType::kFp16Fp32:
      return f(Fp32{});
  }
  __builtin_trap();
}

// Of the type of the state: the relative error of one rounding, and the smallest number above 0.
inline double unit_roundoff(NumberType type) {
  return with_state_type(type, [](auto rule) { return decltype(rule)::kUnit; });
}
inline double smallest_number(NumberType type) {
  return with_state_type(type, [](auto rule) { return decltype(rule)::kSmallest; });
}
inline double largest_number(NumberType type) {
  return with_state_type(type, [](auto rule) { return decltype(rule)::kLargest; });
}
// The relative error of an operation before its result is rounded to the type.
inline double inner_roundoff(NumberType type) {
  return with_state_type(
      type, [](auto rule) { return std::numeric_limits<typename decltype(rule)::Value>::epsilon() / 2.0; });
}

}  // namespace signet
