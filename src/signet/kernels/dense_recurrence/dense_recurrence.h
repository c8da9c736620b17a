// The recurrence with a full matrix per token, the most general linear one:
//
//   H_t = s_t A_t H_{t-1},   H_{-1} = initial_state, the identity when it is null
//   A_t = a_t, or I + a_t with plus_identity
//
// per batch row and head, all matrices n x n. H is for readers of its direction, which no s_t > 0 changes: it
// is 1 but where the largest magnitude in H_{t-1} lies outside [2^-16, 2^16], and there the power of 2 that
// brings it to [1, 2), so that a product of any length neither overflows nor vanishes. Gradients take it for
// a constant. Layouts: a [B,T,heads,n,n] with a stride from token to token; h [B,T,heads,n,n] contiguous;
// states [B,heads,n,n]. Forward overwrites h and final_state (null: not wanted; may be initial_state).
// Backward reads a and the h that forward wrote and overwrites da (strides of a) and d_initial_state (null:
// not wanted). A decoding step is the call with time = 1. Sums run in a fixed order.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

struct DenseRecurrenceShape {
  int64_t batch = 0, time = 0, heads = 0, n = 0;
  int64_t a_stride = 0;  // 0 means contiguous
  bool plus_identity = false;

  constexpr int64_t matrix() const { return n * n; }
  constexpr int64_t token_stride() const { return a_stride ? a_stride : heads * n * n; }
};

// What both passes are given.
template <class T>
struct DenseRecurrenceInputs {
  DenseRecurrenceShape shape;
  const T* a = nullptr;
  const Accumulator<T>* initial_state = nullptr;
  Accumulator<T>* workspace = nullptr;  // [dense_recurrence_workspace_size] scratch
};

template <class T>
struct DenseRecurrenceForward : DenseRecurrenceInputs<T> {
  T* h = nullptr;
  Accumulator<T>* final_state = nullptr;
};

template <class T>
struct DenseRecurrenceBackward : DenseRecurrenceInputs<T> {
  const T* h = nullptr;  // what forward wrote
  const T* d_h = nullptr;
  const Accumulator<T>* d_final_state = nullptr;
  T* da = nullptr;
  Accumulator<T>* d_initial_state = nullptr;
};

int64_t dense_recurrence_workspace_size(const DenseRecurrenceShape& shape, Cpu);
int64_t dense_recurrence_workspace_size(const DenseRecurrenceShape& shape, Cuda);

template <class T>
void dense_recurrence_forward(const DenseRecurrenceForward<T>& p, Cpu);
template <class T>
void dense_recurrence_backward(const DenseRecurrenceBackward<T>& p, Cpu);

// On the GPU: float and bf16, n as large as shared memory allows (three matrices; 136 on a Hopper). States
// and sums are fp32; with bf16 s_t comes from H_{t-1} as h has it.
template <class T>
void dense_recurrence_forward(const DenseRecurrenceForward<T>& p, Cuda);
template <class T>
void dense_recurrence_backward(const DenseRecurrenceBackward<T>& p, Cuda);

void dense_recurrence_forward_reference(const DenseRecurrenceForward<double>& p);
void dense_recurrence_backward_reference(const DenseRecurrenceBackward<double>& p);

}  // namespace signet::kernels
