// The UT/WY form (Yang et al., "Parallelizing Linear Transformers with the Delta Rule", 2024), by forward
// substitution. A chunk has Ns sub-steps (rows of K, V, beta) and Nt tokens (rows of Q, O); S is the state
// before it:
//
//   G = strictly lower K K^T     P = Q K^T where the sub-step is not after the token
//   e_s = v_s - S^T k_s - sum_{r<s} G_sr u_r      u_s = beta_s e_s
//   O = scale (Q S + P U)        S' = S + K^T U
//
// Backward, with dS' the gradient of S' (docs/kernels/delta_rule.md derives it):
//
//   dU = scale P^T dO + K dS'        w_s = dU_s - sum_{r>s} G_rs x_r        x_s = beta_s w_s
//   dbeta_s = w_s . e_s              dV = X
//   dP = lower dO U^T                dG = -strictly lower X U^T
//   dQ = scale (dO S^T + dP K)       dK = scale dP^T Q + U dS'^T - X S^T + (dG + dG^T) K
//   dS = dS' + scale Q^T dO - K^T X
//
// A gate per head multiplies what passes between two times by the product of the gates in between. With
// R_tr = g_{token(r)+1} .. g_t and c_t = g_first .. g_t, computed as products (no logarithms, no quotients,
// so signs and zeros are ordinary): G and P are multiplied by R element by element, Q S and K S by c, K^T U
// by R_last, S by c_last. GateProducts has R and its gradient.
//
// Everything of a chunk stays in L1 or L2. Columns are padded with zeros to whole vectors.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "signet/base/thread_pool.h"
#include "signet/kernels/delta_rule/delta_rule_plan.h"

#include "signet/base/isa_target.h"

#include "signet/base/simd.h"
#include "signet/kernels/chunk_states.h"
#include "signet/kernels/delta_rule/delta_rule_cpu.h"
#include "signet/kernels/small_matrix.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

template <class T>
struct Rows {
  T* p = nullptr;
  int64_t stride = 0;
  T* operator[](int64_t i) const { return p + i * stride; }
};

// The chunk's rows of an input or output: `factors` per token, each of `width` elements.
struct RowLayout {
  int64_t first, token_stride, factors, factor_stride, tokens, width;
  // Can these rows be used as a matrix where they are? `whole` asks for whole vectors, too.
  template <class T>
  bool usable(bool whole) const {
    return (factors == 1 || token_stride == factors * factor_stride) && (!whole || width % kLanes<T> == 0);
  }
  template <class T>
  Rows<T> in_place(T* base) const {
    return {base + first, factors == 1 ? token_stride : factor_stride};
  }
  // Calls f(row, offset of the row).
  template <class F>
  void each(const F& f) const {
    int64_t row = 0;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t j = 0; j < factors; ++j) f(row++, first + t * token_stride + j * factor_stride);
  }
};

// An input as a matrix of whole vectors, copied and padded with zeros where it must be.
template <class T>
Rows<const T> stage(const T* base, const RowLayout& layout, T* buffer, int64_t stride) {
  if (layout.usable<T>(true)) return layout.in_place(base);
  layout.each([&](int64_t row, int64_t offset) {
    std::copy_n(base + offset, layout.width, buffer + row * stride);
    std::fill(buffer + row * stride + layout.width, buffer + (row + 1) * stride, T(0));
  });
  return {buffer, stride};
}
// Where to compute an output, and how it gets to its place.
template <class T>
Rows<T> open(T* base, const RowLayout& layout, T* buffer, int64_t stride) {
  return layout.usable<T>(true) ? layout.in_place(base) : Rows<T>{buffer, stride};
}
template <class T>
void close(T* base, const RowLayout& layout, Rows<T> computed) {
  if (layout.usable<T>(true)) return;
  layout.each([&](int64_t row, int64_t offset) { std::copy_n(computed[row], layout.width, base + offset); });
}

