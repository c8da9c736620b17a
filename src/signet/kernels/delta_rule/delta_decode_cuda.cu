#include <algorithm>

#include "signet/kernels/activation/activation_device.cuh"
#include "signet/kernels/delta_rule/delta_decode.h"
#include "signet/tensor/cuda_check.h"
#include "signet/tensor/launch_clusters.cuh"
#include "signet/tensor/packet.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels {
namespace {

constexpr int kMaxTaps = 4;

__device__ inline void cluster_barrier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// A head of one sequence belongs to a cluster of D / kColumns blocks, each with kColumns columns of the
// state: thread (r, c) has rows r, r + kRowThreads, .. of columns 4 c .. 4 c + 3 in registers.
template <int D, int kColumns>
struct Layout {
  static constexpr int kSlices = D / kColumns, kColumnThreads = kColumns / 4;
  static constexpr int kThreads = D * kColumns / 16 < 64    ? 64
                                  : D * kColumns / 16 > 256 ? 256
                                                            : D* kColumns / 16;
  static constexpr int kWarps = kThreads / 32, kRowThreads = kThreads / kColumnThreads,
                       kRows = D / kRowThreads;
  static_assert(kRowThreads * kColumnThreads == kThreads && kRows * kRowThreads == D && kColumnThreads <= 32);
};

// The convolution of a channel with its SiLU.
template <class T>
__device__ float convolved(const DeltaDecode<T>& p, int64_t b, int64_t channel) {
  const int taps = static_cast<int>(p.taps);
  const T* const history = p.history + b * (taps - 1) * p.channels() + channel;
  const float* const weight = p.weight + channel * taps;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kMaxTaps - 1; ++i)
    if (i < taps - 1) sum = fmaf(weight[i], to_float(history[i * p.channels()]), sum);
  sum = fmaf(weight[taps - 1], to_float(p.x[b * p.x_stride + channel]), sum);
  return sum * logistic(sum);
}
// What the convolution of D channels from `first` on reads of earlier kernels, towards the cache.
template <int D, class T>
__device__ void fetch_ahead(const DeltaDecode<T>& p, int64_t b, int64_t first, int lane) {
  constexpr int kLine = 128;  // bytes
  const int taps = static_cast<int>(p.taps);
  const auto fetch = [](const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); };
  for (int i = lane * kLine; i < D * taps * static_cast<int>(sizeof(float)); i += 32 * kLine)
    fetch(reinterpret_cast<const char*>(p.weight + first * taps) + i);
  constexpr int kBytes = D * static_cast<int>(sizeof(T)), kLines = (kBytes + kLine - 1) / kLine;
  if (lane < kLines * (taps - 1))
    fetch(reinterpret_cast<const char*>(p.history + (b * (taps - 1) + lane / kLines) * p.channels() + first) +
          lane % kLines * kLine);
}
// Its last inputs without the oldest and with the new one.
template <class T>
__device__ void move_on(const DeltaDecode<T>& p, int64_t b, int64_t channel) {
  const int taps = static_cast<int>(p.taps);
  T* const history = p.history + b * (taps - 1) * p.channels() + channel;
  T kept[kMaxTaps];
#pragma unroll
  for (int i = 0; i < kMaxTaps - 2; ++i)
    if (i < taps - 2) kept[i] = history[(i + 1) * p.channels()];
#pragma unroll
  for (int i = 0; i < kMaxTaps - 2; ++i)
    if (i < taps - 2) history[i * p.channels()] = kept[i];
  if (taps > 1) history[(taps - 2) * p.channels()] = p.x[b * p.x_stride + channel];
}
// A warp makes q or a key from its first channel on: a unit vector.
template <int D, class T>
__device__ void make_unit(const DeltaDecode<T>& p, int64_t b, int64_t first, int lane, float* to) {
  float made[D / 32], square = 0.0f;
#pragma unroll
  for (int i = 0; i < D / 32; ++i) {
    made[i] = convolved(p, b, first + i * 32 + lane);
    square = fmaf(made[i], made[i], square);
  }
  const float inverse = inverse_root(lane_sum<32>(square) + p.eps);
#pragma unroll
  for (int i = 0; i < D / 32; ++i) to[i * 32 + lane] = made[i] * inverse;
}
template <class T>
__device__ float made_beta(const DeltaDecode<T>& p, int64_t b, int64_t index) {
  return activate(p.gate.kind, to_float(p.x[b * p.x_stride + p.beta_at + index]), GateForm(p.gate));
}

