// The chunked delta rule's states and outputs, one chunk after the other: one block per head and segment. A
// warpgroup owns 64 columns of dv and keeps S^T for them in registers (fp32; 16 columns a warp). Columns do
// not mix, and with the columns as rows of every product,
//
//   R^T = V^T - S^T K^T      W^T = R^T T^T      U^T = W^T diag(beta)      O^T = scale (S^T Q^T + U^T P^T)
//   S^T += U^T K
//
// each result is the next product's left operand as it lies in registers. More warps copy the right operands
// ahead and, without a gate, make P of K and Q where they lie.
#include <iterator>
#include <type_traits>

#include "signet/kernels/delta_rule/delta_rule_cuda_bulk.cuh"

namespace signet::kernels::delta_rule {
namespace {

// What comes in for a chunk.
template <int D>
struct Inputs {
  static constexpr int kParts = D / 64;  // tiles of 64 channels
  Half keys[kParts][kTile], t[2][kTile], values[kParts][kTile];
  // For each group its own:
  float beta[kParts][kChunk];
  float factors[kParts][3 * kChunk];  // with a gate: c of rows, r, c of tokens
};
template <int D>
struct OutputInputs : Inputs<D> {
  Half queries[Inputs<D>::kParts][kTile], scores[kTile];
};
// kBlocks: token blocks of 16 per chunk; 0 for summaries, which have no outputs. Behind it lies a WarpMemory
// for every computing warp that writes.
template <int D, int kBlocks, bool kHopper = kWgmma>
struct alignas(1024) Memory {
  static constexpr int kSlots = kHopper && kBlocks == 0 ? 3 : 2;  // three where they fit
  using Pipe = Pipeline<D / 64, kSlots>;
  std::conditional_t<(kBlocks > 0), OutputInputs<D>, Inputs<D>> slots[kSlots];
  uint64_t arrivals[kSlots], scores_made[kSlots];
};

// Without a gate P is made here.
template <int kBlocks, bool kGated>
inline constexpr bool kMakesScores = kBlocks > 0 && !kGated;

template <int D, int kBlocks, bool kGated>
__device__ void copy_inputs(const ChunkProblem& p, Memory<D, kBlocks>& memory, const Walk& walk,
                            const RowMaps& maps) {
  using Pipe = typename Memory<D, kBlocks>::Pipe;
  constexpr int kThreads = Pipe::kGroupThreads;
  constexpr bool kReadsScores = kBlocks > 0 && kGated;
  const RowMap key_rows(p.factors, p.k_stride, p.heads * D), value_rows(p.factors, p.v_stride, p.heads * D),
      query_rows(1, p.q_stride, 0);
  const auto copy = [&](int step, int slot, int group, int thread) {
    auto& in = memory.slots[slot];
    const Chunk chunk = walk.at(p, walk.chunk + step);
    const int rows = chunk.tokens * p.factors;
    const bool tensor = kWgmma && maps.usable && chunk.tokens == p.tokens;
    if (kWgmma && group == 0 && thread == 0) {
      uint64_t* const arrival = memory.arrivals + slot;
      constexpr int kKeyBytes = kChunk * D * sizeof(Half), kTokenBytes = 16 * kBlocks * D * sizeof(Half);
      constexpr int kScoreBytes = kReadsScores ? 16 * kBlocks * kChunk * sizeof(Half) : 0;
      expect_bytes(arrival, sizeof(in.t) + kScoreBytes +
                                (tensor ? kKeyBytes + kTokenBytes + (walk.identity ? 0 : kKeyBytes) : 0));
      if (tensor) {
#pragma unroll
        for (int part = 0; part < D / 64; ++part) {
          const int first = walk.h * D + 64 * part;
          tensor_copy(in.keys[part], maps.k, first, chunk.token, arrival);
          if constexpr (kBlocks > 0) tensor_copy(in.queries[part], maps.q, first, chunk.token, arrival);
          if (!walk.identity) tensor_copy(in.values[part], maps.v, first, chunk.token, arrival);
        }
      }
      bulk_copy(in.t[0], p.t + chunk.block * 2 * kTile, sizeof(in.t), arrival);
      if constexpr (kReadsScores)
        bulk_copy(in.scores, p.scores + chunk.block * 16 * kBlocks * kChunk, kScoreBytes, arrival);
    }
    if (!tensor) {
      const int first = walk.h * D + 64 * group;
      fetch_tile<64, kChunk, kThreads>(in.keys[group], p.k + chunk.token * p.k_stride + first, key_rows, rows,
                                       thread);
      if (!walk.identity)
        fetch_tile<64, kChunk, kThreads>(in.values[group], p.v + chunk.token * p.v_stride + first, value_rows,
                                         rows, thread);
      if constexpr (kBlocks > 0)
        fetch_tile<64, 16 * kBlocks, kThreads>(in.queries[group], p.q + chunk.token * p.q_stride + first,
                                               query_rows, chunk.tokens, thread);
    }
    if constexpr (!kWgmma) {
      if (group == 0) fetch_linear<2 * kTile, kThreads>(in.t[0], p.t + chunk.block * 2 * kTile, thread);
      if constexpr (kReadsScores)
        if (group == D / 64 - 1)
          fetch_linear<16 * kBlocks * kChunk, kThreads>(
              in.scores, p.scores + chunk.block * 16 * kBlocks * kChunk, thread);
    }
    fetch_factors<kGated, kThreads>(p, chunk, in.beta[group], in.factors[group], thread);
  };
  if constexpr (kMakesScores<kBlocks, kGated>)
    Pipe::feed(walk.steps, memory.arrivals, copy, memory.scores_made, [&](int slot, int thread) {
      auto& in = memory.slots[slot];
      make_scores<D, kBlocks>(in.scores, in.queries[0], in.keys[0], p.factors, thread);
    });
  else
    Pipe::feed(walk.steps, memory.arrivals, copy);
}

template <bool kFirst, class T>
__device__ T& select(T& first, T& second) {
  if constexpr (kFirst)
    return first;
  else
    return second;
}

template <int D, int kBlocks, bool kGated>
__device__ void walk_chunks(const ChunkProblem& p, Memory<D, kBlocks>& memory, const Walk& walk) {
  using Pipe = typename Memory<D, kBlocks>::Pipe;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int column = 64 * group + 16 * warp;  // of dv, this warp's first
  const bool keep = kBlocks > 0 && p.saved;   // S0 and W, for backward
  WarpMemory& own = warp_memory(memory);

  float s[D / 64][8][4];
  load_state<D>(s, walk.begin, column, 1.f, lane);
  if (walk.identity) {
#pragma unroll
    for (int part = 0; part < D / 64; ++part)
      for_each_element(s[part], lane, [&](float& x, int row, int channel) {
        x = 64 * part + channel == column + row ? 1.f : 0.f;
      });
  }
  for (int step = 0; step < walk.steps; ++step) {
    const auto& in = memory.slots[step % Memory<D, kBlocks>::kSlots];
    const int64_t block = walk.first_block + walk.chunk + step;
    uint32_t high[D / 64][4][4], low[D / 64][4][4];
#pragma unroll
    for (int part = 0; part < D / 64; ++part) split_rows(high[part], low[part], s[part]);
    float r[8][4], o[kBlocks > 0 ? 8 : 1][4];
    clear(r);
    clear(o);
    Pipe::await(step, walk.steps, group);
    keep_in_place(r);
    keep_in_place(o);
    begin_products();
#pragma unroll
    for (int part = 0; part < D / 64; ++part) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        multiply_tile<false>(r, high[part][k], in.keys[part], 16 * k, lane);
        multiply_tile<false>(r, low[part][k], in.keys[part], 16 * k, lane);
        if constexpr (kBlocks > 0) multiply_tile<false>(o, high[part][k], in.queries[part], 16 * k, lane);
      }
    }
    issue_products();
    if (keep) keep_blocks(p.s0 + block * D * D, own.blocks, high, column, lane);
    await_products();
    keep_in_place(r);
    keep_in_place(o);

