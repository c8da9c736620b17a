// dQ, dK, dbeta and dg of the chunked delta rule with a gate per channel, all chunks at once.
//
// With S_a the state before block a of 16 tokens, dS_a the gradient of the state behind it, `before` and
// `after` as in delta_rule_cuda_channel.cuh, E_ts = scale dO_t . W_s (s <= t) and F_ts = dV_t . W_s (s < t),
// channel by channel, for tokens of block a:
//
//   A_t = scale dO_t . S_a     B_t = dV_t . S_a     Z_s = W_s . dS_a
//   dq_t = before_t A_t + sum_s E_ts beta_s k_s (g_{s+1} .. g_t)                  over s <= t in the block
//   dk_s = beta_s z_s - before_s B_s - sum_r F_sr beta_r k_r (g_{r+1} .. g_s)     dbeta_s = k_s . z_s
//   z_s = after_s Z_s + sum_t (E_ts q_t - F_ts k_t) (g_{s+1} .. g_t)
//
// A, B and Z begin with S0 and dS1 and pass the blocks in between one by one: the state before block b + 1 is
// that before b times all of b's gates plus what b's keys add (so is the gradient, backwards). dg_t is the
// state before token t times the gradient behind its decay. Either of them comes from within the block or
// from beyond it:
//
//   dg_t = before_{t-1} (x_t + g_{t+1} x_{t+1} + ..)      x = q A - k B, and behind the last token S_a . dS_a
//        + after_t (y_{t-1} + g_{t-1} y_{t-2} + ..)       y = beta k Z
//        + sum_{s < t <= r} beta_s k_s (g_{s+1} .. g_{t-1}) (g_{t+1} .. g_r) (E_rs q_r - F_rs k_r)
#include "signet/kernels/delta_rule/delta_rule_cuda_bulk.cuh"
#include "signet/kernels/delta_rule/delta_rule_cuda_channel.cuh"

namespace signet::kernels::delta_rule {
namespace {

// Four warps have the rows of a block, each with a quarter of the channels, in an order that gives every
// scheduler (w % 4) later and earlier blocks.
constexpr int kThreads = 512;
constexpr int kPairPitch = kChunk + 4;

template <int D>
struct alignas(1024) GradientMemory {
  union {
    struct {  // W, dV's low part, S0 and dS1 as Blocks, the transposed matrices
      Half w[2][kChunk * D], dv_low[kChunk * D], s0[D * D], ds1[D * D], d_o[kChunk * D], dv[kChunk * D];
    } in;
    struct {
      union {
        struct {  // high and low parts of k after, k before and q before
          Half keys_after[2][kChunk * D], keys_before[2][kChunk * D], queries_before[2][kChunk * D];
        } scaled;
        struct {  // A, B, Z; then dq, its counterpart of dk, and z
          float a[Table<D>::kSize], b[Table<D>::kSize], z[Table<D>::kSize];
        } out;
      };
      float gates[kChunk * D];
    };
  };
  Half keys[kChunk * D], queries[kChunk * D];
  float e[kChunk * kPairPitch], f[kChunk * kPairPitch];  // transposed: [s][t]
  float whole[kRowBlocks][D];                            // G
  float states[D / 8][D];                                // parts of S0 . dS1
  float written[kRowBlocks][D];                          // sum over a block of after_s beta_s k_s W_s . dS1
  // Of later block c, earlier block a: sum over c of before_t (q_t scale dO_t - k_t dV_t) . S_a, at
  // c (c - 1) / 2 + a.
  float read[6][D];
  float beta[kChunk];
  int gate_places[kChunk];
  uint64_t arrivals[2];  // of W and dV, of S0 and dS1
};

// The parts of S0 . dS1 of every channel: one thread per 8 x 8 of both.
template <int D>
__device__ void multiply_states(GradientMemory<D>& memory) {
  share<D * D / 64, kThreads>(threadIdx.x, [&](int i) {
    float sums[8] = {};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int at = i * 64 + (i + j) % 8 * 8;  // in an order without bank conflicts
      float x[8], y[8];
      load_floats(x, memory.in.s0 + at);
      load_floats(y, memory.in.ds1 + at);
#pragma unroll
      for (int e = 0; e < 8; ++e) sums[e] = fmaf(x[e], y[e], sums[e]);
    }
    store_floats(memory.states[i / (D / 8)] + i % (D / 8) * 8, sums);
  });
}

// Two neighbouring channels of a row, of high and low parts.
template <int D>
__device__ float2 both_parts(const Half (&tiles)[2][kChunk * D], int row, int channel) {
  const int at = tile_index<D>(row, channel);
  const uint32_t x = *reinterpret_cast<const uint32_t*>(tiles[0] + at),
                 y = *reinterpret_cast<const uint32_t*>(tiles[1] + at);
  return make_float2(low_half(x) + low_half(y), high_half(x) + high_half(y));
}

// Keys and queries times the products of their block's gates: a thread makes `before` or `after` of two
// channels of a block.
template <int D>
__device__ void scale_rows(GradientMemory<D>& memory, const RowGates& gate) {
  share<D * kRowBlocks, kThreads>(threadIdx.x, [&](int i) {
    const int channel = i % (D / 2) * 2, first = i / (D / 2) % kRowBlocks * kBlockRows;
    float2 g[kBlockRows], x = make_float2(1.f, 1.f);
#pragma unroll
    for (int t = 0; t < kBlockRows; ++t)
      g[t] = make_float2(gate(first + t, channel), gate(first + t, channel + 1));
    const auto put = [&](Half(&tiles)[2][kChunk * D], const Half* tile, int row) {
      const int at = tile_index<D>(row, channel);
      const uint32_t y = *reinterpret_cast<const uint32_t*>(tile + at);
      const Split split(low_half(y) * x.x, high_half(y) * x.y);
      *reinterpret_cast<uint32_t*>(tiles[0] + at) = split.high;
      *reinterpret_cast<uint32_t*>(tiles[1] + at) = split.low;
    };
    if (i < D / 2 * kRowBlocks) {
#pragma unroll
      for (int t = 0; t < kBlockRows; ++t) {
        x.x *= g[t].x, x.y *= g[t].y;
        put(memory.scaled.keys_before, memory.keys, first + t);
        put(memory.scaled.queries_before, memory.queries, first + t);
      }
      *reinterpret_cast<float2*>(memory.whole[first / kBlockRows] + channel) = x;
    } else {
#pragma unroll
      for (int t = kBlockRows - 1; t >= 0; --t) {
        *reinterpret_cast<float2*>(memory.gates + (first + t) * D + channel) = g[t];
        put(memory.scaled.keys_after, memory.keys, first + t);
        x.x *= g[t].x, x.y *= g[t].y;
      }
    }
  });
}

// c times the gates of a whole block; columns channel0 ...
template <int N>
__device__ void pass_block(float (&c)[N][4], const float* whole, int channel0, int lane) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const float2 g = *reinterpret_cast<const float2*>(whole + channel0 + 8 * n + lane % 4 * 2);
    c[n][0] *= g.x, c[n][1] *= g.y, c[n][2] *= g.x, c[n][3] *= g.y;
  }
}

