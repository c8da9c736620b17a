// The gated linear recurrence on the tensor cores (bf16 storage, dk = dv = 64 or 128): one block per sequence
// and head walks chunks of 16 tokens with its state in registers (fp32; warp w has rows 16w ..) and, rounded
// to bf16, in shared memory for the next chunk's products. The formulas are those of
// gated_linear_chunked_cpu.cc. What is per pair of tokens and channel stays in fp32 on the ordinary cores;
// what touches the state is a product of bf16 factors with fp32 sums. Decays are running products of at most
// 16 gates, signs and zeros included.
//
// saved: the state before every chunk in bf16, in the permuted order of shared memory, [B H, chunks, D, D].
#include "signet/kernels/delta_rule/delta_rule_cuda_mma.cuh"
#include "signet/kernels/gated_linear/gated_linear_cuda.cuh"

namespace signet::kernels::gated_linear {
namespace {

using namespace delta_rule;  // NOLINT: the tensor core building blocks

constexpr int kTokens = 16;
template <int D>
constexpr int kThreads = 2 * D;

// One chunk's inputs; two of them take turns.
template <int D, bool kChannels, bool kBackward>
struct alignas(256) Inputs {
  Half q[kTokens * D], k[kTokens * D], v[kTokens * D];
  alignas(256) Half d_o[kBackward ? kTokens * D : 8];
  alignas(256) Half state[kBackward ? D * D : 8];  // before the chunk
  alignas(256) float gate_values[kChannels ? kTokens * D : kTokens];

  __device__ float gate(int t, int i) const { return gate_values[kChannels ? t * D + i : t]; }
};

template <int D, bool kChannels, bool kBackward>
struct Memory {
  Inputs<D, kChannels, kBackward> in[2];
  alignas(256) Half qp[kTokens * D];  // D(-1,t) q_t, times the scale in backward
  alignas(256) Half kr[kTokens * D];  // D(r,n) k_r
  alignas(256) Half state[D * D];     // S before the chunk; backward: dS after it
  float y[kBackward ? kTokens * D : 1], z[kBackward ? kTokens * D : 1];
  float whole[D], x[D];  // D(-1,n); rows of S . dS
  float a[kTokens][kTokens + 1], b[kTokens][kTokens + 1];
  float sums[D / 32][kTokens];
};

__device__ inline const Half* half(const bf16* p) { return reinterpret_cast<const Half*>(p); }
__device__ inline Half* half(bf16* p) { return reinterpret_cast<Half*>(p); }

// This block's sequence and head.
struct Job {
  int64_t head, row;  // row: of the first token
  int h, chunks, lane, warp;
  __device__ explicit Job(const Problem<bf16>& p)
      : head(blockIdx.x),
        row(head / p.heads * p.time),
        h(static_cast<int>(head % p.heads)),
        chunks((p.time + kTokens - 1) / kTokens),
        lane(static_cast<int>(threadIdx.x % 32)),
        warp(static_cast<int>(threadIdx.x / 32)) {}
  __device__ int tokens(const Problem<bf16>& p, int chunk) const {
    return min(kTokens, p.time - chunk * kTokens);
  }
};

// Starts the copies of a chunk. Tokens beyond the end get zeros here and gates of 1 in finish_fetch.
template <int D, bool kChannels, bool kBackward>
__device__ void fetch(Inputs<D, kChannels, kBackward>& in, const Problem<bf16>& p, const Job& job,
                      int chunk) {
  const int n = job.tokens(p, chunk), thread = threadIdx.x;
  const int64_t row = job.row + int64_t{chunk} * kTokens;
  const auto rows = [&](Half* to, const bf16* from, int64_t stride) {
    fetch_tile<D, kTokens, kThreads<D>>(to, half(from) + row * stride + job.h * D, RowMap(1, stride, 0), n,
                                        thread);
  };
  rows(in.q, p.q, p.q_stride);
  rows(in.k, p.k, p.k_stride);
  rows(in.v, p.v, p.v_stride);
  if constexpr (kBackward) {
    rows(in.d_o, p.d_o, p.o_stride);
    fetch_linear<D * D, kThreads<D>>(
        in.state, reinterpret_cast<const Half*>(p.saved) + (job.head * job.chunks + chunk) * D * D, thread);
  }
  if constexpr (kChannels) {
    for (int i = thread; i < n * (D / 4); i += kThreads<D>) {
      const int t = i / (D / 4), column = i % (D / 4) * 4;
      copy_async<16>(in.gate_values + t * D + column,
                     p.gate + (row + t) * p.gate_stride + job.h * D + column);
    }
  } else if (thread < n) {
    copy_async<4>(in.gate_values + thread, p.gate + (row + thread) * p.gate_stride + job.h);
  }
  copy_commit();
}
template <int D, bool kChannels, bool kBackward>
__device__ void finish_fetch(Inputs<D, kChannels, kBackward>& in, int n) {
  copy_wait<0>();
  constexpr int kWidth = kChannels ? D : 1;
  for (int i = n * kWidth + threadIdx.x; i < kTokens * kWidth; i += kThreads<D>) in.gate_values[i] = 1.f;
  __syncthreads();
}

// qp and whole by the first half of the threads, kr by the second: a channel each.
template <int D, bool kChannels, bool kBackward>
__device__ void scale_rows(Memory<D, kChannels, kBackward>& m, const Inputs<D, kChannels, kBackward>& in,
                           float q_scale) {
  const int i = threadIdx.x % D;
  float product = 1.f;
  if (threadIdx.x < D) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const int at = tile_index<D>(t, i);
      product *= in.gate(t, i);
      m.qp[at] = __float2bfloat16(product * q_scale * __bfloat162float(in.q[at]));
    }
    m.whole[i] = product;
  } else {
#pragma unroll
    for (int t = kTokens - 1; t >= 0; --t) {
      const int at = tile_index<D>(t, i);
      m.kr[at] = __float2bfloat16(product * __bfloat162float(in.k[at]));
      product *= in.gate(t, i);
    }
  }
}

