// A chunk of n <= 16 tokens at a time, S the state before it, dS' the gradient of the state after it. With
// D(r,t) = g_{r+1} .. g_t per channel of dk (elementwise products below are per channel, too):
//
//   B_tr = sum_i q_t D(r,t) k_r  (r <= t)
//   O = (D(-1,t) q_t) S + B V                S' = D(-1,n) S + (D(r,n) k_r)^T V
//
// Backward, A_tr = do_t . v_r, and the state read with a later output gradient, y^t_s = S_{t-1} do_s:
//
//   y^0 = dO S^T      y^{t+1}_s = g_t y^t_s + A_st k_t      dq_t = y^{t+1}_t       Z = V dS'^T
//   dk_r = D(r,n) Z_r + sum_{t>=r} D(r,t) A_tr q_t          dv = (D(r,n) k_r) dS' + B^T dO
//   dg_t = sum_{s>=t} D(t,s) q_s y^t_s + D(t,n) x_t         dS = D(-1,n) dS' + (D(-1,t) q_t)^T dO
//   x_0 = rows of S . dS'                                   x_{t+1} = g_t x_t + k_t Z_t
//
// Every D is a running product of numbers in [-1, 1]: signs and resets need no care, and nothing is divided.
// One gate per head is the same gate in every channel. The factor `scale` goes into q (forward) or dO
// (backward) when they are read. Columns are padded with zeros.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "signet/base/thread_pool.h"
#include "signet/kernels/gated_linear/gated_linear_plan.h"

#include "signet/base/isa_target.h"

#include "signet/base/simd.h"
#include "signet/kernels/chunk_states.h"
#include "signet/kernels/gated_linear/gated_linear_cpu.h"
#include "signet/kernels/small_matrix.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

constexpr int64_t kChunk = GatedLinearPlan::kChunk;

// One part's memory, and the chunk it works on. chunk_size in gated_linear.cc counts the memory.
template <class T>
struct Chunk {
  const GatedLinearPlan& plan;
  const GatedLinearShape& s;
  const int64_t dk, dv;  // padded row lengths
  int64_t begin = 0, n = 0;
  T *q, *k, *gate, *qp, *kr;      // [kChunk, dk]; qp_t = D(-1,t) q_t, kr_r = D(r,n) k_r
  T *y, *z, *d_q, *d_k, *d_gate;  // [kChunk, dk]
  T* kt;                          // [dk, kChunk]
  T *v, *d_o, *out;               // [kChunk, dv]
  T* vt;                          // [dv, kChunk]
  T *a, *b;                       // [kChunk, kChunk]
  T *state, *d_state;             // [dk, dv]
  T *state_t, *d_state_t;         // [dv, dk]
  T *whole, *x;                   // [dk]: D(-1,n), x_0

  Chunk(const GatedLinearPlan& the_plan, T* memory)
      : plan(the_plan), s(the_plan.shape), dk(the_plan.dk_padded), dv(the_plan.dv_padded) {
    auto take = [&](int64_t size) { return std::exchange(memory, memory + size); };
    for (T** each : {&q, &k, &gate, &qp, &kr, &y, &z, &d_q, &d_k, &d_gate, &kt}) *each = take(kChunk * dk);
    for (T** each : {&v, &d_o, &out, &vt}) *each = take(kChunk * dv);
    for (T** each : {&a, &b}) *each = take(kChunk * kChunk);
    for (T** each : {&state, &d_state, &state_t, &d_state_t}) *each = take(dk * dv);
    for (T** each : {&whole, &x}) *each = take(dk);
  }
  static Band lower() { return {Band::kLower, 1, 1}; }
  static Band lower_transposed() { return {Band::kUpper, 1, 1}; }
};

