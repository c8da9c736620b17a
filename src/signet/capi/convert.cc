// Conversions of tensors on the CPU: any strides, any type of floating point.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "signet/base/thread_pool.h"
#include "signet/capi/work.h"

namespace signet::capi {
namespace {

// Dimensions of a copy, the last is the innermost: those of size 1 are left out, and neighbours that lie one
// after the other in both tensors are one.
struct Walk {
  int rank = 0;
  int64_t shape[SIGNET_MAX_RANK + 1], to[SIGNET_MAX_RANK + 1], from[SIGNET_MAX_RANK + 1];

  Walk(const signet_tensor& dst, const signet_tensor& src) {
    for (int i = 0; i < dst.rank; ++i) {
      if (dst.shape[i] == 1) continue;
      if (rank > 0 && to[rank - 1] == dst.strides[i] * dst.shape[i] &&
          from[rank - 1] == src.strides[i] * dst.shape[i]) {
        shape[rank - 1] *= dst.shape[i], to[rank - 1] = dst.strides[i], from[rank - 1] = src.strides[i];
      } else {
        shape[rank] = dst.shape[i], to[rank] = dst.strides[i], from[rank] = src.strides[i];
        ++rank;
      }
    }
    while (rank < 2) {  // a block is two-dimensional
      std::copy_backward(shape, shape + rank, shape + rank + 1);
      std::copy_backward(to, to + rank, to + rank + 1);
      std::copy_backward(from, from + rank, from + rank + 1);
      shape[0] = 1, to[0] = from[0] = 0;
      ++rank;
    }
    // Of the others the one with the smallest step in `from` goes next to the innermost: a block then reads
    // whole cache lines where it transposes.
    const int last = rank - 1;
    int best = last - 1;
    for (int i = 0; i < last; ++i)
      if (std::abs(from[i]) < std::abs(from[best])) best = i;
    std::swap(shape[best], shape[last - 1]), std::swap(to[best], to[last - 1]),
        std::swap(from[best], from[last - 1]);
  }
};

template <class T>
T load_element(const T* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Blocks of rows x columns that stay in the cache where one side is transposed.
constexpr int64_t kBlock = 32;

// to[i][j] = from[j][i] by f, at most kBlock of each. The block goes through a tile, so that each side meets
// every cache line once, also where the steps are powers of two, of which few lines fit at once.
template <class To, class From, class F>
void transpose_block(To* to, int64_t to_step, const From* from, int64_t from_step, int64_t rows,
                     int64_t columns, const F& f) {
  From tile[kBlock][kBlock + 1];
  for (int64_t j = 0; j < columns; ++j)
    std::memcpy(tile[j], from + j * from_step, static_cast<size_t>(rows) * sizeof(From));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) f(to[i * to_step + j], tile[j][i]);
}

template <class To, class From, class F>
void walk(const signet_tensor& to, const signet_tensor& from, const F& f) {
  if (count(to) == 0) return;
  const Walk w(to, from);
  const int last = w.rank - 1;
  const int64_t rows = w.shape[last - 1], columns = w.shape[last];
  const bool together = w.to[last] == 1 && w.from[last] == 1;
  const int64_t block = together ? rows : kBlock;
  const int64_t tiles = (rows + block - 1) / block;
  int64_t outer = tiles;
  for (int i = 0; i < last - 1; ++i) outer *= w.shape[i];
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, std::min(block, rows) * columns));
  parallel_for(outer, grain, [&](int64_t begin, int64_t end) {
    for (int64_t each = begin; each < end; ++each) {
      int64_t rest = each / tiles;
      To* y = static_cast<To*>(to.data);
      const From* x = static_cast<const From*>(from.data);
      for (int i = last - 2; i >= 0; --i) {
        y += rest % w.shape[i] * w.to[i], x += rest % w.shape[i] * w.from[i];
        rest /= w.shape[i];
      }
      const int64_t first = each % tiles * block, end_row = std::min(rows, first + block);
      if (together) {
        for (int64_t r = first; r < end_row; ++r) {
          To* to_row = y + r * w.to[last - 1];
          const From* from_row = x + r * w.from[last - 1];
          for (int64_t c = 0; c < columns; ++c) f(to_row[c], from_row[c]);
        }
        continue;
      }
      const int64_t height = end_row - first, *to_step = &w.to[last - 1], *from_step = &w.from[last - 1];
      for (int64_t left = 0; left < columns; left += block) {
        const int64_t width = std::min(columns - left, block);
        To* to_block = y + first * to_step[0] + left * to_step[1];
        const From* from_block = x + first * from_step[0] + left * from_step[1];
        if (to_step[1] == 1 && from_step[0] == 1) {
          transpose_block(to_block, to_step[0], from_block, from_step[1], height, width, f);
        } else if (to_step[0] == 1 && from_step[1] == 1) {
          transpose_block(to_block, to_step[1], from_block, from_step[0], width, height, f);
        } else {
          for (int64_t r = 0; r < height; ++r)
            for (int64_t c = 0; c < width; ++c)
              f(to_block[r * to_step[0] + c * to_step[1]], from_block[r * from_step[0] + c * from_step[1]]);
        }
      }
    }
  });
}

