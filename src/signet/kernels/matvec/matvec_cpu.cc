#include "signet/kernels/matvec/matvec.h"

#include <algorithm>
#include <type_traits>

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {

// The matrix is read from its first number to its last: the cores' own prefetching follows one stream, and of
// several rows side by side reaches two thirds of it. What comes next is asked for all the same, as that
// prefetching ends at every page.
constexpr int kAhead = 1024, kLine = 64;  // bytes

// An output is summed in the same order whichever outputs are made beside it.
template <class T>
SIGNET_INLINE T dot(const T* x, const T* row, int64_t in) {
  Vec<T> even{}, odd{};
  int64_t i = 0;
  for (; i + 2 * kLanes<T> <= in; i += 2 * kLanes<T>) {
    even += load(x + i) * load(row + i);
    odd += load(x + i + kLanes<T>) * load(row + i + kLanes<T>);
    for (int byte = 0; byte < 2 * SIGNET_VECTOR_BYTES; byte += kLine)
      __builtin_prefetch(reinterpret_cast<const char*>(row + i) + byte + kAhead, 0, 2);
  }
  vector_loop<T>(in - i, [&](int64_t j, auto n) { even += load(x + i + j, n) * load(row + i + j, n); });
  return sum<T>(even + odd);
}

// Of a matrix in bf16 a vector of words has pairs of neighbours, the first in the lower halves; x lies as
// `pair_up` leaves it.
constexpr int kPairs = 2 * kLanes<float>;
SIGNET_INLINE void pair_up(const float* x, int64_t in, float* to) {
  int64_t i = 0;
  for (; i + kPairs <= in; i += kPairs)
    for (int k = 0; k < kLanes<float>; ++k) {
      to[i + k] = x[i + 2 * k];
      to[i + kLanes<float> + k] = x[i + 2 * k + 1];
    }
  for (; i < in; ++i) to[i] = x[i];
}
SIGNET_INLINE float dot(const float* x, const bf16* row, int64_t in) {
  typedef uint32_t Words __attribute__((vector_size(SIGNET_VECTOR_BYTES)));
  Vec<float> sums[2][2] = {};
  const auto add = [&](int64_t i, Vec<float>(&to)[2]) {
    Words words;
    __builtin_memcpy(&words, row + i, sizeof words);
    to[0] += load(x + i) * reinterpret_cast<Vec<float>>(words << 16);
    to[1] += load(x + i + kLanes<float>) * reinterpret_cast<Vec<float>>(words & 0xffff0000u);
  };
  int64_t i = 0;
  for (; i + 2 * kPairs <= in; i += 2 * kPairs) {
    add(i, sums[0]);
    add(i + kPairs, sums[1]);
    for (int byte = 0; byte < 2 * SIGNET_VECTOR_BYTES; byte += kLine)
      __builtin_prefetch(reinterpret_cast<const char*>(row + i) + byte + kAhead / 2, 0, 2);
  }
  if (i + kPairs <= in) add(i, sums[0]), i += kPairs;
  float rest = 0;
  for (; i < in; ++i) rest += x[i] * static_cast<float>(row[i]);
  return sum<float>((sums[0][0] + sums[0][1]) + (sums[1][0] + sums[1][1])) + rest;
}

SIGNET_INLINE void multiply_narrow(const Matvec<float>& p) {
  constexpr int64_t kPiece = 4096;  // columns at once
  float pairs[kMatvecRows][kPiece];
  for (int64_t begin = 0; begin < p.in; begin += kPiece) {
    const int64_t n = std::min(kPiece, p.in - begin);
    for (int64_t r = 0; r < p.rows; ++r) pair_up(p.x + r * p.x_stride + begin, n, pairs[r]);
    for (int64_t o = 0; o < p.out; ++o)
      for (int64_t r = 0; r < p.rows; ++r) {
        float& y = p.y[r * p.y_stride + o];
        const float before = begin > 0 ? y : p.residual ? p.residual[r * p.residual_stride + o] : 0.0f;
        y = dot(pairs[r], p.narrow_weight + o * p.in + begin, n) + before;
      }
  }
}

template <class T>
void matvec(const Matvec<T>& p) {
  if constexpr (std::is_same_v<T, float>)
    if (p.narrow_weight) return multiply_narrow(p);
  for (int64_t o = 0; o < p.out; ++o)
    for (int64_t r = 0; r < p.rows; ++r)
      p.y[r * p.y_stride + o] = dot(p.x + r * p.x_stride, p.weight + o * p.in, p.in) +
                                (p.residual ? p.residual[r * p.residual_stride + o] : T(0));
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(matvec, Matvec)
