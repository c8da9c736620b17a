// A warp per row, or a block where there are many classes: the maximum and its first index, the sum of
// exponentials, then the gradient. The losses of the rows are kept in double and added up by one block in a
// fixed order.
#include "signet/kernels/cross_entropy/cross_entropy.h"

#include <algorithm>

#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch.cuh"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kLongThreads = 1024, kLongRow = 2048;  // a block per row beyond so many classes

// Row `row` of the logits, whose type is T or, unrounded, float.
template <class L, class T>
__device__ inline const L* logits_of(const CrossEntropy<T>& p, int64_t row) {
  if constexpr (std::is_same_v<L, T>)
    return p.logits + row * p.stride;
  else
    return p.wide_logits + row * p.stride;
}

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

// Nobody waits for targets to check them: the loss of one that is no class is not a number, and nothing is
// read there.
template <class X>
__device__ inline float logit_of(const X* x, int target, int classes) {
  return target < 0 ? 0.0f : target < classes ? to_float(x[target]) : NAN;
}

// By one thread, before the logits are overwritten. `below`: what all logits lie below the maximum, summed;
// used with smoothing alone.
template <class T>
__device__ inline void store_loss(const CrossEntropy<T>& p, int64_t row, float best, int at, float total,
                                  float below, int target, float target_logit) {
  if (p.predictions) p.predictions[row] = isnan(best) ? -1 : at < p.classes ? at : 0;
  const double smoothing = p.smoothing, log_total = log(static_cast<double>(total)),
               log_sum = static_cast<double>(p.logit_scale) * best + log_total;
  double loss = 0;
  if (target >= 0) {
    loss = p.logit_scale * (1 - smoothing) * (static_cast<double>(best) - target_logit) + log_total;
    if (smoothing != 0) loss += p.logit_scale * smoothing * below / static_cast<double>(p.classes);
    if (p.z_loss != 0.0f) loss += p.z_loss * log_sum * log_sum;
  }
  p.workspace[row] = loss;
}

// The gradient of a row's logits: factor * exp(logit_scale (x - best)) - scale * y.
struct RowGradient {
  float scale, factor, rest, logit_scale, best;
  int target;
  template <class T>
  __device__ RowGradient(const CrossEntropy<T>& p, float best_logit, float total, int row_target)
      : logit_scale(p.logit_scale), best(best_logit), target(row_target) {
    scale = p.gradient_scale * p.logit_scale;
    if (p.count) scale /= static_cast<float>(*p.count);
    factor = scale / total;
    if (p.z_loss != 0.0f) factor *= 1.0f + 2.0f * p.z_loss * (p.logit_scale * best + logf(total));
    rest = scale * p.smoothing / static_cast<float>(p.classes);
    scale *= 1.0f - p.smoothing;  // from here on: of the target alone
  }
  __device__ float operator()(float exponential, int j) const {
    if (target < 0) return 0.0f;
    return factor * exponential - rest - (j == target ? scale : 0.0f);
  }
  __device__ float at_logit(float x, int j) const { return (*this)(expf(logit_scale * (x - best)), j); }
};

// Columns of dlogits behind the classes, when everything of the row has been read.
template <class T>
__device__ inline void clear_behind(const CrossEntropy<T>& p, int64_t row, int thread, int threads) {
  T* const end = p.dlogits + row * p.dlogits_stride + p.classes;
  for (int j = thread; j < static_cast<int>(p.zero_columns); j += threads) end[j] = from_float<T>(0.0f);
}

template <class T, class L>
__global__ void __launch_bounds__(kThreads) row_kernel(CrossEntropy<T> p) {
  begin_kernel();
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= p.rows) return;
  const int lane = threadIdx.x % 32, classes = static_cast<int>(p.classes), target = p.targets[row];
  const L* x = logits_of<L>(p, row);
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
  if (p.smoothing != 0.0f) below = lane_sum<32>(below);
  if (lane == 0) store_loss(p, row, best, at, total, below, target, logit_of(x, target, classes));
  if (!p.dlogits) return;
  const RowGradient gradient(p, best, total, target);
  for (int first = 0; first < classes; first += 32) {
    const int j = first + lane;
    const float v = j < classes ? to_float(x[j]) : 0.0f;
    __syncwarp();
    if (j < classes) p.dlogits[row * p.dlogits_stride + j] = from_float<T>(gradient.at_logit(v, j));
  }
  clear_behind(p, row, lane, 32);
}