    uint32_t x_high[4][4], x_low[4][4];
    if constexpr (kGated) scale_columns(r, in.factors[group], lane);
    if constexpr (kGated && kBlocks > 0) scale_columns(o, in.factors[group] + 2 * kChunk, lane);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t v[4] = {};
      if (!walk.identity) load_left_transposed<Rows<64>>(v, in.values[group], 16 * warp, 16 * k, lane);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float(&y)[4] = r[2 * k + i / 2];
        y[i % 2 * 2] = low_half(v[i]) - y[i % 2 * 2];
        y[i % 2 * 2 + 1] = high_half(v[i]) - y[i % 2 * 2 + 1];
      }
    }
    split_rows(x_high, x_low, r);
    float w[8][4];
    clear(w);
    keep_in_place(w);
    begin_products();
    multiply_sums<false>(w, x_high, x_low, in.t, lane);
    end_products();
    keep_in_place(w);

    // U, for the outputs and, with a gate, for the state after the chunk
    uint32_t u_high[4][4], u_low[4][4];
    {
      float u[8][4];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) u[n][e] = w[n][e];
      }
      scale_columns(u, in.beta[group], lane);
      split_rows(u_high, u_low, u);
      if constexpr (kGated) {
        scale_columns(u, in.factors[group] + kChunk, lane);
        split_rows(x_high, x_low, u);
        const float last = in.factors[group][kChunk - 1];
#pragma unroll
        for (int part = 0; part < D / 64; ++part)
          for_each_element(s[part], lane, [&](float& x, int, int) { x *= last; });
      }
    }
    auto& update_high = select<kGated>(x_high, u_high);
    auto& update_low = select<kGated>(x_low, u_low);
    if constexpr (kMakesScores<kBlocks, kGated>) Pipe::await_made(step, memory.scores_made);
    keep_in_place(o);
