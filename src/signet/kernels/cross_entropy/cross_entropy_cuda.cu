// A warp per row: the maximum and its first index, the sum of exponentials, then the gradient. The losses of
// the rows are kept in double and added up by one block in a fixed order.
#include "signet/kernels/cross_entropy/cross_entropy.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

template <class T>
__global__ void __launch_bounds__(kThreads) row_kernel(CrossEntropy<T> p) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= p.rows) return;
  const int lane = threadIdx.x % 32, classes = static_cast<int>(p.classes);
  const T* x = p.logits + row * p.stride;
  float best = -INFINITY;
  int at = 0x7fffffff;
  bool nan = false;
  for (int j = lane; j < classes; j += 32) {
    const float v = to_float(x[j]);
    nan |= isnan(v);
    if (v > best || (v == best && j < at)) best = v, at = j;
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, best, mask);
    const int other_at = __shfl_xor_sync(0xffffffffu, at, mask);
    if (other > best || (other == best && other_at < at)) best = other, at = other_at;
  }
  if (__any_sync(0xffffffffu, nan)) best = NAN;
  float total = 0.0f;
  for (int j = lane; j < classes; j += 32) total += expf(p.logit_scale * (to_float(x[j]) - best));
  total = lane_sum<32>(total);
  const int target = p.targets[row];
  if (lane == 0) {
    if (p.predictions) p.predictions[row] = at < classes ? at : 0;
    p.workspace[row] = target < 0 ? 0.0
                                  : p.logit_scale * (static_cast<double>(best) - to_float(x[target])) +
                                        log(static_cast<double>(total));
  }
  if (!p.dlogits) return;
  const float scale = p.gradient_scale * p.logit_scale;
  for (int j = lane; j < classes; j += 32) {
    const float probability = expf(p.logit_scale * (to_float(x[j]) - best)) / total;
    const float d = target < 0 ? 0.0f : scale * (probability - (j == target ? 1.0f : 0.0f));
    p.dlogits[row * p.dlogits_stride + j] = from_float<T>(d);
  }
}

__global__ void __launch_bounds__(1024) sum_kernel(const double* values, int64_t n, double* result) {
  __shared__ double part[32];
  double total = 0;
  for (int64_t i = threadIdx.x; i < n; i += 1024) total += values[i];
  total = lane_sum<32>(total);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x != 0) return;
  total = 0;
  for (double each : part) total += each;
  *result = total;
}

}  // namespace

template <class T>
void cross_entropy(const CrossEntropy<T>& p, Cuda device) {
  if (p.rows > 0) {
    row_kernel<<<static_cast<unsigned>((p.rows + kWarps - 1) / kWarps), kThreads, 0, stream_of(device)>>>(p);
    check_launch("cross_entropy");
  }
  sum_kernel<<<1, 1024, 0, stream_of(device)>>>(p.workspace, p.rows, p.loss_sum);
  check_launch("cross_entropy: sum of losses");
}

template void cross_entropy(const CrossEntropy<float>&, Cuda);
template void cross_entropy(const CrossEntropy<bf16>&, Cuda);

}  // namespace signet::kernels