// Where there are many sequences, all but the state's part is made first: the channels of each go to the
// workspace, [batch, channels], and behind those of all the betas, [batch, factors heads]. A thread has four
// channels; D / 4 threads are a vector.
template <class T, int D, int kTaps>
__global__ void __launch_bounds__(128) prepare_kernel(DeltaDecode<T> p, bool x_fits, bool weight_fits) {
  const int64_t channels = p.channels(), packets = channels / 4,
                packet = static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x;
  const bool live = packet < p.batch * packets;  // all lanes stay for the sums
  const int64_t b = live ? packet / packets : 0, channel = live ? packet % packets * 4 : 0;
  T* const history = p.history + b * (kTaps - 1) * channels + channel;
  float weight[kTaps][4];  // as they lie in memory: of the first channel all taps, then of the second
  Packet<T> inputs[kTaps];
#pragma unroll
  for (int i = 0; i < kTaps; ++i)
    unpack(load_packet(p.weight + channel * kTaps, 4 * i, 4 * kTaps, weight_fits), weight[i]);
#pragma unroll
  for (int i = 0; i < kTaps - 1; ++i) inputs[i] = *reinterpret_cast<const Packet<T>*>(history + i * channels);
  begin_kernel();
  inputs[kTaps - 1] = load_packet(p.x + b * p.x_stride + channel, 0, 4, x_fits);
  float made[4] = {};
#pragma unroll
  for (int i = 0; i < kTaps; ++i) {
    float input[4];
    unpack(inputs[i], input);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      made[j] = fmaf(weight[(j * kTaps + i) / 4][(j * kTaps + i) % 4], input[j], made[j]);
  }
  float square = 0.0f;
#pragma unroll
  for (float& each : made) {
    each *= logistic(each);
    square = fmaf(each, each, square);
  }
  square = lane_sum<D / 4>(square);
  if (!live) return;
  const int64_t vector = channel / D, units = (1 + p.factors) * p.heads;
  if (vector < units) {
    const float inverse = inverse_root(square + p.eps);
#pragma unroll
    for (float& each : made) each *= inverse;
  } else if (channel % D == 0) {
    const int64_t index = vector - units, betas = p.factors * p.heads;
    p.workspace[p.batch * channels + b * betas + index] = made_beta(p, b, index);
  }
  store_packet(p.workspace + b * channels + channel, 0, 4, true, made);
#pragma unroll
  for (int i = 1; i < kTaps; ++i) *reinterpret_cast<Packet<T>*>(history + (i - 1) * channels) = inputs[i];
}

// Which head and columns a block has, and which of them a thread.
template <int D, int kColumns>
struct Place {
  using L = Layout<D, kColumns>;
  int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int column = static_cast<int>(threadIdx.x) % L::kColumnThreads * 4,
      row = static_cast<int>(threadIdx.x) / L::kColumnThreads;
  int slice, h;
  int64_t b;
  __device__ Place(int64_t job, int heads)
      : slice(static_cast<int>(job % L::kSlices)),
        h(static_cast<int>(job / L::kSlices % heads)),
        b(job / L::kSlices / heads) {}
  // This thread's first four numbers of the state.
  template <class T>
  __device__ float* state(const DeltaDecode<T>& p) const {
    return p.state + (b * p.heads + h) * D * D + static_cast<int64_t>(row) * D + slice * kColumns + column;
  }
};

