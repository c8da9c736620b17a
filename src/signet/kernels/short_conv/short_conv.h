// Causal depthwise convolution over time, optionally followed by SiLU:
//   z_t[c] = bias[c] + sum_{j=0}^{K-1} w[c][j] x_{t-K+1+j}[c],     y = silu ? z sigmoid(z) : z
// x, y [batch, time, channels], strides in elements from token to token; w [channels, K]; bias [channels] or
// null. The K-1 inputs before the sequence come from `initial` [batch, K-1, channels], oldest first (null:
// zeros); `final` (null: not wanted) receives the last K-1 inputs. Backward recomputes z, overwrites dx, and
// adds to dw and dbias; it does not differentiate the initial inputs.
// GPU only, without initial and final inputs: with `offsets` the rows of sequence b are [offsets[b],
// offsets[b + 1]), at most `time` of them.
#pragma once

#include <cstdint>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"
#include "signet/kernels/activation/activation.h"
#include "signet/tensor/reduce.h"

namespace signet::kernels {

inline constexpr int64_t kMaxConvolution = 16;  // K at most

// GPU only: after the activation the first `heads` heads of `width` channels are L2 normalised, as in
// kernels/l2_norm.
struct UnitHeads {
  int64_t heads = 0, width = 0;
  double eps = 1e-6;
};
inline bool unit_heads_covers(int64_t kernel, int64_t width) {
  return kernel >= 1 && kernel <= 4 && (width == 16 || width == 32 || width == 64 || width == 128);
}

// GPU only, with unit heads: in the place of x a small table of fp32 rows of channels and gates, right behind
// each other. Row tokens[r] of it is row r of x. Backward adds to d_rows what it would write to dx.
struct TokenTable {
  const int32_t* tokens = nullptr;
  int64_t count = 0;
  const float* rows = nullptr;
  float* d_rows = nullptr;
};
// For up to 16 rows, where the GPU has the shared memory.
bool token_table_covers(int64_t rows, Cuda);

// GPU only: channels from `first` on, a multiple of 128, lie in rows of their own (null: with the others).
template <class T>
struct ChannelTail {
  T* rows = nullptr;
  int64_t stride = 0, first = 0;
};

// What both passes are given.
template <class T>
struct ShortConvInputs {
  int64_t batch = 0, time = 0, channels = 0, kernel = 0;
  bool silu = false;
  const T* x = nullptr;
  int64_t x_stride = 0;
  const Accumulator<T>* weight = nullptr;
  const Accumulator<T>* bias = nullptr;
  const T* initial = nullptr;
  const int32_t* offsets = nullptr;
  UnitHeads unit = {};
  GateColumns gate = {};  // GPU only: of x and dx, right behind the channels
  TokenTable table = {};
};

template <class T>
struct ShortConvForward : ShortConvInputs<T> {
  T* y = nullptr;
  int64_t y_stride = 0;
  T* final = nullptr;
  ChannelTail<T> tail = {};  // of y
};

template <class T>
struct ShortConvBackward : ShortConvInputs<T> {
  const T* dy = nullptr;
  int64_t dy_stride = 0;
  T* dx = nullptr;
  int64_t dx_stride = 0;
  Accumulator<T>* dweight = nullptr;
  Accumulator<T>* dbias = nullptr;
  Accumulator<T>* workspace = nullptr;  // GPU only: [short_conv_workspace_size]
  ColumnSums* later = nullptr;          // GPU only: takes the last sums over rows (null: done at once)
  ChannelTail<const T> tail = {};       // of dy
};

template <class T>
void short_conv_forward(const ShortConvForward<T>& p, Cpu);
template <class T>
void short_conv_backward(const ShortConvBackward<T>& p, Cpu);

// On the GPU: float and bf16. With a table: its elements.
int64_t short_conv_workspace_size(int64_t batch, int64_t time, int64_t channels, int64_t kernel, Cuda,
                                  int64_t table_size = 0);
template <class T>
void short_conv_forward(const ShortConvForward<T>& p, Cuda);
template <class T>
void short_conv_backward(const ShortConvBackward<T>& p, Cuda);

void short_conv_forward_reference(const ShortConvForward<double>& p);
void short_conv_backward_reference(const ShortConvBackward<double>& p);

}  // namespace signet::kernels
