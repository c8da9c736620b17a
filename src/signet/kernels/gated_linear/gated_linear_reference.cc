#include <algorithm>
#include <vector>

#include "signet/kernels/gated_linear/gated_linear.h"

namespace signet::kernels {
namespace {

using State = std::vector<double>;  // [dk, dv]

State initial_state(const GatedLinearShape& s, const double* states, int64_t bh) {
  const int64_t size = s.dk * s.dv;
  return states ? State(states + bh * size, states + (bh + 1) * size) : State(size, 0.0);
}

// Where token t of batch row b and head h lies.
struct At {
  int64_t q, k, v, o, gate;
  At(const GatedLinearShape& s, int64_t b, int64_t t, int64_t h) {
    const int64_t row = b * s.time + t, group = h / (s.heads / s.groups);
    q = row * s.q_stride + group * s.dk;
    k = row * s.k_stride + group * s.dk;
    v = row * s.v_stride + h * s.dv;
    o = row * s.o_stride + h * s.dv;
    gate = row * s.gate_stride + (s.channel_gates ? h * s.dk : h);
  }
};

void advance(const GatedLinearInputs<double>& p, const GatedLinearShape& s, const At& at, State& state) {
  for (int64_t i = 0; i < s.dk; ++i) {
    const double g = p.gate[at.gate + (s.channel_gates ? i : 0)];
    for (int64_t c = 0; c < s.dv; ++c)
      state[i * s.dv + c] = g * state[i * s.dv + c] + p.k[at.k + i] * p.v[at.v + c];
  }
}

}  // namespace

void gated_linear_forward_reference(const GatedLinearForward<double>& p) {
  const GatedLinearShape s = with_strides(p.shape);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t bh = b * s.heads + h;
      State state = initial_state(s, p.initial_state, bh);
      for (int64_t t = 0; t < s.time; ++t) {
        const At at(s, b, t, h);
        advance(p, s, at, state);
        for (int64_t c = 0; c < s.dv; ++c) {
          double total = 0;
          for (int64_t i = 0; i < s.dk; ++i) total += p.q[at.q + i] * state[i * s.dv + c];
          p.o[at.o + c] = p.scale * total;
        }
      }
      if (p.final_state) std::copy(state.begin(), state.end(), p.final_state + bh * s.dk * s.dv);
    }
  }
}

void gated_linear_backward_reference(const GatedLinearBackward<double>& p) {
  const GatedLinearShape s = with_strides(p.shape);
  const int64_t size = s.dk * s.dv;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t bh = b * s.heads + h;
      const bool shared = h % (s.heads / s.groups) > 0;  // not the first of its group
      std::vector<State> states = {initial_state(s, p.initial_state, bh)};
      for (int64_t t = 0; t < s.time; ++t) {
        states.push_back(states.back());
        advance(p, s, At(s, b, t, h), states.back());
      }
      State d_state = initial_state(s, p.d_final_state, bh);
      for (int64_t t = s.time - 1; t >= 0; --t) {
        const At at(s, b, t, h);
        const State &before = states[t], &after = states[t + 1];
        std::fill_n(p.dv + at.v, s.dv, 0.0);
        if (!s.channel_gates) p.dgate[at.gate] = 0;
        for (int64_t i = 0; i < s.dk; ++i) {
          const int64_t gate = at.gate + (s.channel_gates ? i : 0);
          double dq = 0, dk = 0, dg = 0;
          for (int64_t c = 0; c < s.dv; ++c) {
            double& ds = d_state[i * s.dv + c];
            dq += p.scale * after[i * s.dv + c] * p.d_o[at.o + c];
            ds += p.scale * p.q[at.q + i] * p.d_o[at.o + c];
            dk += ds * p.v[at.v + c];
            dg += ds * before[i * s.dv + c];
            p.dv[at.v + c] += p.k[at.k + i] * ds;
            ds *= p.gate[gate];
          }
          p.dq[at.q + i] = dq + (shared ? p.dq[at.q + i] : 0);
          p.dk[at.k + i] = dk + (shared ? p.dk[at.k + i] : 0);
          p.dgate[gate] = s.channel_gates ? dg : p.dgate[gate] + dg;
        }
      }
      if (p.d_initial_state) std::copy(d_state.begin(), d_state.end(), p.d_initial_state + bh * size);
    }
  }
}

}  // namespace signet::kernels
