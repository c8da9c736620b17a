#include <algorithm>
#include <vector>

#include "signet/kernels/delta_rule/delta_rule.h"
#include "signet/kernels/delta_rule/delta_rule_plan.h"

namespace signet::kernels {
namespace {

using State = std::vector<double>;  // [dk, dv]

// One sub-step (token t, factor j) of one batch row and head.
struct Step {
  int64_t k, v, beta;  // offsets of the factor's key, value and beta
};
Step step_at(const DeltaRuleShape& s, int64_t b, int64_t t, int64_t j, int64_t h) {
  const int64_t row = s.first_row(b) + t;
  return {row * s.k_stride + (j * s.heads + h) * s.dk, row * s.v_stride + (j * s.heads + h) * s.dv,
          row * s.beta_stride + j * s.heads + h};
}

State initial_state(const DeltaRuleShape& s, const double* states, int64_t bh) {
  const int64_t size = s.dk * s.dv;
  return states ? State(states + bh * size, states + (bh + 1) * size) : State(size, 0.0);
}

// v - S^T k
std::vector<double> innovation(const DeltaRuleInputs<double>& p, const DeltaRuleShape& s, const Step& at,
                               const State& state) {
  std::vector<double> e(p.v + at.v, p.v + at.v + s.dv);
  for (int64_t i = 0; i < s.dk; ++i)
    for (int64_t c = 0; c < s.dv; ++c) e[c] -= p.k[at.k + i] * state[i * s.dv + c];
  return e;
}

void advance(const DeltaRuleInputs<double>& p, const DeltaRuleShape& s, const Step& at, State& state) {
  const std::vector<double> e = innovation(p, s, at, state);
  const double beta = p.beta[at.beta] * beta_factor(s, p.k + at.k);
  for (int64_t i = 0; i < s.dk; ++i)
    for (int64_t c = 0; c < s.dv; ++c) state[i * s.dv + c] += beta * p.k[at.k + i] * e[c];
}

// The gate of channel i at a token: the one of the head, or the channel's own.
int64_t gate_at(const DeltaRuleShape& s, int64_t b, int64_t t, int64_t h, int64_t i) {
  return (s.first_row(b) + t) * s.gate_stride + h * s.gate_channels + (s.gate_channels > 1 ? i : 0);
}

void decay(const DeltaRuleInputs<double>& p, const DeltaRuleShape& s, int64_t b, int64_t t, int64_t h,
           State& state) {
  for (int64_t i = 0; s.gated() && i < s.dk; ++i)
    for (int64_t c = 0; c < s.dv; ++c) state[i * s.dv + c] *= p.gate[gate_at(s, b, t, h, i)];
}

}  // namespace

void delta_rule_forward_reference(const DeltaRuleForward<double>& p) {
  const DeltaRuleShape s = with_strides(p.shape);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t bh = b * s.heads + h;
      State state = initial_state(s, p.initial_state, bh);
      for (int64_t t = 0; t < s.length(b); ++t) {
        decay(p, s, b, t, h, state);
        for (int64_t j = 0; j < s.factors; ++j) advance(p, s, step_at(s, b, t, j, h), state);
        const double* q = p.q + (s.first_row(b) + t) * s.q_stride + h * s.dk;
        double* o = p.o + (s.first_row(b) + t) * s.o_stride + h * s.dv;
        for (int64_t c = 0; c < s.dv; ++c) {
          double total = 0;
          for (int64_t i = 0; i < s.dk; ++i) total += q[i] * state[i * s.dv + c];
          o[c] = p.scale * total;
        }
      }
      if (p.final_state) std::copy(state.begin(), state.end(), p.final_state + bh * s.dk * s.dv);
    }
  }
}

void delta_rule_backward_reference(const DeltaRuleBackward<double>& p) {
  const DeltaRuleShape s = with_strides(p.shape);
  const int64_t size = s.dk * s.dv;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t bh = b * s.heads + h;
      // Before each token's decay, before each of its sub-steps, and the last.
      std::vector<State> states = {initial_state(s, p.initial_state, bh)};
      for (int64_t t = 0; t < s.length(b); ++t) {
        states.push_back(states.back());
        decay(p, s, b, t, h, states.back());
        for (int64_t j = 0; j < s.factors; ++j) {
          states.push_back(states.back());
          advance(p, s, step_at(s, b, t, j, h), states.back());
        }
      }
      State d_state = initial_state(s, p.d_final_state, bh);
      for (int64_t t = s.length(b) - 1; t >= 0; --t) {
        const double* q = p.q + (s.first_row(b) + t) * s.q_stride + h * s.dk;
        double* dq = p.dq + (s.first_row(b) + t) * s.q_stride + h * s.dk;
        const double* d_o = p.d_o + (s.first_row(b) + t) * s.o_stride + h * s.dv;
        const State& after = states[(t + 1) * (s.factors + 1)];
        for (int64_t i = 0; i < s.dk; ++i) {
          dq[i] = 0;
          for (int64_t c = 0; c < s.dv; ++c) {
            dq[i] += p.scale * after[i * s.dv + c] * d_o[c];
            d_state[i * s.dv + c] += p.scale * q[i] * d_o[c];
          }
        }
        for (int64_t j = s.factors - 1; j >= 0; --j) {
          // S = before + beta k e^T with e = v - before^T k.
          const Step at = step_at(s, b, t, j, h);
          const State& before = states[t * (s.factors + 1) + 1 + j];
          const std::vector<double> e = innovation(p, s, at, before);
          const double* k = p.k + at.k;
          const double factor = beta_factor(s, k), beta = p.beta[at.beta] * factor;
          double* dbeta = p.dbeta + at.beta;
          std::vector<double> de(s.dv, 0.0);  // dS^T k, without the factor beta
          for (int64_t i = 0; i < s.dk; ++i)
            for (int64_t c = 0; c < s.dv; ++c) de[c] += d_state[i * s.dv + c] * k[i];
          *dbeta = 0;
          for (int64_t c = 0; c < s.dv; ++c) {
            *dbeta += factor * de[c] * e[c];
            p.dv[at.v + c] = beta * de[c];
          }
          for (int64_t i = 0; i < s.dk; ++i) {
            double dk = 0;
            for (int64_t c = 0; c < s.dv; ++c) {
              dk += beta * (d_state[i * s.dv + c] * e[c] - before[i * s.dv + c] * de[c]);
              d_state[i * s.dv + c] -= beta * k[i] * de[c];
            }
            p.dk[at.k + i] = dk;
          }
        }
        const State& previous = states[t * (s.factors + 1)];
        for (int64_t i = 0; i < s.gate_channels; ++i) p.dgate[gate_at(s, b, t, h, i)] = 0;
        for (int64_t i = 0; s.gated() && i < s.dk; ++i) {
          const int64_t at = gate_at(s, b, t, h, i);
          for (int64_t c = 0; c < s.dv; ++c) {
            p.dgate[at] += previous[i * s.dv + c] * d_state[i * s.dv + c];
            d_state[i * s.dv + c] *= p.gate[at];
          }
        }
      }
      if (p.d_initial_state) std::copy(d_state.begin(), d_state.end(), p.d_initial_state + bh * size);
    }
  }
}

}  // namespace signet::kernels
