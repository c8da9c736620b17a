// The gradients of the chunked delta rule's states, from the last chunk to the first: the counterpart of
// delta_rule_cuda_states.cu, with dS^T in registers. Everything is divided by `scale` until it is written, so
// that dO enters as it is stored:
//
//   dU^T = dO^T P + dS^T K^T      dV^T = (dU^T diag(beta)) T      dS^T += dO^T Q - dV^T K
//
// and with a gate dS^T K^T diag(r), c_last dS^T + dO^T diag(c) Q - dV^T diag(c) K.
#include "signet/kernels/delta_rule/delta_rule_cuda_chunked.cuh"
#include "signet/kernels/delta_rule/delta_rule_cuda_group.cuh"

namespace signet::kernels::delta_rule {
namespace {

template <int D>
struct Memory {
  static constexpr int kParts = D / 64;  // tiles of 64 channels
  Half keys[kSlots][kParts][kTile], t[kSlots][2][kTile], queries[kSlots][kParts][kTile],
      scores[kSlots][kTile], d_o[kSlots][kParts][kTile];
  float beta[kSlots][kChunk];
  float factors[kSlots][3 * kChunk];  // with a gate: c of rows, r, c of tokens
  WarpMemory warps[D / 16];
};

__device__ Walk walk_of(const ChunkProblem& p, bool summary) {
  const int head = blockIdx.x, last = p.segments - 1, segment = blockIdx.y + (summary ? 1 : 0);
  const int64_t state = head * p.state_size();
  Walk walk(p, segment);
  walk.summary = summary;
  if (segment == last)
    walk.begin = p.d_final_state ? p.d_final_state + state : nullptr;
  else if (!summary)
    walk.begin = p.increments + p.segment(head, segment + 1);
  if (summary)
    walk.end = p.increments + p.segment(head, segment);
  else if (segment == 0 && p.d_initial_state)
    walk.end = p.d_initial_state + state;
  return walk;
}

// kBlocks: token blocks of 16 per chunk.
template <int D, int kBlocks, bool kGated>
__device__ void copy_inputs(const ChunkProblem& p, Memory<D>& memory, const Walk& walk, int thread) {
  const RowMap key_rows(p.factors, p.k_stride, p.heads * D), query_rows(1, p.q_stride, 0),
      output_rows(1, p.o_stride, 0);
  using Pipe = Pipeline<D / 64>;
  constexpr int kCopyThreads = Pipe::kCopyThreads;
  Pipe::feed(walk.steps, [&](int step, int slot) {
    const Chunk chunk = walk.at(p, walk.chunk + walk.steps - 1 - step);
    const int tokens = chunk.tokens;
    const int64_t token = chunk.token, block = chunk.block;
#pragma unroll
    for (int part = 0; part < D / 64; ++part) {
      const int first = walk.h * D + 64 * part;
      fetch_tile<64, kChunk, kCopyThreads>(memory.keys[slot][part], p.k + token * p.k_stride + first,
                                           key_rows, tokens * p.factors, thread);
      fetch_tile<64, 16 * kBlocks, kCopyThreads>(memory.queries[slot][part], p.q + token * p.q_stride + first,
                                                 query_rows, tokens, thread);
      fetch_tile<64, 16 * kBlocks, kCopyThreads>(memory.d_o[slot][part], p.d_o + token * p.o_stride + first,
                                                 output_rows, tokens, thread);
    }
    fetch_linear<2 * kTile, kCopyThreads>(memory.t[slot][0], p.t + block * 2 * kTile, thread);
    fetch_linear<16 * kBlocks * kChunk, kCopyThreads>(memory.scores[slot],
                                                      p.scores + block * 16 * kBlocks * kChunk, thread);
    if (kGated && thread < 3 * kChunk / 4)
      copy_async<16>(memory.factors[slot] + thread * 4, p.factors_of(block) + thread * 4);
    if (thread < kChunk) {
      if (const float* from = chunk.beta_of(p, thread))
        copy_async<4>(memory.beta[slot] + thread, from);
      else
        memory.beta[slot][thread] = 0.f;
    }
  });
}

// dO^T diag(c), in two parts: column t of the left operands times factors[t].
template <int N>
__device__ void scale_tokens(uint32_t (&high)[N][4], uint32_t (&low)[N][4], const float* factors, int lane) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 x = *reinterpret_cast<const float2*>(factors + 16 * k + i / 2 * 8 + lane % 4 * 2);
      const Split split(x.x * low_half(high[k][i]), x.y * high_half(high[k][i]));
      high[k][i] = split.high, low[k][i] = split.low;
    }
  }
}

