// The chunked delta rule's states and outputs, one chunk after the other: one block per head and segment. A
// warpgroup owns 64 columns of dv and keeps S^T for them in registers (fp32; 16 columns a warp). Columns do
// not mix, and with the columns as rows of every product,
//
//   R^T = V^T - S^T K^T      W^T = R^T T^T      U^T = W^T diag(beta)      O^T = scale (S^T Q^T + U^T P^T)
//   S^T += U^T K
//
// each result is the next product's left operand as it lies in registers. More warps copy the right operands
// two chunks ahead.
#include "signet/kernels/delta_rule/delta_rule_cuda_chunked.cuh"
#include "signet/kernels/delta_rule/delta_rule_cuda_group.cuh"

namespace signet::kernels::delta_rule {
namespace {

template <int D>
struct Memory {
  static constexpr int kParts = D / 64;  // tiles of 64 channels
  Half keys[kSlots][kParts][kTile], t[kSlots][2][kTile], values[kSlots][kParts][kTile],
      queries[kSlots][kParts][kTile], scores[kSlots][kTile];
  float beta[kSlots][kChunk];
  float factors[kSlots][3 * kChunk];  // with a gate: c of rows, r, c of tokens
  WarpMemory warps[D / 16];
};

__device__ Walk walk_of(const ChunkProblem& p, bool summary) {
  const int head = blockIdx.x, y = blockIdx.y, last = p.segments - 1;
  const bool identity = summary && y >= last;
  const int segment = identity ? y - last + 1 : y;
  const int64_t state = head * p.state_size();
  Walk walk(p, segment);
  walk.identity = identity, walk.summary = summary;
  if (!identity && segment == 0)
    walk.begin = p.initial_state ? p.initial_state + state : nullptr;
  else if (!summary)
    walk.begin = p.increments + p.segment(head, segment - 1);
  if (identity)
    walk.end = p.transitions + p.segment(head, segment);
  else if (summary)
    walk.end = p.increments + p.segment(head, segment);
  else if (segment == last && p.final_state)
    walk.end = p.final_state + state;
  return walk;
}

// kBlocks: token blocks of 16 per chunk; 0 for summaries, which have no outputs.
template <int D, int kBlocks, bool kGated>
__device__ void copy_inputs(const ChunkProblem& p, Memory<D>& memory, const Walk& walk, int thread) {
  using Pipe = Pipeline<D / 64>;
  constexpr int kCopyThreads = Pipe::kCopyThreads;
  const RowMap key_rows(p.factors, p.k_stride, p.heads * D), value_rows(p.factors, p.v_stride, p.heads * D),
      query_rows(1, p.q_stride, 0);
  Pipe::feed(walk.steps, [&](int step, int slot) {
    const Chunk chunk = walk.at(p, walk.chunk + step);
    const int rows = chunk.tokens * p.factors;
#pragma unroll
    for (int part = 0; part < D / 64; ++part) {
      const int first = walk.h * D + 64 * part;
      fetch_tile<64, kChunk, kCopyThreads>(memory.keys[slot][part], p.k + chunk.token * p.k_stride + first,
                                           key_rows, rows, thread);
      if (!walk.identity)
        fetch_tile<64, kChunk, kCopyThreads>(
            memory.values[slot][part], p.v + chunk.token * p.v_stride + first, value_rows, rows, thread);
      if constexpr (kBlocks > 0)
        fetch_tile<64, 16 * kBlocks, kCopyThreads>(memory.queries[slot][part],
                                                   p.q + chunk.token * p.q_stride + first, query_rows,
                                                   chunk.tokens, thread);
    }
    fetch_linear<2 * kTile, kCopyThreads>(memory.t[slot][0], p.t + chunk.block * 2 * kTile, thread);
    if constexpr (kBlocks > 0)
      fetch_linear<16 * kBlocks * kChunk, kCopyThreads>(
          memory.scores[slot], p.scores + chunk.block * 16 * kBlocks * kChunk, thread);
    if (kGated && thread < 3 * kChunk / 4)
      copy_async<16>(memory.factors[slot] + thread * 4, p.factors_of(chunk.block) + thread * 4);
    if (thread < kChunk) {
      if (const float* from = chunk.beta_of(p, thread))
        copy_async<4>(memory.beta[slot] + thread, from);
      else
        memory.beta[slot][thread] = 0.f;
    }
  });
}

template <bool kFirst, class T>
__device__ T& select(T& first, T& second) {
  if constexpr (kFirst)
    return first;
  else
    return second;
}

template <int D, int kBlocks, bool kGated>
__device__ void walk_chunks(const ChunkProblem& p, Memory<D>& memory, const Walk& walk) {
  using Pipe = Pipeline<D / 64>;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int column = 64 * group + 16 * warp;  // of dv, this warp's first
  const bool keep = kBlocks > 0 && p.saved;   // S0 and W, for backward
  WarpMemory& own = memory.warps[threadIdx.x / 32];

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
    const int slot = step % kSlots;
    const int64_t block = walk.first_block + walk.chunk + step;
    uint32_t high[D / 64][4][4], low[D / 64][4][4];
#pragma unroll
    for (int part = 0; part < D / 64; ++part) split_rows(high[part], low[part], s[part]);
    float r[8][4], o[kBlocks > 0 ? 8 : 1][4];
    clear(r);
    clear(o);
    Pipe::await(step, group);
    keep_in_place(r);
    keep_in_place(o);
    begin_products();
#pragma unroll
    for (int part = 0; part < D / 64; ++part) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        multiply_tile<false>(r, high[part][k], memory.keys[slot][part], 16 * k, lane);
        multiply_tile<false>(r, low[part][k], memory.keys[slot][part], 16 * k, lane);
        if constexpr (kBlocks > 0)
          multiply_tile<false>(o, high[part][k], memory.queries[slot][part], 16 * k, lane);
      }
    }
    issue_products();
    if (keep) keep_blocks(p.s0 + block * D * D, own.blocks, high, column, lane);
    await_products();
    keep_in_place(r);
    keep_in_place(o);