// What a head makes of its token, in shared memory.
template <int D, int kColumns>
struct Vectors {
  float *q, *k, *v, *beta;  // [D], [factors, D], [factors, kColumns], [factors]
  __device__ Vectors(float* at, int factors)
      : q(at), k(q + D), v(k + factors * D), beta(v + factors * kColumns) {}
  static SIGNET_HOST_DEVICE int size(int factors) {
    return (1 + factors) * D + factors * kColumns + (factors + 3) / 4 * 4;
  }
};

template <class T, int D, int kColumns>
__device__ void decay_state(const DeltaDecode<T>& p, const Place<D, kColumns>& at,
                            float4 (&s)[Layout<D, kColumns>::kRows]) {
  using L = Layout<D, kColumns>;
  if (p.decay_channels == 0) return;
  const float* const decay = p.decay + at.b * p.decay_stride + at.h * p.decay_channels;
#pragma unroll
  for (int i = 0; i < L::kRows; ++i) {
    const float g = decay[p.decay_channels > 1 ? at.row + i * L::kRowThreads : 0];
    s[i].x *= g, s[i].y *= g, s[i].z *= g, s[i].w *= g;
  }
}

// The factors of a token, one after the other, and what is read then. `products` has room for [kWarps, 2,
// kColumns]; all threads have come past a barrier since the vectors were written and products was read last.
template <class T, int D, int kColumns>
__device__ void advance(const DeltaDecode<T>& p, const Place<D, kColumns>& at,
                        const Vectors<D, kColumns>& vectors, float* products,
                        float4 (&s)[Layout<D, kColumns>::kRows]) {
  using L = Layout<D, kColumns>;
  const int factors = static_cast<int>(p.factors), row = at.row, column = at.column, lane = at.lane,
            warp = at.warp;
  const float* const q = vectors.q;
  for (int j = 0; j < factors; ++j) {
    const float* const key = vectors.k + j * D;
    // S^T k and, for the last factor, S^T q and k . q: then o = S'^T q = S^T q + (k . q) w.
    float4 u{}, read{};
    float overlap = 0.0f;
#pragma unroll
    for (int i = 0; i < L::kRows; ++i) {
      const float ki = key[row + i * L::kRowThreads], qi = q[row + i * L::kRowThreads];
      u.x = fmaf(ki, s[i].x, u.x), u.y = fmaf(ki, s[i].y, u.y), u.z = fmaf(ki, s[i].z, u.z),
      u.w = fmaf(ki, s[i].w, u.w);
      read.x = fmaf(qi, s[i].x, read.x), read.y = fmaf(qi, s[i].y, read.y);
      read.z = fmaf(qi, s[i].z, read.z), read.w = fmaf(qi, s[i].w, read.w);
    }
#pragma unroll
    for (int i = 0; i < D / 32; ++i) overlap = fmaf(key[i * 32 + lane], q[i * 32 + lane], overlap);
    overlap = lane_sum<32>(overlap);
#pragma unroll
    for (int mask = L::kColumnThreads; mask < 32; mask *= 2) {
      u.x += __shfl_xor_sync(0xffffffffu, u.x, mask), u.y += __shfl_xor_sync(0xffffffffu, u.y, mask);
      u.z += __shfl_xor_sync(0xffffffffu, u.z, mask), u.w += __shfl_xor_sync(0xffffffffu, u.w, mask);
      read.x += __shfl_xor_sync(0xffffffffu, read.x, mask),
          read.y += __shfl_xor_sync(0xffffffffu, read.y, mask);
      read.z += __shfl_xor_sync(0xffffffffu, read.z, mask),
          read.w += __shfl_xor_sync(0xffffffffu, read.w, mask);
    }
    if (lane < L::kColumnThreads) {
      *reinterpret_cast<float4*>(products + (warp * 2) * kColumns + column) = u;
      *reinterpret_cast<float4*>(products + (warp * 2 + 1) * kColumns + column) = read;
    }
    __syncthreads();
    u = read = float4{};
#pragma unroll
    for (int w = 0; w < L::kWarps; ++w) {
      const float4 du = *reinterpret_cast<const float4*>(products + (w * 2) * kColumns + column),
                   dr = *reinterpret_cast<const float4*>(products + (w * 2 + 1) * kColumns + column);
      u.x += du.x, u.y += du.y, u.z += du.z, u.w += du.w;
      read.x += dr.x, read.y += dr.y, read.z += dr.z, read.w += dr.w;
    }
    const float4 value = *reinterpret_cast<const float4*>(vectors.v + j * kColumns + column);
    const float strength = vectors.beta[j];
    const float4 w{strength * (value.x - u.x), strength * (value.y - u.y), strength * (value.z - u.z),
                   strength * (value.w - u.w)};
#pragma unroll
    for (int i = 0; i < L::kRows; ++i) {
      const float ki = key[row + i * L::kRowThreads];
      s[i].x = fmaf(ki, w.x, s[i].x), s[i].y = fmaf(ki, w.y, s[i].y);
      s[i].z = fmaf(ki, w.z, s[i].z), s[i].w = fmaf(ki, w.w, s[i].w);
    }
    if (j + 1 == factors && row == 0) {
      const float o[4] = {p.scale * fmaf(overlap, w.x, read.x), p.scale * fmaf(overlap, w.y, read.y),
                          p.scale * fmaf(overlap, w.z, read.z), p.scale * fmaf(overlap, w.w, read.w)};
      T* const to = p.o + at.b * p.o_stride + at.h * D + at.slice * kColumns + column;
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = from_float<T>(o[i]);
    }
    if (j + 1 < factors) __syncthreads();  // `products` is about to be written again
  }
}

