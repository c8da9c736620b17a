#include <algorithm>
#include <cmath>
#include <vector>

#include "signet/kernels/gated_rnn/gated_rnn.h"
#include "signet/kernels/reference_functions.h"

namespace signet::kernels {
namespace {

// Plane `plane` of the state of sequence b, all units; null stays null.
template <class T>
T* plane_of(T* states, const GatedRnnShape& s, int64_t b, int64_t plane) {
  return states ? states + (b * s.state_planes() + plane) * s.units() : nullptr;
}
template <class T>
T value_of(T* plane, int64_t unit) {
  return plane ? plane[unit] : T(0);
}

}  // namespace

void gated_rnn_forward_reference(const GatedRnnForward<double>& p) {
  const GatedRnnShape s = with_strides(p.shape);
  const int64_t units = s.units(), w = s.width;
  for (int64_t b = 0; b < s.batch; ++b) {
    std::vector<std::vector<double>> state(s.state_planes(), std::vector<double>(units, 0.0));
    for (int64_t plane = 0; plane < s.state_planes() && p.initial_state; ++plane)
      std::copy_n(plane_of(p.initial_state, s, b, plane), units, state[plane].begin());
    for (int64_t t = 0; t < s.time; ++t) {
      const int64_t row = b * s.time + t;
      const std::vector<double> previous = state[0];
      for (int64_t u = 0; u < units; ++u) {
        const int64_t head = u / w, unit = u % w;
        double gate[4];
        for (int64_t g = 0; g < 4; ++g) {
          const int64_t at = (head * 4 + g) * w + unit;
          gate[g] = p.x[row * s.x_stride + at] + (p.bias ? p.bias[at] : 0);
          for (int64_t k = 0; k < w; ++k) gate[g] += p.recurrent[at * w + k] * previous[head * w + k];
        }
        const double z = std::tanh(gate[2]), o = sigmoid(gate[3]);
        double& c = state[1][u];
        std::vector<double> saved;
        if (s.cell == GatedRnnCell::kSlstm) {
          double &n = state[2][u], &m = state[3][u];
          const bool empty = n == 0;
          const double log_f = -std::log1p(std::exp(-std::abs(gate[1]))) + std::min(gate[1], 0.0) + m;
          m = empty ? gate[0] : std::max(log_f, gate[0]);
          const double i = std::exp(gate[0] - m), f = empty ? 0 : std::exp(log_f - m);
          c = (empty ? 0 : f * c) + i * z;
          n = f * n + i;
          state[0][u] = o * c / n;
          saved = {i, f, sigmoid(-gate[1]), z, o, c, n};
        } else {
          const double i = sigmoid(gate[0]), f = sigmoid(gate[1]);
          c = f * c + i * z;
          state[0][u] = o * std::tanh(c);
          saved = {i, f, z, o, c, std::tanh(c)};
        }
        p.y[row * s.y_stride + u] = state[0][u];
        if (!p.saved.cells) continue;
        for (size_t plane = 0; plane < saved.size(); ++plane)
          p.saved
              .cells[((row * s.heads + head) * s.saved_planes() + static_cast<int64_t>(plane)) * w + unit] =
              saved[plane];
        p.saved.previous[row * units + u] = previous[u];
      }
    }
    for (int64_t plane = 0; plane < s.state_planes() && p.final_state; ++plane)
      std::copy_n(state[plane].begin(), units, plane_of(p.final_state, s, b, plane));
  }
}

void gated_rnn_backward_reference(const GatedRnnBackward<double>& p) {
  const GatedRnnShape s = with_strides(p.shape);
  const int64_t units = s.units(), w = s.width;
  const bool slstm = s.cell == GatedRnnCell::kSlstm;
  for (int64_t b = 0; b < s.batch; ++b) {
    std::vector<double> dh(units), dc(units), dn(units, 0.0);
    for (int64_t u = 0; u < units; ++u) {
      dh[u] = value_of(plane_of(p.d_final_state, s, b, 0), u);
      dc[u] = value_of(plane_of(p.d_final_state, s, b, 1), u);
      if (slstm) dn[u] = value_of(plane_of(p.d_final_state, s, b, 2), u);
    }
    for (int64_t t = s.time - 1; t >= 0; --t) {
      const int64_t row = b * s.time + t;
      std::vector<double> carried(units, 0.0);  // into y_{t-1}
      for (int64_t u = 0; u < units; ++u) {
        const int64_t head = u / w, unit = u % w;
        const auto saved = [&](int64_t r, int64_t plane) {
          return p.saved.cells[((r * s.heads + head) * s.saved_planes() + plane) * w + unit];
        };
        const auto before = [&](int64_t plane, int64_t saved_plane) {
          return t > 0 ? saved(row - 1, saved_plane) : value_of(plane_of(p.initial_state, s, b, plane), u);
        };
        const double dy = dh[u] + p.dy[row * s.y_stride + u];
        double d_gate[4];
        if (slstm) {
          const double i = saved(row, 0), f = saved(row, 1), z = saved(row, 3), o = saved(row, 4),
                       c = saved(row, 5), n = saved(row, 6);
          dc[u] += dy * o / n;
          dn[u] -= dy * o * c / (n * n);
          d_gate[0] = (dc[u] * z + dn[u]) * i;
          d_gate[1] = (dc[u] * before(1, 5) + dn[u] * before(2, 6)) * f * saved(row, 2);
          d_gate[2] = dc[u] * i * (1 - z * z);
          d_gate[3] = dy * c / n * o * (1 - o);
          dc[u] *= f;
          dn[u] *= f;
        } else {
          const double i = saved(row, 0), f = saved(row, 1), z = saved(row, 2), o = saved(row, 3),
                       squashed = saved(row, 5);
          dc[u] += dy * o * (1 - squashed * squashed);
          d_gate[0] = dc[u] * z * i * (1 - i);
          d_gate[1] = dc[u] * before(1, 4) * f * (1 - f);
          d_gate[2] = dc[u] * i * (1 - z * z);
          d_gate[3] = dy * squashed * o * (1 - o);
          dc[u] *= f;
        }
        for (int64_t g = 0; g < 4; ++g) {
          const int64_t at = (head * 4 + g) * w + unit;
          p.dx[row * s.x_stride + at] = d_gate[g];
          if (p.dbias) p.dbias[at] += d_gate[g];
          for (int64_t k = 0; k < w; ++k) {
            carried[head * w + k] += p.recurrent[at * w + k] * d_gate[g];
            p.d_recurrent[at * w + k] += d_gate[g] * p.saved.previous[row * units + head * w + k];
          }
        }
      }
      dh = carried;
    }
    if (!p.d_initial_state) continue;
    for (int64_t u = 0; u < units; ++u) {
      plane_of(p.d_initial_state, s, b, 0)[u] = dh[u];
      plane_of(p.d_initial_state, s, b, 1)[u] = dc[u];
      if (!slstm) continue;
      plane_of(p.d_initial_state, s, b, 2)[u] = dn[u];
      plane_of(p.d_initial_state, s, b, 3)[u] = dc[u] * value_of(plane_of(p.initial_state, s, b, 1), u) +
                                                dn[u] * value_of(plane_of(p.initial_state, s, b, 2), u);
    }
  }
}

}  // namespace signet::kernels