// C[16][16] = A B^T over D columns, by one warp.
template <int D>
__device__ void pair_product(float (&c)[2][4], const Half* a_tile, const Half* b_tile, int lane) {
  clear(c);
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    uint32_t a[4], b[4];
    load_left<Rows<D>>(a, a_tile, 0, k, lane);
    load_right_transposed<Rows<D>>(b, b_tile, k, 0, lane);
    multiply_add_pair(c[0], c[1], a, b);
  }
}

// B_tr = sum_i q_t D(r,t) k_r. One gate per head: a product by warp 0, then the decays. A gate per channel: a
// warp per r, rows r and 15 - r by the same one, the decayed key of a few channels in each lane.
template <int D, bool kChannels, bool kBackward>
__device__ void pair_decays(Memory<D, kChannels, kBackward>& m, const Inputs<D, kChannels, kBackward>& in,
                            const Job& job) {
  if constexpr (!kChannels) {
    if (job.warp != 0) return;
    float c[2][4];
    pair_product<D>(c, in.q, in.k, job.lane);
    for_each_element(c, job.lane, [&](float value, int t, int r) {
      float decay = t < r ? 0.f : 1.f;
      for (int u = r + 1; u <= t; ++u) decay *= in.gate_values[u];
      m.b[t][r] = value * decay;
    });
  } else {
    constexpr int kEach = D / 32, kWarps = kThreads<D> / 32;
    const int channel = job.lane * kEach;
#pragma unroll 1
    for (int j = job.warp; j < kTokens; j += kWarps) {
      const int r = j < kTokens / 2 ? j : kTokens + kTokens / 2 - 1 - j;
      float key[kEach], part[kTokens];
      load_floats(key, in.k + tile_index<D>(r, channel));
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        part[t] = 0.f;
        if (t < r) continue;
        float q[kEach];
        load_floats(q, in.q + tile_index<D>(t, channel));
        if (t > r) {
          float g[kEach];
          load_floats(g, in.gate_values + t * D + channel);
#pragma unroll
          for (int e = 0; e < kEach; ++e) key[e] *= g[e];
        }
#pragma unroll
        for (int e = 0; e < kEach; ++e) part[t] = fmaf(q[e], key[e], part[t]);
      }
      sum_scatter<32, 1>(part, job.lane);
      if (job.lane % 2 == 0) m.b[job.lane / 2][r] = part[0];
    }
  }
}

// A 16 x 16 matrix in shared memory as the left operand, in two parts.
template <bool kTransposed>
__device__ void matrix_as_left(uint32_t (&high)[4], uint32_t (&low)[4],
                               const float (&m)[kTokens][kTokens + 1], float scale, int lane) {
  const int g = lane / 4, q = lane % 4 * 2;
  const auto at = [&](int row, int column) {
    return scale * (kTransposed ? m[column][row] : m[row][column]);
  };
  const float c0[4] = {at(g, q), at(g, q + 1), at(g + 8, q), at(g + 8, q + 1)};
  const float c1[4] = {at(g, q + 8), at(g, q + 9), at(g + 8, q + 8), at(g + 8, q + 9)};
  as_left(high, low, c0, c1);
}