// Few sequences: a block for every slice of a state, which makes what it needs by itself.
template <class T, int D, int kColumns>
__global__ void __launch_bounds__(Layout<D, kColumns>::kThreads) decode_kernel(DeltaDecode<T> p) {
  using L = Layout<D, kColumns>;
  extern __shared__ __align__(16) float shared[];
  const int factors = static_cast<int>(p.factors), heads = static_cast<int>(p.heads);
  const Place<D, kColumns> at(blockIdx.x, heads);
  const Vectors<D, kColumns> made(shared, factors);
  float* const products = shared + Vectors<D, kColumns>::size(factors);
  float* const state = at.state(p);
  float4 s[L::kRows];
#pragma unroll
  for (int i = 0; i < L::kRows; ++i)
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(s[i].x), "=f"(s[i].y), "=f"(s[i].z), "=f"(s[i].w)
                 : "l"(state + i * L::kRowThreads * D));
  const int64_t inner = p.heads * D, of_keys = inner, of_values = (1 + p.factors) * inner;
  for (int job = at.warp; job < 1 + 2 * factors; job += L::kWarps)
    fetch_ahead<D>(p, at.b, (int64_t{job} * heads + at.h) * D, at.lane);
  begin_kernel();
  // A warp makes q, a key, or a value's columns.
  for (int job = at.warp; job < 1 + 2 * factors; job += L::kWarps) {
    if (job == 0) {
      make_unit<D>(p, at.b, int64_t{at.h} * D, at.lane, made.q);
    } else if (job <= factors) {
      make_unit<D>(p, at.b, of_keys + (int64_t{job - 1} * heads + at.h) * D, at.lane, made.k + (job - 1) * D);
    } else {
      const int j = job - 1 - factors;
      const int64_t first = of_values + (int64_t{j} * heads + at.h) * D + at.slice * kColumns;
      for (int c = at.lane; c < kColumns; c += 32) {
        made.v[j * kColumns + c] = convolved(p, at.b, first + c);
        move_on(p, at.b, first + c);  // of these channels this block is the only reader
      }
      if (at.lane == 0) made.beta[j] = made_beta(p, at.b, j * heads + at.h);
    }
  }
  decay_state(p, at, s);
  // The old inputs of q and k have been read by all blocks of the cluster when the first one overwrites them.
  if constexpr (L::kSlices > 1)
    cluster_barrier();
  else
    __syncthreads();
  if (at.slice == 0)
    for (int c = static_cast<int>(threadIdx.x); c < D * (1 + factors); c += L::kThreads)
      move_on(p, at.b,
              (c < D ? int64_t{at.h} * D : of_keys + (int64_t{c / D - 1} * heads + at.h) * D) + c % D);
  advance(p, at, made, products, s);