// n rows of `width` elements, times `scale`, padded with zeros to kChunk rows of `padded`.
template <class T>
void read_rows(const T* from, int64_t stride, int64_t n, int64_t width, T scale, T* to, int64_t padded) {
  for (int64_t t = 0; t < n; ++t, from += stride, to += padded) {
    vector_loop<T>(width, [&](int64_t i, auto m) { store(to + i, scale * load(from + i, m)); });
    const int64_t written = (width + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
    std::fill(to + written, to + padded, T(0));
  }
  std::fill_n(to, (kChunk - n) * padded, T(0));
}
// `add`: to what is there.
template <class T>
void write_rows(const T* from, int64_t padded, int64_t n, int64_t width, T* to, int64_t stride,
                bool add = false) {
  for (int64_t t = 0; t < n; ++t, from += padded, to += stride) {
    if (add)
      vector_loop<T>(width,
                     [&](int64_t i, auto m) { store(to + i, load(to + i, m) + load(from + i, m), m); });
    else
      std::copy_n(from, width, to);
  }
}

// B in vectors over r: the keys as they have decayed by t, one channel after the other.
template <class T>
void pair_products(Chunk<T>& c) {
  constexpr int NV = static_cast<int>(kChunk) / kLanes<T>;
  transpose(c.k, c.dk, kChunk, c.s.dk, c.kt, kChunk);
  const IntVec<T> lanes = lane_numbers<T>();
  Vec<T> sums[kChunk][NV] = {};
  for (int64_t i = 0; i < c.s.dk; ++i) {
    Vec<T> keys[NV], decayed[NV] = {};
    for (int j = 0; j < NV; ++j) keys[j] = load(c.kt + i * kChunk + j * kLanes<T>);
#pragma GCC unroll 16
    for (int t = 0; t < kChunk; ++t) {
      const T g = c.gate[t * c.dk + i], q = c.q[t * c.dk + i];
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) {
        if (j * kLanes < T >> t) continue;
        decayed[j] *= g;
        if (t < (j + 1) * kLanes<T>) decayed[j] = select<T>(lanes == t - j * kLanes<T>, keys[j], decayed[j]);
        sums[t][j] += q * decayed[j];
      }
    }
  }
  for (int t = 0; t < kChunk; ++t)
    for (int j = 0; j < NV; ++j) store(c.b + t * kChunk + j * kLanes<T>, sums[t][j]);
}

// Reads q, k, gates and v of a chunk; makes qp, kr, D(-1,n) and B.
template <class T>
void open_chunk(Chunk<T>& c, const GatedLinearInputs<T>& p, int64_t bh, int64_t index, T q_scale) {
  const GatedLinearShape& s = c.s;
  const GatedLinearHead head(s, bh);
  c.begin = c.plan.begin(index);
  c.n = c.plan.tokens(index);
  read_rows(p.q + head.q(c.begin), s.q_stride, c.n, s.dk, q_scale, c.q, c.dk);
  read_rows(p.k + head.k(c.begin), s.k_stride, c.n, s.dk, T(1), c.k, c.dk);
  read_rows(p.v + head.v(c.begin), s.v_stride, c.n, s.dv, T(1), c.v, c.dv);
  if (s.channel_gates) {
    read_rows(p.gate + head.gate(c.begin), s.gate_stride, c.n, s.dk, T(1), c.gate, c.dk);
  } else {
    for (int64_t t = 0; t < kChunk; ++t)
      std::fill_n(c.gate + t * c.dk, c.dk, t < c.n ? p.gate[head.gate(c.begin + t)] : T(0));
  }
  for (int64_t i = 0; i < c.dk; i += kLanes<T>) {
    Vec<T> product = splat(T(1));
    for (int64_t at = i; at < c.n * c.dk; at += c.dk) {
      product *= load(c.gate + at);
      store(c.qp + at, product * load(c.q + at));
    }
    store(c.whole + i, product);
    product = splat(T(1));
    for (int64_t at = i + (c.n - 1) * c.dk; at >= 0; at -= c.dk) {
      store(c.kr + at, product * load(c.k + at));
      product *= load(c.gate + at);
    }
  }
  pair_products(c);
}

// state <- D(-1,n) state + left^T right, left [n, dk]; without the first term when there is no state.
template <class T>
void advance_state(const Chunk<T>& c, const T* left, const T* right, T* state, bool has_state) {
  if (has_state) {
    for (int64_t i = 0; i < c.s.dk; ++i) {
      const T factor = c.whole[i];
      T* row = state + i * c.dv;
      for (int64_t j = 0; j < c.s.dv; j += kLanes<T>) store(row + j, factor * load(row + j));
    }
  }
  const Term<T> update{left, 1, c.dk, right, c.dv, c.n};
  matrix_sum<T>({c.s.dk, c.s.dv, &update, 1, has_state ? state : nullptr, c.dv, state, c.dv});
}