// What lies between the times of a chunk with a gate per head, and the matrices before they were multiplied
// by it. `between` and its gradient are [tokens, steps_padded], zero where the sub-step is after the token;
// `since` is c.
template <class T>
struct GateProducts {
  T *gate, *since, *d_since;             // [tokens]
  T *between, *d_between;                // [tokens, steps_padded]
  T *plain_g, *plain_p;                  // [steps, steps_padded], [tokens, steps_padded]
  T *k_since, *k_until, *q_since, *sum;  // [steps, dk]: diag(c) K, diag(R_last) K, diag(c) Q; a sum of terms
};

// One part's memory, and the chunk it works on. chunked_size in delta_rule.cc counts the memory.
template <class T>
struct Chunk {
  const DeltaRulePlan& plan;
  const DeltaRuleShape& s;
  const int64_t dk, dv;        // padded row lengths
  const int64_t steps_padded;  // row length of g, p, kt, ut
  int64_t begin = 0, steps = 0, tokens = 0;
  int64_t first_query = 0, queries = 0;  // the tokens of the chunk whose o is wanted: all, or one, or none
  T *g, *p;                // [steps, steps_padded], [queries, steps_padded]; later in backward dG, dP
  T *kt, *ut;              // [dk, steps_padded], [dv, steps_padded]
  T *beta, *dbeta;         // [steps]
  T *e, *u, *x;            // [steps, dv]; x holds -X
  T *staged_v, *staged_o;  // [steps, dv]
  T *staged_q, *staged_k, *staged_d;  // [steps, dk]
  T *state, *d_state;                 // [dk, dv]: S and dS'
  T *state_t, *d_state_t;             // [dv, dk]
  RowLayout q_rows, k_rows, v_rows, o_rows;
  Rows<const T> q, k;
  // As the state before the chunk meets q and k, and as k enters the state after it.
  Rows<const T> q_since, k_since, k_until;
  GateProducts<T> gates;

  Chunk(const DeltaRulePlan& the_plan, T* memory)
      : plan(the_plan),
        s(the_plan.shape),
        dk(the_plan.dk_padded),
        dv(the_plan.dv_padded),
        steps_padded(the_plan.steps_padded) {
    const int64_t most = plan.most_steps();
    auto take = [&](int64_t size) { return std::exchange(memory, memory + size); };
    g = take(most * steps_padded), p = take(most * steps_padded);
    kt = take(dk * steps_padded), ut = take(dv * steps_padded);
    beta = take(steps_padded), dbeta = take(steps_padded);
    e = take(most * dv), u = take(most * dv), x = take(most * dv);
    staged_v = take(most * dv), staged_o = take(most * dv);
    staged_q = take(most * dk), staged_k = take(most * dk), staged_d = take(most * dk);
    state = take(dk * dv), d_state = take(dk * dv), state_t = take(dk * dv), d_state_t = take(dk * dv);
    if (!s.gated()) return;
    const int64_t most_tokens = plan.most_tokens();
    gates.gate = take(steps_padded), gates.since = take(steps_padded), gates.d_since = take(steps_padded);
    gates.between = take(most_tokens * steps_padded), gates.d_between = take(most_tokens * steps_padded);
    gates.plain_g = take(most * steps_padded), gates.plain_p = take(most_tokens * steps_padded);
    gates.k_since = take(most * dk), gates.k_until = take(most * dk);
    gates.q_since = take(most * dk), gates.sum = take(most * dk);
  }

  // P: sub-steps up to the token's last.
  Band lower() const { return {Band::kLower, s.factors, (first_query + 1) * s.factors}; }
  Band lower_transposed() const { return {Band::kUpper, s.factors, (first_query + 1) * s.factors}; }
  static Band strictly_lower() { return {Band::kLower, 1, 0}; }
  static Band strictly_lower_transposed() { return {Band::kUpper, 1, 0}; }
};