// c += X Y with X[16][16] in registers (x(row, column) gives it) and Y rows k0 .. of a matrix in two parts,
// columns channel0 ...
template <int D, int N, class F>
__device__ void add_product(float (&c)[N][4], F x, const Half (&y)[2][kChunk * D], int k0, int channel0,
                            int lane) {
  uint32_t high[4], low[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i % 2 * 8, column = lane % 4 * 2 + i / 2 * 8;
    const Split split(x(row, column), x(row, column + 1));
    high[i] = split.high, low[i] = split.low;
  }
#pragma unroll
  for (int n = 0; n < N; n += 2) {
    uint32_t b[4];
    load_right<Rows<D>>(b, y[1], k0, channel0 + 8 * n, lane);
    multiply_add_pair(c[n], c[n + 1], high, b);
    load_right<Rows<D>>(b, y[0], k0, channel0 + 8 * n, lane);
    multiply_add_pair(c[n], c[n + 1], low, b);
    multiply_add_pair(c[n], c[n + 1], high, b);
  }
}

// sums[channel] = sum of f(n, element, row, channel) over 16 rows, f giving the values of a pair of channels.
template <int N, class F>
__device__ void sum_rows(float* sums, int channel0, int lane, F f) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const int channel = channel0 + 8 * n + lane % 4 * 2;
    const float2 upper = f(n, 0, lane / 4, channel), lower = f(n, 2, lane / 4 + 8, channel);
    float x[2] = {upper.x + lower.x, upper.y + lower.y};
    sum_all<8, 4>(x);
    if (lane < 4) *reinterpret_cast<float2*>(sums + channel) = make_float2(x[0], x[1]);
  }
}