// The same with the row in registers: one read and one exponential per logit.
template <class T, class L, int kPerLane>
__global__ void __launch_bounds__(kThreads) short_row_kernel(CrossEntropy<T> p) {
  begin_kernel();
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= p.rows) return;
  const int lane = threadIdx.x % 32, classes = static_cast<int>(p.classes), target = p.targets[row];
  const L* x = logits_of<L>(p, row);
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
  if (p.smoothing != 0.0f) below = lane_sum<32>(below);
  if (lane == 0) store_loss(p, row, best, at, total, below, target, logit_of(x, target, classes));
  if (!p.dlogits) return;
  __syncwarp();
  const RowGradient gradient(p, best, total, target);
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const int j = lane + 32 * k;
    if (j >= classes) break;
    p.dlogits[row * p.dlogits_stride + j] = from_float<T>(gradient(v[k], j));
  }
  clear_behind(p, row, lane, 32);
}

// The block's values combined by all threads in a fixed order; every thread gets the result.
template <class V, class F>
__device__ V block_reduce(V x, F&& combine) {
  __shared__ V part[kLongThreads / 32];
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, mask));
  __syncthreads();  // part may still be read from the time before
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  x = part[threadIdx.x % 32];
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, mask));
  return x;
}

// exp(scale (x - best)) in two instructions; `best` may move.
class Exponentials {
 public:
  __device__ Exponentials(float logit_scale, float best) : scale_(logit_scale * 1.44269504f) { move(best); }
  __device__ void move(float best) { offset_ = -scale_ * best; }
  __device__ float operator()(float x) const {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(fmaf(scale_, x, offset_)));
    return y;
  }

 private:
  float scale_, offset_;
};

// A block per row. The first pass keeps a maximum and a sum of exponentials under it in every thread, and the
// packets of the first `kept` rounds in shared memory, where each thread finds its own again; the second,
// which finds the rest of the row in the L2 cache, writes the gradient past it. In place a row of float
// becomes one of bf16 from its beginning: what round i writes was read in earlier rounds, or in round 0
// before the barrier.
constexpr int kRound = 4 * kLongThreads;
constexpr int64_t kKeptBytes = 112 << 10;  // of two blocks of a multiprocessor each

