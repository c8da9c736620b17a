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

// 1, 4, 8, 16, 32, 48, ...
constexpr int delta_rule_step_width(int dk) {
  if (dk > 16) return (dk + 15) / 16 * 16;
  return dk == 1 ? 1 : dk <= 4 ? 4 : dk <= 8 ? 8 : 16;
}

// A state of kWidth lanes as 16-byte vectors, which every processor of the project holds in registers.
template <class Type, int kWidth>
struct StepState {
  using Value = typename Type::Value;
  typedef Value Piece __attribute__((vector_size(16)));
  static constexpr int kLanes = 16 / static_cast<int>(sizeof(Value)), kPieces = kWidth / kLanes;
  Piece pieces[kPieces];

  static StepState load(const Value* from) {
    StepState s;
    std::memcpy(s.pieces, from, sizeof s.pieces);
    return s;
  }
  void store(Value* to) const { std::memcpy(to, pieces, sizeof pieces); }

  // The tree sum of all lanes, in every lane.
  Piece total() const {
    Piece x[kPieces];
    for (int i = 0; i < kPieces; ++i) x[i] = pieces[i];
    for (int half = kPieces / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) x[i] = x[i] + x[i + half];
    if constexpr (kLanes == 4) {
      typedef int32_t Order __attribute__((vector_size(16)));
      x[0] = x[0] + __builtin_shuffle(x[0], Order{2, 3, 0, 1});
      return x[0] + __builtin_shuffle(x[0], Order{1, 0, 3, 2});
    } else {
      typedef int64_t Order __attribute__((vector_size(16)));
      return x[0] + __builtin_shuffle(x[0], Order{1, 0});
    }
  }

  void step(const Value* k, const Value* v, const Value* beta, int factors) {
    for (int j = 0; j < factors; ++j) {
      const StepState key = load(k + j * kWidth);
      StepState products;
      for (int i = 0; i < kPieces; ++i) products.pieces[i] = key.pieces[i] * pieces[i];
      const Piece u = Type::round_lanes(products.total());
      const Piece w = Type::round_lanes((Piece{} + beta[j]) * ((Piece{} + v[j]) - u));
      for (int i = 0; i < kPieces; ++i) pieces[i] = Type::round_lanes(pieces[i] + key.pieces[i] * w);
    }
  }
};
template <class Type>
struct StepState<Type, 1> {
  using Value = typename Type::Value;
  Value number;

  static StepState load(const Value* from) { return {*from}; }
  void store(Value* to) const { *to = number; }
  void step(const Value* k, const Value* v, const Value* beta, int factors) {
    for (int j = 0; j < factors; ++j) {
      const Value u = Type::round(k[j] * number);
      const Value w = Type::round(beta[j] * (v[j] - u));
      number = Type::round(number + k[j] * w);
    }
  }
};

template <class Type, int kWidth>
inline void delta_rule_step_fixed(const typename Type::Value* k, const typename Type::Value* v,
                                  const typename Type::Value* beta, int factors,
                                  typename Type::Value* state) {
  auto s = StepState<Type, kWidth>::load(state);
  s.step(k, v, beta, factors);
  s.store(state);
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
