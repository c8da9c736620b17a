#include <algorithm>
#include <cmath>
#include <vector>

#include "signet/kernels/pd/pd_scan.h"

namespace signet::kernels {
namespace {

double gate_of(const PdScanShape& s, double raw) {
  return s.range == EigenvalueRange::kSigned ? std::tanh(raw) : 1 / (1 + std::exp(-raw));
}
double slope_of(const PdScanShape& s, double d) {
  return s.range == EigenvalueRange::kSigned ? 1 - d * d : d * (1 - d);
}
std::vector<double> softmax_of(const double* x, int64_t n) {
  const double largest = *std::max_element(x, x + n);
  std::vector<double> y;
  double total = 0;
  for (int64_t i = 0; i < n; ++i) {
    y.push_back(std::exp(x[i] - largest));
    total += y.back();
  }
  for (double& v : y) v /= total;
  return y;
}
// A column of P.
std::vector<double> column_of(const PdScanShape& s, const double* choice) {
  if (!s.hard) return softmax_of(choice, s.width);
  std::vector<double> y(s.width, 0.0);
  y[std::max_element(choice, choice + s.width) - choice] = 1;
  return y;
}

}  // namespace

void pd_scan_forward_reference(const PdScanForward<double>& p) {
  const PdScanShape s = with_strides(p.shape);
  const int64_t n = s.width;
  for (int64_t item = 0; item < s.batch * s.heads; ++item) {
    const int64_t b = item / s.heads, head = item % s.heads;
    std::vector<double> h(n, 0.0);
    if (p.initial_state) std::copy_n(p.initial_state + item * n, n, h.begin());
    for (int64_t t = 0; t < s.time; ++t) {
      const int64_t row = b * s.time + t;
      std::vector<double> next(p.b + row * s.b_stride + head * n, p.b + row * s.b_stride + (head + 1) * n);
      for (int64_t j = 0; j < n; ++j) {
        const auto column = column_of(s, p.choice + row * s.choice_stride + (head * n + j) * n);
        const double u = gate_of(s, p.gate[row * s.gate_stride + head * n + j]) * h[j];
        for (int64_t i = 0; i < n; ++i) next[i] += column[i] * u;
      }
      h = next;
      std::copy(h.begin(), h.end(), p.h + (row * s.heads + head) * n);
    }
    if (p.final_state) std::copy(h.begin(), h.end(), p.final_state + item * n);
  }
}

void pd_scan_backward_reference(const PdScanBackward<double>& p) {
  const PdScanShape s = with_strides(p.shape);
  const int64_t n = s.width;
  for (int64_t item = 0; item < s.batch * s.heads; ++item) {
    const int64_t b = item / s.heads, head = item % s.heads;
    std::vector<double> g(n, 0.0);
    if (p.d_final_state) std::copy_n(p.d_final_state + item * n, n, g.begin());
    for (int64_t t = s.time - 1; t >= 0; --t) {
      const int64_t row = b * s.time + t, at = (row * s.heads + head) * n;
      std::vector<double> before(n, 0.0), next(n);
      if (t > 0)
        std::copy_n(p.h + at - s.heads * n, n, before.begin());
      else if (p.initial_state)
        std::copy_n(p.initial_state + item * n, n, before.begin());
      for (int64_t i = 0; i < n; ++i) {
        g[i] += p.d_h[at + i];
        p.db[row * s.b_stride + head * n + i] = g[i];
      }
      for (int64_t j = 0; j < n; ++j) {
        const int64_t choice = row * s.choice_stride + (head * n + j) * n;
        const auto column = column_of(s, p.choice + choice), soft = softmax_of(p.choice + choice, n);
        const double d = gate_of(s, p.gate[row * s.gate_stride + head * n + j]);
        double du = 0, mean = 0;
        for (int64_t i = 0; i < n; ++i) {
          du += column[i] * g[i];
          mean += soft[i] * g[i];
        }
        for (int64_t i = 0; i < n; ++i) p.d_choice[choice + i] = d * before[j] * soft[i] * (g[i] - mean);
        p.d_gate[row * s.gate_stride + head * n + j] = du * before[j] * slope_of(s, d);
        next[j] = du * d;
      }
      g = next;
    }
    if (p.d_initial_state) std::copy(g.begin(), g.end(), p.d_initial_state + item * n);
  }
}

}  // namespace signet::kernels
