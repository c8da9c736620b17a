// How the CPU form cuts its work and its memory; the same for every instruction set. Forward saves the state
// before every chunk but the first, saved[B*H, chunks-1, dk, dv]. The batch rows and heads (backward: groups
// of heads, whose gradients of q and k are summed in order) are shared among `parts` ranges
// (base/thread_pool.h), each with `part_size` elements of the workspace.
#pragma once

#include "signet/kernels/gated_linear/gated_linear.h"
#include "signet/kernels/workspace.h"

namespace signet::kernels {

struct GatedLinearPlan {
  // Tokens per chunk. Work on pairs of tokens grows with it, work on the state does not; 16 keeps the pairs
  // of one token in one vector.
  static constexpr int64_t kChunk = 16;
  GatedLinearShape shape;  // strides filled in
  int64_t chunks = 1;
  int64_t dk_padded = 0, dv_padded = 0;  // whole vectors of every instruction set
  int64_t parts = 1, part_size = 0;

  int64_t begin(int64_t chunk) const { return chunk * kChunk; }
  int64_t tokens(int64_t chunk) const {
    const int64_t left = shape.time - begin(chunk);
    return left < kChunk ? left : kChunk;
  }
  int64_t state_size() const { return shape.dk * shape.dv; }
  int64_t heads_per_group() const { return shape.groups > 0 ? shape.heads / shape.groups : 1; }
  // The state before `chunk` >= 1 of batch row and head bh, in `saved`.
  int64_t saved_offset(int64_t bh, int64_t chunk) const {
    return (bh * (chunks - 1) + chunk - 1) * state_size();
  }
};

GatedLinearPlan gated_linear_plan(const GatedLinearShape& shape);

// Where one batch row and head find token t.
struct GatedLinearHead {
  const GatedLinearShape& s;
  int64_t row, head, group;  // first token's row, head, whose queries and keys it reads
  GatedLinearHead(const GatedLinearShape& shape, int64_t bh)
      : s(shape),
        row(bh / shape.heads * shape.time),
        head(bh % shape.heads),
        group(head * shape.groups / shape.heads) {}
  int64_t q(int64_t t) const { return (row + t) * s.q_stride + group * s.dk; }
  int64_t k(int64_t t) const { return (row + t) * s.k_stride + group * s.dk; }
  int64_t v(int64_t t) const { return (row + t) * s.v_stride + head * s.dv; }
  int64_t o(int64_t t) const { return (row + t) * s.o_stride + head * s.dv; }
  int64_t gate(int64_t t) const { return (row + t) * s.gate_stride + head * (s.channel_gates ? s.dk : 1); }
};

}  // namespace signet::kernels