// n rounded up to whole vectors: what a row of n elements has room for, the rest being zero.
template <class T>
constexpr int64_t whole(int64_t n) {
  return (n + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}
// y = x * factor, whole vectors.
template <class T>
SIGNET_INLINE void scale_row(const T* x, T factor, int64_t width, T* y) {
  for (int64_t i = 0; i < width; i += kLanes<T>) store(y + i, factor * load(x + i));
}
// y *= x, whole vectors.
template <class T>
SIGNET_INLINE void multiply_row(const T* x, int64_t width, T* y) {
  for (int64_t i = 0; i < width; i += kLanes<T>) store(y + i, load(x + i) * load(y + i));
}
template <class T>
SIGNET_INLINE T row_dot(const T* x, const T* y, int64_t width) {
  Vec<T> total{};
  for (int64_t i = 0; i < width; i += kLanes<T>) total += load(x + i) * load(y + i);
  return sum<T>(total);
}

// R and c, then everything they multiply; the plain G and P are kept.
template <class T>
void apply_gates(Chunk<T>& c, const T* gate, const DeltaRuleHead& head) {
  GateProducts<T>& gates = c.gates;
  const int64_t stride = c.steps_padded, width = whole<T>(c.steps), dk = whole<T>(c.s.dk),
                factors = c.s.factors;
  for (int64_t t = 0; t < c.tokens; ++t) {
    const T g = gate[head.gate(c.begin + t)];
    gates.gate[t] = g;
    gates.since[t] = t > 0 ? g * gates.since[t - 1] : g;
    T* row = gates.between + t * stride;
    if (t > 0)
      scale_row(row - stride, g, width, row);
    else
      std::fill_n(row, width, T(0));
    std::fill_n(row + t * factors, factors, T(1));
    T* p = c.p + t * stride;
    std::copy_n(p, width, gates.plain_p + t * stride);
    multiply_row(row, width, p);
    scale_row(c.q[t], gates.since[t], dk, gates.q_since + t * c.dk);
  }
  const T* last = gates.between + (c.tokens - 1) * stride;
  for (int64_t s = 0; s < c.steps; ++s) {
    const int64_t t = s / factors;
    std::copy_n(c.g + s * stride, width, gates.plain_g + s * stride);
    multiply_row(gates.between + t * stride, width, c.g + s * stride);
    scale_row(c.k[s], gates.since[t], dk, gates.k_since + s * c.dk);
    scale_row(c.k[s], last[s], dk, gates.k_until + s * c.dk);
  }
  c.q_since = {gates.q_since, c.dk}, c.k_since = {gates.k_since, c.dk}, c.k_until = {gates.k_until, c.dk};
}

// Finds the inputs of a chunk and computes Kt, G, P.
template <class T>
void open_chunk(Chunk<T>& c, const DeltaRuleInputs<T>& p, int64_t bh, int64_t index) {
  const DeltaRuleShape& s = c.s;
  const DeltaRuleHead head(s, bh);
  c.begin = c.plan.chunk_begin(index);
  c.tokens = c.plan.chunk_end(index) - c.begin;
  c.steps = c.tokens * s.factors;
  c.first_query = 0, c.queries = c.tokens;
  if (p.read && !s.gated()) {
    const int64_t read = p.read[bh / s.heads] - head.row - c.begin;
    c.queries = read >= 0 && read < c.tokens;
    c.first_query = c.queries ? read : 0;
  }
  c.q_rows = {head.q(c.begin + c.first_query), s.q_stride, 1, 0, c.queries, s.dk};
  c.o_rows = {head.o(c.begin + c.first_query), s.o_stride, 1, 0, c.queries, s.dv};
  c.k_rows = {head.k(c.begin, 0), s.k_stride, s.factors, s.heads * s.dk, c.tokens, s.dk};
  c.v_rows = {head.v(c.begin, 0), s.v_stride, s.factors, s.heads * s.dv, c.tokens, s.dv};
  c.q = stage(p.q, c.q_rows, c.staged_q, c.dk);
  c.k = stage(p.k, c.k_rows, c.staged_k, c.dk);
  for (int64_t t = 0, i = 0; t < c.tokens; ++t)
    for (int64_t j = 0; j < s.factors; ++j, ++i)
      c.beta[i] = p.beta[head.beta(c.begin + t, j)] * beta_factor(s, c.k[i]);
  transpose(c.k.p, c.k.stride, c.steps, s.dk, c.kt, c.steps_padded);
  const Term<T> kk{c.k.p, c.k.stride, 1, c.kt, c.steps_padded, s.dk};
  const Term<T> qk{c.q.p, c.q.stride, 1, c.kt, c.steps_padded, s.dk};
  matrix_sum<T>({c.steps, c.steps, &kk, 1, nullptr, 0, c.g, c.steps_padded, Chunk<T>::strictly_lower()});
  matrix_sum<T>({c.queries, c.steps, &qk, 1, nullptr, 0, c.p, c.steps_padded, c.lower()});
  c.q_since = c.q, c.k_since = c.k_until = c.k;
  if (s.gated()) apply_gates(c, p.gate, head);
}

// E and U by forward substitution, a block of rows after the other.
template <class T>
void substitute(Chunk<T>& c, const T* values, bool has_state) {
  const Rows<const T> v = stage(values, c.v_rows, c.staged_v, c.dv);
  for_row_blocks(c.steps, [&](auto rows, int64_t row) {
    for_column_panels<T>(c.s.dv, [&](auto panel, int64_t column) {
      constexpr int kRows = rows(), kVectors = panel();
      Vec<T> sums[kRows][kVectors] = {};
      if (has_state)
        add_term<T>(Term<T>{c.k_since.p, c.k_since.stride, 1, c.state, c.dv, c.s.dk}, row, column, sums);
      add_term<T>(Term<T>{c.g, c.steps_padded, 1, c.u, c.dv, row}, row, column, sums);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const int64_t at = (row + r) * c.dv + column;
        const T beta = c.beta[row + r];
#pragma GCC unroll 2
        for (int i = 0; i < kVectors; ++i) {
          sums[r][i] = load(v[row + r] + column + i * kLanes<T>) - sums[r][i];
#pragma GCC unroll 8
          for (int j = 0; j < r; ++j)
            sums[r][i] -= (c.g[(row + r) * c.steps_padded + row + j] * c.beta[row + j]) * sums[j][i];
          store(c.e + at + i * kLanes<T>, sums[r][i]);
          store(c.u + at + i * kLanes<T>, beta * sums[r][i]);
        }
      }
    });
  });
}

