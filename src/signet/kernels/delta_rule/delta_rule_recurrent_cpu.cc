// One sub-step after the other. Columns of S do not mix, so forward takes a panel of NV vectors of columns
// through the whole sequence: the panel [dk, W] stays in L1 and is read and written once per sub-step, in a
// pass that updates it, reads it with q, and reads it with the next sub-step's key.
#include <algorithm>

#include "signet/base/thread_pool.h"
#include "signet/kernels/delta_rule/delta_rule_plan.h"

#include "signet/base/isa_target.h"

#include "signet/base/simd.h"
#include "signet/kernels/columns.h"
#include "signet/kernels/delta_rule/delta_rule_cpu.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

// Adds w_i S_i over the rows i to `sums`, row i to sum i % kRows.
template <class T, int NV>
SIGNET_INLINE void add_rows(const T* state, const T* w, int64_t dk, Columns<T, NV> (&sums)[kRows]) {
  constexpr int64_t kWidth = NV * kLanes<T>;
  auto row = [&](int64_t i, int r) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int c = 0; c < NV; ++c) sums[r].v[c] += w[i] * load(state + i * kWidth + c * kLanes<T>);
  };
  for_rows(dk, row);
}

// S_i = gate_i S_i + k_i u for every row (without gate_i unless kDecay); then adds q_i S_i to `outs` when
// kRead, and next_i S_i to `sums`.
template <class T, int NV, bool kRead, bool kDecay>
SIGNET_INLINE void update(T* state, const T* gate, const T* k, const Columns<T, NV>& u, const T* q,
                          const T* next, int64_t dk, Columns<T, NV> (&outs)[kRows],
                          Columns<T, NV> (&sums)[kRows]) {
  constexpr int64_t kWidth = NV * kLanes<T>;
  auto row = [&](int64_t i, int r) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int c = 0; c < NV; ++c) {
      T* at = state + i * kWidth + c * kLanes<T>;
      const Vec<T> before = kDecay ? gate[i] * load(at) : load(at);
      const Vec<T> s = before + k[i] * u.v[c];
      store(at, s);
      if constexpr (kRead) outs[r].v[c] += q[i] * s;
      sums[r].v[c] += next[i] * s;
    }
  };
  for_rows(dk, row);
}

// The token's gate of every channel.
template <class T>
void expand_gate(const T* gate, const DeltaRuleShape& s, T* channels) {
  for (int64_t i = 0; i < s.dk; ++i) channels[i] = gate[s.gate_channels > 1 ? i : 0];
}

// Columns [first, first + count) of one batch row and head; count <= NV vectors. With a gate the decay
// happens in the pass of the token's first factor, whose key reads the state through k * gate.
template <class T, int NV, bool kGated>
void forward_panel(const DeltaRuleForward<T>& p, const DeltaRulePlan& plan, int64_t bh, int64_t first,
                   int64_t count, T* state) {
  constexpr int64_t kWidth = NV * kLanes<T>;
  const DeltaRuleShape& s = plan.shape;
  const DeltaRuleHead head(s, bh);
  const int64_t state_offset = bh * plan.state_size() + first;
  read_panel<T, NV>(p.initial_state ? p.initial_state + state_offset : nullptr, s.dk, s.dv, count, state);
  auto write_state = [&](T* to) { write_panel<T, NV>(state, s.dk, s.dv, count, to); };
  T* const gates = state + s.dk * kWidth;  // of this token and the next: row t % 2
  T* const gated_key = gates + 2 * plan.dk_padded;
  // The first key of token t as the state before its decay sees it.
  auto open_token = [&](int64_t t) -> const T* {
    const T* key = p.k + head.k(t, 0);
    if constexpr (!kGated) return key;
    T* const gate = gates + (t & 1) * plan.dk_padded;
    expand_gate(p.gate + head.gate(t), s, gate);
    for (int64_t i = 0; i < s.dk; ++i) gated_key[i] = gate[i] * key[i];
    return gated_key;
  };
  Columns<T, NV> sums[kRows] = {};
  if (s.time > 0) add_rows<T, NV>(state, open_token(0), s.dk, sums);
  for (int64_t t = 0; t < s.time; ++t) {
    if (p.saved && t > 0 && t % plan.chunk_tokens == 0)
      write_state(p.saved + plan.saved_offset(bh, t / plan.chunk_tokens) + first);
    for (int64_t j = 0; j < s.factors; ++j) {
      // u = beta (v - S^T k)
      const T beta = p.beta[head.beta(t, j)] * beta_factor(s, p.k + head.k(t, j));
      const Columns<T, NV> v = load_columns<T, NV>(p.v + head.v(t, j) + first, count),
                           kS = total<T, NV>(sums);
      Columns<T, NV> u, outs[kRows] = {};
      for (int c = 0; c < NV; ++c) u.v[c] = beta * (v.v[c] - kS.v[c]);
      for (auto& each : sums) each = {};
      const bool last = j + 1 == s.factors, end = last && t + 1 == s.time;
      const T* k = p.k + head.k(t, j);
      const T* next = end ? k : last ? open_token(t + 1) : p.k + head.k(t, j + 1);
      const T *gate = gates + (t & 1) * plan.dk_padded, *q = p.q + head.q(t);
      if (kGated && j == 0) {
        if (last)
          update<T, NV, true, kGated>(state, gate, k, u, q, next, s.dk, outs, sums);
        else
          update<T, NV, false, kGated>(state, gate, k, u, q, next, s.dk, outs, sums);
      } else if (last) {
        update<T, NV, true, false>(state, gate, k, u, q, next, s.dk, outs, sums);
      } else {
        update<T, NV, false, false>(state, gate, k, u, q, next, s.dk, outs, sums);
      }
      if (!last) continue;
      Columns<T, NV> o = total<T, NV>(outs);
      for (auto& each : o.v) each *= p.scale;
      store_columns<T, NV>(p.o + head.o(t) + first, o, count);
    }
  }
  if (p.final_state) write_state(p.final_state + state_offset);
}

