// Recurrent networks with gates and memory mixing, whole sequences in one call: the gates see the output of
// the step before through a recurrent matrix per head. Per head of `width` units, gates i, f, z, o:
//
//   (i, f, z, o)_t = x_t + R y_{t-1} + bias
//   sLSTM  m_t = max(log sigmoid(f) + m_{t-1}, i)
//          i' = exp(i - m_t)                f' = exp(log sigmoid(f) + m_{t-1} - m_t)
//          c_t = f' c_{t-1} + i' tanh(z)    n_t = f' n_{t-1} + i'          y_t = sigmoid(o) c_t / n_t
//   LSTM   c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(z)                   y_t = sigmoid(o) tanh(c_t)
//
// (xLSTM: Beck et al., 2024, arXiv 2405.04517; LSTM: Hochreiter and Schmidhuber, 1997, with forget gates.)
// m is a stabiliser: c and n stand for c e^m and n e^m, and y does not depend on m. n = 0 means an empty
// memory, whatever c and m; a state of zeros is the start of a sequence.
//
// Layouts (row = b * T + t): x [B,T,heads,4,width] and y [B,T,heads,width] with strides from token to token;
// R [heads,4,width,width] (unit of the gate, unit of y); bias [heads,4,width], may be null; states
// [B,planes,heads,width] with planes y, c, n, m (sLSTM) or y, c (LSTM). Forward overwrites y and final_state
// (null: not wanted; may be initial_state). Backward overwrites dx and d_initial_state (null: not wanted) and
// adds to d_recurrent and dbias. What it is told about the plane m of the final state is ignored: a loss that
// makes sense depends on c e^m and n e^m alone. A decoding step is the call with time = 1. Sums run in a
// fixed order, and like states and parameters they are in Accumulator<T>: fp32 for bf16 storage.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

enum class GatedRnnCell { kSlstm, kLstm };

struct GatedRnnShape {
  GatedRnnCell cell = GatedRnnCell::kSlstm;
  int64_t batch = 0, time = 0, heads = 0, width = 0;
  int64_t x_stride = 0, y_stride = 0;  // 0 means contiguous
  // GPU only, without states: the rows of sequence b are [offsets[b], offsets[b + 1]) of packed_rows instead,
  // at most `time`.
  const int32_t* offsets = nullptr;
  int64_t packed_rows = 0;

  constexpr int64_t rows() const { return offsets ? packed_rows : batch * time; }
  constexpr int64_t units() const { return heads * width; }
  constexpr int64_t state_planes() const { return cell == GatedRnnCell::kSlstm ? 4 : 2; }
  // Per token and unit: what backward needs of the cell (gated_rnn_cells.h), then y_{t-1} of all tokens,
  // which is stored like y.
  constexpr int64_t saved_planes() const { return cell == GatedRnnCell::kSlstm ? 7 : 6; }
  constexpr int64_t previous_offset() const { return rows() * units() * saved_planes(); }
};

inline GatedRnnShape with_strides(GatedRnnShape s) {
  if (s.x_stride == 0) s.x_stride = 4 * s.units();
  if (s.y_stride == 0) s.y_stride = s.units();
  return s;
}

// What forward keeps for backward, of any number of tokens.
template <class T>
struct GatedRnnSaved {
  Accumulator<T>* cells = nullptr;
  T* previous = nullptr;  // y_{t-1}

  GatedRnnSaved() = default;
  // In [gated_rnn_saved_size] memory of the tokens of `s`; null where nothing is kept.
  GatedRnnSaved(const GatedRnnShape& s, Accumulator<T>* memory) : cells(memory) {
    if (memory) previous = reinterpret_cast<T*>(memory + s.previous_offset());
  }
  // That of the tokens from `row` on.
  GatedRnnSaved from(const GatedRnnShape& s, int64_t row) const {
    GatedRnnSaved rest = *this;
    if (cells) rest.cells += row * s.units() * s.saved_planes(), rest.previous += row * s.units();
    return rest;
  }
};

// What both passes are given.
template <class T>
struct GatedRnnInputs {
  GatedRnnShape shape;
  const Accumulator<T>* recurrent = nullptr;
  const Accumulator<T>* initial_state = nullptr;
  Accumulator<T>* workspace = nullptr;  // [gated_rnn_workspace_size] scratch
};

template <class T>
struct GatedRnnForward : GatedRnnInputs<T> {
  const T* x = nullptr;
  const Accumulator<T>* bias = nullptr;
  T* y = nullptr;
  Accumulator<T>* final_state = nullptr;
  GatedRnnSaved<T> saved;  // none where no backward follows
};

template <class T>
struct GatedRnnBackward : GatedRnnInputs<T> {
  GatedRnnSaved<T> saved;
  const T* dy = nullptr;  // strides of the gradients are those of the values
  const Accumulator<T>* d_final_state = nullptr;
  T* dx = nullptr;
  Accumulator<T>* d_recurrent = nullptr;
  Accumulator<T>* dbias = nullptr;  // null: no bias
  Accumulator<T>* d_initial_state = nullptr;
  void* product_workspace = nullptr;  // GPU only, as Gemm::workspace
};

template <class Device>
int64_t gated_rnn_saved_size(const GatedRnnShape& s, Device) {
  return s.previous_offset() + s.rows() * s.units();
}
int64_t gated_rnn_workspace_size(const GatedRnnShape& shape, Cpu);
int64_t gated_rnn_workspace_size(const GatedRnnShape& shape, Cuda);

template <class T>
void gated_rnn_forward(const GatedRnnForward<T>& p, Cpu);
template <class T>
void gated_rnn_backward(const GatedRnnBackward<T>& p, Cpu);

// On the GPU: float and bf16. The recurrent matrices of heads of 16, 32 or 64 units stay in registers for the
// whole sequence; others are read from the caches.
template <class T>
void gated_rnn_forward(const GatedRnnForward<T>& p, Cuda);
template <class T>
void gated_rnn_backward(const GatedRnnBackward<T>& p, Cuda);

void gated_rnn_forward_reference(const GatedRnnForward<double>& p);
void gated_rnn_backward_reference(const GatedRnnBackward<double>& p);

}  // namespace signet::kernels