// -X, dV and dbeta by backward substitution.
template <class T>
void substitute_back(Chunk<T>& c, Rows<const T> d_o, T scale, bool has_d_state, Rows<T> d_values) {
  std::fill_n(c.dbeta, c.steps, T(0));
  for_row_blocks_backwards(c.steps, [&](auto rows, int64_t row) {
    for_column_panels<T>(c.s.dv, [&](auto panel, int64_t column) {
      constexpr int kRows = rows(), kVectors = panel();
      Vec<T> sums[kRows][kVectors] = {};
      const int64_t next = row + kRows;
      add_term<T>(Term<T>{c.p, 1, c.steps_padded, d_o.p, d_o.stride, c.queries, c.lower_transposed(), scale},
                  row, column, sums);
      if (has_d_state)
        add_term<T>(Term<T>{c.k_until.p, c.k_until.stride, 1, c.d_state, c.dv, c.s.dk}, row, column, sums);
      add_term<T>(
          Term<T>{c.g + next * c.steps_padded, 1, c.steps_padded, c.x + next * c.dv, c.dv, c.steps - next},
          row, column, sums);
#pragma GCC unroll 8
      for (int r = kRows - 1; r >= 0; --r) {
        const int64_t at = (row + r) * c.dv + column;
        Vec<T> along{};
#pragma GCC unroll 2
        for (int i = 0; i < kVectors; ++i) {
#pragma GCC unroll 8
          for (int j = r + 1; j < kRows; ++j)
            sums[r][i] -= (c.g[(row + j) * c.steps_padded + row + r] * c.beta[row + j]) * sums[j][i];
          const Vec<T> d_value = c.beta[row + r] * sums[r][i];
          along += sums[r][i] * load(c.e + at + i * kLanes<T>);
          store(d_values[row + r] + column + i * kLanes<T>, d_value);
          store(c.x + at + i * kLanes<T>, -d_value);
        }
        c.dbeta[row + r] += sum<T>(along);
      }
    });
  });
}