template <class F>
void with_float(int32_t type, const F& f) {
  switch (type) {
    case SIGNET_FLOAT32:
      return f(float{});
    case SIGNET_FLOAT64:
      return f(double{});
    case SIGNET_BFLOAT16:
      return f(bf16{});
    case SIGNET_FLOAT16:
      return f(fp16{});
    default:
      bad_input("a tensor of integers where numbers are needed");
  }
}

// The type to compute in: double where both are, float where one is narrow.
template <class A, class B>
using Common = std::conditional_t<std::is_same_v<A, double> || std::is_same_v<B, double>, double, float>;
template <class C, class T>
C widen(T x) {
  if constexpr (sizeof(T) == 2) return static_cast<C>(static_cast<float>(x));
  if constexpr (sizeof(T) != 2) return static_cast<C>(x);
}
template <class T, class C>
T rounded(C x) {
  if constexpr (sizeof(T) == 2) return T(static_cast<float>(x));
  if constexpr (sizeof(T) != 2) return static_cast<T>(x);
}

}  // namespace

void convert(const signet_tensor& to, const signet_tensor& from, Map map, Cpu) {
  with_float(to.type, [&](auto to_type) {
    with_float(from.type, [&](auto from_type) {
      using To = decltype(to_type);
      using From = decltype(from_type);
      using C = Common<To, From>;
      switch (map) {
        case Map::kNone:
          return walk<To, From>(to, from, [](To& y, const From& x) {
            if constexpr (std::is_same_v<To, From>)
              y = load_element(&x);
            else
              y = rounded<To>(widen<C>(load_element(&x)));
          });
        case Map::kExp:
          return walk<To, From>(
              to, from, [](To& y, const From& x) { y = rounded<To>(std::exp(widen<C>(load_element(&x)))); });
        case Map::kLogOfNegative:
          return walk<To, From>(
              to, from, [](To& y, const From& x) { y = rounded<To>(std::log(-widen<C>(load_element(&x)))); });
      }
    });
  });
}

void add(const signet_tensor& to, const signet_tensor& from, Cpu) {
  with_float(to.type, [&](auto to_type) {
    with_float(from.type, [&](auto from_type) {
      using To = decltype(to_type);
      using From = decltype(from_type);
      using C = Common<To, From>;
      walk<To, From>(to, from, [](To& y, const From& x) {
        y = rounded<To>(widen<C>(load_element(&y)) + widen<C>(load_element(&x)));
      });
    });
  });
}

template <class T>
void undo(Map map, T* gradient, const T* mapped, int64_t size, Cpu) {
  if (map == Map::kExp)
    for (int64_t i = 0; i < size; ++i) gradient[i] *= mapped[i];
  if (map == Map::kLogOfNegative)  // d log(-x) / dx = 1 / x
    for (int64_t i = 0; i < size; ++i) gradient[i] *= -std::exp(-mapped[i]);
}
template void undo(Map, float*, const float*, int64_t, Cpu);
template void undo(Map, double*, const double*, int64_t, Cpu);

void convert_back(const signet_tensor& to, const signet_tensor& from, Map map, const void* mapped, Cpu cpu) {
  if (map != Map::kNone && from.type == SIGNET_FLOAT64)
    undo(map, static_cast<double*>(from.data), static_cast<const double*>(mapped), count(from), cpu);
  else if (map != Map::kNone)
    undo(map, static_cast<float*>(from.data), static_cast<const float*>(mapped), count(from), cpu);
  convert(to, from, Map::kNone, cpu);
}

void fill_zero(void* to, size_t bytes, Cpu) {
  if (bytes > 0) std::memset(to, 0, bytes);
}
void copy_to_host(void* to, const void* from, size_t bytes, Cpu) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace signet::capi