    uint32_t x_high[4][4], x_low[4][4];
    if constexpr (kGated) scale_columns(r, memory.factors[slot], lane);
    if constexpr (kGated && kBlocks > 0) scale_columns(o, memory.factors[slot] + 2 * kChunk, lane);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t v[4] = {};
      if (!walk.identity)
        load_left_transposed<Rows<64>>(v, memory.values[slot][group], 16 * warp, 16 * k, lane);
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
    multiply_sums<false>(w, x_high, x_low, memory.t[slot], lane);
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
      scale_columns(u, memory.beta[slot], lane);
      split_rows(u_high, u_low, u);
      if constexpr (kGated) {
        scale_columns(u, memory.factors[slot] + kChunk, lane);
        split_rows(x_high, x_low, u);
        const float last = memory.factors[slot][kChunk - 1];
#pragma unroll
        for (int part = 0; part < D / 64; ++part)
          for_each_element(s[part], lane, [&](float& x, int, int) { x *= last; });
      }
    }
    auto& update_high = select<kGated>(x_high, u_high);
    auto& update_low = select<kGated>(x_low, u_low);
    keep_in_place(o);
#pragma unroll
    for (int part = 0; part < D / 64; ++part) keep_in_place(s[part]);
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int part = 0; part < D / 64; ++part) {
        multiply_tile<true>(s[part], update_high[k], memory.keys[slot][part], 16 * k, lane);
        multiply_tile<true>(s[part], update_low[k], memory.keys[slot][part], 16 * k, lane);
      }
      if constexpr (kBlocks > 0) {
        multiply_tile<false>(o, u_high[k], memory.scores[slot], 16 * k, lane);
        multiply_tile<false>(o, u_low[k], memory.scores[slot], 16 * k, lane);
      }
    }
    issue_products();
    if (keep) {
      uint32_t w_high[4][4], w_low[4][4];
      split_rows(w_high, w_low, w);
      Half *const to_high = p.w + 2 * block * kChunk * D, *const to_low = to_high + kChunk * D;
      if constexpr (kWgmma) {
        put_blocks<kChunk>(own.high, w_high, 0, lane);
        put_blocks<kChunk>(own.low, w_low, 0, lane);
      } else {
        write_blocks<kChunk>(to_high, w_high, column, 0, lane);
        write_blocks<kChunk>(to_low, w_low, column, 0, lane);
      }
      send_blocks<kChunk>(to_high, own.high, column, lane);
      send_blocks<kChunk>(to_low, own.low, column, lane);
    }
    await_products();
#pragma unroll
    for (int part = 0; part < D / 64; ++part) keep_in_place(s[part]);
    keep_in_place(o);
    Pipe::give_back(step, walk.steps);

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
__global__ void __launch_bounds__(Pipeline<D / 64>::kThreads, 1) state_kernel(ChunkProblem p) {
  using Pipe = Pipeline<D / 64>;
  extern __shared__ __align__(1024) char shared[];
  auto& memory = *reinterpret_cast<Memory<D>*>(shared);
  const Walk walk = walk_of(p, kBlocks == 0);
  if (threadIdx.x < 2 * D) {
    Pipe::take_registers();
    walk_chunks<D, kBlocks, kGated>(p, memory, walk);
  } else {
    Pipe::give_registers();
    copy_inputs<D, kBlocks, kGated>(p, memory, walk, threadIdx.x - 2 * D);
  }
}