template <class T>
void forward_head(Chunk<T>& c, const GatedLinearForward<T>& p, int64_t bh) {
  const GatedLinearPlan& plan = c.plan;
  const GatedLinearHead head(c.s, bh);
  bool has_state = p.initial_state != nullptr;
  if (has_state) read_state(c, p.initial_state + bh * plan.state_size(), c.state);
  for (int64_t index = 0; index < plan.chunks && c.s.time > 0; ++index) {
    if (p.saved && index > 0) write_state(c, c.state, p.saved + plan.saved_offset(bh, index));
    open_chunk(c, p, bh, index, p.scale);
    const Term<T> terms[] = {{c.b, kChunk, 1, c.v, c.dv, c.n, Chunk<T>::lower()},
                             {c.qp, c.dk, 1, c.state, c.dv, c.s.dk}};
    matrix_sum<T>({c.n, c.s.dv, terms, has_state ? 2 : 1, nullptr, 0, c.out, c.dv});
    write_rows(c.out, c.dv, c.n, c.s.dv, p.o + head.o(c.begin), c.s.o_stride);
    if (index + 1 == plan.chunks && !p.final_state) return;
    advance_state(c, c.kr, c.v, c.state, has_state);
    has_state = true;
  }
  if (p.final_state) write_state(c, has_state ? c.state : nullptr, p.final_state + bh * plan.state_size());
}

// d_q, d_k and d_gate from A, y^0, Z and x_0, a vector of channels at a time.
template <class T>
void channel_gradients(Chunk<T>& c) {
  const int64_t n = c.n, dk = c.dk;
  for (int64_t i = 0; i < c.s.dk; i += kLanes<T>) {
    Vec<T> q[kChunk], gate[kChunk + 1], y[kChunk], suffix[kChunk];
    for (int64_t t = 0; t < n; ++t) {
      q[t] = load(c.q + t * dk + i);
      gate[t] = load(c.gate + t * dk + i);
      y[t] = load(c.y + t * dk + i);
    }
    gate[n] = splat(T(1));
    Vec<T> product = splat(T(1));
    for (int64_t t = n - 1; t >= 0; --t) {
      suffix[t] = product;
      product *= gate[t];
    }
    Vec<T> x = load(c.x + i);
    for (int64_t t = 0; t < n; ++t) {
      const Vec<T> key = load(c.k + t * dk + i), g = gate[t];
      Vec<T> along{};  // sum over s >= t of D(t,s) q_s y^t_s, by Horner's rule
      for (int64_t s = n - 1; s >= t; --s) {
        along = along * gate[s + 1] + q[s] * y[s];
        y[s] = g * y[s] + c.a[s * kChunk + t] * key;
      }
      store(c.d_q + t * dk + i, y[t]);
      store(c.d_gate + t * dk + i, along + suffix[t] * x);
      const Vec<T> z = load(c.z + t * dk + i);
      x = g * x + key * z;
      Vec<T> d_key = z;
      for (int64_t s = n - 1; s >= t; --s) d_key = d_key * gate[s + 1] + c.a[s * kChunk + t] * q[s];
      store(c.d_k + t * dk + i, d_key);
    }
  }
}

