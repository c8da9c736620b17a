// The recurrence with gates P D: a matrix P with one 1 in every column, chosen per token, times a diagonal
// (PD-SSM, Terzic et al., 2025, arXiv 2509.22284; here with a real diagonal). Per batch row and head, for
// sources j and targets i:
//
//   d_j = sigmoid(gate_j)  (range [0,1])   or   tanh(gate_j)  (range [-1,1])
//   P[i,j] = 1 where i = argmax_i choice[j,i], the first of equals   (hard)
//   or      softmax_i choice[j,i]                                    (soft)
//   h_t = P_t (d_t h_{t-1}) + b_t
//
// Layouts: choice [B,T,heads,n,n] (source, target), gate, b [B,T,heads,n] with strides from token to token; h
// [B,T,heads,n] contiguous; states [B,heads,n]. Forward overwrites h and final_state (null: not wanted; may
// be initial_state); a null initial_state is zero. Backward overwrites d_choice, d_gate, db and
// d_initial_state (null: not wanted). The gradient of a hard choice is straight-through: that of P as it is,
// passed on through the softmax. A decoding step is the call with time = 1. Sums run in a fixed order.
#pragma once

#include <cstdint>

#include "signet/base/eigenvalues.h"
#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

struct PdScanShape {
  int64_t batch = 0, time = 0, heads = 0, width = 0;
  bool hard = true;
  EigenvalueRange range = EigenvalueRange::kSigned;
  int64_t choice_stride = 0, gate_stride = 0, b_stride = 0;  // 0 means contiguous
};

inline PdScanShape with_strides(PdScanShape s) {
  if (s.choice_stride == 0) s.choice_stride = s.heads * s.width * s.width;
  for (int64_t* stride : {&s.gate_stride, &s.b_stride})
    if (*stride == 0) *stride = s.heads * s.width;
  return s;
}

// What both passes are given.
template <class T>
struct PdScanInputs {
  PdScanShape shape;
  const T* choice = nullptr;
  const T* gate = nullptr;
  const Accumulator<T>* initial_state = nullptr;
  Accumulator<T>* workspace = nullptr;  // [pd_scan_workspace_size] scratch
};

template <class T>
struct PdScanForward : PdScanInputs<T> {
  const T* b = nullptr;
  T* h = nullptr;
  Accumulator<T>* final_state = nullptr;
};

template <class T>
struct PdScanBackward : PdScanInputs<T> {
  const T* h = nullptr;  // what forward wrote
  const T* d_h = nullptr;
  const Accumulator<T>* d_final_state = nullptr;
  T* d_choice = nullptr;  // strides of the gradients are those of the inputs
  T* d_gate = nullptr;
  T* db = nullptr;
  Accumulator<T>* d_initial_state = nullptr;
};

int64_t pd_scan_workspace_size(const PdScanShape& shape, Cpu);
int64_t pd_scan_workspace_size(const PdScanShape& shape, Cuda);

template <class T>
void pd_scan_forward(const PdScanForward<T>& p, Cpu);
template <class T>
void pd_scan_backward(const PdScanBackward<T>& p, Cpu);

// On the GPU: float and bf16, states and sums in fp32, n as large as shared memory allows (n^2 + 2n floats;
// 238 on a Hopper).
template <class T>
void pd_scan_forward(const PdScanForward<T>& p, Cuda);
template <class T>
void pd_scan_backward(const PdScanBackward<T>& p, Cuda);

void pd_scan_forward_reference(const PdScanForward<double>& p);
void pd_scan_backward_reference(const PdScanBackward<double>& p);

}  // namespace signet::kernels
