// The delta rule one token at a time for a small state with one value column (dv = 1), in one fixed order of
// operations on every processor: what compiled automata run on, and what `signet verify` certifies.
//
//   for j = 0 .. factors-1:
//     u = sum_i k_j[i] S[i]         products, then a tree: lane i + lane i + half, half = width/2, .., 1
//     w = beta_j * (v_j - u)
//     S[i] = S[i] + k_j[i] * w
//
// The function is that of delta_rule.h. u, w and every S[i] are rounded to the type once (base/rounding.h);
// inside one line arithmetic is that of Value, without contraction. Keys and states are padded with zeros to
// `delta_rule_step_width(dk)` lanes. Widths above 16 sum blocks of 16 lanes in order before the tree.
#pragma once

#include <cstdint>
#include <cstring>

#include "signet/base/rounding.h"

namespace signet::kernels {

// 1, 2, 4, 8, 16, 32, 48, ...
constexpr int delta_rule_step_width(int dk) {
  if (dk > 16) return (dk + 15) / 16 * 16;
  int width = 1;
  while (width < dk) width *= 2;
  return width;
}

// One block of kWidth lanes: a template so that the state stays in registers over the factors of a token.
template <class Type, int kWidth>
inline void delta_rule_step_fixed(const typename Type::Value* k, const typename Type::Value* v,
                                  const typename Type::Value* beta, int factors,
                                  typename Type::Value* state) {
  using Value = typename Type::Value;
  typedef Value Lanes __attribute__((vector_size(kWidth * sizeof(Value))));
  Lanes s;
  std::memcpy(&s, state, sizeof s);
  for (int j = 0; j < factors; ++j) {
    Lanes key;
    std::memcpy(&key, k + j * kWidth, sizeof key);
    const Lanes products = key * s;
    Value sums[kWidth];
    std::memcpy(sums, &products, sizeof products);
#pragma GCC unroll 8
    for (int half = kWidth / 2; half > 0; half /= 2) {
#pragma GCC unroll 16
      for (int i = 0; i < half; ++i) sums[i] = sums[i] + sums[i + half];
    }
    const Value u = Type::round(sums[0]);
    const Value w = Type::round(beta[j] * (v[j] - u));
    const Lanes sum = s + key * w;
    for (int i = 0; i < kWidth; ++i) s[i] = Type::round(sum[i]);
  }
  std::memcpy(state, &s, sizeof s);
}

template <class Type>
inline void delta_rule_step_wide(const typename Type::Value* k, const typename Type::Value* v,
                                 const typename Type::Value* beta, int factors, int width,
                                 typename Type::Value* state) {
  using Value = typename Type::Value;
  for (int j = 0; j < factors; ++j) {
    const Value* key = k + static_cast<int64_t>(j) * width;
    Value sums[16] = {};
    for (int block = 0; block < width; block += 16)
      for (int i = 0; i < 16; ++i) sums[i] = sums[i] + key[block + i] * state[block + i];
    for (int half = 8; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) sums[i] = sums[i] + sums[i + half];
    const Value u = Type::round(sums[0]);
    const Value w = Type::round(beta[j] * (v[j] - u));
    for (int i = 0; i < width; ++i) state[i] = Type::round(state[i] + key[i] * w);
  }
}

// k [factors, width], v [factors], beta [factors], state [width].
template <class Type>
inline void delta_rule_step(const typename Type::Value* k, const typename Type::Value* v,
                            const typename Type::Value* beta, int factors, int width,
                            typename Type::Value* state) {
  switch (width) {
    case 1:
      return delta_rule_step_fixed<Type, 1>(k, v, beta, factors, state);
    case 2:
      return delta_rule_step_fixed<Type, 2>(k, v, beta, factors, state);
    case 4:
      return delta_rule_step_fixed<Type, 4>(k, v, beta, factors, state);
    case 8:
      return delta_rule_step_fixed<Type, 8>(k, v, beta, factors, state);
    case 16:
      return delta_rule_step_fixed<Type, 16>(k, v, beta, factors, state);
    default:
      return delta_rule_step_wide<Type>(k, v, beta, factors, width, state);
  }
}

}  // namespace signet::kernels