// One block per head and 16 columns of dv.
constexpr int kJoinColumns = 16, kJoinThreads = 256;
template <int D>
struct JoinMemory {
  static constexpr int kPitch = D + 4;
  float m[2][D * kPitch], x[D * kJoinColumns];
};
template <int D, bool kBackward>
__global__ void __launch_bounds__(kJoinThreads) join_kernel(ChunkProblem p) {
  using Memory = JoinMemory<D>;
  extern __shared__ __align__(1024) char shared[];
  auto& memory = *reinterpret_cast<Memory*>(shared);
  const int head = blockIdx.x, first = blockIdx.y * kJoinColumns, count = p.segments - 2;
  const auto segment = [&](int i) { return kBackward ? p.segments - 2 - i : 1 + i; };  // of step i
  const auto fetch = [&](int i) {
    const float* from = p.transitions + p.segment(head, segment(i));
    for (int piece = threadIdx.x; piece < D * D / 4; piece += kJoinThreads)
      copy_async<16>(memory.m[i & 1] + piece / (D / 4) * Memory::kPitch + piece % (D / 4) * 4,
                     from + piece * 4);
    copy_commit();
  };
  // A thread makes rows row, row + kRows .. of kWidth columns.
  constexpr int kWidth = 4, kRows = kJoinThreads * kWidth / kJoinColumns, kSums = D / kRows;
  const int row = threadIdx.x / (kJoinColumns / kWidth),
            column = threadIdx.x % (kJoinColumns / kWidth) * kWidth;
  const auto place = [&](int i) { return static_cast<int64_t>(row + i * kRows) * D + first + column; };
  fetch(0);
  const float* before = p.increments + p.segment(head, kBackward ? p.segments - 1 : 0);
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    float x[kWidth];
    load_floats(x, before + place(i));
    store_floats(memory.x + (row + i * kRows) * kJoinColumns + column, x);
  }
  for (int step = 0; step < count; ++step) {
    copy_wait<0>();
    __syncthreads();
    if (step + 1 < count) fetch(step + 1);
    float* const values = p.increments + p.segment(head, segment(step));
    const float* const m = memory.m[step & 1];
    float sums[kSums][kWidth];
#pragma unroll
    for (int i = 0; i < kSums; ++i) load_floats(sums[i], values + place(i));
#pragma unroll 4
    for (int j = 0; j < D; ++j) {
      float x[kWidth];
      load_floats(x, memory.x + j * kJoinColumns + column);
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        const int r = row + i * kRows;
        const float factor = kBackward ? m[j * Memory::kPitch + r] : m[r * Memory::kPitch + j];
#pragma unroll
        for (int c = 0; c < kWidth; ++c) sums[i][c] = fmaf(factor, x[c], sums[i][c]);
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      store_floats(values + place(i), sums[i]);
      store_floats(memory.x + (row + i * kRows) * kJoinColumns + column, sums[i]);
    }
  }
}

template <int D, bool kBackward>
void join(const ChunkProblem& p, cudaStream_t stream) {
  allow_shared_memory(join_kernel<D, kBackward>, sizeof(JoinMemory<D>), "delta rule segments");
  const dim3 grid(static_cast<unsigned>(p.batch) * p.heads, D / kJoinColumns);
  join_kernel<D, kBackward><<<grid, kJoinThreads, sizeof(JoinMemory<D>), stream>>>(p);
  check_launch("delta rule segments");
}

template <int D, int kBlocks, bool kGated>
void launch(const ChunkProblem& p, int walks, cudaStream_t stream) {
  const auto kernel = state_kernel<D, kBlocks, kGated>;
  const int bytes = shared_bytes<Memory<D>>();
  allow_shared_memory(kernel, bytes, "delta rule states");
  const dim3 grid(static_cast<unsigned>(p.batch) * p.heads, walks);
  kernel<<<grid, Pipeline<D / 64>::kThreads, bytes, stream>>>(p);
  check_launch("delta rule states");
}

template <int D, bool kGated>
void states(const ChunkProblem& p, cudaStream_t stream) {
  if (p.segments > 1) {
    launch<D, 0, kGated>(p, 2 * p.segments - 3, stream);
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

void join_segments(const ChunkProblem& p, bool backward, cudaStream_t stream) {
  if (p.segments < 3) return;
  if (p.dk == 128)
    backward ? join<128, true>(p, stream) : join<128, false>(p, stream);
  else
    backward ? join<64, true>(p, stream) : join<64, false>(p, stream);
}

}  // namespace signet::kernels::delta_rule