template <class T>
void backward_chunk(Chunk<T>& c, const GatedLinearBackward<T>& p, int64_t bh, int64_t index, bool has_state,
                    bool has_d_state, bool wants_d_state) {
  const GatedLinearShape& s = c.s;
  const GatedLinearHead head(s, bh);
  open_chunk(c, p, bh, index, T(1));
  read_rows(p.d_o + head.o(c.begin), s.o_stride, c.n, s.dv, p.scale, c.d_o, c.dv);

  transpose(c.v, c.dv, kChunk, s.dv, c.vt, kChunk);
  const Term<T> pairs{c.d_o, c.dv, 1, c.vt, kChunk, s.dv};
  matrix_sum<T>({c.n, c.n, &pairs, 1, nullptr, 0, c.a, kChunk, Chunk<T>::lower()});
  if (has_state) {
    transpose(c.state, c.dv, s.dk, s.dv, c.state_t, c.dk);
    const Term<T> term{c.d_o, c.dv, 1, c.state_t, c.dk, s.dv};
    matrix_sum<T>({c.n, s.dk, &term, 1, nullptr, 0, c.y, c.dk});
  } else {
    std::fill_n(c.y, kChunk * c.dk, T(0));
  }
  if (has_d_state) {
    transpose(c.d_state, c.dv, s.dk, s.dv, c.d_state_t, c.dk);
    const Term<T> term{c.v, c.dv, 1, c.d_state_t, c.dk, s.dv};
    matrix_sum<T>({c.n, s.dk, &term, 1, nullptr, 0, c.z, c.dk});
  } else {
    std::fill_n(c.z, kChunk * c.dk, T(0));
  }
  std::fill_n(c.x, c.dk, T(0));
  if (has_state && has_d_state) {
    for (int64_t i = 0; i < s.dk; ++i) {
      Vec<T> along{};
      for (int64_t j = i * c.dv; j < i * c.dv + s.dv; j += kLanes<T>)
        along += load(c.state + j) * load(c.d_state + j);
      c.x[i] = sum<T>(along);
    }
  }
  channel_gradients(c);
  const bool shared = head.head % c.plan.heads_per_group() > 0;  // not the first of its group
  write_rows(c.d_q, c.dk, c.n, s.dk, p.dq + head.q(c.begin), s.q_stride, shared);
  write_rows(c.d_k, c.dk, c.n, s.dk, p.dk + head.k(c.begin), s.k_stride, shared);
  if (s.channel_gates) {
    write_rows(c.d_gate, c.dk, c.n, s.dk, p.dgate + head.gate(c.begin), s.gate_stride);
  } else {
    for (int64_t t = 0; t < c.n; ++t) {
      T total = 0;
      for (int64_t i = 0; i < s.dk; ++i) total += c.d_gate[t * c.dk + i];
      p.dgate[head.gate(c.begin + t)] = total;
    }
  }
  const Term<T> terms[] = {{c.b, 1, kChunk, c.d_o, c.dv, c.n, Chunk<T>::lower_transposed()},
                           {c.kr, c.dk, 1, c.d_state, c.dv, s.dk}};
  matrix_sum<T>({c.n, s.dv, terms, has_d_state ? 2 : 1, nullptr, 0, c.out, c.dv});
  write_rows(c.out, c.dv, c.n, s.dv, p.dv + head.v(c.begin), s.v_stride);
  if (wants_d_state) advance_state(c, c.qp, c.d_o, c.d_state, has_d_state);
}

template <class T>
void backward_head(Chunk<T>& c, const GatedLinearBackward<T>& p, int64_t bh) {
  walk_back(c, p, bh, [&](int64_t index, bool has_state, bool has_d_state, bool wants_d_state) {
    backward_chunk(c, p, bh, index, has_state, has_d_state, wants_d_state);
  });
}

}  // namespace

template <class T>
void gated_linear_chunked_forward(const GatedLinearForward<T>& p, const GatedLinearPlan& plan) {
  parallel_parts(plan.shape.batch * plan.shape.heads, plan.parts,
                 [&](int64_t part, int64_t begin, int64_t end) {
                   Chunk<T> chunk(plan, part_memory(p.workspace, plan, part));
                   for (int64_t bh = begin; bh < end; ++bh) forward_head(chunk, p, bh);
                 });
}

template <class T>
void gated_linear_chunked_backward(const GatedLinearBackward<T>& p, const GatedLinearPlan& plan) {
  const int64_t heads = plan.heads_per_group();
  parallel_parts(plan.shape.batch * plan.shape.groups, plan.parts,
                 [&](int64_t part, int64_t begin, int64_t end) {
                   Chunk<T> chunk(plan, part_memory(p.workspace, plan, part));
                   for (int64_t bh = begin * heads; bh < end * heads; ++bh) backward_head(chunk, p, bh);
                 });
}

template void gated_linear_chunked_forward(const GatedLinearForward<float>&, const GatedLinearPlan&);
template void gated_linear_chunked_forward(const GatedLinearForward<double>&, const GatedLinearPlan&);
template void gated_linear_chunked_backward(const GatedLinearBackward<float>&, const GatedLinearPlan&);
template void gated_linear_chunked_backward(const GatedLinearBackward<double>&, const GatedLinearPlan&);

}  // namespace signet::kernels::SIGNET_ISA
