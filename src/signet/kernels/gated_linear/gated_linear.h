// Linear attention with a diagonal gate (GLA, Mamba-2, mLSTM), per batch row and head with S [dk, dv]:
//
//   S_t = Diag(g_t) S_{t-1} + k_t v_t^T          o_t = scale * S_t^T q_t
//
// Gates lie in [-1, 1], signs and zeros included: one per head, or one per channel of dk. They are given as
// they are, not as logarithms. g = 0 is an exact reset and g = -1 an exact change of sign.
//
// Heads may share queries and keys (Mamba-2's C and B): with G groups head h reads those of group h / (H /
// G), and their gradients are the sums over the heads of a group, in order.
//
// Layouts (strides in elements from one token to the next; within a token heads are contiguous):
//   q, k [B,T,G,dk]   v, o [B,T,H,dv]   gate [B,T,H] or [B,T,H,dk]   states [B,H,dk,dv], contiguous
// All sequences start at `initial_state` (null: zero). Forward overwrites o and final_state (null: not
// wanted), which may be the memory of initial_state. Backward overwrites every gradient; `d_final_state` and
// `d_initial_state` may be null. Sums, states and gates are in Accumulator<T>: fp32 for bf16 storage.
//
// No form takes logarithms or divides by a gate. Chunked forms use products of gates from one token of a
// chunk to another, which carry the sign, are at most 1 in magnitude and become exactly 0 behind a reset
// (docs/kernels/gated_linear.md).
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

// Recurrent: one token after the other. Chunked: matrix products over a few tokens. The same function.
enum class GatedLinearAlgorithm { kAuto, kRecurrent, kChunked };

struct GatedLinearShape {
  int64_t batch = 0, time = 0, heads = 1, dk = 0, dv = 0;
  bool channel_gates = false;  // one gate per channel of dk; else one per head
  int64_t groups = 0;          // of heads that share q and k, a divisor of heads; 0: every head has its own
  // Elements from token to token; 0 means contiguous.
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, gate_stride = 0, o_stride = 0;

  // GPU only: the rows of sequence b are [offsets[b], offsets[b + 1]) of packed_rows instead, at most `time`;
  // each has a state of its own. The offsets lie in device memory.
  const int32_t* offsets = nullptr;
  int64_t packed_rows = 0;

  int64_t rows() const { return offsets ? packed_rows : batch * time; }
  int64_t gates() const { return channel_gates ? heads * dk : heads; }  // per token
  int64_t key_width() const { return (groups > 0 ? groups : heads) * dk; }
};

// The shape with groups and every stride given.
inline GatedLinearShape with_strides(GatedLinearShape s) {
  if (s.groups == 0) s.groups = s.heads;
  if (s.q_stride == 0) s.q_stride = s.key_width();
  if (s.k_stride == 0) s.k_stride = s.key_width();
  if (s.v_stride == 0) s.v_stride = s.heads * s.dv;
  if (s.gate_stride == 0) s.gate_stride = s.gates();
  if (s.o_stride == 0) s.o_stride = s.heads * s.dv;
  return s;
}

// What both passes are given.
template <class T>
struct GatedLinearInputs {
  GatedLinearShape shape;
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  const Accumulator<T>* gate = nullptr;
  const Accumulator<T>* initial_state = nullptr;
  Accumulator<T> scale = 1;
  GatedLinearAlgorithm algorithm = GatedLinearAlgorithm::kAuto;
  Accumulator<T>* workspace = nullptr;  // [gated_linear_workspace_size] scratch
};

template <class T>
struct GatedLinearForward : GatedLinearInputs<T> {
  T* o = nullptr;
  Accumulator<T>* final_state = nullptr;
  Accumulator<T>* saved = nullptr;  // [gated_linear_saved_size] for backward; null where none follows
};

template <class T>
struct GatedLinearBackward : GatedLinearInputs<T> {
  const Accumulator<T>* saved = nullptr;
  const T* d_o = nullptr;  // strides of the gradients are those of the inputs
  const Accumulator<T>* d_final_state = nullptr;
  T* dq = nullptr;
  T* dk = nullptr;
  T* dv = nullptr;
  Accumulator<T>* dgate = nullptr;
  Accumulator<T>* d_initial_state = nullptr;
};

// Asked with the thread count that the call will see (base/thread_pool.h); the same for both passes.
template <class T>
int64_t gated_linear_saved_size(const GatedLinearShape& shape, GatedLinearAlgorithm algorithm, Cpu);
template <class T>
int64_t gated_linear_workspace_size(const GatedLinearShape& shape, GatedLinearAlgorithm algorithm, Cpu);

template <class T>
void gated_linear_forward(const GatedLinearForward<T>& p, Cpu);
template <class T>
void gated_linear_backward(const GatedLinearBackward<T>& p, Cpu);

// CUDA (T = float, bf16): sizes in Accumulator<T>, every pointer on the device.
template <class T>
int64_t gated_linear_saved_size(const GatedLinearShape& shape, GatedLinearAlgorithm algorithm, Cuda);
template <class T>
int64_t gated_linear_workspace_size(const GatedLinearShape& shape, GatedLinearAlgorithm algorithm, Cuda);
template <class T>
void gated_linear_forward(const GatedLinearForward<T>& p, Cuda);
template <class T>
void gated_linear_backward(const GatedLinearBackward<T>& p, Cuda);

void gated_linear_forward_reference(const GatedLinearForward<double>& p);
void gated_linear_backward_reference(const GatedLinearBackward<double>& p);

}  // namespace signet::kernels