#pragma unroll
  for (int i = 0; i < L::kRows; ++i) *reinterpret_cast<float4*>(state + i * L::kRowThreads * D) = s[i];
}

template <int kBytes>
__device__ inline void copy_ahead(float* to, const float* from) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from) : "memory");
}

// Many sequences, whose vectors prepare_kernel has made: a block goes from slice to slice and has the state
// and the vectors of the next one on their way while it works on one, so that the memory never waits. Of a
// state a thread copies what it works on itself.
// A multiprocessor has enough of them to keep 48 KB and more under way.
template <int D>
constexpr int kBlocksAtOnce = D >= 64 ? 3 : 16;
template <int D, int kColumns>
int stream_floats(int factors) {
  return 2 * D * kColumns + 2 * Vectors<D, kColumns>::size(factors) +
         Layout<D, kColumns>::kWarps * 2 * kColumns;
}
template <class T, int D, int kColumns>
__global__ void __launch_bounds__(Layout<D, kColumns>::kThreads, kBlocksAtOnce<D>)
    stream_kernel(DeltaDecode<T> p) {
  using L = Layout<D, kColumns>;
  using At = Place<D, kColumns>;
  extern __shared__ __align__(16) float shared[];
  const int factors = static_cast<int>(p.factors), heads = static_cast<int>(p.heads),
            thread = static_cast<int>(threadIdx.x);
  float* const products = shared + 2 * D * kColumns;
  float* const vectors = products + L::kWarps * 2 * kColumns;
  const int64_t jobs = p.batch * p.heads * L::kSlices, of_keys = p.heads * D,
                of_values = (1 + p.factors) * of_keys;
  const auto fetch_state = [&](int64_t job, int buffer) {
    const float* const from = At(job, heads).state(p);
    float* const to = shared + buffer * D * kColumns + 4 * thread;
#pragma unroll
    for (int i = 0; i < L::kRows; ++i)
      copy_ahead<16>(to + i * L::kThreads * 4, from + i * L::kRowThreads * D);
  };
  const auto fetch_vectors = [&](int64_t job, int buffer) {
    const At at(job, heads);
    const Vectors<D, kColumns> to(vectors + buffer * Vectors<D, kColumns>::size(factors), factors);
    const float* const from = p.workspace + at.b * p.channels();
    for (int i = 4 * thread; i < (1 + factors) * D; i += 4 * L::kThreads)
      copy_ahead<16>(
          to.q + i,
          from + i % D + (i < D ? int64_t{at.h} * D : of_keys + (int64_t{i / D - 1} * heads + at.h) * D));
    for (int i = 4 * thread; i < factors * kColumns; i += 4 * L::kThreads)
      copy_ahead<16>(to.v + i, from + of_values + (int64_t{i / kColumns} * heads + at.h) * D +
                                   at.slice * kColumns + i % kColumns);
    const float* const betas = p.workspace + p.batch * p.channels() + at.b * factors * heads;
    for (int j = thread; j < factors; j += L::kThreads) copy_ahead<4>(to.beta + j, betas + j * heads + at.h);
  };
  int64_t job = blockIdx.x;
  fetch_state(job, 0);  // before the kernels ahead are done
  begin_kernel();
  fetch_vectors(job, 0);
  close_copy_group();
  for (int buffer = 0; job < jobs; job += gridDim.x, buffer ^= 1) {
    if (const int64_t next = job + gridDim.x; next < jobs) {
      fetch_state(next, buffer ^ 1);
      fetch_vectors(next, buffer ^ 1);
    }
    close_copy_group();
    wait_for_copies<1>();
    __syncthreads();
    const At at(job, heads);
    float4 s[L::kRows];
#pragma unroll
    for (int i = 0; i < L::kRows; ++i)
      s[i] =
          *reinterpret_cast<const float4*>(shared + buffer * D * kColumns + (i * L::kThreads + thread) * 4);
    decay_state(p, at, s);
    advance(p, at, Vectors<D, kColumns>(vectors + buffer * Vectors<D, kColumns>::size(factors), factors),
            products, s);
    float* const state = at.state(p);
#pragma unroll
    for (int i = 0; i < L::kRows; ++i)
      __stcs(reinterpret_cast<float4*>(state + i * L::kRowThreads * D), s[i]);
    __syncthreads();  // the vectors are about to be replaced
  }
}