// s <- Diag(whole) s + left^T right over the 16 tokens; this warp's 16 rows.
template <int D>
__device__ void advance(float (&s)[D / 8][4], const float* whole, const Half* left, const Half* right,
                        const Job& job) {
  const int m0 = 16 * job.warp;
  const float low = whole[m0 + job.lane / 4], high = whole[m0 + job.lane / 4 + 8];
  uint32_t a[4], b[4];
  load_left_transposed<Rows<D>>(a, left, m0, 0, job.lane);
#pragma unroll
  for (int n = 0; n < D / 8; n += 2) {
#pragma unroll
    for (int j = n; j < n + 2; ++j) s[j][0] *= low, s[j][1] *= low, s[j][2] *= high, s[j][3] *= high;
    load_right<Rows<D>>(b, right, 0, n * 8, job.lane);
    multiply_add_pair(s[n], s[n + 1], a, b);
  }
}

template <int D>
__device__ void publish(float (&s)[D / 8][4], Half* tile, const Job& job) {
  for_each_pair(s, job.lane, [&](float x, float y, int row, int column) {
    *reinterpret_cast<uint32_t*>(tile + tile_index<D>(16 * job.warp + row, column)) = pack(x, y);
  });
}
template <int D>
__device__ void read_state(float (&s)[D / 8][4], const float* state, const Job& job) {
  clear(s);
  if (!state) return;
  for_each_pair(s, job.lane, [&](float& x, float& y, int row, int column) {
    const float* from = state + job.head * D * D + (16 * job.warp + row) * D + column;
    x = from[0], y = from[1];
  });
}
template <int D>
__device__ void write_state(float (&s)[D / 8][4], float* state, const Job& job) {
  if (!state) return;
  for_each_pair(s, job.lane, [&](float x, float y, int row, int column) {
    float* to = state + job.head * D * D + (16 * job.warp + row) * D + column;
    to[0] = x, to[1] = y;
  });
}
// 16 tokens by the 16 columns of this warp.
__device__ inline void write_columns(float (&c)[2][4], bf16* to, int64_t stride, int64_t row, int n,
                                     float scale, int column0, int lane) {
  for_each_pair(c, lane, [&](float x, float y, int t, int column) {
    if (t < n)
      *reinterpret_cast<uint32_t*>(half(to) + (row + t) * stride + column0 + column) =
          pack(scale * x, scale * y);
  });
}

template <int D, bool kChannels>
__global__ void __launch_bounds__(kThreads<D>) chunk_forward_kernel(Problem<bf16> p) {
  extern __shared__ __align__(256) char shared[];
  auto& m = *reinterpret_cast<Memory<D, kChannels, false>*>(shared);
  const Job job(p);
  float s[D / 8][4];
  fetch(m.in[0], p, job, 0);
  read_state<D>(s, p.initial_state, job);
  publish<D>(s, m.state, job);
  for (int chunk = 0; chunk < job.chunks; ++chunk) {
    auto& in = m.in[chunk & 1];
    const int n = job.tokens(p, chunk), n0 = 16 * job.warp;
    finish_fetch(in, n);
    if (chunk + 1 < job.chunks) fetch(m.in[(chunk + 1) & 1], p, job, chunk + 1);
    scale_rows(m, in, 1.f);
    pair_decays(m, in, job);
    if (p.saved) {
      uint4* const to = reinterpret_cast<uint4*>(p.saved) + (job.head * job.chunks + chunk) * (D * D / 8);
#pragma unroll 4
      for (int i = threadIdx.x; i < D * D / 8; i += kThreads<D>)
        to[i] = reinterpret_cast<const uint4*>(m.state)[i];
    }
    __syncthreads();
    float o[2][4];
    clear(o);
    product<D, Rows<D>, false, Rows<D>, false>(o, m.qp, 0, m.state, n0, job.lane);
    uint32_t high[4], low[4], b[4];
    matrix_as_left<false>(high, low, m.b, 1.f, job.lane);
    load_right<Rows<D>>(b, in.v, 0, n0, job.lane);
    multiply_add_pair(o[0], o[1], high, b);
    multiply_add_pair(o[0], o[1], low, b);
    write_columns(o, p.o, p.o_stride, job.row + int64_t{chunk} * kTokens, n, p.scale, job.h * D + n0,
                  job.lane);
    advance<D>(s, m.whole, m.kr, in.v, job);
    __syncthreads();  // everybody has read the state
    publish<D>(s, m.state, job);
  }
  write_state<D>(s, p.final_state, job);
}

