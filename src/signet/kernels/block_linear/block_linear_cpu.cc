// Blocks are far smaller than a vector, so vectors run over rows: a few rows of a block are gathered, one row
// per lane, and every weight is a scalar.
#include "signet/kernels/block_linear/block_linear.h"

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

// columns[j] = element j of a block in rows r .. r + count; other lanes are zero.
template <class T>
SIGNET_INLINE void gather(const T* from, int64_t stride, int count, int64_t size, Vec<T>* columns) {
  for (int64_t j = 0; j < size; ++j) {
    Vec<T> column{};
    for (int lane = 0; lane < count; ++lane) column[lane] = from[lane * stride + j];
    columns[j] = column;
  }
}

// body(first row, rows) for groups of at most kLanes rows.
template <class T, class Body>
SIGNET_INLINE void for_row_groups(int64_t rows, Body&& body) {
  for (int64_t r = 0; r < rows; r += kLanes<T>) {
    const int64_t left = rows - r;
    body(r, left < kLanes<T> ? static_cast<int>(left) : kLanes<T>);
  }
}

}  // namespace

template <class T>
void block_linear_forward(const BlockLinearForward<T>& p) {
  const BlockLinearShape& s = p.shape;
  for_row_groups<T>(s.rows, [&](int64_t r, int count) {
    for (int64_t b = 0; b < s.blocks; ++b) {
      Vec<T> x[kMaxBlock];
      gather<T>(p.x + r * s.x_stride + b * s.size, s.x_stride, count, s.size, x);
      T* y = p.y + r * s.y_stride + b * s.size;
      const T* w = p.w + b * s.size * s.size;
      for (int64_t i = 0; i < s.size; ++i, w += s.size) {
        Vec<T> total{};
        for (int64_t j = 0; j < s.size; ++j) total += w[j] * x[j];
        for (int lane = 0; lane < count; ++lane) y[lane * s.y_stride + i] = total[lane];
      }
    }
  });
}

template <class T>
void block_linear_backward(const BlockLinearBackward<T>& p) {
  const BlockLinearShape& s = p.shape;
  for_row_groups<T>(s.rows, [&](int64_t r, int count) {
    for (int64_t b = 0; b < s.blocks; ++b) {
      Vec<T> x[kMaxBlock], dx[kMaxBlock], dy[kMaxBlock];
      for (int64_t j = 0; j < s.size; ++j) dx[j] = Vec<T>{};
      gather<T>(p.x + r * s.x_stride + b * s.size, s.x_stride, count, s.size, x);
      gather<T>(p.dy + r * s.y_stride + b * s.size, s.y_stride, count, s.size, dy);
      const int64_t first = b * s.size * s.size;
      for (int64_t i = 0; i < s.size; ++i) {
        for (int64_t j = 0; j < s.size; ++j) {
          dx[j] += p.w[first + i * s.size + j] * dy[i];
          p.dw[first + i * s.size + j] += sum<T>(dy[i] * x[j]);
        }
      }
      T* out = p.dx + r * s.x_stride + b * s.size;
      for (int64_t j = 0; j < s.size; ++j) {
        for (int lane = 0; lane < count; ++lane) {
          T& to = out[lane * s.x_stride + j];
          to = p.accumulate_dx ? to + dx[j][lane] : dx[j][lane];
        }
      }
    }
  });
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(block_linear_forward, BlockLinearForward)
SIGNET_ISA_DISPATCH(block_linear_backward, BlockLinearBackward)