// What is left of a state, or of a gradient of one, across the chunk.
template <class T>
void scale_state(const Chunk<T>& c, T* state) {
  for (int64_t i = 0; i < c.s.dk; ++i)
    scale_row(state + i * c.dv, c.gates.since[c.tokens - 1], whole<T>(c.s.dv), state + i * c.dv);
}

template <class T>
void forward_head(Chunk<T>& c, const DeltaRuleForward<T>& p, int64_t bh) {
  const DeltaRulePlan& plan = c.plan;
  bool has_state = p.initial_state != nullptr;
  if (has_state) read_state(c, p.initial_state + bh * plan.state_size(), c.state);
  for (int64_t index = 0; index < plan.chunks && c.s.time > 0; ++index) {
    if (p.saved && index > 0) write_state(c, c.state, p.saved + plan.saved_offset(bh, index));
    open_chunk(c, p, bh, index);
    substitute(c, p.v, has_state);
    const Rows<T> o = open(p.o, c.o_rows, c.staged_o, c.dv);
    const Term<T> terms[] = {
        {c.p, c.steps_padded, 1, c.u, c.dv, c.steps, c.lower(), has_state ? T(1) : p.scale},
        {c.q_since.p, c.q_since.stride, 1, c.state, c.dv, c.s.dk, Band{}, p.scale}};
    matrix_sum<T>({c.queries, c.s.dv, terms, has_state ? 2 : 1, nullptr, 0, o.p, o.stride});
    close(p.o, c.o_rows, o);
    if (index + 1 == plan.chunks && !p.final_state) return;
    if (has_state && c.s.gated()) scale_state(c, c.state);
    const Term<T> update{c.k_until.p, 1, c.k_until.stride, c.u, c.dv, c.steps};
    matrix_sum<T>({c.s.dk, c.s.dv, &update, 1, has_state ? c.state : nullptr, c.dv, c.state, c.dv});
    has_state = true;
  }
  if (p.final_state) write_state(c, has_state ? c.state : nullptr, p.final_state + bh * plan.state_size());
}

// dS in the place of dS', whose transpose is kept.
template <class T>
void add_state_gradient(Chunk<T>& c, Rows<const T> d_o, T scale, bool has_d_state) {
  const Term<T> terms[] = {{c.q_since.p, 1, c.q_since.stride, d_o.p, d_o.stride, c.queries, Band{}, scale},
                           {c.k_since.p, 1, c.k_since.stride, c.x, c.dv, c.steps}};
  matrix_sum<T>({c.s.dk, c.s.dv, terms, 2, has_d_state ? c.d_state : nullptr, c.dv, c.d_state, c.dv});
}

