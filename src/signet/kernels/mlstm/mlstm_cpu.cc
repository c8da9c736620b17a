#include <algorithm>
#include <cmath>

#include "signet/kernels/mlstm/mlstm_ends.h"

#include "signet/base/isa_target.h"
#include "signet/base/simd.h"

namespace signet::kernels::SIGNET_ISA {

template <class T>
void mlstm_stabilise(const MlstmStabilise<T>& p) {
  const MlstmGatesShape& s = p.shape;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      T m = p.initial_m ? p.initial_m[b * s.heads + h] : T(0);
      for (int64_t r = b * s.time; r < (b + 1) * s.time; ++r) {
        const T f = p.f[r * s.f_stride + h], i = p.i[r * s.i_stride + h] + (p.bias ? p.bias[h] : T(0));
        const T next = std::max(m + std::log(std::abs(f)), i);
        p.gate[r * s.gate_stride + h] = f * std::exp(std::min(m - next, T(kMaxLogRatio)));
        p.input[r * s.input_stride + h] = std::exp(i - next);
        p.m[r * s.m_stride + h] = m = next;
      }
      if (p.final_m) p.final_m[b * s.heads + h] = m;
    }
  }
}

template <class T>
void mlstm_stabilise_backward(const MlstmStabiliseBackward<T>& p) {
  const MlstmGatesShape& s = p.shape;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      T m = p.initial_m ? p.initial_m[b * s.heads + h] : T(0), total = 0;
      for (int64_t r = b * s.time; r < (b + 1) * s.time; ++r) {
        const T next = p.m[r * s.m_stride + h];
        const T di = p.dinput[r * s.input_stride + h] * p.input[r * s.input_stride + h];
        p.df[r * s.f_stride + h] = forget_gradient(p.dgate[r * s.gate_stride + h], m, next);
        p.di[r * s.i_stride + h] = di;
        total += di;
        m = next;
      }
      if (p.dbias) p.dbias[h] += total;
    }
  }
}

template <class T>
void mlstm_normalise(const MlstmNormalise<T>& p) {
  const MlstmReadShape& s = p.shape;
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t j = 0; j < s.heads; ++j) {
      const T* read = p.r_n + (r * s.heads + j) * s.r_n_width();
      T* h = p.h + (r * s.heads + j) * s.width;
      const T inverse = T(1) / std::max(std::abs(read[s.width]), least_normaliser(p.m[r * s.m_stride + j]));
      vector_loop<T>(s.width, [&](int64_t c, auto n) { store(h + c, inverse * load(read + c, n), n); });
    }
  }
}

template <class T>
void mlstm_normalise_backward(const MlstmNormaliseBackward<T>& p) {
  const MlstmReadShape& s = p.shape;
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t j = 0; j < s.heads; ++j) {
      const T* read = p.r_n + (r * s.heads + j) * s.r_n_width();
      const T* dh = p.dh + (r * s.heads + j) * s.width;
      T* d_read = p.dr_n + (r * s.heads + j) * s.r_n_width();
      const T n_value = read[s.width], least = least_normaliser(p.m[r * s.m_stride + j]);
      const T inverse = T(1) / std::max(std::abs(n_value), least);
      Vec<T> along{};
      vector_loop<T>(s.width, [&](int64_t c, auto n) {
        const Vec<T> d = load(dh + c, n);
        along += d * load(read + c, n);
        store(d_read + c, inverse * d, n);
      });
      const T sign = n_value > least ? T(1) : n_value < -least ? T(-1) : T(0);  // slope of the maximum
      d_read[s.width] = -sign * sum<T>(along) * inverse * inverse;
      for (int64_t c = s.width + 1; c < s.r_n_width(); ++c) d_read[c] = 0;
    }
  }
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(mlstm_stabilise, MlstmStabilise)
SIGNET_ISA_DISPATCH(mlstm_stabilise_backward, MlstmStabiliseBackward)
SIGNET_ISA_DISPATCH(mlstm_normalise, MlstmNormalise)
SIGNET_ISA_DISPATCH(mlstm_normalise_backward, MlstmNormaliseBackward)
