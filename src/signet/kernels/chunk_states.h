// What the chunked recurrences share: a state [dk, dv] is read into rows padded to c.dv and written from
// them, and the chunks of a sequence and head are walked from the last to the first with the state before
// each and its gradient. A Chunk has the plan, its shape s, c.dv, and memory for state and d_state. Include
// after isa_target.h.
#pragma once

#ifndef SIGNET_ISA
#error "include signet/base/isa_target.h before signet/kernels/chunk_states.h"
#endif

namespace signet::kernels::SIGNET_ISA {

template <class Chunk, class T>
void read_state(const Chunk& c, const T* from, T* to) {
  for (int64_t i = 0; i < c.s.dk; ++i) {
    std::copy_n(from + i * c.s.dv, c.s.dv, to + i * c.dv);
    std::fill(to + i * c.dv + c.s.dv, to + (i + 1) * c.dv, T(0));
  }
}
// Null `from`: the zero state.
template <class Chunk, class T>
void write_state(const Chunk& c, const T* from, T* to) {
  for (int64_t i = 0; i < c.s.dk; ++i) {
    if (from) {
      std::copy_n(from + i * c.dv, c.s.dv, to + i * c.s.dv);
    } else {
      std::fill_n(to + i * c.s.dv, c.s.dv, T(0));
    }
  }
}

// backward_chunk(index, has_state, has_d_state, wants_d_state) finds the state before the chunk in c.state
// and the gradient of the one behind it in c.d_state, where there are such, and leaves the gradient of the
// first in the place of the second where it is wanted. Params are those of a backward pass.
template <class Chunk, class Params, class Step>
void walk_back(Chunk& c, const Params& p, int64_t bh, const Step& backward_chunk) {
  const auto& plan = c.plan;
  const int64_t offset = bh * plan.state_size();
  bool has_d_state = p.d_final_state != nullptr;
  if (has_d_state) read_state(c, p.d_final_state + offset, c.d_state);
  for (int64_t index = plan.chunks - 1; index >= 0 && c.s.time > 0; --index) {
    const bool has_state = index > 0 || p.initial_state, wants_d_state = index > 0 || p.d_initial_state;
    if (has_state)
      read_state(c, index > 0 ? p.saved + plan.saved_offset(bh, index) : p.initial_state + offset, c.state);
    backward_chunk(index, has_state, has_d_state, wants_d_state);
    has_d_state = wants_d_state;
  }
  if (!p.d_initial_state) return;
  write_state(c, has_d_state ? c.d_state : nullptr, p.d_initial_state + offset);
}

}  // namespace signet::kernels::SIGNET_ISA
