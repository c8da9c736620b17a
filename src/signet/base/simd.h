// The widest vector of the instruction set being compiled (base/isa_target.h), over GCC's vector extensions,
// and the few elementary functions the kernels need. Everything is in the instruction set's own namespace.
// Include after isa_target.h.
#pragma once

#ifndef SIGNET_ISA
#error "include signet/base/isa_target.h before signet/base/simd.h"
#endif

#include <cstdint>
#include <cstring>
#include <utility>

namespace signet::SIGNET_ISA {

template <class T>
struct VecTraits;
template <>
struct VecTraits<float> {
  typedef float Vec __attribute__((vector_size(SIGNET_VECTOR_BYTES)));
  typedef int32_t Int __attribute__((vector_size(SIGNET_VECTOR_BYTES)));
  typedef uint32_t Bits __attribute__((vector_size(SIGNET_VECTOR_BYTES)));
};
template <>
struct VecTraits<double> {
  typedef double Vec __attribute__((vector_size(SIGNET_VECTOR_BYTES)));
  typedef int64_t Int __attribute__((vector_size(SIGNET_VECTOR_BYTES)));
  typedef uint64_t Bits __attribute__((vector_size(SIGNET_VECTOR_BYTES)));
};
template <class T>
using Vec = typename VecTraits<T>::Vec;
template <class T>
using IntVec = typename VecTraits<T>::Int;
template <class T>
using BitVec = typename VecTraits<T>::Bits;
template <class T>
inline constexpr int kLanes = SIGNET_VECTOR_BYTES / static_cast<int>(sizeof(T));

#define SIGNET_INLINE inline __attribute__((always_inline))

template <class T>
SIGNET_INLINE Vec<T> load(const T* p) {
  Vec<T> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
SIGNET_INLINE void store(T* p, Vec<T> v) {
  __builtin_memcpy(p, &v, sizeof v);
}
template <class T>
SIGNET_INLINE Vec<T> splat(T x) {
  return x - Vec<T>{};  // exact for every x, and one broadcast; 0 + x would be an addition, for -0
}
// First n < kLanes elements; the other lanes are zero, and nothing past p + n is touched.
template <class T>
SIGNET_INLINE Vec<T> load_n(const T* p, int n) {
  Vec<T> v{};
  __builtin_memcpy(&v, p, sizeof(T) * static_cast<size_t>(n));
  return v;
}
template <class T>
SIGNET_INLINE void store_n(T* p, Vec<T> v, int n) {
  __builtin_memcpy(p, &v, sizeof(T) * static_cast<size_t>(n));
}
// A loop over n elements: body(i, kFull) on whole vectors, then body(i, count) on the rest. load(p, m) and
// store(p, v, m) take either kind of count.
struct Full {};
template <class T>
SIGNET_INLINE Vec<T> load(const T* p, Full) {
  return load(p);
}
template <class T>
SIGNET_INLINE Vec<T> load(const T* p, int n) {
  return load_n(p, n);
}
template <class T>
SIGNET_INLINE void store(T* p, Vec<T> v, Full) {
  store(p, v);
}
template <class T>
SIGNET_INLINE void store(T* p, Vec<T> v, int n) {
  store_n(p, v, n);
}
template <class T, class Body>
SIGNET_INLINE void vector_loop(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) body(i, Full{});
  if (i < n) body(i, static_cast<int>(n - i));
}
// Sum of the lanes in a fixed tree order: the upper half onto the lower, and again.
template <class T, int kHalf, int... kLane>
SIGNET_INLINE Vec<T> add_halves(Vec<T> v, std::integer_sequence<int, kLane...> lanes) {
  v += __builtin_shuffle(v, IntVec<T>{(kLane + kHalf) % kLanes<T>...});
  if constexpr (kHalf > 1) return add_halves<T, kHalf / 2>(v, lanes);
  return v;
}
template <class T>
SIGNET_INLINE T sum(Vec<T> v) {
  return add_halves<T, kLanes<T> / 2>(v, std::make_integer_sequence<int, kLanes<T>>{})[0];
}
template <class T>
SIGNET_INLINE Vec<T> select(IntVec<T> mask, Vec<T> yes, Vec<T> no) {
  return mask ? yes : no;
}
template <class T>
SIGNET_INLINE Vec<T> min(Vec<T> a, Vec<T> b) {
  return a < b ? a : b;
}
template <class T>
SIGNET_INLINE Vec<T> max(Vec<T> a, Vec<T> b) {
  return a > b ? a : b;
}

// e^x. float: degree-6 polynomial on [-ln2/2, ln2/2], error under 2 ulp; double: degree 13, under 2 ulp.
// Underflows to exactly 0, overflows to +inf, keeps NaN.
template <class T>
SIGNET_INLINE Vec<T> exp(Vec<T> x);
template <>
SIGNET_INLINE Vec<float> exp<float>(Vec<float> x) {
  using V = Vec<float>;
  using I = IntVec<float>;
  const V low = splat(-104.0f), high = splat(89.0f);
  const V clamped = x < low ? low : (x > high ? high : x);  // NaN passes
  const V scaled = clamped * 1.44269504088896341f;
  const V magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to the nearest integer
  const V n = (scaled + magic) - magic;
  const V r = (clamped - n * 0.693145751953125f) - n * 1.428606765330187e-06f;
  V p = splat(0.001469479f);  // minimax on [-ln2/2, ln2/2] with p(0) = 1
  p = p * r + 0.00838868347f;
  p = p * r + 0.0416534587f;
  p = p * r + 0.166661973f;
  p = p * r + 0.500000504f;
  p = p * r + 1.00000011f;
  p = p * r + 1.0f;
  const I exponent = __builtin_convertvector(n, I);
  const I half = exponent >> 1;  // two factors, so that subnormal results and 2^128 work
  const V first = reinterpret_cast<V>((half + 127) << 23);
  const V second = reinterpret_cast<V>((exponent - half + 127) << 23);
  return x != x ? x : p * first * second;
}
template <>
SIGNET_INLINE Vec<double> exp<double>(Vec<double> x) {
  using V = Vec<double>;
  using I = IntVec<double>;
  const V low = splat(-750.0), high = splat(710.0);
  const V clamped = x < low ? low : (x > high ? high : x);
  const V scaled = clamped * 1.4426950408889634074;
  const V magic = splat(6755399441055744.0);  // 1.5 * 2^52
  const V n = (scaled + magic) - magic;
  const V r = (clamped - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  V p = splat(1.0 / 6227020800.0);
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const I exponent = reinterpret_cast<I>(n + magic) - reinterpret_cast<I>(magic);
  const I half = exponent >> 1;
  const V first = reinterpret_cast<V>((half + 1023) << 52);
  const V second = reinterpret_cast<V>((exponent - half + 1023) << 52);
  return x != x ? x : p * first * second;
}

// 2^(a b) for a b <= 127 (double: 1023), under 2 ulp (double: 3) of the power of the unrounded product
// (rounded without FMA): half the work of exp, for inner loops. Exactly 1 at 0, exactly 0 below 2^-125.5
// (2^-1021.5), where the result might be subnormal; keeps NaN. The exponent is added to p's bits without a
// sign, since it wraps in the lanes that become 0.
template <class T>
SIGNET_INLINE Vec<T> exp2_product(Vec<T> a, Vec<T> b);
template <>
SIGNET_INLINE Vec<float> exp2_product<float>(Vec<float> a, Vec<float> b) {
  using B = BitVec<float>;
  const float magic = 12582912.0f;  // 1.5 * 2^23: the sum's last bits are the nearest integer
  const Vec<float> shifted = a * b + magic;
  const Vec<float> r = a * b - (shifted - magic);
  Vec<float> p = splat(0.00016297319512126145f);  // minimax on [-1/2, 1/2] with p(0) = 1
  p = p * r + 0.0013422119851865407f;
  p = p * r + 0.009615080239475323f;
  p = p * r + 0.055502545616235535f;
  p = p * r + 0.24022674907056685f;
  p = p * r + 0.6931472595060554f;
  p = p * r + 1.0f;
  const B scaled = reinterpret_cast<B>(p) + (reinterpret_cast<B>(shifted) << 23);
  return reinterpret_cast<Vec<float>>(shifted < magic - 125.0f ? B{} : scaled);
}
template <>
SIGNET_INLINE Vec<double> exp2_product<double>(Vec<double> a, Vec<double> b) {
  using B = BitVec<double>;
  const double magic = 6755399441055744.0;  // 1.5 * 2^52
  const Vec<double> shifted = a * b + magic;
  const Vec<double> r = a * b - (shifted - magic);
  constexpr double kLn2 = 0.693147180559945309417;
  Vec<double> p = splat(1.0);
  for (int k = 13; k >= 1; --k) p = p * r * (kLn2 / k) + 1.0;
  const B scaled = reinterpret_cast<B>(p) + (reinterpret_cast<B>(shifted) << 52);
  return reinterpret_cast<Vec<double>>(shifted < magic - 1021.0 ? B{} : scaled);
}

// log(1 + x) for x in [0, 1]: 2 atanh(x / (2 + x)), a series in s^2 with s <= 1/3. Enough for softplus.
template <class T>
SIGNET_INLINE Vec<T> log1p_unit(Vec<T> x) {
  const Vec<T> s = x / (x + T(2));
  const Vec<T> z = s * s;
  constexpr int kTerms = sizeof(T) == 4 ? 8 : 17;
  Vec<T> p = splat(T(1) / T(2 * kTerms + 1));
  for (int i = kTerms - 1; i >= 0; --i) p = p * z + T(1) / T(2 * i + 1);
  return T(2) * s * p;
}

// 1 / (1 + e^-x); exactly 1 for large x (fp32: x >= 16.64) and 0 for very negative x.
template <class T>
SIGNET_INLINE Vec<T> sigmoid(Vec<T> x) {
  return T(1) / (T(1) + exp<T>(-x));
}
// log(1 + e^x), stable on both sides, and its slope, the sigmoid, from one exponential.
template <class T>
struct Softplus {
  Vec<T> value, slope;
};
template <class T>
SIGNET_INLINE Softplus<T> softplus_and_slope(Vec<T> x) {
  const Vec<T> zero{};
  const Vec<T> e = exp<T>(x < zero ? x : -x), positive = T(1) / (T(1) + e);
  return {(x > zero ? x : zero) + log1p_unit<T>(e), x < zero ? e * positive : positive};
}
template <class T>
SIGNET_INLINE Vec<T> softplus(Vec<T> x) {
  return softplus_and_slope<T>(x).value;
}

}  // namespace signet::SIGNET_ISA

namespace signet::kernels::SIGNET_ISA {
using namespace signet::SIGNET_ISA;  // NOLINT: the kernels of this instruction set
}
