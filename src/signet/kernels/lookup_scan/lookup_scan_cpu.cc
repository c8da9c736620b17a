#include "signet/kernels/lookup_scan/lookup_scan.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "signet/base/isa_target.h"
#include "signet/base/rounding.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

#define SIGNET_LANES_INLINE inline __attribute__((always_inline))

// `kCount` lanes as one or two native vectors.
template <class T, int kCount>
struct Lanes {
  static constexpr int kBytes = kCount * static_cast<int>(sizeof(T));
  static constexpr int kPieceBytes = kBytes < SIGNET_VECTOR_BYTES ? kBytes : SIGNET_VECTOR_BYTES;
  static constexpr int kPieces = kBytes / kPieceBytes, kInPiece = kCount / kPieces;
  using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  typedef T Piece __attribute__((vector_size(kPieceBytes)));
  typedef Index IndexPiece __attribute__((vector_size(kPieceBytes)));
  Piece pieces[kPieces];

  SIGNET_LANES_INLINE static Lanes load(const T* from) {
    Lanes x;
    std::memcpy(x.pieces, from, sizeof x.pieces);
    return x;
  }
  SIGNET_LANES_INLINE void store(T* to) const { std::memcpy(to, pieces, sizeof pieces); }

  template <class F>
  SIGNET_LANES_INLINE static Lanes make(F&& f) {
    Lanes x;
    for (int i = 0; i < kPieces; ++i) x.pieces[i] = f(i);
    return x;
  }
  friend SIGNET_LANES_INLINE Lanes operator+(const Lanes& x, const Lanes& y) {
    return make([&](int i) { return x.pieces[i] + y.pieces[i]; });
  }
  friend SIGNET_LANES_INLINE Lanes operator-(const Lanes& x, const Lanes& y) {
    return make([&](int i) { return x.pieces[i] - y.pieces[i]; });
  }
  friend SIGNET_LANES_INLINE Lanes operator*(const Lanes& x, const Lanes& y) {
    return make([&](int i) { return x.pieces[i] * y.pieces[i]; });
  }

  // Lane i of the result is lane from[i].
  SIGNET_LANES_INLINE Lanes permuted(const int32_t* from) const {
    return make([&](int i) {
      IndexPiece index;
      if constexpr (sizeof(T) == 4) {
        std::memcpy(&index, from + i * kInPiece, sizeof index);
      } else {
        for (int j = 0; j < kInPiece; ++j) index[j] = from[i * kInPiece + j];
      }
      if constexpr (kPieces == 1)
        return __builtin_shuffle(pieces[0], index);
      else
        return __builtin_shuffle(pieces[0], pieces[1], index);
    });
  }
};

template <class T, int kCount, LookupRounding kRounding>
SIGNET_LANES_INLINE Lanes<T, kCount> rounded(Lanes<T, kCount> x) {
  if constexpr (kRounding == LookupRounding::kBf16) {
    for (auto& piece : x.pieces) piece = Bf16::round_lanes(piece);
  } else if constexpr (kRounding == LookupRounding::kFp16) {
    T values[kCount];
    x.store(values);
    for (T& value : values) value = Fp16::round(value);
    x = Lanes<T, kCount>::load(values);
  }
  return x;
}

// One round with the state in registers.
template <class T, int kCount, LookupRule kRule, LookupRounding kRounding>
SIGNET_LANES_INLINE Lanes<T, kCount> moved(const Lanes<T, kCount>& state, const LookupScan<T>& p,
                                           int64_t at) {
  using L = Lanes<T, kCount>;
  const L k = L::load(p.k + at), v = L::load(p.v + at);
  const L u = k * state + L::load(p.l + at) * state.permuted(p.partner + at);
  if constexpr (kRule == LookupRule::kAffine) return rounded<T, kCount, kRounding>(u + v);
  const L w = rounded<T, kCount, kRounding>(L::load(p.b + at) * (v - rounded<T, kCount, kRounding>(u)));
  return rounded<T, kCount, kRounding>(state + k * w);
}