// dg from the gradients of R and c: R_t = g_t R_{t-1} and c_t = g_t c_{t-1}, walked backwards.
template <class T>
void reduce_gates(Chunk<T>& c, T* d_gate, const DeltaRuleHead& head) {
  GateProducts<T>& gates = c.gates;
  for (int64_t t = c.tokens - 1; t >= 0; --t) {
    const T g = gates.gate[t];
    T total = gates.d_since[t];
    if (t > 0) {
      const int64_t stride = c.steps_padded;
      T* const d_before = gates.d_between + (t - 1) * stride;
      const T *d_row = gates.d_between + t * stride, *before = gates.between + (t - 1) * stride;
      Vec<T> sums{};
      const int64_t earlier = t * c.s.factors;  // before is zero from there on
      for (int64_t i = 0; i < earlier; i += kLanes<T>) {
        const Vec<T> d = load(d_row + i), factor = load(before + i);
        sums += d * factor;
        store(d_before + i, load(d_before + i) + g * d);
      }
      gates.d_since[t - 1] += g * gates.d_since[t];
      total = total * gates.since[t - 1] + sum<T>(sums);
    }
    d_gate[head.gate(c.begin + t)] = total;
  }
}

// The rest of backward_chunk where the gates multiply its terms: c.g, c.p hold the gradients of the products.
template <class T>
void backward_gated(Chunk<T>& c, const DeltaRuleBackward<T>& p, int64_t bh, Rows<const T> d_o, bool has_state,
                    bool has_d_state, bool wants_d_state) {
  const DeltaRuleShape& s = c.s;
  const DeltaRuleHead head(s, bh);
  GateProducts<T>& gates = c.gates;
  const int64_t stride = c.steps_padded, width = whole<T>(c.steps), dk = whole<T>(s.dk);
  const T* last = gates.between + (c.tokens - 1) * stride;
  std::fill_n(gates.d_since, c.tokens, T(0));
  for (int64_t t = 0; t < c.tokens; ++t) {
    T *d_between = gates.d_between + t * stride, *d_p = c.p + t * stride;
    const T *plain_p = gates.plain_p + t * stride, *between = gates.between + t * stride;
    for (int64_t i = 0; i < width; i += kLanes<T>) {
      const Vec<T> d = load(d_p + i);
      Vec<T> total = p.scale * d * load(plain_p + i);
      store(d_p + i, d * load(between + i));
      for (int64_t j = t * s.factors; j < (t + 1) * s.factors; ++j) {
        T* const d_g = c.g + j * stride + i;
        const Vec<T> each = load(d_g);
        total += each * load(gates.plain_g + j * stride + i);
        store(d_g, each * load(between + i));
      }
      store(d_between + i, total);
    }
  }

  // dK: the two terms of the states, each with its factor per row, then the rest.
  std::fill_n(gates.sum, c.steps * c.dk, T(0));
  auto add_scaled = [&](const T* a, const T* state_t, auto factor, auto hear) {
    const Term<T> term{a, c.dv, 1, state_t, c.dk, s.dv};
    matrix_sum<T>({c.steps, s.dk, &term, 1, nullptr, 0, c.staged_d, c.dk});
    for (int64_t row = 0; row < c.steps; ++row) {
      const T *x = c.staged_d + row * c.dk, f = factor(row);
      T* y = gates.sum + row * c.dk;
      hear(row, row_dot(x, c.k[row], dk));
      for (int64_t i = 0; i < dk; i += kLanes<T>) store(y + i, load(y + i) + f * load(x + i));
    }
  };
  if (has_d_state)
    add_scaled(
        c.u, c.d_state_t, [&](int64_t row) { return last[row]; },
        [&](int64_t row, T dot) { gates.d_between[(c.tokens - 1) * stride + row] += dot; });
  if (has_state)
    add_scaled(
        c.x, c.state_t, [&](int64_t row) { return gates.since[row / s.factors]; },
        [&](int64_t row, T dot) { gates.d_since[row / s.factors] += dot; });
  Term<T> terms[] = {{c.p, 1, stride, c.q.p, c.q.stride, c.tokens, c.lower_transposed(), p.scale},
                     {c.g, stride, 1, c.k.p, c.k.stride, c.steps, Chunk<T>::strictly_lower()},
                     {c.g, 1, stride, c.k.p, c.k.stride, c.steps, Chunk<T>::strictly_lower_transposed()}};
  const Rows<T> d_k = open(p.dk, c.k_rows, c.staged_d, c.dk);
  matrix_sum<T>({c.steps, s.dk, terms, 3, gates.sum, c.dk, d_k.p, d_k.stride});
  close(p.dk, c.k_rows, d_k);

  // dQ = scale (diag(c) dO S^T + dP K)
  const T* d_since_q = nullptr;
  if (has_state) {
    const Term<T> term{d_o.p, d_o.stride, 1, c.state_t, c.dk, s.dv, Band{}, p.scale};
    matrix_sum<T>({c.tokens, s.dk, &term, 1, nullptr, 0, gates.sum, c.dk});
    for (int64_t t = 0; t < c.tokens; ++t) {
      T* row = gates.sum + t * c.dk;
      gates.d_since[t] += row_dot(row, c.q[t], dk);
      scale_row(row, gates.since[t], dk, row);
    }
    d_since_q = gates.sum;
  }
  const Term<T> d_p{c.p, stride, 1, c.k.p, c.k.stride, c.steps, c.lower(), p.scale};
  const Rows<T> d_q = open(p.dq, c.q_rows, c.staged_d, c.dk);
  matrix_sum<T>({c.tokens, s.dk, &d_p, 1, d_since_q, c.dk, d_q.p, d_q.stride});
  close(p.dq, c.q_rows, d_q);

  for (int64_t i = 0; has_state && has_d_state && i < s.dk; ++i)
    gates.d_since[c.tokens - 1] += row_dot(c.state + i * c.dv, c.d_state + i * c.dv, whole<T>(s.dv));
  if (wants_d_state) {
    if (has_d_state) scale_state(c, c.d_state);
    add_state_gradient(c, d_o, p.scale, has_d_state);
  }
  reduce_gates(c, p.dgate, head);
}

