#include <algorithm>
#include <cmath>
#include <vector>

#include "signet/kernels/reference_functions.h"
#include "signet/kernels/selective_scan/selective_scan.h"

namespace signet::kernels {
namespace {

// d/dx of x * sigmoid(x)
double silu_slope(double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }

// What one token of one channel sees; the vectors over the states are at b and c.
struct Token {
  double u, raw, delta;
  int64_t b, c;
};
Token token_at(const SelectiveScanInputs<double>& p, const SelectiveScanShape& s, int64_t row,
               int64_t channel) {
  const double raw = p.raw[row * s.raw_stride + channel] + (p.bias ? p.bias[channel] : 0);
  return {p.u[row * s.u_stride + channel], raw, s.softplus ? softplus(raw) : raw, row * s.b_stride,
          row * s.c_stride};
}

double transition(const SelectiveScanShape& s, double decay) {
  return s.range == EigenvalueRange::kSigned ? 2 * decay - 1 : decay;
}

std::vector<double> initial_state(const SelectiveScanInputs<double>& p, const SelectiveScanShape& s,
                                  int64_t channel_row) {
  if (!p.initial_state) return std::vector<double>(s.states, 0.0);
  return {p.initial_state + channel_row * s.states, p.initial_state + (channel_row + 1) * s.states};
}

void advance(const SelectiveScanInputs<double>& p, const SelectiveScanShape& s, const Token& token,
             int64_t channel, std::vector<double>& h) {
  for (int64_t n = 0; n < s.states; ++n) {
    const double decay = std::exp(-token.delta * std::exp(p.a_log[channel * s.states + n]));
    h[n] = transition(s, decay) * h[n] + token.delta * p.b[token.b + n] * token.u;
  }
}

}  // namespace

void selective_scan_forward_reference(const SelectiveScanForward<double>& p) {
  const SelectiveScanShape s = with_strides(p.shape);
  for (int64_t batch = 0; batch < s.batch; ++batch) {
    for (int64_t channel = 0; channel < s.channels; ++channel) {
      const int64_t channel_row = batch * s.channels + channel;
      std::vector<double> h = initial_state(p, s, channel_row);
      for (int64_t t = 0; t < s.time; ++t) {
        const int64_t row = batch * s.time + t;
        const Token token = token_at(p, s, row, channel);
        advance(p, s, token, channel, h);
        double y = p.d ? p.d[channel] * token.u : 0;
        for (int64_t n = 0; n < s.states; ++n) y += p.c[token.c + n] * h[n];
        if (p.z) {
          const double z = p.z[row * s.z_stride + channel];
          y *= z * sigmoid(z);
        }
        p.y[row * s.y_stride + channel] = y;
      }
      if (p.final_state) std::copy(h.begin(), h.end(), p.final_state + channel_row * s.states);
    }
  }
}

void selective_scan_backward_reference(const SelectiveScanBackward<double>& p) {
  const SelectiveScanShape s = with_strides(p.shape);
  for (int64_t row = 0; row < s.batch * s.time; ++row) {
    for (int64_t n = 0; n < s.states; ++n) {
      p.db[row * s.b_stride + n] = 0;
      p.dc[row * s.c_stride + n] = 0;
    }
  }
  for (int64_t batch = 0; batch < s.batch; ++batch) {
    for (int64_t channel = 0; channel < s.channels; ++channel) {
      const int64_t channel_row = batch * s.channels + channel;
      std::vector<std::vector<double>> states = {initial_state(p, s, channel_row)};
      for (int64_t t = 0; t < s.time; ++t) {
        states.push_back(states.back());
        advance(p, s, token_at(p, s, batch * s.time + t, channel), channel, states.back());
      }
      // g = dL/dh_t, carried backwards.
      std::vector<double> g(s.states, 0.0);
      if (p.d_final_state) std::copy_n(p.d_final_state + channel_row * s.states, s.states, g.begin());
      for (int64_t t = s.time - 1; t >= 0; --t) {
        const int64_t row = batch * s.time + t;
        const Token token = token_at(p, s, row, channel);
        const std::vector<double>&before = states[t], &after = states[t + 1];
        double dy = p.dy[row * s.y_stride + channel];
        if (p.z) {
          const double z = p.z[row * s.z_stride + channel];
          double ungated = p.d ? p.d[channel] * token.u : 0;
          for (int64_t n = 0; n < s.states; ++n) ungated += p.c[token.c + n] * after[n];
          p.dz[row * s.z_stride + channel] = dy * ungated * silu_slope(z);
          dy *= z * sigmoid(z);
        }
        double du = p.d ? p.d[channel] * dy : 0, d_delta = 0;
        if (p.d) p.dd[channel] += dy * token.u;
        for (int64_t n = 0; n < s.states; ++n) {
          const double rate = -std::exp(p.a_log[channel * s.states + n]);  // A
          const double decay = std::exp(token.delta * rate), a = transition(s, decay);
          // da/d(delta A) is s in [0,1] and 2 s = a + 1 in [-1,1].
          const double slope = s.range == EigenvalueRange::kSigned ? a + 1 : a;
          const double b = p.b[token.b + n];
          g[n] += p.c[token.c + n] * dy;
          p.dc[token.c + n] += dy * after[n];
          p.db[token.b + n] += g[n] * token.delta * token.u;
          du += g[n] * token.delta * b;
          d_delta += g[n] * (slope * rate * before[n] + b * token.u);
          p.da_log[channel * s.states + n] += g[n] * slope * token.delta * before[n] * rate;
          g[n] *= a;
        }
        p.du[row * s.u_stride + channel] = du;
        const double draw = d_delta * (s.softplus ? sigmoid(token.raw) : 1);  // softplus' = sigmoid
        p.draw[row * s.raw_stride + channel] = draw;
        if (p.bias) p.dbias[channel] += draw;
      }
      if (p.d_initial_state) std::copy(g.begin(), g.end(), p.d_initial_state + channel_row * s.states);
    }
  }
}

}  // namespace signet::kernels