// A, B and Z of block a (this warp's quarter of the channels from channel0 on) from dO . S0, dV . S0 and W .
// dS1.
template <int D, int N>
__device__ void pass_blocks(GradientMemory<D>& memory, float (&x)[N][4], float (&y)[N][4], float (&z)[N][4],
                            int a, int channel0, int lane) {
  const auto& scaled = memory.scaled;
  const int first = kBlockRows * a;
  sum_rows<N>(memory.written[a], channel0, lane, [&](int n, int e, int row, int channel) {
    const float2 k = both_parts<D>(scaled.keys_after, first + row, channel);
    const float beta = memory.beta[first + row];
    return make_float2(beta * k.x * z[n][e], beta * k.y * z[n][e + 1]);
  });
#pragma unroll
  for (int b = 0; b < kRowBlocks - 1; ++b) {
    if (b < a) {
      sum_rows<N>(memory.read[a * (a - 1) / 2 + b], channel0, lane, [&](int n, int e, int row, int channel) {
        const float2 q = both_parts<D>(scaled.queries_before, first + row, channel),
                     k = both_parts<D>(scaled.keys_before, first + row, channel);
        return make_float2(q.x * x[n][e] - k.x * y[n][e], q.y * x[n][e + 1] - k.y * y[n][e + 1]);
      });
      pass_block(x, memory.whole[b], channel0, lane);
      pass_block(y, memory.whole[b], channel0, lane);
      const auto pairs = [&](const float* of) {
        return [&, of](int row, int column) {
          const int s = kBlockRows * b + column;
          return of[s * kPairPitch + first + row] * memory.beta[s];
        };
      };
      add_product<D>(x, pairs(memory.e), scaled.keys_after, kBlockRows * b, channel0, lane);
      add_product<D>(y, pairs(memory.f), scaled.keys_after, kBlockRows * b, channel0, lane);
    }
  }
#pragma unroll
  for (int c = kRowBlocks - 1; c > 0; --c) {
    if (c > a) {
      pass_block(z, memory.whole[c], channel0, lane);
      const auto pairs = [&](const float* of, float sign) {
        return [&, of, sign](int row, int column) {
          return sign * of[(first + row) * kPairPitch + kBlockRows * c + column];
        };
      };
      add_product<D>(z, pairs(memory.e, 1.f), scaled.queries_before, kBlockRows * c, channel0, lane);
      add_product<D>(z, pairs(memory.f, -1.f), scaled.keys_before, kBlockRows * c, channel0, lane);
    }
  }
}

// What is left of one channel of block a: the pairs of tokens within it. d_gate(row, value) takes dg.
template <int D, class F>
__device__ void finish_channel(GradientMemory<D>& memory, int a, int channel, F d_gate) {
  constexpr int R = kBlockRows;
  const int first = R * a;
  const Table<D> table_a{memory.out.a}, table_b{memory.out.b}, table_z{memory.out.z};
  float g[R], k[R], q[R], x[R], y[R], dg[R], u[R];
  float states = 0.f;  // S_a . dS_a, then the sums of x from t on
#pragma unroll
  for (int i = 0; i < D / 8; ++i) states += memory.states[i][channel];
  for (int b = 0; b < a; ++b) states = fmaf(states, memory.whole[b][channel], memory.written[b][channel]);
  for (int c = kRowBlocks - 1; c > a; --c)
    states = fmaf(states, memory.whole[c][channel], memory.read[c * (c - 1) / 2 + a][channel]);
#pragma unroll
  for (int t = R - 1; t >= 0; --t) {
    g[t] = memory.gates[(first + t) * D + channel];
    k[t] = to_float(memory.keys[tile_index<D>(first + t, channel)]);
    q[t] = to_float(memory.queries[tile_index<D>(first + t, channel)]);
    x[t] = *table_a.at(first + t, channel), y[t] = *table_b.at(first + t, channel);
    const float own = q[t] * x[t] - k[t] * y[t];
    dg[t] = states = t == R - 1 ? states + own : fmaf(g[t + 1], states, own);
  }
  float before = 1.f, after = 1.f, sum = 0.f;  // sum: y_{t-1} + g_{t-1} y_{t-2} + ..
#pragma unroll
  for (int t = 0; t < R; ++t) {
    dg[t] *= before;
    before *= g[t];
    x[t] *= before, y[t] *= before;
    u[t] = sum;
    sum = fmaf(sum, g[t], memory.beta[first + t] * k[t] * *table_z.at(first + t, channel));
  }
#pragma unroll
  for (int t = R - 1; t >= 0; --t) {
    dg[t] = fmaf(after, u[t], dg[t]);
    *table_z.at(first + t, channel) *= after;
    after *= g[t];
  }
#pragma unroll
  for (int s = 0; s < R; ++s) {
    u[s] = memory.beta[first + s] * k[s];  // u_t = beta_s k_s g_{s+1} .. g_t
#pragma unroll
    for (int t = s + 1; t < R; ++t) u[t] = u[t - 1] * g[t];
    float later = 0.f;
#pragma unroll
    for (int t0 = R - 4; t0 >= s / 4 * 4; t0 -= 4) {
      const int at = (first + s) * kPairPitch + first + t0;
      float e[4], f[4];
      load_floats(e, memory.e + at);
      load_floats(f, memory.f + at);
#pragma unroll
      for (int i = 3; i >= 0; --i) {
        const int t = t0 + i;
        if (t < s) continue;
        const float own = t > s ? fmaf(e[i], q[t], -f[i] * k[t]) : e[i] * q[t];
        later = t == R - 1 ? own : fmaf(g[t + 1], later, own);
        x[t] = fmaf(e[i], u[t], x[t]);
        if (t > s) {
          y[t] = fmaf(f[i], u[t], y[t]);
          dg[t] = fmaf(later, u[t - 1], dg[t]);
        }
      }
    }
    *table_z.at(first + s, channel) += later;
    // Nothing more comes to token s.
    *table_a.at(first + s, channel) = x[s], *table_b.at(first + s, channel) = y[s];
    d_gate(first + s, dg[s]);
  }
}

