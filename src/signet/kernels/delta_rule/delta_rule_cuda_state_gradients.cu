// The gradients of the chunked delta rule's states, from the last chunk to the first: the counterpart of
// delta_rule_cuda_states.cu, with dS^T in registers. Everything is divided by `scale` until it is written, so
// that dO enters as it is stored:
//
//   dU^T = dO^T P + dS^T K^T      dV^T = (dU^T diag(beta)) T      dS^T += dO^T Q - dV^T K
//
// and with a gate dS^T K^T diag(r), c_last dS^T + dO^T diag(c) Q - dV^T diag(c) K.
#include <iterator>

#include "signet/kernels/delta_rule/delta_rule_cuda_bulk.cuh"

namespace signet::kernels::delta_rule {
namespace {

template <int D>
struct Inputs {
  static constexpr int kParts = D / 64;  // tiles of 64 channels
  Half keys[kParts][kTile], t[2][kTile], queries[kParts][kTile], scores[kTile], d_o[kParts][kTile];
  // For each group its own:
  float beta[kParts][kChunk];
  float factors[kParts][3 * kChunk];  // with a gate: c of rows, r, c of tokens
};
// Three slots where they fit. Behind it lies a WarpMemory for every computing warp that writes.
template <int D, bool kSummary, bool kHopper = kWgmma>
struct alignas(1024) Memory {
  static constexpr int kSlots = kHopper && kSummary ? 3 : 2;
  using Pipe = Pipeline<D / 64, kSlots>;
  Inputs<D> slots[kSlots];
  uint64_t arrivals[kSlots], scores_made[kSlots];
};

// kBlocks: token blocks of 16 per chunk.
template <int D, int kBlocks, bool kGated, bool kSummary>
__device__ void copy_inputs(const ChunkProblem& p, Memory<D, kSummary>& memory, const Walk& walk,
                            const RowMaps& maps) {
  const RowMap key_rows(p.factors, p.k_stride, p.heads * D), query_rows(1, p.q_stride, 0),
      output_rows(1, p.o_stride, 0);
  using Pipe = typename Memory<D, kSummary>::Pipe;
  constexpr int kThreads = Pipe::kGroupThreads;
  const auto copy = [&](int step, int slot, int group, int thread) {
    auto& in = memory.slots[slot];
    const Chunk chunk = walk.at(p, walk.chunk + walk.steps - 1 - step);
    const int tokens = chunk.tokens;
    const int64_t token = chunk.token, block = chunk.block;
    const bool tensor = kWgmma && maps.usable && tokens == p.tokens;
    if (kWgmma && group == 0 && thread == 0) {
      uint64_t* const arrival = memory.arrivals + slot;
      constexpr int kKeyBytes = kChunk * D * sizeof(Half), kTokenBytes = 16 * kBlocks * D * sizeof(Half);
      constexpr int kScoreBytes = kGated ? 16 * kBlocks * kChunk * sizeof(Half) : 0;
      expect_bytes(arrival, sizeof(in.t) + kScoreBytes + (tensor ? kKeyBytes + 2 * kTokenBytes : 0));
      if (tensor) {
#pragma unroll
        for (int part = 0; part < D / 64; ++part) {
          const int first = walk.h * D + 64 * part;
          tensor_copy(in.keys[part], maps.k, first, token, arrival);
          tensor_copy(in.queries[part], maps.q, first, token, arrival);
          tensor_copy(in.d_o[part], maps.d_o, first, token, arrival);
        }
      }
      if constexpr (kGated)
        bulk_copy(in.scores, p.scores + block * 16 * kBlocks * kChunk, kScoreBytes, arrival);
      bulk_copy(in.t[0], p.t + block * 2 * kTile, sizeof(in.t), arrival);
    }
    if (!tensor) {
      const int first = walk.h * D + 64 * group;
      fetch_tile<64, kChunk, kThreads>(in.keys[group], p.k + token * p.k_stride + first, key_rows,
                                       tokens * p.factors, thread);
      fetch_tile<64, 16 * kBlocks, kThreads>(in.queries[group], p.q + token * p.q_stride + first, query_rows,
                                             tokens, thread);
      fetch_tile<64, 16 * kBlocks, kThreads>(in.d_o[group], p.d_o + token * p.o_stride + first, output_rows,
                                             tokens, thread);
    }
    if constexpr (!kWgmma) {
      if (group == 0) fetch_linear<2 * kTile, kThreads>(in.t[0], p.t + block * 2 * kTile, thread);
      if constexpr (kGated)
        if (group == D / 64 - 1)
          fetch_linear<16 * kBlocks * kChunk, kThreads>(in.scores, p.scores + block * 16 * kBlocks * kChunk,
                                                        thread);
    }
    fetch_factors<kGated, kThreads>(p, chunk, in.beta[group], in.factors[group], thread);
  };
  if constexpr (kGated)
    Pipe::feed(walk.steps, memory.arrivals, copy);
  else
    Pipe::feed(walk.steps, memory.arrivals, copy, memory.scores_made, [&](int slot, int thread) {
      auto& in = memory.slots[slot];
      make_scores<D, kBlocks>(in.scores, in.queries[0], in.keys[0], p.factors, thread);
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

template <int D, int kBlocks, bool kGated, bool kSummary>
__device__ void walk_chunks(const ChunkProblem& p, Memory<D, kSummary>& memory, const Walk& walk) {
  using Pipe = typename Memory<D, kSummary>::Pipe;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int column = 64 * group + 16 * warp;  // of dv, this warp's first
  const RowMap value_rows(p.factors, p.v_stride, p.heads * D);
  WarpMemory& own = warp_memory(memory);
  const bool any = p.scale != 0.f;  // else nothing comes from dO
  const float unit = any ? p.scale : 1.f;

  float ds[D / 64][8][4];
  load_state<D>(ds, walk.begin, column, 1.f / unit, lane);
  for (int step = 0; step < walk.steps; ++step) {
    const auto& in = memory.slots[step % Memory<D, kSummary>::kSlots];
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
    Pipe::await(step, walk.steps, group);
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      load_left_transposed<Rows<64>>(d_o[k], in.d_o[group], 16 * warp, 16 * k, lane);
#pragma unroll
      for (int i = 0; i < 4; ++i) d_o[k][i] = any ? d_o[k][i] : 0u;
    }
    keep_in_place(du);
    begin_products();
#pragma unroll
    for (int part = 0; part < D / 64; ++part) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        multiply_tile<false>(du, high[part][k], in.keys[part], 16 * k, lane);
        multiply_tile<false>(du, low[part][k], in.keys[part], 16 * k, lane);
      }
    }
    if constexpr (kGated) {
      end_products();
      keep_in_place(du);
      scale_columns(du, in.factors[group] + kChunk, lane);
      keep_in_place(du);
      begin_products();
    } else {  // while these are under way
      issue_products();
      Pipe::await_made(step, memory.scores_made);
      begin_products();
    }
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) multiply_tile<true>(du, d_o[k], in.scores, 16 * k, lane);
    issue_products();
    if constexpr (!kSummary) keep_blocks(p.ds1 + block * D * D, own.blocks, rounded, column, lane);
    await_products();
    keep_in_place(du);

    scale_columns(du, in.beta[group], lane);
    uint32_t x_high[4][4], x_low[4][4];
    split_rows(x_high, x_low, du);
    float dv[8][4];
    clear(dv);
    keep_in_place(dv);
    begin_products();
    multiply_sums<true>(dv, x_high, x_low, in.t, lane);
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
        scale_columns(x, in.factors[group], lane);
        scale_tokens(d_o, d_o_low, in.factors[group] + 2 * kChunk, lane);
        const float last = in.factors[group][kChunk - 1];
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
      for (int k = 0; k < kBlocks; ++k) multiply_tile<true>(ds[part], d_o[k], in.queries[part], 16 * k, lane);
      if constexpr (kGated) {
#pragma unroll
        for (int k = 0; k < kBlocks; ++k)
          multiply_tile<true>(ds[part], d_o_low[k], in.queries[part], 16 * k, lane);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        multiply_tile<true>(ds[part], x_high[k], in.keys[part], 16 * k, lane);
        multiply_tile<true>(ds[part], x_low[k], in.keys[part], 16 * k, lane);
      }
    }
    issue_products();
    if constexpr (!kSummary) write_dv<D>(p, chunk, walk.h, own, dv, unit, value_rows, column, lane);
    await_products();
#pragma unroll
    for (int part = 0; part < D / 64; ++part) keep_in_place(ds[part]);
    Pipe::give_back(step, walk.steps, group);
  }
  await_sent(lane);
  if (walk.end) store_state<D>(ds, walk.end, column, unit, lane);
}