// Rows of dv elements in buffers of padded rows: the padding is zero, so every loop takes whole vectors.
template <class T>
void copy_in(const T* from, int64_t n, int64_t width, T* to) {
  std::copy_n(from, n, to);
  std::fill(to + n, to + width, T(0));
}
template <class T>
T dot(const T* a, const T* b, int64_t width) {
  Vec<T> total{};
  for (int64_t c = 0; c < width; c += kLanes<T>) total += load(a + c) * load(b + c);
  return sum<T>(total);
}
// The sums of four vectors, which share their shuffles: [x0, x1, x2, x3] in lanes 0, n/4, n/2 and 3n/4.
template <class T>
SIGNET_INLINE Vec<T> sums_of_four(const Vec<T> (&x)[4]) {
  constexpr int n = kLanes<T>, half = n / 2, quarter = n / 4;
  IntVec<T> low{}, high{}, low_quarters{}, high_quarters{};
  for (int i = 0; i < n; ++i) {
    low[i] = i < half ? i : half + i, high[i] = low[i] + half;
    low_quarters[i] = i / quarter * half + i % quarter, high_quarters[i] = low_quarters[i] + quarter;
  }
  const Vec<T> a = __builtin_shuffle(x[0], x[1], low) + __builtin_shuffle(x[0], x[1], high);
  const Vec<T> b = __builtin_shuffle(x[2], x[3], low) + __builtin_shuffle(x[2], x[3], high);
  Vec<T> z = __builtin_shuffle(a, b, low_quarters) + __builtin_shuffle(a, b, high_quarters);
  for (int step = quarter / 2; step > 0; step /= 2) {
    IntVec<T> other{};
    for (int i = 0; i < n; ++i) other[i] = i ^ step;
    z += __builtin_shuffle(z, other);
  }
  return z;
}
// out(i, sum over the columns of term(i, c)) for every row i.
template <class T, class Term, class Out>
SIGNET_INLINE void sum_rows(int64_t rows, int64_t width, const Term& term, const Out& out) {
  int64_t i = 0;
  if constexpr (kLanes<T> >= 4) {
    for (; i + 4 <= rows; i += 4) {
      Vec<T> sums[4] = {};
      for (int64_t c = 0; c < width; c += kLanes<T>) {
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) sums[r] += term(i + r, c);
      }
      const Vec<T> total = sums_of_four<T>(sums);
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) out(i + r, total[r * (kLanes<T> / 4)]);
    }
  }
  for (; i < rows; ++i) {
    Vec<T> total{};
    for (int64_t c = 0; c < width; c += kLanes<T>) total += term(i, c);
    out(i, sum<T>(total));
  }
}
// y += x * factor
template <class T>
SIGNET_INLINE void add(T* y, const T* x, T factor, int64_t width) {
  for (int64_t c = 0; c < width; c += kLanes<T>) store(y + c, load(y + c) + factor * load(x + c));
}

template <class T>
SIGNET_INLINE void multiply(T* y, T factor, int64_t width) {
  for (int64_t c = 0; c < width; c += kLanes<T>) store(y + c, factor * load(y + c));
}

