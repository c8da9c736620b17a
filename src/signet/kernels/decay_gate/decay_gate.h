// Gates of diagonal recurrences from a raw projection x, per column:
//
//   delta = softplus(+-(x + bias))       log a = -max(0, delta rate - margin)
//   gate = a ([0,1])  or  2a - 1 ([-1,1])
//
// kStep takes + and a learned rate = exp(rate_log): Mamba-2's step size and decay. kSigmoid takes - and a
// constant rate: a = sigmoid(x + bias)^rate, GLA's gate with rate = 1 / tau and the forget gate of mLSTM with
// rate = 1. In fp32 gates reach 1 exactly for delta rate < 2^-25 and -1 for delta rate > 18.1.
//
// A margin makes every decay 1 exactly that would lie within it. Such a gate is neither dead nor drifting: a
// gradient whose descent lowers the gate passes as if there were no margin, one that would raise it further
// is dropped. The gradient of delta itself always passes.
//
// x, gate, delta [rows, width] with row strides; bias, rate_log [width] or null. Backward recomputes from x,
// overwrites dx and adds to dbias and drate_log.
#pragma once

#include <cstdint>

#include "signet/base/eigenvalues.h"
#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

enum class DecayKind { kSigmoid, kStep };

struct DecayGateShape {
  DecayKind kind = DecayKind::kSigmoid;
  EigenvalueRange range = EigenvalueRange::kPositive;
  int64_t rows = 0, width = 0;
  int64_t x_stride = 0;     // of x and dx
  int64_t gate_stride = 0;  // of gate, delta and their gradients
  double margin = 0;
};

// What both passes are given.
template <class T>
struct DecayGateInputs {
  DecayGateShape shape;
  const T* x = nullptr;
  const Accumulator<T>* bias = nullptr;
  const Accumulator<T>* rate_log = nullptr;  // null: the constant `rate`
  Accumulator<T> rate = 1;
};

template <class T>
struct DecayGateForward : DecayGateInputs<T> {
  Accumulator<T>* gate = nullptr;
  Accumulator<T>* delta = nullptr;  // null: not wanted
};

template <class T>
struct DecayGateBackward : DecayGateInputs<T> {
  const Accumulator<T>* dgate = nullptr;
  const Accumulator<T>* ddelta = nullptr;  // null: zero
  T* dx = nullptr;
  Accumulator<T>* dbias = nullptr;
  Accumulator<T>* drate_log = nullptr;
  Accumulator<T>* workspace = nullptr;  // GPU only: [decay_gate_workspace_size]
};

template <class T>
void decay_gate_forward(const DecayGateForward<T>& p, Cpu);
template <class T>
void decay_gate_backward(const DecayGateBackward<T>& p, Cpu);

// On the GPU: float and bf16.
int64_t decay_gate_workspace_size(const DecayGateShape& shape, Cuda);
template <class T>
void decay_gate_forward(const DecayGateForward<T>& p, Cuda);
template <class T>
void decay_gate_backward(const DecayGateBackward<T>& p, Cuda);

void decay_gate_forward_reference(const DecayGateForward<double>& p);
void decay_gate_backward_reference(const DecayGateBackward<double>& p);

}  // namespace signet::kernels
