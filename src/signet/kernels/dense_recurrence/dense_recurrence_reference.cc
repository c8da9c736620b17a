#include <algorithm>
#include <cmath>
#include <vector>

#include "signet/kernels/dense_recurrence/dense_recurrence.h"
#include "signet/kernels/dense_recurrence/state_factor.h"

namespace signet::kernels {
namespace {

// The state before the first token.
std::vector<double> start_of(const DenseRecurrenceInputs<double>& p, int64_t item) {
  const int64_t n = p.shape.n;
  if (p.initial_state) return {p.initial_state + item * n * n, p.initial_state + (item + 1) * n * n};
  std::vector<double> identity(n * n, 0.0);
  for (int64_t i = 0; i < n; ++i) identity[i * n + i] = 1;
  return identity;
}

// s_t.
double factor_of(const double* before, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(before[i]));
  return state_factor(largest);
}

// A_t.
std::vector<double> transition_of(const DenseRecurrenceInputs<double>& p, int64_t at) {
  const int64_t n = p.shape.n;
  std::vector<double> a(p.a + at, p.a + at + n * n);
  for (int64_t i = 0; i < n && p.shape.plus_identity; ++i) a[i * n + i] += 1;
  return a;
}

}  // namespace

void dense_recurrence_forward_reference(const DenseRecurrenceForward<double>& p) {
  const DenseRecurrenceShape& s = p.shape;
  const int64_t n = s.n;
  for (int64_t item = 0; item < s.batch * s.heads; ++item) {
    const int64_t b = item / s.heads, head = item % s.heads;
    std::vector<double> state = start_of(p, item);
    for (int64_t t = 0; t < s.time; ++t) {
      const auto a = transition_of(p, (b * s.time + t) * s.token_stride() + head * s.matrix());
      const double factor = factor_of(state.data(), n * n);
      std::vector<double> next(n * n, 0.0);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j)
          for (int64_t k = 0; k < n; ++k) next[i * n + j] += factor * a[i * n + k] * state[k * n + j];
      state = next;
      std::copy(state.begin(), state.end(), p.h + ((b * s.time + t) * s.heads + head) * s.matrix());
    }
    if (p.final_state) std::copy(state.begin(), state.end(), p.final_state + item * s.matrix());
  }
}

void dense_recurrence_backward_reference(const DenseRecurrenceBackward<double>& p) {
  const DenseRecurrenceShape& s = p.shape;
  const int64_t n = s.n;
  for (int64_t item = 0; item < s.batch * s.heads; ++item) {
    const int64_t b = item / s.heads, head = item % s.heads;
    const std::vector<double> start = start_of(p, item);
    std::vector<double> d(n * n, 0.0);
    if (p.d_final_state) std::copy_n(p.d_final_state + item * s.matrix(), n * n, d.begin());
    for (int64_t t = s.time - 1; t >= 0; --t) {
      const int64_t at = ((b * s.time + t) * s.heads + head) * s.matrix();
      const int64_t a_at = (b * s.time + t) * s.token_stride() + head * s.matrix();
      const double* before = t > 0 ? p.h + at - s.heads * s.matrix() : start.data();
      const auto a = transition_of(p, a_at);
      std::vector<double> next(n * n, 0.0);
      const double factor = factor_of(before, n * n);
      for (int64_t i = 0; i < n * n; ++i) d[i] = factor * (d[i] + p.d_h[at + i]);
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t k = 0; k < n; ++k) {
          double da = 0;
          for (int64_t j = 0; j < n; ++j) {
            da += d[i * n + j] * before[k * n + j];
            next[k * n + j] += a[i * n + k] * d[i * n + j];
          }
          p.da[a_at + i * n + k] = da;
        }
      }
      d = next;
    }
    if (p.d_initial_state) std::copy(d.begin(), d.end(), p.d_initial_state + item * s.matrix());
  }
}

}  // namespace signet::kernels