// What backward keeps of one batch row and head: states and values are rows of dv padded to `width`.
template <class T>
struct BackwardMemory {
  BackwardMemory(const DeltaRulePlan& plan, T* workspace)
      : width(plan.dv_padded), size(plan.shape.dk * width), states(workspace) {
    const int64_t kept = plan.most_steps() + (plan.shape.gated() ? plan.most_tokens() : 0);
    d_state = states + (kept + 1) * size;
    es = d_state + size;
    de = es + plan.most_steps() * width;
    d_o = de + width;
    gate = d_o + width;
  }
  int64_t width, size;  // size of a state
  T* states;            // [kept + 1, dk, width]: of one chunk, before every decay and sub-step, and the last
  T* d_state;           // [dk, width]
  T* es;                // [most_steps, width]: v - S^T k of every sub-step
  T *de, *d_o;          // [width]
  T* gate;              // [dk]
};

// A state [dk, dv], zero where there is none, to padded rows.
template <class T>
void read_state(const T* from, const DeltaRuleShape& s, int64_t width, T* to) {
  for (int64_t i = 0; i < s.dk; ++i) {
    if (from) {
      copy_in(from + i * s.dv, s.dv, width, to + i * width);
    } else {
      std::fill_n(to + i * width, width, T(0));
    }
  }
}

// Runs tokens [begin, end) again from the first of the states, keeping the others and e = v - S^T k.
template <class T>
void run_again(const DeltaRuleBackward<T>& p, const DeltaRuleShape& s, const DeltaRuleHead& head,
               int64_t begin, int64_t end, const BackwardMemory<T>& memory) {
  const int64_t width = memory.width, size = memory.size;
  T *before = memory.states, *e = memory.es, *const gate = memory.gate;
  for (int64_t t = begin; t < end; ++t) {
    if (s.gated()) {
      expand_gate(p.gate + head.gate(t), s, gate);
      std::copy_n(before, size, before + size);
      before += size;
      for (int64_t i = 0; i < s.dk; ++i) multiply(before + i * width, gate[i], width);
    }
    for (int64_t j = 0; j < s.factors; ++j, before += size, e += width) {
      const T* k = p.k + head.k(t, j);
      const T beta = p.beta[head.beta(t, j)] * beta_factor(s, k);
      copy_in(p.v + head.v(t, j), s.dv, width, e);
      for (int64_t i = 0; i < s.dk; ++i) add(e, before + i * width, -k[i], width);
      for (int64_t i = 0; i < s.dk; ++i) {
        const T factor = beta * k[i];
        for (int64_t c = i * width; c < (i + 1) * width; c += kLanes<T>)
          store(before + size + c, load(before + c) + factor * load(e + c - i * width));
      }
    }
  }
}

// Walks back over tokens [begin, end), which have been run again:
//   dS += scale q do^T     dq = scale S do
//   de = dS^T k    dbeta = de.e    dv = beta de    dk = beta (dS e - S_before de)    dS -= beta k de^T
//   dg_i = S_before_i . dS_i       dS = Diag(g) dS
template <class T>
void walk_back(const DeltaRuleBackward<T>& p, const DeltaRuleShape& s, const DeltaRuleHead& head,
               int64_t begin, int64_t end, const BackwardMemory<T>& memory) {
  const int64_t width = memory.width, size = memory.size, steps = (end - begin) * s.factors;
  T *const d_state = memory.d_state, *const de = memory.de, *const d_o = memory.d_o,
           *const gate = memory.gate;
  const T* before = memory.states + (steps + (s.gated() ? end - begin : 0)) * size;
  const T* e = memory.es + steps * width;
  for (int64_t t = end - 1; t >= begin; --t) {
    const T* q = p.q + head.q(t);
    T* dq = p.dq + head.q(t);
    copy_in(p.d_o + head.o(t), s.dv, width, d_o);
    sum_rows<T>(
        s.dk, width,
        [&](int64_t i, int64_t c)
            __attribute__((always_inline)) { return load(before + i * width + c) * load(d_o + c); },
        [&](int64_t i, T sum) __attribute__((always_inline)) { dq[i] = p.scale * sum; });
    for (int64_t i = 0; i < s.dk; ++i) add(d_state + i * width, d_o, p.scale * q[i], width);
    for (int64_t j = s.factors - 1; j >= 0; --j) {
      before -= size;
      e -= width;
      const T* k = p.k + head.k(t, j);
      T* dk = p.dk + head.k(t, j);
      const T factor = beta_factor(s, k), beta = p.beta[head.beta(t, j)] * factor;
      std::fill_n(de, width, T(0));
      for (int64_t i = 0; i < s.dk; ++i) add(de, d_state + i * width, k[i], width);
      p.dbeta[head.beta(t, j)] = factor * dot(de, e, width);
      T* dv = p.dv + head.v(t, j);
      for (int64_t c = 0; c < s.dv; ++c) dv[c] = beta * de[c];
      sum_rows<T>(
          s.dk, width,
          [&](int64_t i, int64_t c) __attribute__((always_inline)) {
            return load(d_state + i * width + c) * load(e + c) - load(before + i * width + c) * load(de + c);
          },
          [&](int64_t i, T sum) __attribute__((always_inline)) { dk[i] = beta * sum; });
      for (int64_t i = 0; i < s.dk; ++i) add(d_state + i * width, de, -beta * k[i], width);
    }
    if (!s.gated()) continue;
    before -= size;
    T* d_gate = p.dgate + head.gate(t);
    expand_gate(p.gate + head.gate(t), s, gate);
    std::fill_n(d_gate, s.gate_channels, T(0));
    sum_rows<T>(
        s.dk, width,
        [&](int64_t i, int64_t c) __attribute__((always_inline)) {
          return load(before + i * width + c) * load(d_state + i * width + c);
        },
        [&](int64_t i, T sum) { d_gate[s.gate_channels > 1 ? i : 0] += sum; });
    for (int64_t i = 0; i < s.dk; ++i) multiply(d_state + i * width, gate[i], width);
  }
}

