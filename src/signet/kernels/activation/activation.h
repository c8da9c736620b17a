// Elementwise functions on rows with strides, and the fused gated linear units.
//   silu      y = x sigmoid(x)
//   sigmoid   y = scale * clamp((1 + 2 margin) sigmoid(x + shift) - margin, 0, 1)
//             without a margin never reaches its end points for moderate x; with one it reaches 0 and scale
//             exactly and keeps its shape (Louizos et al., 2018, arXiv 1712.01312)
//   hard      y = scale * clamp(1/2 + (x + shift)/4, 0, 1)   reaches 0 and scale exactly
//   softplus  y = log(1 + e^x)
//   swiglu    y = silu(gate) * up, or gelu(gate) * up with gelu(x) = x (1 + erf(x / sqrt 2)) / 2
// `hard` has the slope of the sigmoid at 0. Where a gate is clamped its gradient passes only where a descent
// step would lead back inside, so that a saturated gate is neither dead nor drifting. Backward recomputes
// from x and overwrites dx.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

enum class ActivationKind { kSilu, kSigmoid, kHard, kSoftplus };
enum class GluGate { kSilu, kGelu };

// What both passes are given.
template <class T>
struct ActivationInputs {
  ActivationKind kind = ActivationKind::kSilu;
  int64_t rows = 0, width = 0;
  const T* x = nullptr;
  int64_t x_stride = 0;
  Accumulator<T> scale = Accumulator<T>(1), shift = Accumulator<T>(0), margin = Accumulator<T>(0);
};

template <class T>
struct ActivationForward : ActivationInputs<T> {
  T* y = nullptr;
  int64_t y_stride = 0;
  Accumulator<T>* wide_y = nullptr;  // GPU only: the result unrounded, instead of y
};

template <class T>
struct ActivationBackward : ActivationInputs<T> {
  const T* dy = nullptr;
  int64_t dy_stride = 0;
  T* dx = nullptr;
  int64_t dx_stride = 0;
  const Accumulator<T>* wide_dy = nullptr;  // GPU only: instead of dy
};

// Columns behind the heads of a matrix that go through a gate in the same pass (GPU only): y [rows, columns]
// fp32 in forward, dy likewise in backward. Column c belongs to the normalised head first_head + c. With
// unit_keys that head is a key of the delta rule that will be stored in bf16: y is divided by the square of
// its length as stored, as DeltaRuleShape::unit_keys does; forward leaves what it multiplied by in factor
// [rows, columns], where backward finds it.
struct GateColumns {
  ActivationKind kind = ActivationKind::kSigmoid;
  int64_t columns = 0;
  float scale = 1, shift = 0, margin = 0;
  float* y = nullptr;
  const float* dy = nullptr;
  int64_t first_head = 0;
  bool unit_keys = false;
  float* factor = nullptr;
};

// What both passes are given.
template <class T>
struct SwigluInputs {
  int64_t rows = 0, width = 0;
  const T* gate = nullptr;
  const T* up = nullptr;
  int64_t x_stride = 0;  // of gate and of up
  GluGate kind = GluGate::kSilu;
};

template <class T>
struct SwigluForward : SwigluInputs<T> {
  T* y = nullptr;
  int64_t y_stride = 0;
};

template <class T>
struct SwigluBackward : SwigluInputs<T> {
  const T* dy = nullptr;
  int64_t dy_stride = 0;
  T* dgate = nullptr;  // may be gate, and dup be up
  T* dup = nullptr;
  int64_t dx_stride = 0;  // of dgate and of dup
  T* y = nullptr;  // GPU only: receives what forward made (null: not wanted), in the rows of dy; may be dy
};

template <class T>
void activation_forward(const ActivationForward<T>& p, Cpu);
template <class T>
void activation_backward(const ActivationBackward<T>& p, Cpu);
template <class T>
void swiglu_forward(const SwigluForward<T>& p, Cpu);
template <class T>
void swiglu_backward(const SwigluBackward<T>& p, Cpu);

// On the GPU: float and bf16.
template <class T>
void activation_forward(const ActivationForward<T>& p, Cuda);
template <class T>
void activation_backward(const ActivationBackward<T>& p, Cuda);
template <class T>
void swiglu_forward(const SwigluForward<T>& p, Cuda);
template <class T>
void swiglu_backward(const SwigluBackward<T>& p, Cuda);

void activation_forward_reference(const ActivationForward<double>& p);
void activation_backward_reference(const ActivationBackward<double>& p);
void swiglu_forward_reference(const SwigluForward<double>& p);
void swiglu_backward_reference(const SwigluBackward<double>& p);

}  // namespace signet::kernels