template <int D, int kBlocks, bool kGated>
__device__ void walk_chunks(const ChunkProblem& p, Memory<D>& memory, const Walk& walk) {
  using Pipe = Pipeline<D / 64>;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int column = 64 * group + 16 * warp;  // of dv, this warp's first
  const RowMap value_rows(p.factors, p.v_stride, p.heads * D);
  WarpMemory& own = memory.warps[threadIdx.x / 32];
  const bool any = p.scale != 0.f;  // else nothing comes from dO
  const float unit = any ? p.scale : 1.f;

  float ds[D / 64][8][4];
  load_state<D>(ds, walk.begin, column, 1.f / unit, lane);
  for (int step = 0; step < walk.steps; ++step) {
    const int slot = step % kSlots;
    const Chunk chunk = walk.at(p, walk.chunk + walk.steps - 1 - step);
    const int64_t block = chunk.block;
    uint32_t high[D / 64][4][4], low[D / 64][4][4], d_o[kBlocks][4];
    uint32_t rounded[D / 64][4][4];  // dS1
#pragma unroll
    for (int part = 0; part < D / 64; ++part) {
      split_rows(high[part], low[part], ds[part]);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        rounded[part][n / 2][n % 2 * 2] = pack(unit * ds[part][n][0], unit * ds[part][n][1]);
        rounded[part][n / 2][n % 2 * 2 + 1] = pack(unit * ds[part][n][2], unit * ds[part][n][3]);
      }
    }
    float du[8][4];
    clear(du);
    Pipe::await(step, group);
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      load_left_transposed<Rows<64>>(d_o[k], memory.d_o[slot][group], 16 * warp, 16 * k, lane);
#pragma unroll
      for (int i = 0; i < 4; ++i) d_o[k][i] = any ? d_o[k][i] : 0u;
    }
    keep_in_place(du);
    begin_products();
#pragma unroll
    for (int part = 0; part < D / 64; ++part) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        multiply_tile<false>(du, high[part][k], memory.keys[slot][part], 16 * k, lane);
        multiply_tile<false>(du, low[part][k], memory.keys[slot][part], 16 * k, lane);
      }
    }
    if constexpr (kGated) {
      end_products();
      keep_in_place(du);
      scale_columns(du, memory.factors[slot] + kChunk, lane);
      keep_in_place(du);
      begin_products();
    }
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) multiply_tile<true>(du, d_o[k], memory.scores[slot], 16 * k, lane);
    issue_products();
    if (!walk.summary) keep_blocks(p.ds1 + block * D * D, own.blocks, rounded, column, lane);
    await_products();
    keep_in_place(du);

    scale_columns(du, memory.beta[slot], lane);
    uint32_t x_high[4][4], x_low[4][4];
    split_rows(x_high, x_low, du);
    float dv[8][4];
    clear(dv);
    keep_in_place(dv);
    begin_products();
    multiply_sums<true>(dv, x_high, x_low, memory.t[slot], lane);
    end_products();
    keep_in_place(dv);

    uint32_t d_o_low[kGated ? kBlocks : 1][4];
    {
      float x[8][4];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) x[n][e] = -dv[n][e];
      }
      if constexpr (kGated) {
        scale_columns(x, memory.factors[slot], lane);
        scale_tokens(d_o, d_o_low, memory.factors[slot] + 2 * kChunk, lane);
        const float last = memory.factors[slot][kChunk - 1];
#pragma unroll
        for (int part = 0; part < D / 64; ++part)
          for_each_element(ds[part], lane, [&](float& y, int, int) { y *= last; });
      }
      split_rows(x_high, x_low, x);
    }
#pragma unroll
    for (int part = 0; part < D / 64; ++part) keep_in_place(ds[part]);
    begin_products();