#pragma unroll
    for (int part = 0; part < D / 64; ++part) keep_in_place(s[part]);
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int part = 0; part < D / 64; ++part) {
        multiply_tile<true>(s[part], update_high[k], in.keys[part], 16 * k, lane);
        multiply_tile<true>(s[part], update_low[k], in.keys[part], 16 * k, lane);
      }
      if constexpr (kBlocks > 0) {
        multiply_tile<false>(o, u_high[k], in.scores, 16 * k, lane);
        multiply_tile<false>(o, u_low[k], in.scores, 16 * k, lane);
      }
    }
    issue_products();
    if (keep) keep_w<D>(p, block, own, w, column, lane);
    await_products();
#pragma unroll
    for (int part = 0; part < D / 64; ++part) keep_in_place(s[part]);
    keep_in_place(o);
    Pipe::give_back(step, walk.steps, group);

    if constexpr (kBlocks > 0) {
      const Chunk chunk = walk.at(p, walk.chunk + step);
      Half* const out = p.o + chunk.token * p.o_stride + walk.h * D + column;
      uint32_t rounded[kBlocks][4];
#pragma unroll
      for (int n = 0; n < 2 * kBlocks; ++n) {
        rounded[n / 2][n % 2 * 2] = pack(p.scale * o[n][0], p.scale * o[n][1]);
        rounded[n / 2][n % 2 * 2 + 1] = pack(p.scale * o[n][2], p.scale * o[n][3]);
      }
      await_sent(lane);
      write_columns(rounded, own.high, lane,
                    [&](int token) { return token < chunk.tokens ? out + token * p.o_stride : nullptr; });
    }
  }
  await_sent(lane);
  if (walk.end) store_state<D>(s, walk.end, column, 1.f, lane);
}

template <int D, int kBlocks, bool kGated>
__global__ void __launch_bounds__(Memory<D, kBlocks>::Pipe::kThreads, 1)
    state_kernel(ChunkProblem p, const __grid_constant__ RowMaps maps) {
  begin_kernel();
  using Pipe = typename Memory<D, kBlocks>::Pipe;
  extern __shared__ __align__(1024) char shared[];
  auto& memory = *reinterpret_cast<Memory<D, kBlocks>*>(shared);
  const Walk walk = forward_walk(p, kBlocks == 0);
  if (threadIdx.x == 0) {
    prepare_barriers(memory.arrivals, std::size(memory.arrivals), 1);
    prepare_barriers(memory.scores_made, std::size(memory.scores_made), Pipe::kCopyThreads);
  }
  __syncthreads();
  if (threadIdx.x < 2 * D) {
    Pipe::take_registers();
    walk_chunks<D, kBlocks, kGated>(p, memory, walk);
  } else {
    Pipe::give_registers();
    copy_inputs<D, kBlocks, kGated>(p, memory, walk, maps);
  }
}

template <int D, int kBlocks, bool kGated>
void launch(const ChunkProblem& p, int walks, cudaStream_t stream) {
  const auto kernel = state_kernel<D, kBlocks, kGated>;
  const RowMaps maps = row_maps(p);
  static_assert(D == 128 || sizeof(Memory<D, kBlocks, false>) <= kLeastSharedBytes);
  const size_t memory =
      cuda_device().hopper ? sizeof(Memory<D, kBlocks, true>) : sizeof(Memory<D, kBlocks, false>);
  const int bytes = shared_bytes(memory, kBlocks > 0 ? D / 16 : 0);
  allow_shared_memory(kernel, bytes, "delta rule states");
  const dim3 grid(static_cast<unsigned>(p.batch) * p.heads, walks);
  signet::launch("delta rule states", kernel, grid, Memory<D, kBlocks>::Pipe::kThreads, bytes, Cuda{stream},
                 p, maps);
}

template <int D, bool kGated>
void states(const ChunkProblem& p, cudaStream_t stream) {
  if (p.segments > 1) {
    launch<D, 0, kGated>(p, p.segments - 1 + (p.segments - 2) * p.pieces, stream);
    if (p.pieces > 1) join_pieces(p, stream);
    join_segments(p, false, stream);
  }
  if (p.token_rows == 64)
    launch<D, 4, kGated>(p, p.segments, stream);
  else if (p.token_rows == 32)
    launch<D, 2, kGated>(p, p.segments, stream);
  else
    launch<D, 1, kGated>(p, p.segments, stream);
}

}  // namespace

void chunked_states(const ChunkProblem& p, cudaStream_t stream) {
  if (p.dk == 128)
    p.gate_channels ? states<128, true>(p, stream) : states<128, false>(p, stream);
  else
    p.gate_channels ? states<64, true>(p, stream) : states<64, false>(p, stream);
}

}  // namespace signet::kernels::delta_rule