template <class T, class L>
__global__ void __launch_bounds__(kLongThreads) long_row_kernel(CrossEntropy<T> p, bool aligned, int kept) {
  begin_kernel();
  extern __shared__ __align__(16) char shared[];
  Packet<L>* const mine_of_row = reinterpret_cast<Packet<L>*>(shared) + threadIdx.x;
  constexpr float kNone = -1e30f;  // below every logit, and what is below it is nothing beside them
  const int64_t row = blockIdx.x;
  const int classes = static_cast<int>(p.classes), target = p.targets[row],
            begin = static_cast<int>(threadIdx.x) * 4, whole = aligned ? classes / 4 * 4 : 0;
  const L* x = logits_of<L>(p, row);
  float best = kNone, total = 0.0f, sum = 0.0f;
  int at = 0x7fffffff;
  Exponentials exponential(p.logit_scale, best);
  // Logits first .. first + count - 1.
  const auto take = [&](const float(&v)[4], int first, int count) {
    float most = v[0];
#pragma unroll
    for (int i = 1; i < 4; ++i) most = i < count ? fmaxf(most, v[i]) : most;
    if (most > best) {
#pragma unroll
      for (int i = 3; i >= 0; --i)
        if (i < count && v[i] == most) at = first + i;
      exponential.move(most);
      total *= exponential(best);
      best = most;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i < count) total += exponential(v[i]), sum += v[i];
  };
#pragma unroll 4
  for (int first = begin; first < whole; first += kRound) {
    const Packet<L> packet = *reinterpret_cast<const Packet<L>*>(x + first);
    if (const int round = first / kRound; round < kept) mine_of_row[round * kLongThreads] = packet;
    float v[4];
    unpack(packet, v);
    take(v, first, 4);
  }
  for (int first = whole + begin; first < classes; first += kRound) {
    float v[4];
    unpack(load_packet(x, first, classes, false), v);
    take(v, first, min(4, classes - first));
  }
  const float mine = best;
  best = block_reduce(best, [](float a, float b) { return fmaxf(a, b); });
  at = block_reduce(mine == best ? at : 0x7fffffff, [](int a, int b) { return min(a, b); });
  const auto add = [](float a, float b) { return a + b; };
  total = block_reduce(total * expf(p.logit_scale * (mine - best)), add);
  if (isnan(total)) best = NAN;  // where a logit was
  if (p.smoothing != 0.0f) sum = block_reduce(sum, add);
  if (threadIdx.x == 0)
    store_loss(p, row, best, at, total, static_cast<float>(classes) * best - sum, target,
               logit_of(x, target, classes));
  if (!p.dlogits) return;
  const RowGradient gradient(p, best, total, target);
  exponential.move(best);
  T* const d = p.dlogits + row * p.dlogits_stride;
  const auto load = [&](int first) {
    if (first >= whole) return load_packet(x, first, classes, false);
    const int round = first / kRound;
    return round < kept ? mine_of_row[round * kLongThreads] : load_last(x + first);
  };
  Packet<L> next = load(begin);
  for (int first = begin; first - begin < classes; first += kRound) {
    float v[4];
    unpack(next, v);
    next = load(first + kRound);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      v[i] = target < 0 ? 0.0f : fmaf(gradient.factor, exponential(v[i]), -gradient.rest);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (first + i == target) v[i] -= gradient.scale;
    if (first < whole)
      store_past_cache(d + first, pack<T>(v));
    else
      store_packet(d, first, classes, false, v);
  }
  clear_behind(p, row, static_cast<int>(threadIdx.x), kLongThreads);
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

template <class L, class T>
void run_rows(const CrossEntropy<T>& p, const L* logits, Cuda device) {
  if (p.classes > kLongRow) {
    const bool aligned =
        packets_fit(logits, p.stride) && (!p.dlogits || packets_fit(p.dlogits, p.dlogits_stride));
    constexpr int64_t kRoundBytes = kLongThreads * sizeof(Packet<L>);
    const int64_t rounds = p.dlogits && aligned ? (p.classes + kRound - 1) / kRound : 0,
                  room = std::min<int64_t>(kKeptBytes, cuda_device().shared_per_block),
                  kept = std::min(rounds, room / kRoundBytes), bytes = kept * kRoundBytes;
    allow_shared_memory(long_row_kernel<T, L>, bytes, "cross_entropy");
    return launch("cross_entropy", long_row_kernel<T, L>, static_cast<unsigned>(p.rows), kLongThreads,
                  static_cast<size_t>(bytes), device, p, aligned, static_cast<int>(kept));
  }
  const auto kernel = p.classes <= 32    ? short_row_kernel<T, L, 1>
                      : p.classes <= 128 ? short_row_kernel<T, L, 4>
                                         : row_kernel<T, L>;
  launch("cross_entropy", kernel, static_cast<unsigned>((p.rows + kWarps - 1) / kWarps), kThreads, 0, device,
         p);
}

}  // namespace

template <class T>
void cross_entropy_rows(const CrossEntropy<T>& p, Cuda device) {
  if (p.rows == 0) return;
  if constexpr (!std::is_same_v<T, float>)
    if (p.wide_logits) return run_rows(p, p.wide_logits, device);
  run_rows(p, p.logits, device);
}

template <class T>
void cross_entropy_sum(const CrossEntropy<T>& p, Cuda device) {
  launch("cross_entropy: sum of losses", sum_kernel, 1, 1024, 0, device, p.workspace, p.targets,
         p.predictions, p.rows, p.loss_sum, p.predictions ? p.correct : nullptr);
}

template <class T>
void cross_entropy(const CrossEntropy<T>& p, Cuda device) {
  cross_entropy_rows(p, device);
  cross_entropy_sum(p, device);
}

#define SIGNET_INSTANTIATE(T)                                     \
  template void cross_entropy(const CrossEntropy<T>&, Cuda);      \
  template void cross_entropy_rows(const CrossEntropy<T>&, Cuda); \
  template void cross_entropy_sum(const CrossEntropy<T>&, Cuda);
SIGNET_INSTANTIATE(float)
SIGNET_INSTANTIATE(bf16)
#undef SIGNET_INSTANTIATE

}  // namespace signet::kernels
