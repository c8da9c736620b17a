// A small linear recurrence over many tokens whose parameters are rows of a table, one row per kind of token:
// inference of a recurrent layer over a finite alphabet. What compiled automata run on and what `signet
// verify` certifies: one fixed order of operations, the same bits on every processor.
//
// The state S has `lanes` numbers. Row c = context[t] moves it by `rounds` rounds, in each of which lane i
// meets at most one other lane p = partner[i]. All lanes of a round read the state before it:
//
//   kHouseholder   u_i = k_i S_i + l_i S_p      w_i = b_i (v_i - u_i)      S_i = S_i + k_i w_i
//   kAffine        S_i = (k_i S_i + l_i S_p) + v_i
//
// A round of the first kind is any number of factors of the delta rule (kernels/delta_rule) whose keys have
// at most two entries and share no lane: such factors commute, and together or one after the other they give
// the same numbers. l_i is the key's entry at p (0: no partner), b_i and v_i belong to the factor; lanes that
// no factor touches have zeros. The second kind is the diagonal recurrence, real or, as pairs, complex.
// u, w and every new S_i are rounded to the type once; inside one line arithmetic is that of T, without
// contraction.
//
// Tables are [contexts, rounds, lanes]; trace [tokens, lanes] receives the state after every token. lanes is
// 4, 8 or a multiple of 16.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"

namespace signet::kernels {

enum class LookupRule { kHouseholder, kAffine };
enum class LookupRounding { kNone, kBf16, kFp16 };  // to T itself, or (T = float) to a 16-bit type

constexpr int lookup_scan_lanes(int numbers) {
  return numbers <= 4 ? 4 : numbers <= 8 ? 8 : (numbers + 15) / 16 * 16;
}

template <class T>
struct LookupScan {
  LookupRule rule = LookupRule::kHouseholder;
  LookupRounding rounding = LookupRounding::kNone;
  int64_t tokens = 0;
  int lanes = 0, rounds = 0;
  const T *k = nullptr, *l = nullptr, *b = nullptr, *v = nullptr;  // b: kHouseholder only
  const int32_t* partner = nullptr;
  const int32_t* context = nullptr;  // [tokens]
  T* state = nullptr;                // [lanes], read and overwritten
  T* trace = nullptr;
};

template <class T>
void lookup_scan(const LookupScan<T>& p, Cpu);

}  // namespace signet::kernels
