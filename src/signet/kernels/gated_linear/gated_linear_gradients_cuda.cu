// dq, dk and the gradients of the gates of one chunk and head, a block for 64 channels of dk, whose warps own
// 16 rows of the state each. From the state before the chunk and the gradient behind it the block walks its
// four blocks of 16 tokens, both ways, with S and dS in registers, over all columns of dv:
//   y_s = S do_s    z_t = dS v_t    x = rows of S . dS        S before the block of tokens, dS behind it
// and then a thread takes a channel through each block, half by half, with A_st = do_s . v_t. What is left of
// a single token is
//   dq_t = g_t y_t + A_tt k_t        dk_t = z_t + A_tt q_t        dg_t = q_t y_t + x
#include "signet/kernels/gated_linear/gated_linear_chunks.cuh"

namespace signet::kernels::gated_linear {
namespace {

constexpr int kSumStride = kWide + 1;

template <bool kChannels>
struct alignas(1024) GradientMemory {
  struct Columns {  // of 64 columns of dv
    Half v[kTileSize], d_o[kTileSize], state[kTileSize], d_state[kTileSize];
  };
  union {
    Columns columns[2];  // the last ones are in the second place
    struct {
      Half q[kTileSize], k[kTileSize];                       // as they came
      float y[kChunk * kSumStride], z[kChunk * kSumStride];  // [token][channel]
    } sums;
  };
  Half q[kTileSize], k[kTileSize];  // scaled within blocks of tokens
  Gates<kChannels> gates;
  float whole[kBlocks][kWide], x[kBlocks][kWide];
  alignas(16) float a[kBlocks][kBlock][kBlock];  // A_tr of blocks of tokens, [r][t]
  float gate_sums[2][kChunk];                    // over the channels of a warp
};

// Adds this warp's rows of dS or S times 16 tokens: C[16 channels][16 tokens] += F B^T.
__device__ inline void read_tokens(float (&c)[2][4], const uint32_t (&f)[4][4], const Half* tile, int token,
                                   int lane) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    uint32_t b[4];
    load_right_transposed<Rows<kWide>>(b, tile, 16 * k, token, lane);
    multiply_add_pair(c[0], c[1], f[k], b);
  }
}

// One channel of the tokens of a block, and what its gradients are made of: y_s = S do_s and z_t = dS v_t
// with S before and dS behind the tokens that are looked at, pairs[r][t] = A_tr.
struct ChannelWalk {
  float q[kBlock], k[kBlock], g[kBlock], y[kBlock], z[kBlock];
  const float (*pairs)[kBlock];

  // Gradients of tokens kFirst .. kFirst + kCount - 1, with x the channel's row of S times that of dS; they
  // become y (dq), z (dk) and g (the gate's). Halves are walked with S and dS where they meet:
  //   S' = G S + sum over the first half of k~ v      k~_t: by the gates behind t in the first half
  //   dS' = G' dS + sum over the second half of q~ do      q~_s: by those up to s in the second half
  template <int kFirst, int kCount>
  __device__ void walk(float x) {
    if constexpr (kCount == 1) {
      const float a = pairs[kFirst][kFirst], gate = g[kFirst], before = y[kFirst];
      y[kFirst] = fmaf(gate, before, a * k[kFirst]);
      z[kFirst] = fmaf(a, q[kFirst], z[kFirst]);
      g[kFirst] = fmaf(q[kFirst], before, x);
    } else {
      constexpr int kPart = kCount / 2, kMiddle = kFirst + kPart;
      float keys[kPart], queries[kPart], first_gates = 1.f, second_gates = 1.f;
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        keys[kPart - 1 - i] = first_gates * k[kMiddle - 1 - i];
        first_gates *= g[kMiddle - 1 - i];
        second_gates *= g[kMiddle + i];
        queries[i] = second_gates * q[kMiddle + i];
      }
      float first_x = second_gates * x, second_x = first_gates * x;
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        first_x = fmaf(queries[i], y[kMiddle + i], first_x);
        second_x = fmaf(keys[i], z[kFirst + i], second_x);
      }
#pragma unroll
      for (int i = 0; i < kPart; ++i) y[kMiddle + i] *= first_gates, z[kFirst + i] *= second_gates;
#pragma unroll
      for (int r = 0; r < kPart; ++r) {
        float a[kPart];
        load_row(a, pairs[kFirst + r] + kMiddle);
#pragma unroll
        for (int t = 0; t < kPart; ++t) {
          y[kMiddle + t] = fmaf(a[t], keys[r], y[kMiddle + t]);
          z[kFirst + r] = fmaf(a[t], queries[t], z[kFirst + r]);
        }
      }
      walk<kFirst, kPart>(first_x);
      walk<kMiddle, kPart>(second_x);
    }
  }
  template <int N>
  __device__ static void load_row(float (&to)[N], const float* from) {
    using Piece = std::conditional_t<N % 4 == 0, float4, std::conditional_t<N == 2, float2, float>>;
#pragma unroll
    for (int i = 0; i < N; i += sizeof(Piece) / sizeof(float))
      *reinterpret_cast<Piece*>(to + i) = *reinterpret_cast<const Piece*>(from + i);
  }
};