template <class T>
void backward_chunk(Chunk<T>& c, const DeltaRuleBackward<T>& p, int64_t bh, int64_t index, bool has_state,
                    bool has_d_state, bool wants_d_state) {
  const DeltaRuleShape& s = c.s;
  open_chunk(c, p, bh, index);
  substitute(c, p.v, has_state);
  transpose(c.u, c.dv, c.steps, s.dv, c.ut, c.steps_padded);

  const Rows<const T> d_o = stage(p.d_o, c.o_rows, c.staged_o, c.dv);
  const Rows<T> d_v = open(p.dv, c.v_rows, c.staged_v, c.dv);
  substitute_back(c, d_o, p.scale, has_d_state, d_v);
  close(p.dv, c.v_rows, d_v);
  const DeltaRuleHead head(s, bh);
  for (int64_t t = 0, i = 0; t < c.tokens; ++t)
    for (int64_t j = 0; j < s.factors; ++j, ++i)
      p.dbeta[head.beta(c.begin + t, j)] = c.dbeta[i] * beta_factor(s, c.k[i]);

  // G and P (with the gates) are not needed any more: their places take dG and dP.
  const Term<T> d_p{d_o.p, d_o.stride, 1, c.ut, c.steps_padded, s.dv};
  const Term<T> d_g{c.x, c.dv, 1, c.ut, c.steps_padded, s.dv};
  matrix_sum<T>({c.queries, c.steps, &d_p, 1, nullptr, 0, c.p, c.steps_padded, c.lower()});
  matrix_sum<T>({c.steps, c.steps, &d_g, 1, nullptr, 0, c.g, c.steps_padded, Chunk<T>::strictly_lower()});
  if (has_state) transpose(c.state, c.dv, s.dk, s.dv, c.state_t, c.dk);
  if (has_d_state) transpose(c.d_state, c.dv, s.dk, s.dv, c.d_state_t, c.dk);
  if (s.gated()) return backward_gated(c, p, bh, d_o, has_state, has_d_state, wants_d_state);

  if (wants_d_state) add_state_gradient(c, d_o, p.scale, has_d_state);
  Term<T> terms[5];
  int count = 0;
  terms[count++] = {c.p, 1, c.steps_padded, c.q.p, c.q.stride, c.queries, c.lower_transposed(), p.scale};
  terms[count++] = {c.g, c.steps_padded, 1, c.k.p, c.k.stride, c.steps, Chunk<T>::strictly_lower()};
  terms[count++] = {
      c.g, 1, c.steps_padded, c.k.p, c.k.stride, c.steps, Chunk<T>::strictly_lower_transposed()};
  if (has_d_state) terms[count++] = {c.u, c.dv, 1, c.d_state_t, c.dk, s.dv};
  if (has_state) terms[count++] = {c.x, c.dv, 1, c.state_t, c.dk, s.dv};
  const Rows<T> d_k = open(p.dk, c.k_rows, c.staged_d, c.dk);
  matrix_sum<T>({c.steps, s.dk, terms, count, nullptr, 0, d_k.p, d_k.stride});
  close(p.dk, c.k_rows, d_k);

  count = 0;
  terms[count++] = {c.p,        c.steps_padded, 1,         c.k.p,
                    c.k.stride, c.steps,        c.lower(), has_state ? T(1) : p.scale};
  if (has_state) terms[count++] = {d_o.p, d_o.stride, 1, c.state_t, c.dk, s.dv, Band{}, p.scale};
  for (int64_t t = 0; c.queries < c.tokens && t < c.tokens; ++t)
    std::fill_n(p.dq + head.q(c.begin + t), s.dk, T(0));
  const Rows<T> d_q = open(p.dq, c.q_rows, c.staged_d, c.dk);
  matrix_sum<T>({c.queries, s.dk, terms, count, nullptr, 0, d_q.p, d_q.stride});
  close(p.dq, c.q_rows, d_q);
}

