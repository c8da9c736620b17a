// How the CPU delta rule cuts its work and its memory; the same for every instruction set.
//
// Both algorithms save the state before every chunk but the first, saved[B*H, chunks-1, dk, dv], so that
// either backward can follow either forward; a sequence of one chunk saves nothing. Packed sequences have
// saved[H, places, dk, dv] with time / chunk_tokens places, sequence b's from offsets[b] / chunk_tokens on: a
// chunk but the first has chunk_tokens tokens before it for itself. The batch rows and heads are shared among
// `parts` ranges (base/thread_pool.h), each with `part_size` elements of the workspace.
#pragma once

#include "signet/kernels/delta_rule/delta_rule.h"
#include "signet/kernels/workspace.h"

namespace signet::kernels {

struct DeltaRulePlan {
  DeltaRuleShape shape;  // strides filled in
  int64_t chunk_tokens = 0, chunks = 0;
  // Rounded up to whole vectors of every instruction set; steps_padded is that of most_steps().
  int64_t dk_padded = 0, dv_padded = 0, steps_padded = 0;
  int64_t parts = 1, part_size = 0;
  int64_t places = 0;  // per head, of packed sequences

  // The plan of one sequence and head alone: its time and chunks.
  DeltaRulePlan of(int64_t bh) const {
    DeltaRulePlan one = *this;
    one.shape.time = shape.length(bh / shape.heads);
    one.chunks = chunks_of(one.shape.time);
    return one;
  }
  int64_t chunks_of(int64_t time) const {
    return time > chunk_tokens ? (time + chunk_tokens - 1) / chunk_tokens : 1;
  }
  int64_t most_tokens() const { return chunk_tokens < shape.time ? chunk_tokens : shape.time; }
  int64_t most_steps() const { return most_tokens() * shape.factors; }  // of the longest chunk
  int64_t chunk_begin(int64_t chunk) const { return chunk * chunk_tokens; }
  int64_t chunk_end(int64_t chunk) const {
    return chunk + 1 == chunks ? shape.time : (chunk + 1) * chunk_tokens;
  }
  int64_t state_size() const { return shape.dk * shape.dv; }
  // The state before `chunk` >= 1 of batch row and head bh, in `saved`.
  int64_t saved_offset(int64_t bh, int64_t chunk) const {
    const int64_t b = bh / shape.heads, h = bh % shape.heads;
    const int64_t first = shape.offsets ? h * places + shape.offsets[b] / chunk_tokens : bh * (chunks - 1);
    return (first + chunk - 1) * state_size();
  }
};

DeltaRulePlan delta_rule_plan(const DeltaRuleShape& shape, DeltaRuleAlgorithm algorithm);

// Throws unless the offsets of packed sequences go from 0 to `time` and never back.
void check_offsets(const DeltaRuleShape& shape);

// What beta is multiplied by: 1, or 1 / |k|^2.
template <class T>
T beta_factor(const DeltaRuleShape& s, const T* k) {
  if (!s.unit_keys) return T(1);
  T square = 0;
  for (int64_t i = 0; i < s.dk; ++i) square += k[i] * k[i];
  return unit_key_factor(square);
}

// Where one batch row and head find their data.
struct DeltaRuleHead {
  const DeltaRuleShape& s;
  int64_t row, head;  // first token's row, head
  DeltaRuleHead(const DeltaRuleShape& shape, int64_t bh)
      : s(shape), row(shape.first_row(bh / shape.heads)), head(bh % shape.heads) {}
  int64_t q(int64_t t) const { return (row + t) * s.q_stride + head * s.dk; }
  int64_t o(int64_t t) const { return (row + t) * s.o_stride + head * s.dv; }
  // Of factor j of token t.
  int64_t k(int64_t t, int64_t j) const { return (row + t) * s.k_stride + (j * s.heads + head) * s.dk; }
  int64_t v(int64_t t, int64_t j) const { return (row + t) * s.v_stride + (j * s.heads + head) * s.dv; }
  int64_t beta(int64_t t, int64_t j) const { return (row + t) * s.beta_stride + j * s.heads + head; }
  int64_t gate(int64_t t) const { return (row + t) * s.gate_stride + head * s.gate_channels; }
};

}  // namespace signet::kernels
