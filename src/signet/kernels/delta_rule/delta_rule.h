// The delta rule with n_h >= 1 generalized Householder factors per token:
//
//   S <- Diag(g) S                                                     once per token, when there is a gate
//   for j = 0 .. n_h-1:   S <- (I - beta_j k_j k_j^T) S + beta_j k_j v_j^T
//   o = scale * S^T q                                        S is [dk, dv], one per batch row and head
//
// beta in [0, 2] gives eigenvalues 1 - beta |k|^2 in [-1, 1] for unit keys. Keys are used as given (but see
// unit_keys): normalise them before, or leave exact integer keys alone. n_h = 1 is DeltaNet; n_h > 1 is
// DeltaProduct, with q and o touched once per token.
//
// The gate is optional (Gated DeltaNet: one number per head; KDA: one per channel of dk): decay first, then
// the delta rule on what is left. Any sign and exact zeros are ordinary values; g in [-1, 1] keeps
// eigenvalues there.
//
// Layouts (row = b * T + t, strides in elements from one token to the next):
//   q [B,T,H,dk]          k [B,T,n_h,H,dk]      v [B,T,n_h,H,dv]      beta [B,T,n_h,H]
//   o [B,T,H,dv]          gate [B,T,H,gate_channels]                  states [B,H,dk,dv], contiguous
// Within a token the factor and head dimensions are contiguous. All sequences start at `initial_state` (null:
// zero). Forward overwrites o and final_state (null: not wanted). Backward overwrites every gradient.
// `d_final_state` and `d_initial_state` may be null, and must be where forward had no state of either kind.
// Sums, states, beta and gate are in Accumulator<T>: fp32 for bf16 storage.
//
// Packed sequences (offsets): `batch` sequences of any lengths lie one after the other in `time` tokens, the
// only row; sequence b has tokens offsets[b] .. offsets[b + 1] - 1 and states of its own, [batch,H,dk,dv].
//
// saved and workspace sizes are asked with the thread count that the call will see (base/thread_pool.h).
//
// Two algorithms give the same function: recurrent (one token after the other; exact integer arithmetic stays
// exact) and chunked (UT/WY transform, forward substitution, matrix products; on the CPU not with a gate
// per channel, which is always recurrent there). kAuto takes the faster one for the sizes.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

enum class DeltaRuleAlgorithm { kAuto, kRecurrent, kChunked };

struct DeltaRuleShape {
  int64_t batch = 0, time = 0, heads = 1, dk = 0, dv = 0, factors = 1;
  // Elements from token to token; 0 means contiguous.
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, beta_stride = 0, o_stride = 0;
  int64_t gate_channels = 0;  // 0: no gate, 1: one per head, dk: one per channel
  int64_t gate_stride = 0;
  bool gated() const { return gate_channels > 0; }
  // Keys are unit vectors but for the rounding of their storage: beta / |k|^2, with the key as stored, takes
  // the place of beta, so that beta = 2 stays a reflection. Keys with |k|^2 outside (0.9, 1.1) are no such
  // vectors and are used as given. Gradients take |k| for a constant.
  bool unit_keys = false;
  // beta |k|^2 may exceed 2, so that the state grows: backward in fp32 on the GPU walks it from the first
  // token on once more. Otherwise it walks it back beside its gradient, which magnifies rounding as a state
  // shrinks.
  bool growing = false;
  // Null, or [batch + 1] in the memory of the device that runs: 0 = offsets[0] <= .. <= offsets[batch] =
  // time. Sizes of buffers do not depend on the lengths.
  const int32_t* offsets = nullptr;
  int64_t longest = 0;  // with offsets: no sequence has more tokens; 0: not known
  int64_t rows() const { return offsets ? time : batch * time; }
  // Of sequence b, where `offsets` can be read.
  int64_t first_row(int64_t b) const { return offsets ? offsets[b] : b * time; }
  int64_t length(int64_t b) const { return offsets ? offsets[b + 1] - offsets[b] : time; }
};