// One channel through a block of tokens.
template <bool kChannels>
__device__ void walk_block(GradientMemory<kChannels>& m, const Problem<bf16>& p, const ChunkPlace& at,
                           int block, int c, int channel, float (&d_gate)[kBlock]) {
  const int first = block * kBlock, tokens = min(kBlock, at.tokens - first);
  const int64_t row = at.row + first;
  ChannelWalk w;
  w.pairs = m.a[block];
#pragma unroll
  for (int t = 0; t < kBlock; ++t) {
    w.q[t] = __bfloat162float(m.sums.q[tile_index<kWide>(first + t, c)]);
    w.k[t] = __bfloat162float(m.sums.k[tile_index<kWide>(first + t, c)]);
    w.g[t] = m.gates.at(first + t, c);
    w.y[t] = m.sums.y[(first + t) * kSumStride + c];
    w.z[t] = m.sums.z[(first + t) * kSumStride + c];
  }
  w.template walk<0, kBlock>(m.x[block][c]);
  Half* const dq = half(p.dq) + row * p.dq_stride + int64_t{at.h} * p.dk + channel;
  Half* const dk = half(p.dk_out) + row * p.dk_stride + int64_t{at.h} * p.dk + channel;
#pragma unroll
  for (int t = 0; t < kBlock; ++t) {
    d_gate[t] = w.g[t];
    if (channel < p.dk && t < tokens) {
      dq[t * p.dq_stride] = __float2bfloat16(w.y[t]);
      dk[t * p.dk_stride] = __float2bfloat16(w.z[t]);
      if constexpr (kChannels)
        p.dgate[(row + t) * p.gate_stride + int64_t{at.h} * p.dk + channel] = d_gate[t];
    }
  }
}

template <bool kChannels>
__global__ void __launch_bounds__(kChunkThreads)
    gradient_kernel(Problem<bf16> p, const Half* states, const Half* d_states, float* sums) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<GradientMemory<kChannels>*>(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int down = wide_tiles(p.dk), across = wide_tiles(p.dv);
  const int tile = static_cast<int>(blockIdx.x % down), channel0 = tile * kWide;
  const ChunkPlace at = chunk_of_block(p, blockIdx.x / down);
  if (at.tokens <= 0) return;
  const auto fetch_keys = [&](Half* q, Half* k) {
    const int channels = min(kWide, p.dk - channel0);
    const int64_t channel = p.key(at.h) + channel0;
    fetch_rows(q, p.q + at.row * p.q_stride + channel, p.q_stride, at.tokens, channels);
    fetch_rows(k, p.k + at.row * p.k_stride + channel, p.k_stride, at.tokens, channels);
  };
  // Columns j, or q and k behind the last ones.
  const auto fetch = [&](int j) {
    if (j == across) {
      fetch_keys(m.sums.q, m.sums.k);
    } else if (j < across) {
      auto& to = m.columns[(j + across) % 2];
      const int columns = min(kWide, p.dv - j * kWide);
      const int64_t column = int64_t{at.h} * p.dv + j * kWide,
                    state = ((at.place * down + tile) * across + j) * kTileSize;
      fetch_rows(to.v, p.v + at.row * p.v_stride + column, p.v_stride, at.tokens, columns);
      fetch_rows(to.d_o, p.d_o + at.row * p.o_stride + column, p.o_stride, at.tokens, columns);
      fetch_state(to.state, states + state);
      fetch_state(to.d_state, d_states + state);
    }
    copy_commit();
  };
  fetch_keys(m.q, m.k);
  m.gates.fetch(p, at, channel0);
  copy_commit();
  fetch(0);
  fetch(1);
  copy_wait<2>();
  m.gates.settle(p, at, channel0);
  __syncthreads();
  scale_block(m.q, p.scale, m.k, m.whole, m.gates, warp, lane);

  float y[kBlocks][2][4], z[kBlocks][2][4], x[kBlocks][2] = {}, a[2][4];
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) clear(y[block]), clear(z[block]);
  clear(a);
  const int row = 16 * warp + lane / 4;  // of the tile: this lane's, and 8 further
  for (int j = 0; j < across; ++j) {
    const auto& in = m.columns[(j + across) % 2];
    copy_wait<1>();
    __syncthreads();
    // A on the diagonal: each warp those of its number.
#pragma unroll
    for (int k = 0; k < kWide; k += 16) {
      uint32_t left[4], right[4];
      load_left<Rows<kWide>>(left, in.d_o, kBlock * warp, k, lane);
      load_right_transposed<Rows<kWide>>(right, in.v, k, kBlock * warp, lane);
      multiply_add_pair(a[0], a[1], left, right);
    }
    uint32_t s[kBlocks][4][4];  // the state before every block of tokens
    float sum[8][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) load_left<Rows<kWide>>(s[0][k], in.state, 16 * warp, 16 * k, lane);
    widen_rows(sum, s[0]);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      read_tokens(y[block], s[block], in.d_o, block * kBlock, lane);
      if (block + 1 < kBlocks) {
        uint32_t left[4];
        scale_rows_of(sum, m.whole[block][row], m.whole[block][row + 8]);
        load_left_transposed<Rows<kWide>>(left, m.k, 16 * warp, block * kBlock, lane);
        multiply_rows(sum, left, in.v, block * kBlock, lane);
        narrow_rows(s[block + 1 < kBlocks ? block + 1 : 0], sum);
      }
    }
    uint32_t d[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) load_left<Rows<kWide>>(d[k], in.d_state, 16 * warp, 16 * k, lane);
    widen_rows(sum, d);