// One batch row and head, chunk by chunk from the last: each is run again from its saved state and walked
// back.
template <class T>
void backward_head(const DeltaRuleBackward<T>& p, const DeltaRulePlan& plan, int64_t bh, T* workspace) {
  const DeltaRuleShape& s = plan.shape;
  const DeltaRuleHead head(s, bh);
  const BackwardMemory<T> memory(plan, workspace);
  const int64_t state_offset = bh * plan.state_size();
  read_state(p.d_final_state ? p.d_final_state + state_offset : nullptr, s, memory.width, memory.d_state);
  for (int64_t chunk = plan.chunks - 1; chunk >= 0; --chunk) {
    const T* start = chunk > 0         ? p.saved + plan.saved_offset(bh, chunk)
                     : p.initial_state ? p.initial_state + state_offset
                                       : nullptr;
    read_state(start, s, memory.width, memory.states);
    run_again(p, s, head, plan.chunk_begin(chunk), plan.chunk_end(chunk), memory);
    walk_back(p, s, head, plan.chunk_begin(chunk), plan.chunk_end(chunk), memory);
  }
  if (p.d_initial_state) {
    for (int64_t i = 0; i < s.dk; ++i)
      std::copy_n(memory.d_state + i * memory.width, s.dv, p.d_initial_state + state_offset + i * s.dv);
  }
}

template <class T, bool kGated>
void forward_heads(const DeltaRuleForward<T>& p, const DeltaRulePlan& plan) {
  const DeltaRuleShape& s = plan.shape;
  parallel_parts(s.batch * s.heads, plan.parts, [&](int64_t part, int64_t begin, int64_t end) {
    T* state = part_memory(p.workspace, plan, part);
    for (int64_t bh = begin; bh < end; ++bh) {
      const DeltaRulePlan one = plan.of(bh);
      int64_t first = 0;
      for (; s.dv - first > kLanes<T>; first += 2 * kLanes<T>)
        forward_panel<T, 2, kGated>(p, one, bh, first, std::min<int64_t>(2 * kLanes<T>, s.dv - first), state);
      if (first < s.dv) forward_panel<T, 1, kGated>(p, one, bh, first, s.dv - first, state);
    }
  });
}

}  // namespace

template <class T>
void delta_rule_recurrent_forward(const DeltaRuleForward<T>& p, const DeltaRulePlan& plan) {
  return plan.shape.gated() ? forward_heads<T, true>(p, plan) : forward_heads<T, false>(p, plan);
}

template <class T>
void delta_rule_recurrent_backward(const DeltaRuleBackward<T>& p, const DeltaRulePlan& plan) {
  const DeltaRuleShape& s = plan.shape;
  parallel_parts(s.batch * s.heads, plan.parts, [&](int64_t part, int64_t begin, int64_t end) {
    for (int64_t bh = begin; bh < end; ++bh)
      backward_head(p, plan.of(bh), bh, part_memory(p.workspace, plan, part));
  });
}

template void delta_rule_recurrent_forward(const DeltaRuleForward<float>&, const DeltaRulePlan&);
template void delta_rule_recurrent_forward(const DeltaRuleForward<double>&, const DeltaRulePlan&);
template void delta_rule_recurrent_backward(const DeltaRuleBackward<float>&, const DeltaRulePlan&);
template void delta_rule_recurrent_backward(const DeltaRuleBackward<double>&, const DeltaRulePlan&);

}  // namespace signet::kernels::SIGNET_ISA
