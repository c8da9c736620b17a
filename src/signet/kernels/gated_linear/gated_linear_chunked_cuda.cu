// When and how the chunked kernels run (gated_linear_chunks.cuh).
//
// saved: the state before every chunk in bf16, tile by tile. workspace: the gradient behind every chunk
// likewise, and partial sums of the gates' gradients; forward keeps its states there when none are saved.
#include "signet/kernels/gated_linear/gated_linear_chunks.cuh"

namespace signet::kernels::gated_linear {
namespace {

int64_t states_size(const Problem<bf16>& p) {
  return chunk_places(p) * p.heads * state_tiles(p) * kTileSize / 2;
}

void outputs(const Problem<bf16>& p, const ChunkPass& pass, bool reverse, cudaStream_t stream) {
  if (!reverse && walk_outputs_apply(p)) return walk_outputs(p, pass, stream);
  head_outputs_apply(p) ? head_outputs(p, pass, reverse, stream) : chunk_outputs(p, pass, reverse, stream);
}

void check_alignment(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers)
    if (reinterpret_cast<uintptr_t>(pointer) % 16 != 0)
      fail(ErrorCode::kUsage,
           "the chunked gated linear recurrence needs pointers that are multiples of 16 bytes; ask for the "
           "recurrent algorithm");
}

}  // namespace

bool chunks_cover(const GatedLinearShape& shape) {
  const GatedLinearShape s = with_strides(shape);
  for (int64_t size : {s.q_stride, s.k_stride, s.v_stride, s.o_stride, s.dk, s.dv})
    if (size % 8 != 0) return false;
  if (s.channel_gates && s.gate_stride % 4 != 0) return false;
  if (s.dk < kTile || s.dv < kTile || s.time == 0) return false;
  if (s.heads * s.rows() > int64_t{1} << 30) return false;
  return fits_shared_memory(static_cast<size_t>(std::max(
      output_shared_bytes(static_cast<int>(s.dk), s.channel_gates), gradient_shared_bytes(s.channel_gates))));
}

bool chunks_sum_heads(const Problem<bf16>& p) { return walk_gradients_apply(p) || head_walk_applies(p); }
int64_t chunk_saved_size(const Problem<bf16>& p) { return states_size(p); }
int64_t chunk_workspace_size(const Problem<bf16>& p) {
  return states_size(p) + (p.channel_gates ? 0 : wide_tiles(p.dk) * p.rows() * p.heads);
}

void chunk_forward(const Problem<bf16>& p, cudaStream_t stream) {
  check_alignment({p.q, p.k, p.v, p.o, p.channel_gates ? p.gate : nullptr, p.saved, p.workspace});
  ChunkPass pass{};
  pass.scale = p.scale, pass.states = reinterpret_cast<Half*>(p.saved ? p.saved : p.workspace);
  pass.left = p.k, pass.left_stride = p.k_stride, pass.right = p.v, pass.right_stride = p.v_stride;
  pass.begin = p.initial_state, pass.end = p.final_state;
  chunk_states(p, pass, false, stream);
  pass.left = p.q, pass.left_stride = p.q_stride, pass.pair = p.k, pass.pair_stride = p.k_stride;
  pass.out = p.o, pass.out_stride = p.o_stride;
  outputs(p, pass, false, stream);
}

void chunk_backward(const Problem<bf16>& p, cudaStream_t stream) {
  check_alignment({p.q, p.k, p.v, p.d_o, p.dq, p.dk_out, p.dv_out, p.channel_gates ? p.gate : nullptr,
                   p.saved, p.workspace});
  ChunkPass pass{};
  pass.scale = p.scale, pass.states = reinterpret_cast<Half*>(p.workspace);
  pass.left = p.q, pass.left_stride = p.q_stride, pass.right = p.d_o, pass.right_stride = p.o_stride;
  pass.begin = p.d_final_state, pass.end = p.d_initial_state;
  chunk_states(p, pass, true, stream);
  const Half* const states = reinterpret_cast<const Half*>(p.saved);
  if (walk_gradients_apply(p)) return walk_gradients(p, states, pass.states, stream);
  if (head_walk_applies(p)) return head_walk(p, states, pass.states, stream);
  if (head_backward_applies(p)) return head_backward(p, states, pass.states, stream);
  pass.left = p.k, pass.left_stride = p.k_stride, pass.pair = p.q, pass.pair_stride = p.q_stride;
  pass.out = p.dv_out, pass.out_stride = p.v_stride;
  outputs(p, pass, true, stream);
  if (head_gradients_apply(p)) return head_gradients(p, states, pass.states, stream);
  chunk_gradients(p, states, pass.states, p.workspace + states_size(p), stream);
}

}  // namespace signet::kernels::gated_linear
