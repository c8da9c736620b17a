#include <cmath>

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"
#include "signet/kernels/norm/norm.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void norm_forward(const NormForward<T>& p) {
  const int64_t vector_end = p.width / kLanes<T> * kLanes<T>;
  const int tail = static_cast<int>(p.width - vector_end);
  for (int64_t r = 0; r < p.rows; ++r) {
    const T* x = p.x + r * p.x_stride;
    T* y = p.y + r * p.y_stride;
    T mean = 0;
    if (p.kind == NormKind::kLayer) {
      Vec<T> total{};
      for (int64_t i = 0; i < vector_end; i += kLanes<T>) total += load(x + i);
      if (tail) total += load_n(x + vector_end, tail);
      mean = sum<T>(total) / static_cast<T>(p.width);
    }
    Vec<T> squares{};
    for (int64_t i = 0; i < vector_end; i += kLanes<T>) {
      const Vec<T> d = load(x + i) - mean;
      squares += d * d;
    }
    T square = sum<T>(squares);
    for (int64_t i = vector_end; i < p.width; ++i) square += (x[i] - mean) * (x[i] - mean);
    const T rstd = T(1) / std::sqrt(square / static_cast<T>(p.width) + p.eps);
    for (int64_t i = 0; i < vector_end; i += kLanes<T>)
      store(y + i, (load(x + i) - mean) * rstd * load(p.weight + i));
    for (int64_t i = vector_end; i < p.width; ++i) y[i] = (x[i] - mean) * rstd * p.weight[i];
    p.rstd[r] = rstd;
    if (p.mean) p.mean[r] = mean;
  }
}

template <class T>
void norm_backward(const NormBackward<T>& p) {
  const int64_t vector_end = p.width / kLanes<T> * kLanes<T>;
  const T inverse_width = T(1) / static_cast<T>(p.width);
  for (int64_t r = 0; r < p.rows; ++r) {
    const T* x = p.x + r * p.x_stride;
    const T* dy = p.dy + r * p.dy_stride;
    T* dx = p.dx + r * p.dx_stride;
    const T rstd = p.rstd[r], mean = p.kind == NormKind::kLayer ? p.mean[r] : T(0);
    Vec<T> alongs{}, totals{};
    for (int64_t i = 0; i < vector_end; i += kLanes<T>) {
      const Vec<T> xhat = (load(x + i) - mean) * rstd, d = load(dy + i), g = d * load(p.weight + i);
      alongs += g * xhat;
      totals += g;
      store(p.dweight + i, load(p.dweight + i) + d * xhat);
    }
    T along = sum<T>(alongs), total = sum<T>(totals);
    for (int64_t i = vector_end; i < p.width; ++i) {
      const T xhat = (x[i] - mean) * rstd, g = dy[i] * p.weight[i];
      along += g * xhat;
      total += g;
      p.dweight[i] += dy[i] * xhat;
    }
    along *= inverse_width;
    total = p.kind == NormKind::kRms ? T(0) : total * inverse_width;
    for (int64_t i = 0; i < vector_end; i += kLanes<T>) {
      const Vec<T> xhat = (load(x + i) - mean) * rstd;
      Vec<T> d = (load(dy + i) * load(p.weight + i) - total - xhat * along) * rstd;
      if (p.accumulate_dx) d += load(dx + i);
      store(dx + i, d);
    }
    for (int64_t i = vector_end; i < p.width; ++i) {
      const T xhat = (x[i] - mean) * rstd;
      const T d = rstd * (dy[i] * p.weight[i] - total - xhat * along);
      dx[i] = p.accumulate_dx ? dx[i] + d : d;
    }
  }
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(norm_forward, NormForward)
SIGNET_ISA_DISPATCH(norm_backward, NormBackward)
