// Mamba's selective scan in both eigenvalue ranges. Per channel d and state index n:
//
//   delta_t = softplus(raw_t + bias), or raw_t + bias where softplus = false (any sign; where s_t is then no
//             finite number, nor are the outputs)
//   s_t = exp(delta_t A),  A = -exp(A_log) < 0
//   a_t = s_t            (range [0,1])            or  a_t = 2 s_t - 1     (range [-1,1])
//   h_t = a_t h_{t-1} + delta_t B_t u_t           (the input term is the same in both ranges)
//   y_t = (sum_n C_t h_t + D u_t) * silu(z_t)
//
// Layouts (row = b * T + t, strides in elements from one token to the next):
//   u, raw, z, y [B,T,channels]   B, C [B,T,states]   A_log [channels,states]   D, bias [channels]
//   states h [B,channels,states], contiguous
// D, z, bias and initial_state may be null (absent). A single decoding step is the call with time = 1; it
// agrees with the scan in both ranges. Forward overwrites y and final_state (null: not wanted). Backward
// overwrites du, draw, dB, dC, dz and d_initial_state, and adds to dA_log, dD and dbias. Reductions run in a
// fixed order.
#pragma once

#include <cstdint>

#include "signet/base/eigenvalues.h"
#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

struct SelectiveScanShape {
  int64_t batch = 0, time = 0, channels = 0, states = 0;
  EigenvalueRange range = EigenvalueRange::kPositive;
  bool softplus = true;
  // Elements from token to token; 0 means contiguous.
  int64_t u_stride = 0, raw_stride = 0, z_stride = 0, b_stride = 0, c_stride = 0, y_stride = 0;
  // CPU's forward pass only: where it is not 0 time lies fastest, [B,channels,T], with so many elements from
  // channel to channel.
  int64_t u_columns = 0, raw_columns = 0, z_columns = 0;
  // GPU only, without states: the rows of sequence b are [offsets[b], offsets[b + 1]) of packed_rows instead,
  // at most `time`.
  const int32_t* offsets = nullptr;
  int64_t packed_rows = 0;

  int64_t rows() const { return offsets ? packed_rows : batch * time; }
};

// The shape with every stride given.
inline SelectiveScanShape with_strides(SelectiveScanShape s) {
  for (int64_t* stride : {&s.u_stride, &s.raw_stride, &s.z_stride, &s.y_stride})
    if (*stride == 0) *stride = s.channels;
  for (int64_t* stride : {&s.b_stride, &s.c_stride})
    if (*stride == 0) *stride = s.states;
  return s;
}

// What both passes are given.
template <class T>
struct SelectiveScanInputs {
  SelectiveScanShape shape;
  const T* u = nullptr;
  const T* raw = nullptr;
  const Accumulator<T>* a_log = nullptr;
  const T* b = nullptr;
  const T* c = nullptr;
  const Accumulator<T>* d = nullptr;
  const T* z = nullptr;
  const Accumulator<T>* bias = nullptr;
  const Accumulator<T>* initial_state = nullptr;
  Accumulator<T>* workspace = nullptr;  // [selective_scan_workspace_size] scratch
};

template <class T>
struct SelectiveScanForward : SelectiveScanInputs<T> {
  T* y = nullptr;
  Accumulator<T>* final_state = nullptr;
  Accumulator<T>* saved = nullptr;  // [selective_scan_saved_size] for backward; null where none follows
};

template <class T>
struct SelectiveScanBackward : SelectiveScanInputs<T> {
  const Accumulator<T>* saved = nullptr;
  const T* dy = nullptr;  // strides of the gradients are those of the inputs
  const Accumulator<T>* d_final_state = nullptr;
  T* du = nullptr;
  T* draw = nullptr;
  Accumulator<T>* da_log = nullptr;
  T* db = nullptr;
  T* dc = nullptr;
  Accumulator<T>* dd = nullptr;
  T* dz = nullptr;
  Accumulator<T>* dbias = nullptr;
  Accumulator<T>* d_initial_state = nullptr;
};

int64_t selective_scan_saved_size(const SelectiveScanShape& shape, Cpu);
int64_t selective_scan_workspace_size(const SelectiveScanShape& shape, Cpu);

template <class T>
void selective_scan_forward(const SelectiveScanForward<T>& p, Cpu);
template <class T>
void selective_scan_backward(const SelectiveScanBackward<T>& p, Cpu);

// On the GPU (float and bf16) what forward keeps and the scratch of both passes have sizes of their own.
int64_t selective_scan_saved_size(const SelectiveScanShape& shape, Cuda);
int64_t selective_scan_workspace_size(const SelectiveScanShape& shape, Cuda);
template <class T>
void selective_scan_forward(const SelectiveScanForward<T>& p, Cuda);
template <class T>
void selective_scan_backward(const SelectiveScanBackward<T>& p, Cuda);

void selective_scan_forward_reference(const SelectiveScanForward<double>& p);
void selective_scan_backward_reference(const SelectiveScanBackward<double>& p);

}  // namespace signet::kernels
