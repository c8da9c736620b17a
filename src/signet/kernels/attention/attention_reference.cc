#include <algorithm>
#include <cmath>
#include <vector>

#include "signet/kernels/attention/attention.h"

namespace signet::kernels {
namespace {

// The row turned to its position, or back (direction -1, which is also the gradient's way).
std::vector<double> turned(const double* row, int64_t position, const AttentionShape& s,
                           double direction = 1) {
  std::vector<double> out(row, row + s.width);
  for (int64_t i = 0; i < s.width / 2 && s.rotary_base > 0; ++i) {
    const int64_t j = i + s.width / 2;
    const double angle =
        direction * static_cast<double>(position) *
        std::pow(s.rotary_base, -2.0 * static_cast<double>(i) / static_cast<double>(s.width));
    out[i] = row[i] * std::cos(angle) - row[j] * std::sin(angle);
    out[j] = row[j] * std::cos(angle) + row[i] * std::sin(angle);
  }
  return out;
}
double dot(const std::vector<double>& a, const double* b) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

// Calls body(b, head, t, position) for every query.
template <class Body>
void for_queries(const AttentionShape& s, const Body& body) {
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t head = 0; head < s.heads; ++head)
      for (int64_t t = 0; t < s.time; ++t) body(b, head, t, s.keys - s.time + t);
}

}  // namespace

void attention_forward_reference(const AttentionForward<double>& p) {
  const AttentionShape s = with_strides(p.shape);
  for_queries(s, [&](int64_t b, int64_t head, int64_t t, int64_t position) {
    const auto q = turned(p.q + (b * s.time + t) * s.q_stride + head * s.width, position, s);
    std::vector<double> scores;
    for (int64_t j = 0; j <= position; ++j) {
      const auto k = turned(p.k + (b * s.capacity + j) * s.k_stride + head * s.width, j, s);
      scores.push_back(s.scale * dot(q, k.data()));
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    for (double score : scores) total += std::exp(score - largest);
    double* o = p.o + (b * s.time + t) * s.o_stride + head * s.width;
    std::fill_n(o, s.width, 0.0);
    for (int64_t j = 0; j <= position; ++j) {
      const double* v = p.v + (b * s.capacity + j) * s.v_stride + head * s.width;
      for (int64_t i = 0; i < s.width; ++i) o[i] += std::exp(scores[j] - largest) / total * v[i];
    }
    if (p.lse) p.lse[(b * s.heads + head) * s.time + t] = largest + std::log(total);
  });
}

void attention_backward_reference(const AttentionBackward<double>& p) {
  const AttentionShape s = with_strides(p.shape);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t j = 0; j < s.keys; ++j) {
      std::fill_n(p.dk + (b * s.capacity + j) * s.k_stride, s.heads * s.width, 0.0);
      std::fill_n(p.dv + (b * s.capacity + j) * s.v_stride, s.heads * s.width, 0.0);
    }
  }
  for_queries(s, [&](int64_t b, int64_t head, int64_t t, int64_t position) {
    const int64_t row = b * s.time + t, column = head * s.width;
    const auto q = turned(p.q + row * s.q_stride + column, position, s);
    const double* d_o = p.d_o + row * s.o_stride + column;
    double delta = 0;
    for (int64_t i = 0; i < s.width; ++i) delta += d_o[i] * p.o[row * s.o_stride + column + i];
    std::vector<double> dq(s.width, 0.0);
    for (int64_t j = 0; j <= position; ++j) {
      const int64_t key = b * s.capacity + j;
      const auto k = turned(p.k + key * s.k_stride + column, j, s);
      const double* v = p.v + key * s.v_stride + column;
      const double weight = std::exp(s.scale * dot(q, k.data()) - p.lse[(b * s.heads + head) * s.time + t]);
      double d_weight = 0;
      for (int64_t i = 0; i < s.width; ++i) {
        d_weight += d_o[i] * v[i];
        p.dv[key * s.v_stride + column + i] += weight * d_o[i];
      }
      const double d_score = s.scale * weight * (d_weight - delta);
      std::vector<double> dk(s.width);
      for (int64_t i = 0; i < s.width; ++i) {
        dq[i] += d_score * k[i];
        dk[i] = d_score * q[i];
      }
      const auto back = turned(dk.data(), j, s, -1);
      for (int64_t i = 0; i < s.width; ++i) p.dk[key * s.k_stride + column + i] += back[i];
    }
    const auto back = turned(dq.data(), position, s, -1);
    std::copy(back.begin(), back.end(), p.dq + row * s.q_stride + column);
  });
}

}  // namespace signet::kernels
