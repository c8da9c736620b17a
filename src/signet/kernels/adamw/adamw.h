// AdamW with decoupled weight decay (Loshchilov and Hutter, 2019), one fused pass over a range of the flat
// buffers:
//   g <- gradient_scale * grad
//   m <- beta1 m + (1 - beta1) g,   v <- beta2 v + (1 - beta2) g^2
//   w <- w - lr weight_decay w - lr (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps)
// gradient_scale carries global-norm clipping, so that clipping costs no pass of its own. `square_sum` is the
// pass that finds the norm: the sum of squares in double, in a fixed order (the norm's square; NaN or Inf if
// any element is).
#pragma once

#include <math.h>

#include <cstdint>

#include "signet/base/host_device.h"
#include "signet/base/isa.h"
#include "signet/base/small_float.h"

namespace signet::kernels {

template <class T>
struct AdamW {
  int64_t size = 0;
  T* weights = nullptr;
  const T* gradient = nullptr;
  T* m = nullptr;
  T* v = nullptr;
  double gradient_scale = 1;
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  int64_t step = 1;  // 1 for the first update
  // lr, step and gradient_scale in the memory of the device, read instead of the fields, so that a captured
  // training step can be replayed (null: use the fields).
  const double* schedule = nullptr;
  // GPU only: the moments in bf16 (moments.h) instead of m and v, of the parameters that `key` names, from
  // their element `place` on.
  bf16 *narrow_m = nullptr, *narrow_v = nullptr;
  int64_t key = 0, place = 0;
  bf16* narrow = nullptr;         // GPU only: receives the new weights in bf16 (null: not wanted)
  const int32_t* stop = nullptr;  // in the memory of the device; nothing changes when it is not 0
};

// What a training step decides by itself once the gradient's norm is known, in the memory of the device.
struct UpdateGuard {
  double max_norm = 0;               // of the gradient; 0 = no clipping
  const double* loss_sum = nullptr;  // must be finite, like the sum of squares (null: not looked at)
  double* scale = nullptr;           // receives min(1, max_norm / norm): what gradient_scale carries
  int32_t* stop = nullptr;           // set to 1 when one of the two is not finite, never cleared

  SIGNET_HOST_DEVICE void decide(double square_sum) const {
    if (!scale) return;
    const double norm = sqrt(square_sum);
    *scale = max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0;
    if (stop && !(isfinite(square_sum) && (!loss_sum || isfinite(*loss_sum)))) *stop = 1;
  }
};

template <class T>
struct SquareSum {
  int64_t size = 0;
  const T* x = nullptr;
  double* result = nullptr;
  double* workspace = nullptr;  // GPU only: [kSquareSumBlocks]
  UpdateGuard guard = {};       // used when guard.scale is given
};

inline constexpr int kSquareSumBlocks = 512;

template <class T>
void adamw(const AdamW<T>& p, Cpu);
template <class T>
void square_sum(const SquareSum<T>& p, Cpu);

// On the GPU: float; result lies in device memory.
template <class T>
void adamw(const AdamW<T>& p, Cuda);
template <class T>
void square_sum(const SquareSum<T>& p, Cuda);
// The sum over several ranges. Result, guard and workspace, [count kSquareSumBlocks], are the first one's.
void square_sum(const SquareSum<float>* ranges, int count, Cuda);
// narrow[i] = weights[i], rounded.
void narrow_weights(int64_t size, const float* weights, bf16* narrow, Cuda);
// guard.decide of a sum in device memory that was not known when its parts were found.
void decide_update(const double* square_sum, const UpdateGuard& guard, Cuda);

void adamw_reference(const AdamW<double>& p);

}  // namespace signet::kernels