template <int D, int kBlocks, bool kGated, bool kSummary>
__global__ void __launch_bounds__(Memory<D, kSummary>::Pipe::kThreads, 1)
    state_gradient_kernel(ChunkProblem p, const __grid_constant__ RowMaps maps) {
  begin_kernel();
  using Pipe = typename Memory<D, kSummary>::Pipe;
  extern __shared__ __align__(1024) char shared[];
  auto& memory = *reinterpret_cast<Memory<D, kSummary>*>(shared);
  const Walk walk = backward_walk(p, kSummary);
  if (threadIdx.x == 0) {
    prepare_barriers(memory.arrivals, std::size(memory.arrivals), 1);
    prepare_barriers(memory.scores_made, std::size(memory.scores_made), Pipe::kCopyThreads);
  }
  __syncthreads();
  if (threadIdx.x < 2 * D) {
    Pipe::take_registers();
    walk_chunks<D, kBlocks, kGated, kSummary>(p, memory, walk);
  } else {
    Pipe::give_registers();
    copy_inputs<D, kBlocks, kGated, kSummary>(p, memory, walk, maps);
  }
}

template <int D, int kBlocks, bool kGated, bool kSummary>
void launch_walks(const ChunkProblem& p, int walks, cudaStream_t stream) {
  const auto kernel = state_gradient_kernel<D, kBlocks, kGated, kSummary>;
  const RowMaps maps = row_maps(p);
  static_assert(D == 128 || sizeof(Memory<D, kSummary, false>) <= kLeastSharedBytes);
  const size_t memory =
      cuda_device().hopper ? sizeof(Memory<D, kSummary, true>) : sizeof(Memory<D, kSummary, false>);
  const int bytes = shared_bytes(memory, kSummary ? 0 : D / 16);
  allow_shared_memory(kernel, bytes, "delta rule state gradients");
  const dim3 grid(static_cast<unsigned>(p.batch) * p.heads, walks);
  signet::launch("delta rule state gradients", kernel, grid, Memory<D, kSummary>::Pipe::kThreads, bytes,
                 Cuda{stream}, p, maps);
}

template <int D, int kBlocks, bool kGated>
void launch(const ChunkProblem& p, cudaStream_t stream) {
  if (p.segments > 1) {
    launch_walks<D, kBlocks, kGated, true>(p, p.segments - 1, stream);
    join_segments(p, true, stream);
  }
  launch_walks<D, kBlocks, kGated, false>(p, p.segments, stream);
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