// dq and dg, or dk, of one channel from y^0, Z, x_0 and A.
template <int D, bool kChannels>
__device__ void channel_gradients(Memory<D, kChannels, true>& m, const Inputs<D, kChannels, true>& in,
                                  const Problem<bf16>& p, const Job& job, int64_t row, int n) {
  const int i = threadIdx.x % D;
  float q[kTokens], g[kTokens + 1];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    q[t] = __bfloat162float(in.q[tile_index<D>(t, i)]);
    g[t] = in.gate(t, i);
  }
  g[kTokens] = 1.f;
  if (threadIdx.x >= D) {
    Half* const dk = half(p.dk_out) + row * p.k_stride + job.h * D + i;
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      float d_key = m.z[t * D + i];
#pragma unroll
      for (int s = kTokens - 1; s >= t; --s) d_key = fmaf(d_key, g[s + 1], m.a[s][t] * q[s]);
      if (t < n) dk[t * p.k_stride] = __float2bfloat16(d_key);
    }
    return;
  }
  float y[kTokens], suffix[kTokens], d_gate[kTokens], product = 1.f, x = m.x[i];
#pragma unroll
  for (int t = kTokens - 1; t >= 0; --t) {
    y[t] = m.y[t * D + i];
    suffix[t] = product;
    product *= g[t];
  }
  Half* const dq = half(p.dq) + row * p.q_stride + job.h * D + i;
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const float key = __bfloat162float(in.k[tile_index<D>(t, i)]);
    float along = 0.f;
#pragma unroll
    for (int s = kTokens - 1; s >= t; --s) {
      along = fmaf(along, g[s + 1], q[s] * y[s]);
      y[s] = fmaf(g[t], y[s], m.a[s][t] * key);
    }
    d_gate[t] = fmaf(suffix[t], x, along);
    x = fmaf(g[t], x, key * m.z[t * D + i]);
    if (t < n) {
      dq[t * p.q_stride] = __float2bfloat16(y[t]);
      if constexpr (kChannels) p.dgate[(row + t) * p.gate_stride + job.h * D + i] = d_gate[t];
    }
  }
  if constexpr (!kChannels) {
    sum_scatter<32, 1>(d_gate, job.lane);
    if (job.lane % 2 == 0) m.sums[job.warp][job.lane / 2] = d_gate[0];
  }
}

template <int D, bool kChannels>
__global__ void __launch_bounds__(kThreads<D>) chunk_backward_kernel(Problem<bf16> p) {
  extern __shared__ __align__(256) char shared[];
  auto& m = *reinterpret_cast<Memory<D, kChannels, true>*>(shared);
  const Job job(p);
  const int n0 = 16 * job.warp, lane = job.lane;
  float ds[D / 8][4];
  fetch(m.in[(job.chunks - 1) & 1], p, job, job.chunks - 1);
  read_state<D>(ds, p.d_final_state, job);
  publish<D>(ds, m.state, job);
  for (int chunk = job.chunks - 1; chunk >= 0; --chunk) {
    auto& in = m.in[chunk & 1];
    const int n = job.tokens(p, chunk);
    const int64_t row = job.row + int64_t{chunk} * kTokens;
    finish_fetch(in, n);
    if (chunk > 0) fetch(m.in[(chunk - 1) & 1], p, job, chunk - 1);
    scale_rows(m, in, p.scale);
    pair_decays(m, in, job);
    float c[2][4];
    if (job.warp == 1) {
      pair_product<D>(c, in.d_o, in.v, lane);
      for_each_element(c, lane, [&](float value, int t, int r) { m.a[t][r] = p.scale * value; });
    }
    clear(c);
    product<D, Rows<D>, false, Rows<D>, true>(c, in.d_o, 0, in.state, n0, lane);
    for_each_element(c, lane, [&](float value, int t, int i) { m.y[t * D + n0 + i] = p.scale * value; });
    clear(c);
    product<D, Rows<D>, false, Rows<D>, true>(c, in.v, 0, m.state, n0, lane);
    for_each_element(c, lane, [&](float value, int t, int i) { m.z[t * D + n0 + i] = value; });
    float x[2] = {};
#pragma unroll
    for (int tile = 0; tile < D / 8; ++tile) {
      const int column = tile * 8 + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint32_t pair =
            *reinterpret_cast<const uint32_t*>(in.state + tile_index<D>(n0 + lane / 4 + 8 * j, column));
        x[j] = fmaf(ds[tile][2 * j], low_half(pair), fmaf(ds[tile][2 * j + 1], high_half(pair), x[j]));
      }
    }
    sum_all<4, 1>(x);
    if (lane % 4 == 0) m.x[n0 + lane / 4] = x[0], m.x[n0 + lane / 4 + 8] = x[1];
    __syncthreads();

    clear(c);
    product<D, Rows<D>, false, Rows<D>, false>(c, m.kr, 0, m.state, n0, lane);
    uint32_t high[4], low[4], b[4];
    matrix_as_left<true>(high, low, m.b, p.scale, lane);
    load_right<Rows<D>>(b, in.d_o, 0, n0, lane);
    multiply_add_pair(c[0], c[1], high, b);
    multiply_add_pair(c[0], c[1], low, b);
    write_columns(c, p.dv_out, p.v_stride, row, n, 1.f, job.h * D + n0, lane);
    advance<D>(ds, m.whole, m.qp, in.d_o, job);
    channel_gradients(m, in, p, job, row, n);
    __syncthreads();  // everybody has read dS
    publish<D>(ds, m.state, job);
    if constexpr (!kChannels) {
      if (threadIdx.x < n) {
        float total = 0.f;
#pragma unroll
        for (int w = 0; w < D / 32; ++w) total += m.sums[w][threadIdx.x];
        p.dgate[(row + threadIdx.x) * p.gate_stride + job.h] = total;
      }
    }
  }
  write_state<D>(ds, p.d_initial_state, job);
}