template <class T>
void backward_head(Chunk<T>& c, const DeltaRuleBackward<T>& p, int64_t bh) {
  walk_back(c, p, bh, [&](int64_t index, bool has_state, bool has_d_state, bool wants_d_state) {
    backward_chunk(c, p, bh, index, has_state, has_d_state, wants_d_state);
  });
}

// Calls f(chunk, bh) for every head of every sequence, in parallel.
template <class T, class F>
void for_heads(T* workspace, const DeltaRulePlan& plan, const F& f) {
  parallel_parts(plan.shape.batch * plan.shape.heads, plan.parts,
                 [&](int64_t part, int64_t begin, int64_t end) {
                   for (int64_t bh = begin; bh < end; ++bh) {
                     const DeltaRulePlan one = plan.of(bh);
                     Chunk<T> chunk(one, part_memory(workspace, plan, part));
                     f(chunk, bh);
                   }
                 });
}

}  // namespace

template <class T>
void delta_rule_chunked_forward(const DeltaRuleForward<T>& p, const DeltaRulePlan& plan) {
  for_heads(p.workspace, plan, [&](Chunk<T>& chunk, int64_t bh) { forward_head(chunk, p, bh); });
}

template <class T>
void delta_rule_chunked_backward(const DeltaRuleBackward<T>& p, const DeltaRulePlan& plan) {
  for_heads(p.workspace, plan, [&](Chunk<T>& chunk, int64_t bh) { backward_head(chunk, p, bh); });
}

template void delta_rule_chunked_forward(const DeltaRuleForward<float>&, const DeltaRulePlan&);
template void delta_rule_chunked_forward(const DeltaRuleForward<double>&, const DeltaRulePlan&);
template void delta_rule_chunked_backward(const DeltaRuleBackward<float>&, const DeltaRulePlan&);
template void delta_rule_chunked_backward(const DeltaRuleBackward<double>&, const DeltaRulePlan&);

}  // namespace signet::kernels::SIGNET_ISA