template <class T, int kCount, LookupRule kRule, LookupRounding kRounding>
void scan(const LookupScan<T>& p) {
  using L = Lanes<T, kCount>;
  L state = L::load(p.state);
  const auto run = [&](auto rounds) {
    for (int64_t t = 0; t < p.tokens; ++t) {
      int64_t at = static_cast<int64_t>(p.context[t]) * rounds * kCount;
      for (int r = 0; r < rounds; ++r, at += kCount) state = moved<T, kCount, kRule, kRounding>(state, p, at);
      state.store(p.trace + t * kCount);
    }
  };
  // One and two rounds are what factors of permutations take: loops of known length.
  if (p.rounds == 1)
    run(std::integral_constant<int, 1>{});
  else if (p.rounds == 2)
    run(std::integral_constant<int, 2>{});
  else
    run(p.rounds);
  state.store(p.state);
}

// More lanes than registers hold: the state stays in memory.
template <class T, int kBlock, LookupRule kRule, LookupRounding kRounding>
void scan_in_memory(const LookupScan<T>& p) {
  using L = Lanes<T, kBlock>;
  const int64_t lanes = p.lanes;
  for (int64_t t = 0; t < p.tokens; ++t) {
    // A round's results go to trace[t], its operands come from the state before.
    T* next = p.trace + t * lanes;
    for (int r = 0; r < p.rounds; ++r) {
      const int64_t first = (static_cast<int64_t>(p.context[t]) * p.rounds + r) * lanes;
      for (int64_t i = 0; i < lanes; i += kBlock) {
        const int64_t at = first + i;
        T partners[kBlock];
        for (int j = 0; j < kBlock; ++j) partners[j] = p.state[p.partner[at + j]];
        const L state = L::load(p.state + i), k = L::load(p.k + at), v = L::load(p.v + at);
        const L u = k * state + L::load(p.l + at) * L::load(partners);
        if constexpr (kRule == LookupRule::kAffine) {
          rounded<T, kBlock, kRounding>(u + v).store(next + i);
        } else {
          const L w =
              rounded<T, kBlock, kRounding>(L::load(p.b + at) * (v - rounded<T, kBlock, kRounding>(u)));
          rounded<T, kBlock, kRounding>(state + k * w).store(next + i);
        }
      }
      std::memcpy(p.state, next, sizeof(T) * static_cast<size_t>(lanes));
    }
    if (p.rounds == 0) std::memcpy(next, p.state, sizeof(T) * static_cast<size_t>(lanes));
  }
}

template <class T, int kCount, LookupRule kRule, LookupRounding kRounding>
void scan_few(const LookupScan<T>& p) {
  if constexpr (kCount * sizeof(T) <= 2 * SIGNET_VECTOR_BYTES)
    return scan<T, kCount, kRule, kRounding>(p);
  else
    return scan_in_memory<T, kCount, kRule, kRounding>(p);
}

template <class T, LookupRule kRule, LookupRounding kRounding>
void scan_lanes(const LookupScan<T>& p) {
  switch (p.lanes) {
    case 4:
      return scan_few<T, 4, kRule, kRounding>(p);
    case 8:
      return scan_few<T, 8, kRule, kRounding>(p);
    case 16:
      return scan_few<T, 16, kRule, kRounding>(p);
    default:
      return scan_in_memory<T, 16, kRule, kRounding>(p);
  }
}

template <class T, LookupRule kRule>
void scan_rounding(const LookupScan<T>& p) {
  if constexpr (std::is_same_v<T, float>) {
    if (p.rounding == LookupRounding::kBf16) return scan_lanes<T, kRule, LookupRounding::kBf16>(p);
    if (p.rounding == LookupRounding::kFp16) return scan_lanes<T, kRule, LookupRounding::kFp16>(p);
  }
  return scan_lanes<T, kRule, LookupRounding::kNone>(p);
}

}  // namespace

template <class T>
void lookup_scan(const LookupScan<T>& p) {
  return p.rule == LookupRule::kAffine ? scan_rounding<T, LookupRule::kAffine>(p)
                                       : scan_rounding<T, LookupRule::kHouseholder>(p);
}

}  // namespace signet::kernels::SIGNET_ISA
SIGNET_ISA_DISPATCH(lookup_scan, LookupScan)