template <int D, bool kChannels>
void launch(const Problem<bf16>& p, bool backward, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(p.batch) * static_cast<unsigned>(p.heads);
  const auto kernel = backward ? chunk_backward_kernel<D, kChannels> : chunk_forward_kernel<D, kChannels>;
  const int bytes =
      backward ? int{sizeof(Memory<D, kChannels, true>)} : int{sizeof(Memory<D, kChannels, false>)};
  allow_shared_memory(kernel, bytes, "gated linear chunks");
  kernel<<<blocks, kThreads<D>, bytes, stream>>>(p);
  check_launch("gated linear chunks");
}

void run(const Problem<bf16>& p, bool backward, cudaStream_t stream) {
  const void* const pointers[] = {p.q, p.k, p.v, p.o, p.d_o, p.dq, p.dk_out, p.dv_out, p.gate, p.saved};
  for (const void* pointer : pointers)
    if (reinterpret_cast<uintptr_t>(pointer) % 16 != 0)
      fail(ErrorCode::kUsage,
           "the chunked gated linear recurrence needs pointers that are multiples of 16 bytes; ask for the "
           "recurrent algorithm");
  if (p.dk == 128)
    return p.channel_gates ? launch<128, true>(p, backward, stream) : launch<128, false>(p, backward, stream);
  return p.channel_gates ? launch<64, true>(p, backward, stream) : launch<64, false>(p, backward, stream);
}

}  // namespace

bool chunks_cover(const GatedLinearShape& shape) {
  const GatedLinearShape s = with_strides(shape);
  for (int64_t stride : {s.q_stride, s.k_stride, s.v_stride, s.o_stride})
    if (stride % 8 != 0 || stride >= 1 << 24) return false;
  if (s.channel_gates && s.gate_stride % 4 != 0) return false;
  if (s.dk != s.dv || (s.dk != 64 && s.dk != 128) || s.time == 0) return false;
  const size_t bytes =  // of backward, which needs the most
      s.dk == 128 ? (s.channel_gates ? sizeof(Memory<128, true, true>) : sizeof(Memory<128, false, true>))
                  : (s.channel_gates ? sizeof(Memory<64, true, true>) : sizeof(Memory<64, false, true>));
  return fits_shared_memory(bytes);
}

int64_t chunk_saved_size(const GatedLinearShape& s) {
  return s.batch * s.heads * ((s.time + kTokens - 1) / kTokens) * s.dk * s.dv / 2;
}

void chunk_forward(const Problem<bf16>& p, cudaStream_t stream) { run(p, false, stream); }
void chunk_backward(const Problem<bf16>& p, cudaStream_t stream) { run(p, true, stream); }

}  // namespace signet::kernels::gated_linear
