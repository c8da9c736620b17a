// The diagonal linear recurrence, gates of either sign:
//
//   h_t = a_t * h_{t-1} + b_t        per batch row and channel
//
// The plainest linear RNN: Mamba's recurrence once its gates are known, and what compiled automata with
// diagonal gates run on. a in [0,1] holds and resets; a = -1 flips a sign; 0, 1 and -1 are exact.
// Layouts: a, b, h [B,T,channels] contiguous; initial_state, final_state [B,channels]. Forward overwrites h
// and final_state; initial_state (zero) and final_state (not wanted) may be null. Backward reads a and the h
// that forward wrote and overwrites da, db and d_initial_state (null: not wanted); d_final_state may be null.
// A decoding step is the call with time = 1.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"

namespace signet::kernels {

struct DiagonalScanShape {
  int64_t batch = 0, time = 0, channels = 0;
};

template <class T>
struct DiagonalScanForward {
  DiagonalScanShape shape;
  const T* a = nullptr;
  const T* b = nullptr;
  const T* initial_state = nullptr;
  T* h = nullptr;
  T* final_state = nullptr;
};

template <class T>
struct DiagonalScanBackward {
  DiagonalScanShape shape;
  const T* a = nullptr;
  const T* h = nullptr;
  const T* initial_state = nullptr;
  const T* d_h = nullptr;
  const T* d_final_state = nullptr;
  T* da = nullptr;
  T* db = nullptr;
  T* d_initial_state = nullptr;
};

template <class T>
void diagonal_scan_forward(const DiagonalScanForward<T>& p, Cpu);
template <class T>
void diagonal_scan_backward(const DiagonalScanBackward<T>& p, Cpu);

void diagonal_scan_forward_reference(const DiagonalScanForward<double>& p);
void diagonal_scan_backward_reference(const DiagonalScanBackward<double>& p);

}  // namespace signet::kernels
