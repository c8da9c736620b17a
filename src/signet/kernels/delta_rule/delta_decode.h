// One token of DeltaNet and its relatives from its projection to what its heads read, on the GPU: what the
// operators convolution, SiLU, L2 norm, gate and delta rule (delta_rule.h) do one after the other, with the
// state read and written once.
//   q, k_j, v_j = silu(sum_i w_i x_{t-K+1+i})    the last K - 1 inputs are kept and moved on
//   q, k_j <- q / |q|, k_j / |k_j|               unrounded, so that beta = 2 is a reflection without more ado
//   beta_j = gate(x)                             activation.h
//   S <- Diag(g) S,   S <- (I - beta_j k_j k_j^T) S + beta_j k_j v_j^T,   o = scale S^T q
// Layouts, D = dk = dv. Channels are those of q [heads, D], then k [factors, heads, D], then v likewise:
// x [batch, ..] begins with them and has the gates' inputs [factors, heads] at beta_at; weight [channels, K];
// history [batch, K - 1, channels], oldest first; S [batch, heads, D, D]; decay [batch, heads,
// decay_channels], decay_channels 0 (none), 1 or D; o [batch, heads D]. The state, the history and the weight
// are read before the kernels ahead on the stream are done: the last two must not write them.
#pragma once

#include <cstdint>

#include "signet/base/host_device.h"
#include "signet/base/isa.h"
#include "signet/base/small_float.h"
#include "signet/kernels/activation/activation.h"

namespace signet::kernels {

template <class T>
struct DeltaDecode {
  int64_t batch = 0, heads = 0, width = 0, factors = 1, taps = 0;  // width: D
  const T* x = nullptr;
  int64_t x_stride = 0, beta_at = 0;
  const float* weight = nullptr;
  T* history = nullptr;
  float eps = 1e-6f;
  GateColumns gate = {};  // kind, scale, shift and margin
  const float* decay = nullptr;
  int64_t decay_channels = 0, decay_stride = 0;
  float* state = nullptr;
  float scale = 1;
  T* o = nullptr;
  int64_t o_stride = 0;
  float* workspace = nullptr;  // [delta_decode_workspace_size]

  SIGNET_HOST_DEVICE int64_t channels() const { return (1 + 2 * factors) * heads * width; }
};

// Hopper and newer; D of 32, 64 or 128, 1 to 4 taps.
bool delta_decode_covers(int64_t width, int64_t taps);
int64_t delta_decode_workspace_size(int64_t batch, int64_t heads, int64_t width, int64_t factors, Cuda);
template <class T>  // float, bf16
void delta_decode(const DeltaDecode<T>& p, Cuda device);

}  // namespace signet::kernels