template <int D>
__global__ void __launch_bounds__(kThreads, 1) channel_gradient_kernel(ChunkProblem p) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& memory = *reinterpret_cast<GradientMemory<D>*>(shared);
  const Chunk chunk(p);
  if (chunk.tokens == 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Substeps substeps(p, chunk);
  const int64_t token = chunk.token, block = chunk.block;
  const int a = warp / 4 % 2 ? 3 - warp % 4 : warp % 4, m0 = kBlockRows * a,
            channel0 = warp / kRowBlocks * (D / 4);
  {
    auto& in = memory.in;
    if (threadIdx.x == 0) {
      prepare_barriers(memory.arrivals, 2, 1);
      expect_bytes(memory.arrivals, sizeof(in.w) + sizeof(in.dv_low));
      expect_bytes(memory.arrivals + 1, sizeof(in.s0) + sizeof(in.ds1));
    }
    const auto fetch = [&](auto& to, const Half* from, int arrival) {
      if constexpr (!kWgmma)
        fetch_linear<sizeof(to) / sizeof(Half), kThreads>(reinterpret_cast<Half*>(&to), from, threadIdx.x);
      else if (threadIdx.x == 0)
        bulk_copy(reinterpret_cast<Half*>(&to), from, sizeof(to), memory.arrivals + arrival);
    };
    const auto fetch_rows = [&](Half* to, const Half* from, int64_t stride) {
      fetch_tile<D, kChunk, kThreads>(to, from + token * stride + chunk.h * D,
                                      RowMap(p.factors, stride, p.heads * D), substeps.rows, threadIdx.x);
    };
    const auto fetch_tokens = [&](Half* to, const Half* from, int64_t stride) {
      fetch_token_rows<D, kThreads>(to, from + token * stride + chunk.h * D, stride, substeps, threadIdx.x);
    };
    fetch(in.w, p.w + 2 * block * kChunk * D, 0);
    fetch(in.dv_low, p.dv_low + block * kChunk * D, 0);
    fetch_tokens(in.d_o, p.d_o, p.o_stride);
    fetch_rows(in.dv, p.dv_out, p.v_stride);
    copy_commit();
    fetch(in.s0, p.s0 + block * D * D, 1);
    fetch(in.ds1, p.ds1 + block * D * D, 1);
    fetch_rows(memory.keys, p.k, p.k_stride);
    fetch_tokens(memory.queries, p.q, p.q_stride);
    copy_commit();
    if (threadIdx.x < kChunk) memory.beta[threadIdx.x] = chunk.beta_at(p, threadIdx.x);
    find_places(memory.gate_places, p, substeps);
    copy_wait<1>();
    __syncthreads();  // the barriers are ready, too
    await_phase(memory.arrivals, 0);
  }
  const RowGates gate(p, chunk, memory.gate_places);
  constexpr int N = D / 32;
  float x[N][4], y[N][4], z[N][4];
  clear(x);
  clear(y);
  clear(z);
  {
    const auto& in = memory.in;
    // A quarter of the warps each: E and F, and of them the first and the last columns.
    const bool of_outputs = warp % 8 < kRowBlocks;
    const int begin = warp / 8 * 2, end = min(a + 1, begin + 2);
    float c[8][4];
    clear(c);
#pragma unroll
    for (int part = 0; part < 2; ++part)
      row_block_product<D, Rows<D>, false, Blocks<kChunk>, false>(c, of_outputs ? in.d_o : in.dv, m0,
                                                                  in.w[part], begin, end, lane);
    if (!of_outputs)
      row_block_product<D, Blocks<kChunk>, true, Blocks<kChunk>, false>(c, in.dv_low, m0, in.w[0], begin, end,
                                                                        lane);
    float* const pairs = of_outputs ? memory.e : memory.f;
    for_each_element(c, lane, [&](float value, int row, int column) {
      row += m0;
      const bool seen = of_outputs ? column <= row : column < row;
      if (column / (2 * kBlockRows) == warp / 8)
        pairs[column * kPairPitch + row] = seen ? (of_outputs ? p.scale : 1.f) * value : 0.f;
    });
    copy_wait<0>();
    await_phase(memory.arrivals + 1, 0);
    if constexpr (!kWgmma) __syncthreads();
    product<D, Rows<D>, false, Blocks<D>, false>(x, in.d_o, m0, in.s0, channel0, lane);
    for_each_element(x, lane, [&](float& value, int, int) { value *= p.scale; });
    product<D, Blocks<kChunk>, true, Blocks<D>, false>(y, in.dv_low, m0, in.s0, channel0, lane);
    product<D, Rows<D>, false, Blocks<D>, false>(y, in.dv, m0, in.s0, channel0, lane);
    product<D, Blocks<kChunk>, true, Blocks<D>, false>(z, in.w[1], m0, in.ds1, channel0, lane);
    product<D, Blocks<kChunk>, true, Blocks<D>, false>(z, in.w[0], m0, in.ds1, channel0, lane);
    multiply_states(memory);
  }
  __syncthreads();
  scale_rows(memory, gate);
  __syncthreads();
  pass_blocks<D>(memory, x, y, z, a, channel0, lane);
  __syncthreads();
  const auto put = [&](float* to, float(&c)[N][4]) {
    for_each_pair(c, lane, [&](float low, float high, int row, int column) {
      *reinterpret_cast<float2*>(Table<D>{to}.at(m0 + row, channel0 + column)) = make_float2(low, high);
    });
  };
  put(memory.out.a, x);
  put(memory.out.b, y);
  put(memory.out.z, z);
  __syncthreads();
  float* const d_gates = p.dgate + token * p.gate_stride + chunk.h * D;
  share<D * kRowBlocks, kThreads>(threadIdx.x, [&](int i) {
    const int channel = i % D;
    finish_channel(memory, i / D, channel, [&](int row, float value) {
      const int place = memory.gate_places[row];
      if (place >= 0) d_gates[place + channel] = value;
    });
  });
  __syncthreads();
  const RowMap key_rows(p.factors, p.k_stride, p.heads * D), beta_rows(p.factors, p.beta_stride, p.heads);
  for (int row = warp; row < substeps.rows; row += kThreads / 32) {
    constexpr int kChannels = D / 32;
    const int channel = lane * kChannels;
    float k[kChannels], da[kChannels], db[kChannels], dz[kChannels], dot[1] = {};
    load_floats(k, memory.keys + tile_index<D>(row, channel));
    load_floats(da, Table<D>{memory.out.a}.at(row, channel));
    load_floats(db, Table<D>{memory.out.b}.at(row, channel));
    load_floats(dz, Table<D>{memory.out.z}.at(row, channel));
    const float beta = memory.beta[row];
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      dot[0] = fmaf(k[i], dz[i], dot[0]);
      dz[i] = beta * dz[i] - db[i];
    }
    sum_all<32, 1>(dot);
    if (lane == 0) p.dbeta[token * p.beta_stride + beta_rows.offset(row) + chunk.h] = dot[0];
    store_floats(p.dk_out + token * p.k_stride + key_rows.offset(row) + chunk.h * D + channel, dz);
    if (substeps.ends_token(row))
      store_floats(p.dq + (token + substeps.token(row)) * p.q_stride + chunk.h * D + channel, da);
  }
}

template <int D>
void launch_gradients(const ChunkProblem& p, cudaStream_t stream) {
  constexpr int kBytes = sizeof(GradientMemory<D>);
  static_assert(kBytes == (D == 128 ? 231424 : 130048), "chunked_covers knows");
  allow_shared_memory(channel_gradient_kernel<D>, kBytes, "delta rule gradients");
  signet::launch("delta rule gradients", channel_gradient_kernel<D>, chunk_grid(p), kThreads, kBytes,
                 Cuda{stream}, p);
}

}  // namespace

void channel_gradients(const ChunkProblem& p, cudaStream_t stream) {
  p.dk == 128 ? launch_gradients<128>(p, stream) : launch_gradients<64>(p, stream);
}

}  // namespace signet::kernels::delta_rule