#pragma unroll
    for (int block = kBlocks - 1; block >= 0; --block) {
      read_tokens(z[block], d, in.v, block * kBlock, lane);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t pair = s[block][k][i];
          const float(&c)[4] = sum[2 * k + i / 2];
          x[block][i % 2] =
              fmaf(c[i % 2 * 2], low_half(pair), fmaf(c[i % 2 * 2 + 1], high_half(pair), x[block][i % 2]));
        }
      }
      if (block > 0) {
        uint32_t left[4];
        scale_rows_of(sum, m.whole[block][row], m.whole[block][row + 8]);
        load_left_transposed<Rows<kWide>>(left, m.q, 16 * warp, block * kBlock, lane);
        multiply_rows(sum, left, in.d_o, block * kBlock, lane);
        narrow_rows(d, sum);
      }
    }
    __syncthreads();  // what follows lies where the columns were
    fetch(j + 2);
  }
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    sum_all<4, 1>(x[block]);
    if (lane % 4 == 0) m.x[block][row] = x[block][0], m.x[block][row + 8] = x[block][1];
    const auto put = [&](float* to, float(&c)[2][4], float factor) {
      for_each_element(c, lane, [&](float value, int i, int t) {
        to[(block * kBlock + t) * kSumStride + 16 * warp + i] = factor * value;
      });
    };
    put(m.sums.y, y[block], p.scale);
    put(m.sums.z, z[block], 1.f);
  }
  for_each_element(a, lane, [&](float value, int t, int r) { m.a[warp][r][t] = p.scale * value; });
  copy_wait<0>();
  __syncthreads();
  const int c = threadIdx.x % kWide, half_of = threadIdx.x / kWide;
#pragma unroll 1
  for (int block = half_of * 2; block < half_of * 2 + 2; ++block) {
    if (block * kBlock >= at.tokens) break;
    float d_gate[kBlock];
    walk_block(m, p, at, block, c, channel0 + c, d_gate);
    if constexpr (!kChannels) {
      sum_scatter<32, 1>(d_gate, lane);
      if (lane % 2 == 0) m.gate_sums[warp % 2][block * kBlock + lane / 2] = d_gate[0];
    }
  }
  if constexpr (!kChannels) {
    __syncthreads();
    const int t = static_cast<int>(threadIdx.x);
    if (t < at.tokens) {
      const float total = m.gate_sums[0][t] + m.gate_sums[1][t];
      if (down == 1)
        p.dgate[(at.row + t) * p.gate_stride + at.h] = total;
      else
        sums[(tile * p.rows() + at.row + t) * p.heads + at.h] = total;
    }
  }
}

__global__ void __launch_bounds__(256) gate_sum_kernel(Problem<bf16> p, const float* sums, int parts) {
  begin_kernel();
  const int64_t at = int64_t{blockIdx.x} * 256 + threadIdx.x, size = p.rows() * p.heads;
  if (at >= size) return;
  float total = sums[at];
  for (int part = 1; part < parts; ++part) total += sums[part * size + at];
  p.dgate[at / p.heads * p.gate_stride + at % p.heads] = total;
}

template <bool kChannels>
void launch_gradients(const Problem<bf16>& p, const Half* states, const Half* d_states, float* sums,
                      cudaStream_t stream) {
  const auto kernel = gradient_kernel<kChannels>;
  constexpr int kBytes = sizeof(GradientMemory<kChannels>);
  allow_shared_memory(kernel, kBytes, "gated linear gradients");
  const int down = wide_tiles(p.dk);
  const int64_t blocks = chunk_places(p) * p.heads * down;
  signet::launch("gated linear gradients", kernel, static_cast<unsigned>(blocks), kChunkThreads, kBytes,
                 Cuda{stream}, p, states, d_states, sums);
  if (!kChannels && down > 1)
    signet::launch("gated linear gates", gate_sum_kernel,
                   static_cast<unsigned>((p.rows() * p.heads + 255) / 256), 256, 0, Cuda{stream}, p, sums,
                   down);
}

}  // namespace

int64_t gradient_shared_bytes(bool channel_gates) {
  return channel_gates ? sizeof(GradientMemory<true>) : sizeof(GradientMemory<false>);
}

void chunk_gradients(const Problem<bf16>& p, const Half* states, const Half* d_states, float* sums,
                     cudaStream_t stream) {
  p.channel_gates ? launch_gradients<true>(p, states, d_states, sums, stream)
                  : launch_gradients<false>(p, states, d_states, sums, stream);
}

}  // namespace signet::kernels::gated_linear
