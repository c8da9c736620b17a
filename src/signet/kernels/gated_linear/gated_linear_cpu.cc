// Entries, and the form that takes one token after the other: columns of S do not mix, so a panel of columns
// [dk, W] stays in L1 through the whole sequence and is read and written once per token.
#include <algorithm>

#include "signet/base/thread_pool.h"
#include "signet/kernels/gated_linear/gated_linear_plan.h"

#include "signet/base/isa_target.h"

#include "signet/base/simd.h"
#include "signet/kernels/columns.h"
#include "signet/kernels/gated_linear/gated_linear_cpu.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

// S_i <- g_i S_i + k_i v for every row, and the sum of q_i S_i. gate_step is 0 for one gate per head.
template <class T, int NV>
SIGNET_INLINE Columns<T, NV> step(T* state, const T* q, const T* k, const T* gate, int64_t gate_step,
                                  const Columns<T, NV>& v, int64_t dk) {
  constexpr int64_t kWidth = NV * kLanes<T>;
  Columns<T, NV> sums[kRows] = {};
  auto row = [&](int64_t i, int r) __attribute__((always_inline)) {
    const T g = gate[i * gate_step];
#pragma GCC unroll 4
    for (int c = 0; c < NV; ++c) {
      T* at = state + i * kWidth + c * kLanes<T>;
      const Vec<T> s = g * load(at) + k[i] * v.v[c];
      store(at, s);
      sums[r].v[c] += q[i] * s;
    }
  };
  for_rows(dk, row);
  return total(sums);
}

// Columns [first, first + count) of one batch row and head; count <= NV vectors.
template <class T, int NV>
void forward_panel(const GatedLinearForward<T>& p, const GatedLinearPlan& plan, int64_t bh, int64_t first,
                   int64_t count, T* state) {
  const GatedLinearShape& s = plan.shape;
  const GatedLinearHead head(s, bh);
  const int64_t state_offset = bh * plan.state_size() + first;
  read_panel<T, NV>(p.initial_state ? p.initial_state + state_offset : nullptr, s.dk, s.dv, count, state);
  auto write_state = [&](T* to) { write_panel<T, NV>(state, s.dk, s.dv, count, to); };
  for (int64_t t = 0; t < s.time; ++t) {
    if (p.saved && t > 0 && t % GatedLinearPlan::kChunk == 0)
      write_state(p.saved + plan.saved_offset(bh, t / GatedLinearPlan::kChunk) + first);
    const auto v = load_columns<T, NV>(p.v + head.v(t) + first, count);
    Columns<T, NV> o = step<T, NV>(state, p.q + head.q(t), p.k + head.k(t), p.gate + head.gate(t),
                                   s.channel_gates ? 1 : 0, v, s.dk);
    for (auto& each : o.v) each *= p.scale;
    store_columns<T, NV>(p.o + head.o(t) + first, o, count);
  }
  if (p.final_state) write_state(p.final_state + state_offset);
}

}  // namespace

template <class T>
void gated_linear_recurrent_forward(const GatedLinearForward<T>& p, const GatedLinearPlan& plan) {
  const GatedLinearShape& s = plan.shape;
  parallel_parts(s.batch * s.heads, plan.parts, [&](int64_t part, int64_t begin, int64_t end) {
    T* state = part_memory(p.workspace, plan, part);
    for (int64_t bh = begin; bh < end; ++bh) {
      int64_t first = 0;
      for (; s.dv - first > kLanes<T>; first += 2 * kLanes<T>)
        forward_panel<T, 2>(p, plan, bh, first, std::min<int64_t>(2 * kLanes<T>, s.dv - first), state);
      if (first < s.dv) forward_panel<T, 1>(p, plan, bh, first, s.dv - first, state);
    }
  });
}

template <class T>
void gated_linear_forward(const GatedLinearForward<T>& p) {
  constexpr int64_t kFewTokens = 8;
  const GatedLinearPlan plan = gated_linear_plan(p.shape);
  const bool chunked = p.algorithm == GatedLinearAlgorithm::kChunked ||
                       (p.algorithm == GatedLinearAlgorithm::kAuto && p.shape.time >= kFewTokens);
  return chunked ? gated_linear_chunked_forward(p, plan) : gated_linear_recurrent_forward(p, plan);
}

template <class T>
void gated_linear_backward(const GatedLinearBackward<T>& p) {
  return gated_linear_chunked_backward(p, gated_linear_plan(p.shape));
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(gated_linear_forward, GatedLinearForward)
SIGNET_ISA_DISPATCH(gated_linear_backward, GatedLinearBackward)
