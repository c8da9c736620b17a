// The chunked delta rule's states, one chunk after the other: one block per head and segment. A warpgroup
// owns 64 columns of dv and keeps S^T for them in registers (fp32; 16 columns a warp). Columns do not mix,
// and with the columns as rows of every product,
//
//   R^T = V^T - S^T K^T      W^T = R^T T^T      S^T += (W^T diag(beta)) K
//
// each result is the next product's left operand as it lies in registers. Two more warps copy K, T and V two
// chunks ahead.
#include "signet/kernels/delta_rule/delta_rule_cuda_chunked.cuh"
#include "signet/kernels/delta_rule/delta_rule_cuda_group.cuh"

namespace signet::kernels::delta_rule {
namespace {

constexpr int kSlots = 3;
template <int D>
using Pipe = Pipeline<D / 64, kSlots>;

template <int D>
struct Memory {
  static constexpr int kParts = D / 64;  // tiles of 64 channels
  Half keys[kSlots][kParts][kTile], t[kSlots][2][kTile], values[kSlots][kParts][kTile];
  float beta[kSlots][kChunk];
  float factors[kSlots][3 * kChunk];  // with a gate: c of rows, r, c of tokens
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

template <int D, bool kGated>
__device__ void copy_inputs(const ChunkProblem& p, Memory<D>& memory, const Walk& walk, int thread) {
  const int h = walk.h;
  const RowMap key_rows(p.factors, p.k_stride, p.heads * D), value_rows(p.factors, p.v_stride, p.heads * D);
  Pipe<D>::feed(walk.steps, [&](int step, int slot) {
    const Chunk chunk = walk.at(p, walk.chunk + step);
    const int rows = chunk.tokens * p.factors;
    const int64_t token = chunk.token;
#pragma unroll
    for (int part = 0; part < D / 64; ++part) {
      fetch_tile<64, kChunk, Pipe<D>::kCopyThreads>(
          memory.keys[slot][part], p.k + token * p.k_stride + h * D + 64 * part, key_rows, rows, thread);
      if (!walk.identity)
        fetch_tile<64, kChunk, Pipe<D>::kCopyThreads>(memory.values[slot][part],
                                                      p.v + token * p.v_stride + h * D + 64 * part,
                                                      value_rows, rows, thread);
    }
    fetch_linear<2 * kTile, Pipe<D>::kCopyThreads>(memory.t[slot][0], p.t + chunk.block * 2 * kTile, thread);
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

template <int D, bool kGated>
__device__ void walk_chunks(const ChunkProblem& p, Memory<D>& memory, const Walk& walk) {
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int column = 64 * group + 16 * warp;  // of dv, this warp's first

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
    if (!walk.summary) {
#pragma unroll
      for (int part = 0; part < D / 64; ++part)
        store_blocks<D>(p.s0 + block * D * D, high[part], column, 64 * part, lane);
    }
    float r[8][4];
    clear(r);
    Pipe<D>::await(step, group);
    keep_in_place(r);
    begin_products();
#pragma unroll
    for (int part = 0; part < D / 64; ++part) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        multiply_tile<false>(r, high[part][k], memory.keys[slot][part], 16 * k, lane);
        multiply_tile<false>(r, low[part][k], memory.keys[slot][part], 16 * k, lane);
      }
    }
    end_products();
    keep_in_place(r);

    uint32_t x_high[4][4], x_low[4][4];
    if constexpr (kGated) scale_columns(r, memory.factors[slot], lane);
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
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      multiply_tile<false>(w, x_high[k], memory.t[slot][0], 16 * k, lane);
      multiply_tile<false>(w, x_low[k], memory.t[slot][0], 16 * k, lane);
      multiply_tile<false>(w, x_high[k], memory.t[slot][1], 16 * k, lane);
    }
    end_products();
    keep_in_place(w);

    if (!walk.summary) {
      uint32_t w_high[4][4], w_low[4][4];
      split_rows(w_high, w_low, w);
      store_blocks<kChunk>(p.w + 2 * block * kChunk * D, w_high, column, 0, lane);
      store_blocks<kChunk>(p.w + (2 * block + 1) * kChunk * D, w_low, column, 0, lane);
    }
    scale_columns(w, memory.beta[slot], lane);
    if constexpr (kGated) {
      scale_columns(w, memory.factors[slot] + kChunk, lane);
      const float last = memory.factors[slot][kChunk - 1];
#pragma unroll
      for (int part = 0; part < D / 64; ++part)
        for_each_element(s[part], lane, [&](float& x, int, int) { x *= last; });
    }
    split_rows(x_high, x_low, w);
#pragma unroll
    for (int part = 0; part < D / 64; ++part) keep_in_place(s[part]);
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int part = 0; part < D / 64; ++part) {
        multiply_tile<true>(s[part], x_high[k], memory.keys[slot][part], 16 * k, lane);
        multiply_tile<true>(s[part], x_low[k], memory.keys[slot][part], 16 * k, lane);
      }
    }
    end_products();
#pragma unroll
    for (int part = 0; part < D / 64; ++part) keep_in_place(s[part]);
    Pipe<D>::give_back(step, walk.steps);
  }
  if (walk.end) store_state<D>(s, walk.end, column, 1.f, lane);
}

template <int D, bool kGated>
__global__ void __launch_bounds__(Pipe<D>::kThreads, 1) state_kernel(ChunkProblem p, bool summary) {
  extern __shared__ __align__(1024) char shared[];
  auto& memory = *reinterpret_cast<Memory<D>*>(shared);
  const Walk walk = walk_of(p, summary);
  if (threadIdx.x < 2 * D) {
    Pipe<D>::take_registers();
    walk_chunks<D, kGated>(p, memory, walk);
  } else {
    Pipe<D>::give_registers();
    copy_inputs<D, kGated>(p, memory, walk, threadIdx.x - 2 * D);
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

template <int D, bool kGated>
void states(const ChunkProblem& p, cudaStream_t stream) {
  constexpr int kThreads = Pipe<D>::kThreads, kBytes = sizeof(Memory<D>);
  allow_shared_memory(state_kernel<D, kGated>, kBytes, "delta rule states");
  const unsigned heads = static_cast<unsigned>(p.batch) * p.heads;
  if (p.segments > 1) {
    state_kernel<D, kGated><<<dim3(heads, 2 * p.segments - 3), kThreads, kBytes, stream>>>(p, true);
    check_launch("delta rule segments");
    join_segments(p, false, stream);
  }
  state_kernel<D, kGated><<<dim3(heads, p.segments), kThreads, kBytes, stream>>>(p, false);
  check_launch("delta rule states");
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