#pragma unroll
    for (int part = 0; part < D / 64; ++part) {
#pragma unroll
      for (int k = 0; k < kBlocks; ++k)
        multiply_tile<true>(ds[part], d_o[k], memory.queries[slot][part], 16 * k, lane);
      if constexpr (kGated) {
#pragma unroll
        for (int k = 0; k < kBlocks; ++k)
          multiply_tile<true>(ds[part], d_o_low[k], memory.queries[slot][part], 16 * k, lane);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        multiply_tile<true>(ds[part], x_high[k], memory.keys[slot][part], 16 * k, lane);
        multiply_tile<true>(ds[part], x_low[k], memory.keys[slot][part], 16 * k, lane);
      }
    }
    issue_products();
    if (!walk.summary) {  // dV: its high part is the output, the low part is kept for dK and dbeta
      uint32_t v_high[4][4], v_low[4][4];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) dv[n][e] *= unit;
      }
      split_rows(v_high, v_low, dv);
      Half* const to = p.dv_low + block * kChunk * D;
      if constexpr (kWgmma)
        put_blocks<kChunk>(own.low, v_low, 0, lane);
      else
        write_blocks<kChunk>(to, v_low, column, 0, lane);
      send_blocks<kChunk>(to, own.low, column, lane);
      const int rows = chunk.tokens * p.factors;
      Half* const out = p.dv_out + chunk.token * p.v_stride + walk.h * D + column;
      write_columns(v_high, own.high, lane,
                    [&](int row) { return row < rows ? out + value_rows.offset(row) : nullptr; });
    }
    await_products();
#pragma unroll
    for (int part = 0; part < D / 64; ++part) keep_in_place(ds[part]);
    Pipe::give_back(step, walk.steps);
  }
  await_sent(lane);
  if (walk.end) store_state<D>(ds, walk.end, column, unit, lane);
}

template <int D, int kBlocks, bool kGated>
__global__ void __launch_bounds__(Pipeline<D / 64>::kThreads, 1)
    state_gradient_kernel(ChunkProblem p, bool summary) {
  using Pipe = Pipeline<D / 64>;
  extern __shared__ __align__(1024) char shared[];
  auto& memory = *reinterpret_cast<Memory<D>*>(shared);
  const Walk walk = walk_of(p, summary);
  if (threadIdx.x < 2 * D) {
    Pipe::take_registers();
    walk_chunks<D, kBlocks, kGated>(p, memory, walk);
  } else {
    Pipe::give_registers();
    copy_inputs<D, kBlocks, kGated>(p, memory, walk, threadIdx.x - 2 * D);
  }
}

template <int D, int kBlocks, bool kGated>
void launch(const ChunkProblem& p, cudaStream_t stream) {
  const auto kernel = state_gradient_kernel<D, kBlocks, kGated>;
  const int bytes = shared_bytes<Memory<D>>();
  allow_shared_memory(kernel, bytes, "delta rule state gradients");
  const unsigned heads = static_cast<unsigned>(p.batch) * p.heads;
  if (p.segments > 1) {
    kernel<<<dim3(heads, p.segments - 1), Pipeline<D / 64>::kThreads, bytes, stream>>>(p, true);
    check_launch("delta rule segment gradients");
    join_segments(p, true, stream);
  }
  kernel<<<dim3(heads, p.segments), Pipeline<D / 64>::kThreads, bytes, stream>>>(p, false);
  check_launch("delta rule state gradients");
}

template <int D, bool kGated>
void launch(const ChunkProblem& p, cudaStream_t stream) {
  if (p.token_rows == 64) return launch<D, 4, kGated>(p, stream);
  if (p.token_rows == 32) return launch<D, 2, kGated>(p, stream);
  launch<D, 1, kGated>(p, stream);
}

}  // namespace

void chunked_state_gradients(const ChunkProblem& p, cudaStream_t stream) {
  if (p.dk == 128)
    p.gate_channels ? launch<128, true>(p, stream) : launch<128, false>(p, stream);
  else
    p.gate_channels ? launch<64, true>(p, stream) : launch<64, false>(p, stream);
}

}  // namespace signet::kernels::delta_rule