// Few sequences are spread over as many multiprocessors as there are, in one kernel. Of many, two keep the
// memory busier: blocks that have nothing to wait for but the state.
template <class T, int D>
void run_width(const DeltaDecode<T>& p, Cuda device) {
  const int factors = static_cast<int>(p.factors), width = cuda_device().multiprocessors;
  if (p.batch * p.heads < 2 * width) {
    constexpr int kColumns = D / 8 >= 16 ? D / 8 : 16;
    using L = Layout<D, kColumns>;
    const int floats = Vectors<D, kColumns>::size(factors) + L::kWarps * 2 * kColumns;
    return launch_clusters("delta_decode", decode_kernel<T, D, kColumns>,
                           static_cast<unsigned>(p.batch * p.heads * L::kSlices), L::kThreads, L::kSlices,
                           sizeof(float) * static_cast<size_t>(floats), device, p);
  }
  const auto prepare = p.taps == 4   ? prepare_kernel<T, D, 4>
                       : p.taps == 3 ? prepare_kernel<T, D, 3>
                       : p.taps == 2 ? prepare_kernel<T, D, 2>
                                     : prepare_kernel<T, D, 1>;
  launch("delta_decode: heads", prepare, static_cast<unsigned>((p.batch * p.channels() / 4 + 127) / 128), 128,
         0, device, p, packets_fit(p.x, p.x_stride), packets_fit(p.weight, 0));
  constexpr int kColumns = D < 64 ? D : 64;
  using L = Layout<D, kColumns>;
  const int64_t bytes = int64_t{sizeof(float)} * stream_floats<D, kColumns>(factors);
  allow_shared_memory(stream_kernel<T, D, kColumns>, bytes, "delta_decode");
  launch("delta_decode: states", stream_kernel<T, D, kColumns>,
         static_cast<unsigned>(std::min<int64_t>(p.batch * p.heads * L::kSlices, kBlocksAtOnce<D> * width)),
         L::kThreads, static_cast<size_t>(bytes), device, p);
}

}  // namespace

bool delta_decode_covers(int64_t width, int64_t taps) {
  return cuda_device().hopper && taps >= 1 && taps <= kMaxTaps &&
         (width == 32 || width == 64 || width == 128);
}

int64_t delta_decode_workspace_size(int64_t batch, int64_t heads, int64_t width, int64_t factors, Cuda) {
  return batch * heads * ((1 + 2 * factors) * width + factors);
}

template <class T>
void delta_decode(const DeltaDecode<T>& p, Cuda device) {
  if (p.batch == 0) return;
  if (p.width == 128) return run_width<T, 128>(p, device);
  if (p.width == 64) return run_width<T, 64>(p, device);
  run_width<T, 32>(p, device);
}

template void delta_decode(const DeltaDecode<float>&, Cuda);
template void delta_decode(const DeltaDecode<bf16>&, Cuda);

}  // namespace signet::kernels