// What unit_keys multiplies beta by, from |k|^2.
template <class T>
constexpr T unit_key_factor(T square) {
  return square > T(0.9) && square < T(1.1) ? T(1) / square : T(1);
}

// The shape with every stride given.
inline DeltaRuleShape with_strides(DeltaRuleShape s) {
  if (s.q_stride == 0) s.q_stride = s.heads * s.dk;
  if (s.k_stride == 0) s.k_stride = s.factors * s.heads * s.dk;
  if (s.v_stride == 0) s.v_stride = s.factors * s.heads * s.dv;
  if (s.beta_stride == 0) s.beta_stride = s.factors * s.heads;
  if (s.o_stride == 0) s.o_stride = s.heads * s.dv;
  if (s.gate_stride == 0) s.gate_stride = s.heads * s.gate_channels;
  return s;
}

// What both passes are given.
template <class T>
struct DeltaRuleInputs {
  DeltaRuleShape shape;
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  const Accumulator<T>* beta = nullptr;
  const Accumulator<T>* gate = nullptr;
  const Accumulator<T>* initial_state = nullptr;
  Accumulator<T> scale = 1;
  DeltaRuleAlgorithm algorithm = DeltaRuleAlgorithm::kAuto;
  // Of all rows of sequence b just read[b] of o is used (null: all of them): forward may leave the others as
  // they are, and d_o is zero there.
  const int32_t* read = nullptr;
  Accumulator<T>* workspace = nullptr;  // [delta_rule_workspace_size] scratch
};

template <class T>
struct DeltaRuleForward : DeltaRuleInputs<T> {
  T* o = nullptr;
  Accumulator<T>* final_state = nullptr;  // may be initial_state where no backward follows
  Accumulator<T>* saved = nullptr;        // [delta_rule_saved_size] for backward; null where none follows
};

template <class T>
struct DeltaRuleBackward : DeltaRuleInputs<T> {
  const Accumulator<T>* saved = nullptr;
  const T* d_o = nullptr;  // strides of the gradients are those of the inputs
  const Accumulator<T>* d_final_state = nullptr;
  T* dq = nullptr;
  T* dk = nullptr;
  T* dv = nullptr;
  Accumulator<T>* dbeta = nullptr;
  Accumulator<T>* dgate = nullptr;
  Accumulator<T>* d_initial_state = nullptr;
};

// Elements of T that forward saves for backward, and scratch that either pass needs (the larger of the two).
template <class T>
int64_t delta_rule_saved_size(const DeltaRuleShape& shape, DeltaRuleAlgorithm algorithm, Cpu);
template <class T>
int64_t delta_rule_workspace_size(const DeltaRuleShape& shape, DeltaRuleAlgorithm algorithm, Cpu);

template <class T>
void delta_rule_forward(const DeltaRuleForward<T>& p, Cpu);
template <class T>
void delta_rule_backward(const DeltaRuleBackward<T>& p, Cpu);

// CUDA (T = float, bf16), built when SIGNET_WITH_CUDA is set. Every pointer is on the device, and what these
// sizes say holds for both passes of the same shape and algorithm. Counted in Accumulator<T>.
template <class T>
int64_t delta_rule_saved_size(const DeltaRuleShape& shape, DeltaRuleAlgorithm algorithm, Cuda);
template <class T>
int64_t delta_rule_workspace_size(const DeltaRuleShape& shape, DeltaRuleAlgorithm algorithm, Cuda);
template <class T>
void delta_rule_forward(const DeltaRuleForward<T>& p, Cuda);
template <class T>
void delta_rule_backward(const DeltaRuleBackward<T>& p, Cuda);

// Whether o may take the place of v, of one factor and in the same rows: forward writes rows of o behind
// those of v that it still needs, and backward reads no v.
template <class T>
bool delta_rule_in_place_covers(const DeltaRuleShape& shape, DeltaRuleAlgorithm algorithm, Cuda);

void delta_rule_forward_reference(const DeltaRuleForward<double>& p);
void delta_rule_backward_reference(const DeltaRuleBackward<double>& p);

}  // namespace signet::kernels
