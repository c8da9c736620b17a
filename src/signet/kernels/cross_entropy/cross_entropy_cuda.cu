// A warp per row: the maximum and its first index, the sum of exponentials, then the gradient. The losses of
// the rows are kept in double and added up by one block in a fixed order.
#include "signet/kernels/cross_entropy/cross_entropy.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// Value and place of the row's maximum (the first on a tie; NaN wins) in every lane, from those of the lanes.
__device__ inline void reduce_best(float& best, int& at, bool nan) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, best, mask);
    const int other_at = __shfl_xor_sync(0xffffffffu, at, mask);
    if (other > best || (other == best && other_at < at)) best = other, at = other_at;
  }
  if (__any_sync(0xffffffffu, nan)) best = NAN;
}

// `below`: what the lane's logits lie below the maximum, summed; used with smoothing alone.
template <class T>
__device__ inline void store_loss(const CrossEntropy<T>& p, int64_t row, float best, int at, float total,
                                  float below, int target) {
  below = p.smoothing != 0.0f ? lane_sum<32>(below) : 0.0f;
  if (threadIdx.x % 32 != 0) return;
  if (p.predictions) p.predictions[row] = isnan(best) ? -1 : at < p.classes ? at : 0;
  const double smoothing = p.smoothing;
  p.workspace[row] = target < 0
                         ? 0.0
                         : p.logit_scale * ((1 - smoothing) * (static_cast<double>(best) -
                                                               to_float(p.logits[row * p.stride + target])) +
                                            smoothing * below / static_cast<double>(p.classes)) +
                               log(static_cast<double>(total));
}

// The target distribution at class j.
template <class T>
__device__ inline float target_share(const CrossEntropy<T>& p, int j, int target) {
  return (j == target ? 1.0f - p.smoothing : 0.0f) + p.smoothing / static_cast<float>(p.classes);
}

template <class T>
__device__ inline float gradient_scale(const CrossEntropy<T>& p) {
  const float scale = p.gradient_scale * p.logit_scale;
  return p.count ? scale / static_cast<float>(*p.count) : scale;
}

template <class T>
__global__ void __launch_bounds__(kThreads) row_kernel(CrossEntropy<T> p) {
  begin_kernel();
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= p.rows) return;
  const int lane = threadIdx.x % 32, classes = static_cast<int>(p.classes), target = p.targets[row];
  const T* x = p.logits + row * p.stride;
  float best = -INFINITY;
  int at = 0x7fffffff;
  bool nan = false;
  for (int j = lane; j < classes; j += 32) {
    const float v = to_float(x[j]);
    nan |= isnan(v);
    if (v > best) best = v, at = j;
  }
  reduce_best(best, at, nan);
  float total = 0.0f, below = 0.0f;
  for (int j = lane; j < classes; j += 32) {
    const float difference = best - to_float(x[j]);
    total += expf(-p.logit_scale * difference), below += difference;
  }
  total = lane_sum<32>(total);
  store_loss(p, row, best, at, total, below, target);
  if (!p.dlogits) return;
  const float scale = gradient_scale(p);
  for (int j = lane; j < classes; j += 32) {
    const float probability = expf(p.logit_scale * (to_float(x[j]) - best)) / total;
    const float d = target < 0 ? 0.0f : scale * (probability - target_share(p, j, target));
    p.dlogits[row * p.dlogits_stride + j] = from_float<T>(d);
  }
}

// The same with the row in registers: one read and one exponential per logit.
template <class T, int kPerLane>
__global__ void __launch_bounds__(kThreads) short_row_kernel(CrossEntropy<T> p) {
  begin_kernel();
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= p.rows) return;
  const int lane = threadIdx.x % 32, classes = static_cast<int>(p.classes), target = p.targets[row];
  const T* x = p.logits + row * p.stride;
  float v[kPerLane], best = -INFINITY, total = 0.0f, below = 0.0f;
  int at = 0x7fffffff;
  bool nan = false;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const int j = lane + 32 * k;
    v[k] = j < classes ? to_float(x[j]) : -INFINITY;
    nan |= isnan(v[k]);
    if (v[k] > best) best = v[k], at = j;
  }
  reduce_best(best, at, nan);
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const bool inside = lane + 32 * k < classes;
    below += inside ? best - v[k] : 0.0f;
    v[k] = inside ? expf(p.logit_scale * (v[k] - best)) : 0.0f;
    total += v[k];
  }
  total = lane_sum<32>(total);
  store_loss(p, row, best, at, total, below, target);
  if (!p.dlogits) return;
  const float scale = gradient_scale(p), inverse = 1.0f / total;
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const int j = lane + 32 * k;
    if (j >= classes) break;
    const float d = target < 0 ? 0.0f : scale * (v[k] * inverse - target_share(p, j, target));
    p.dlogits[row * p.dlogits_stride + j] = from_float<T>(d);
  }
}

// Sum of the block's values, in thread 0.
__device__ double block_sum(double x) {
  __shared__ double part[32];
  x = lane_sum<32>(x);
  __syncthreads();  // part may still be read from the sum before
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0)
    for (double each : part) total += each;
  return total;
}

__global__ void __launch_bounds__(1024)
    sum_kernel(const double* losses, const int32_t* targets, const int32_t* predictions, int64_t rows,
               double* loss_sum, double* correct) {
  begin_kernel();
  double loss = 0, right = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < rows; i += 1024) {
    loss += losses[i];
    if (correct) right += targets[i] >= 0 && targets[i] == predictions[i];
  }
  loss = block_sum(loss);
  if (correct) right = block_sum(right);
  if (threadIdx.x != 0) return;
  *loss_sum = loss;
  if (correct) *correct = right;
}

}  // namespace

template <class T>
void cross_entropy(const CrossEntropy<T>& p, Cuda device) {
  if (p.rows > 0) {
    const auto kernel = p.classes <= 32    ? short_row_kernel<T, 1>
                        : p.classes <= 128 ? short_row_kernel<T, 4>
                                           : row_kernel<T>;
    launch("cross_entropy", kernel, static_cast<unsigned>((p.rows + kWarps - 1) / kWarps), kThreads, 0,
           device, p);
  }
  launch("cross_entropy: sum of losses", sum_kernel, 1, 1024, 0, device, p.workspace, p.targets,
         p.predictions, p.rows, p.loss_sum, p.predictions ? p.correct : nullptr);
}

template void cross_entropy(const CrossEntropy<float>&, Cuda);
template void cross_entropy(const CrossEntropy<bf16>&, Cuda);

}  // namespace signet::kernels
