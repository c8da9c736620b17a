// What mLSTM (Beck et al., 2024) does around the gated linear recurrence. Its state C and normaliser n grow
// with the exponential input gate, so both are kept divided by e^m, m the running maximum of their
// logarithms:
//
//   m_t = max(m_{t-1} + log|f_t|, i_t + bias)
//   gate_t = f_t e^{m_{t-1} - m_t}            input_t = e^{i_t + bias - m_t}
//   h = r / max(|n|, e^{-m})                  r, n: the recurrence's output for C and for n
//
// f in [-1, 1] may be 0 or negative. |gate| (up to the rounding of m) and input are at most 1, and h does not
// depend on m, which is a constant in every gradient. m starts at `initial_m` (null: 0).
//
// stabilise: f, i, gate, input, m [batch, time, heads] with row strides; bias [heads] or null. Backward
// overwrites df and di, adds to dbias. normalise: r_n [rows, heads, width + columns] with n in the first
// column behind the width, h [rows, heads, width], contiguous; m as above. Backward overwrites dr_n.
//
// read: the recurrence and the normaliser of short sequences on the GPU in one call, from an empty state:
//   h_t = sum over j <= t of P_tj v_j / max(|sum_j P_tj|, e^{-m_t})
//   P_tj = scale (q_t . k_j) input_j gate_{j+1} ... gate_t
// q, k, v [batch, time, heads, width] with row strides, h contiguous; gate, input, m as above. Backward
// overwrites its gradients; nothing is saved.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

// Bound of m_{t-1} - m_t: with |f| below e^-80 the state is as good as gone.
inline constexpr double kMaxLogRatio = 80;

struct MlstmGatesShape {
  int64_t batch = 0, time = 0, heads = 0;
  int64_t f_stride = 0, i_stride = 0;                       // of f and i and their gradients
  int64_t gate_stride = 0, input_stride = 0, m_stride = 0;  // of gate, input and their gradients; of m
  // GPU only, without states: the rows of sequence b are [offsets[b], offsets[b + 1]) instead.
  const int32_t* offsets = nullptr;
  constexpr int64_t rows() const { return batch * time; }
};

template <class T>
struct MlstmStabilise {
  MlstmGatesShape shape;
  const Accumulator<T>* f = nullptr;
  const T* i = nullptr;
  const Accumulator<T>* bias = nullptr;
  const Accumulator<T>* initial_m = nullptr;  // [batch, heads]
  Accumulator<T>* gate = nullptr;
  Accumulator<T>* input = nullptr;
  Accumulator<T>* m = nullptr;
  Accumulator<T>* final_m = nullptr;  // [batch, heads]; null: not wanted; may be initial_m
};

template <class T>
struct MlstmStabiliseBackward {
  MlstmGatesShape shape;
  const Accumulator<T>* input = nullptr;
  const Accumulator<T>* initial_m = nullptr;
  const Accumulator<T>* m = nullptr;
  const Accumulator<T>* dgate = nullptr;
  const Accumulator<T>* dinput = nullptr;
  Accumulator<T>* df = nullptr;
  T* di = nullptr;
  Accumulator<T>* dbias = nullptr;
  Accumulator<T>* workspace = nullptr;  // GPU only: [mlstm_stabilise_workspace_size]
};

struct MlstmReadShape {
  int64_t rows = 0, heads = 0, width = 0;
  int64_t m_stride = 0;
  int64_t columns = 1;  // behind a head's width, n in the first; the gradients of the others are zero

  constexpr int64_t r_n_width() const { return width + columns; }
};

template <class T>
struct MlstmNormalise {
  MlstmReadShape shape;
  const T* r_n = nullptr;
  const Accumulator<T>* m = nullptr;
  T* h = nullptr;
};

template <class T>
struct MlstmNormaliseBackward {
  MlstmReadShape shape;
  const T* r_n = nullptr;
  const Accumulator<T>* m = nullptr;
  const T* dh = nullptr;
  T* dr_n = nullptr;
};

struct MlstmSequenceShape {
  int64_t batch = 0, time = 0, heads = 0, width = 0;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  int64_t gate_stride = 0, input_stride = 0, m_stride = 0;
  double scale = 1;
  // The rows of sequence b are [offsets[b], offsets[b + 1]) instead, at most `time` (null: `time` for each).
  const int32_t* offsets = nullptr;
};

// What both passes are given.
struct MlstmReadInputs {
  MlstmSequenceShape shape;
  const bf16* q = nullptr;
  const bf16* k = nullptr;
  const bf16* v = nullptr;
  const float* gate = nullptr;
  const float* input = nullptr;
  const float* m = nullptr;
};

struct MlstmRead : MlstmReadInputs {
  bf16* h = nullptr;
};

struct MlstmReadBackward : MlstmReadInputs {
  const bf16* dh = nullptr;
  bf16* dq = nullptr;  // strides of the gradients are those of the values
  bf16* dk = nullptr;
  bf16* dv = nullptr;
  float* dgate = nullptr;
  float* dinput = nullptr;
};

template <class T>
void mlstm_stabilise(const MlstmStabilise<T>& p, Cpu);
template <class T>
void mlstm_stabilise_backward(const MlstmStabiliseBackward<T>& p, Cpu);
template <class T>
void mlstm_normalise(const MlstmNormalise<T>& p, Cpu);
template <class T>
void mlstm_normalise_backward(const MlstmNormaliseBackward<T>& p, Cpu);

// On the GPU: float and bf16.
int64_t mlstm_stabilise_workspace_size(const MlstmGatesShape& shape, Cuda);
template <class T>
void mlstm_stabilise(const MlstmStabilise<T>& p, Cuda);
template <class T>
void mlstm_stabilise_backward(const MlstmStabiliseBackward<T>& p, Cuda);
template <class T>
void mlstm_normalise(const MlstmNormalise<T>& p, Cuda);
template <class T>
void mlstm_normalise_backward(const MlstmNormaliseBackward<T>& p, Cuda);

// Sequences of at most 64 tokens in heads of 32, 64 or 128 units; every row starts at a multiple of 16 bytes.
bool mlstm_read_covers(const MlstmSequenceShape& shape);
void mlstm_read(const MlstmRead& p, Cuda);
void mlstm_read_backward(const MlstmReadBackward& p, Cuda);

}  // namespace signet::kernels
