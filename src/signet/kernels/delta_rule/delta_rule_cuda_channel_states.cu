// States, outputs and the states' gradients of the chunked delta rule with a gate per channel, one chunk
// after the other: the passes of delta_rule_cuda_states.cu and delta_rule_cuda_state_gradients.cu with keys
// and queries that were multiplied by the gates before, in two bf16 parts. With K_c = K diag(c), K_r = K
// diag(r):
//
//   R^T = V^T - S^T K_c^T     W^T = R^T T^T     U^T = W^T diag(beta)     O^T = scale (S^T Q_c^T + U^T P^T)
//   S^T <- S^T diag(c_last) + U^T K_r
//   dU^T = dO^T P + dS^T K_r^T     dV^T = (dU^T diag(beta)) T     dS^T <- dS^T diag(c_last) + dO^T Q_c - dV^T
//   K_c
//
// A chunk's inputs come in two halves, each with a slot of its own: while one is used the other is on its
// way.
#include <iterator>

#include "signet/kernels/delta_rule/delta_rule_cuda_bulk.cuh"
#include "signet/kernels/delta_rule/delta_rule_cuda_channel.cuh"

namespace signet::kernels::delta_rule {
namespace {

// What comes first and second for a chunk. `rows`: V, or backward dO.
template <int D>
struct alignas(1024) Memory {
  static constexpr int kParts = D / 64;  // tiles of 64 channels
  using Pipe = Pipeline<kParts, 2>;
  struct alignas(1024) First {
    Half keys[2][kParts][kTile], rows[kParts][kTile];
    union {
      Half queries[kParts][kTile];  // forward
      Half scores[2][kTile];        // backward
    };
  } first;
  struct alignas(1024) Second {
    Half keys[2][kParts][kTile], t[2][kTile];
    union {
      Half scores[2][kTile];        // forward
      Half queries[kParts][kTile];  // backward
    };
    // For each group its own:
    float beta[kParts][kChunk], last[kParts][D];
  } second;
  uint64_t arrivals[2];
};

// The inputs of step i of a walk: the first half of chunk i / 2 when i is even, else the second. kSummary:
// what only outputs need is left out.
template <int D, bool kBackward, bool kSummary>
__device__ void copy_inputs(const ChunkProblem& p, Memory<D>& memory, const Walk& walk, const RowMaps& maps) {
  using Pipe = typename Memory<D>::Pipe;
  constexpr int kThreads = Pipe::kGroupThreads, kRowBytes = kChunk * D * sizeof(Half);
  constexpr bool kQueries = kBackward || !kSummary, kScores = kBackward || !kSummary;
  Pipe::feed(2 * walk.steps, memory.arrivals, [&](int i, int slot, int group, int thread) {
    const int step = i / 2;
    const Chunk chunk = walk.at(p, walk.chunk + (kBackward ? walk.steps - 1 - step : step));
    const int64_t block = chunk.block;
    const bool rows = slot == 0 && !walk.identity;
    const bool tensor =
        kWgmma && rows && maps.usable && chunk.tokens == p.tokens && (!kBackward || p.factors == 1);
    const bool asks = group == 0 && thread == 0;
    uint64_t* const arrival = memory.arrivals + slot;
    const auto fetch = [&](auto& to, const Half* from) {
      if constexpr (kWgmma) {
        if (asks) bulk_copy(reinterpret_cast<Half*>(&to), from, sizeof(to), arrival);
      } else {
        if (group == 0)
          fetch_linear<sizeof(to) / sizeof(Half), kThreads>(reinterpret_cast<Half*>(&to), from, thread);
      }
    };
    if (slot == 0) {
      auto& in = memory.first;
      constexpr bool kMore = kBackward ? kScores : kQueries;
      if (kWgmma && asks)
        expect_bytes(arrival, sizeof(in.keys) + (kMore ? (kBackward ? sizeof(in.scores) : kRowBytes) : 0) +
                                  (tensor ? kRowBytes : 0));
      if (tensor && asks) {
#pragma unroll
        for (int part = 0; part < D / 64; ++part)
          tensor_copy(in.rows[part], kBackward ? maps.d_o : maps.v, walk.h * D + 64 * part, chunk.token,
                      arrival);
      }
      fetch(in.keys, kBackward ? p.keys_after(block) : p.keys_before(block));
      if constexpr (kBackward)
        fetch(in.scores, p.scores + block * 2 * kTile);
      else if constexpr (kQueries)
        fetch(in.queries, p.queries_before(block));
      if (rows && !tensor) {
        const int first = walk.h * D + 64 * group;
        const Substeps substeps(p, chunk);
        if constexpr (kBackward)
          fetch_token_rows<64, kThreads>(in.rows[group], p.d_o + chunk.token * p.o_stride + first, p.o_stride,
                                         substeps, thread);
        else
          fetch_tile<64, kChunk, kThreads>(in.rows[group], p.v + chunk.token * p.v_stride + first,
                                           RowMap(p.factors, p.v_stride, p.heads * D), substeps.rows, thread);
      }
    } else {
      auto& in = memory.second;
      constexpr bool kMore = kBackward ? kQueries : kScores;
      if (kWgmma && asks)
        expect_bytes(arrival, sizeof(in.keys) + sizeof(in.t) +
                                  (kMore ? (kBackward ? kRowBytes : sizeof(in.scores)) : 0));
      fetch(in.t, p.t + block * 2 * kTile);
      fetch(in.keys, kBackward ? p.keys_before(block) : p.keys_after(block));
      if constexpr (kBackward)
        fetch(in.queries, p.queries_before(block));
      else if constexpr (kScores)
        fetch(in.scores, p.scores + block * 2 * kTile);
      for (int j = thread; j < D / 4; j += kThreads)
        copy_async<16>(in.last[group] + j * 4, p.last_of(block) + j * 4);
      fetch_factors<false, kThreads>(p, chunk, in.beta[group], nullptr, thread);
    }
  });
}

// c += (high + low) (tiles[0] + tiles[1]) for 16 elements of k, but for the product of both low parts.
template <bool kRows>
__device__ void multiply_parts(float (&c)[8][4], const uint32_t (&high)[4], const uint32_t (&low)[4],
                               const Half* tile, const Half* tile_low, int k, int lane) {
  multiply_tile<kRows>(c, high, tile, k, lane);
  multiply_tile<kRows>(c, low, tile, k, lane);
  multiply_tile<kRows>(c, high, tile_low, k, lane);
}

template <int D, bool kSummary>
__device__ void walk_forward(const ChunkProblem& p, Memory<D>& memory, const Walk& walk) {
  using Pipe = typename Memory<D>::Pipe;
  constexpr int kParts = D / 64;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int column = 64 * group + 16 * warp;  // of dv, this warp's first
  const bool keep = !kSummary && p.saved;     // S0 and W, for backward
  const auto& first = memory.first;
  const auto& second = memory.second;
  WarpMemory& own = warp_memory(memory);

  float s[kParts][8][4];
  load_state<D>(s, walk.begin, column, 1.f, lane);
  if (walk.identity) {
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      for_each_element(s[part], lane, [&](float& x, int row, int channel) {
        x = 64 * part + channel == column + row ? 1.f : 0.f;
      });
  }
  for (int step = 0; step < walk.steps; ++step) {
    const int64_t block = walk.first_block + walk.chunk + step;
    float r[8][4], o[kSummary ? 1 : 8][4];
    {
      uint32_t high[kParts][4][4], low[kParts][4][4];
#pragma unroll
      for (int part = 0; part < kParts; ++part) split_rows(high[part], low[part], s[part]);
      clear(r);
      clear(o);
      Pipe::await(2 * step, 2 * walk.steps, group);
      keep_in_place(r);
      keep_in_place(o);
      begin_products();
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          multiply_parts<false>(r, high[part][k], low[part][k], first.keys[0][part], first.keys[1][part],
                                16 * k, lane);
          if constexpr (!kSummary) multiply_tile<false>(o, high[part][k], first.queries[part], 16 * k, lane);
        }
      }
      issue_products();
      if (keep) keep_blocks(p.s0 + block * D * D, own.blocks, high, column, lane);
      await_products();
      keep_in_place(r);
      keep_in_place(o);
    }
    uint32_t x_high[4][4], x_low[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t v[4] = {};
      if (!walk.identity) load_left_transposed<Rows<64>>(v, first.rows[group], 16 * warp, 16 * k, lane);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float(&y)[4] = r[2 * k + i / 2];
        y[i % 2 * 2] = low_half(v[i]) - y[i % 2 * 2];
        y[i % 2 * 2 + 1] = high_half(v[i]) - y[i % 2 * 2 + 1];
      }
    }
    keep_in_place(r);
    Pipe::give_back(2 * step, 2 * walk.steps, group);
    split_rows(x_high, x_low, r);
    float w[8][4];
    clear(w);
    Pipe::await(2 * step + 1, 2 * walk.steps, group);
    keep_in_place(w);
    begin_products();
    multiply_sums<false>(w, x_high, x_low, second.t, lane);
    end_products();
    keep_in_place(w);

    uint32_t u_high[4][4], u_low[4][4];
    {
      float u[8][4];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) u[n][e] = w[n][e];
      }
      scale_columns(u, second.beta[group], lane);
      split_rows(u_high, u_low, u);
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      scale_columns(s[part], second.last[group] + 64 * part, lane);
      keep_in_place(s[part]);
    }
    keep_in_place(o);
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        multiply_parts<true>(s[part], u_high[k], u_low[k], second.keys[0][part], second.keys[1][part], 16 * k,
                             lane);
      if constexpr (!kSummary)
        multiply_parts<false>(o, u_high[k], u_low[k], second.scores[0], second.scores[1], 16 * k, lane);
    }
    issue_products();
    if (keep) keep_w<D>(p, block, own, w, column, lane);
    await_products();
#pragma unroll
    for (int part = 0; part < kParts; ++part) keep_in_place(s[part]);
    keep_in_place(o);
    Pipe::give_back(2 * step + 1, 2 * walk.steps, group);

    if constexpr (!kSummary) {
      const Chunk chunk = walk.at(p, walk.chunk + step);
      Half* const out = p.o + chunk.token * p.o_stride + walk.h * D + column;
      uint32_t rounded[4][4];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        rounded[n / 2][n % 2 * 2] = pack(p.scale * o[n][0], p.scale * o[n][1]);
        rounded[n / 2][n % 2 * 2 + 1] = pack(p.scale * o[n][2], p.scale * o[n][3]);
      }
      await_sent(lane);
      const Substeps substeps(p, chunk);
      write_columns(rounded, own.high, lane, [&](int row) {
        return substeps.ends_token(row) ? out + substeps.token(row) * p.o_stride : nullptr;
      });
    }
  }
  if constexpr (!kSummary) await_sent(lane);
  if (walk.end) store_state<D>(s, walk.end, column, 1.f, lane);
}

// Divided by `scale` until it is written, as without a gate.
template <int D, bool kSummary>
__device__ void walk_backward(const ChunkProblem& p, Memory<D>& memory, const Walk& walk) {
  using Pipe = typename Memory<D>::Pipe;
  constexpr int kParts = D / 64;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int column = 64 * group + 16 * warp;  // of dv, this warp's first
  const auto& first = memory.first;
  const auto& second = memory.second;
  WarpMemory& own = warp_memory(memory);
  const RowMap value_rows(p.factors, p.v_stride, p.heads * D);
  const bool any = p.scale != 0.f;  // else nothing comes from dO
  const float unit = any ? p.scale : 1.f;

  float ds[kParts][8][4];
  load_state<D>(ds, walk.begin, column, 1.f / unit, lane);
  for (int step = 0; step < walk.steps; ++step) {
    const Chunk chunk = walk.at(p, walk.chunk + walk.steps - 1 - step);
    const int64_t block = chunk.block;
    uint32_t d_o[4][4];
    float du[8][4];
    {
      uint32_t high[kParts][4][4], low[kParts][4][4];
#pragma unroll
      for (int part = 0; part < kParts; ++part) split_rows(high[part], low[part], ds[part]);
      uint32_t rounded[kParts][4][4];  // dS1
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          rounded[part][n / 2][n % 2 * 2] = pack(unit * ds[part][n][0], unit * ds[part][n][1]);
          rounded[part][n / 2][n % 2 * 2 + 1] = pack(unit * ds[part][n][2], unit * ds[part][n][3]);
        }
      }
      clear(du);
      Pipe::await(2 * step, 2 * walk.steps, group);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        load_left_transposed<Rows<64>>(d_o[k], first.rows[group], 16 * warp, 16 * k, lane);
#pragma unroll
        for (int i = 0; i < 4; ++i) d_o[k][i] = any ? d_o[k][i] : 0u;
      }
      keep_in_place(du);
      begin_products();
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int k = 0; k < 4; ++k)
          multiply_parts<false>(du, high[part][k], low[part][k], first.keys[0][part], first.keys[1][part],
                                16 * k, lane);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        multiply_tile<true>(du, d_o[k], first.scores[0], 16 * k, lane);
        multiply_tile<true>(du, d_o[k], first.scores[1], 16 * k, lane);
      }
      issue_products();
      if constexpr (!kSummary) keep_blocks(p.ds1 + block * D * D, own.blocks, rounded, column, lane);
      await_products();
      keep_in_place(du);
    }
    Pipe::give_back(2 * step, 2 * walk.steps, group);
    Pipe::await(2 * step + 1, 2 * walk.steps, group);
    scale_columns(du, second.beta[group], lane);
    uint32_t x_high[4][4], x_low[4][4];
    split_rows(x_high, x_low, du);
    float dv[8][4];
    clear(dv);
    keep_in_place(dv);
    begin_products();
    multiply_sums<true>(dv, x_high, x_low, second.t, lane);
    end_products();
    keep_in_place(dv);
    {
      float x[8][4];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) x[n][e] = -dv[n][e];
      }
      split_rows(x_high, x_low, x);
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      scale_columns(ds[part], second.last[group] + 64 * part, lane);
      keep_in_place(ds[part]);
    }
    begin_products();
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        multiply_tile<true>(ds[part], d_o[k], second.queries[part], 16 * k, lane);
        multiply_parts<true>(ds[part], x_high[k], x_low[k], second.keys[0][part], second.keys[1][part],
                             16 * k, lane);
      }
    }
    issue_products();
    if constexpr (!kSummary) write_dv<D>(p, chunk, walk.h, own, dv, unit, value_rows, column, lane);
    await_products();
#pragma unroll
    for (int part = 0; part < kParts; ++part) keep_in_place(ds[part]);
    Pipe::give_back(2 * step + 1, 2 * walk.steps, group);
  }
  if constexpr (!kSummary) await_sent(lane);
  if (walk.end) store_state<D>(ds, walk.end, column, unit, lane);
}

template <int D, bool kBackward, bool kSummary>
__global__ void __launch_bounds__(Memory<D>::Pipe::kThreads, 1)
    channel_state_kernel(ChunkProblem p, const __grid_constant__ RowMaps maps) {
  begin_kernel();
  using Pipe = typename Memory<D>::Pipe;
  extern __shared__ __align__(1024) char shared[];
  auto& memory = *reinterpret_cast<Memory<D>*>(shared);
  const Walk walk = kBackward ? backward_walk(p, kSummary) : forward_walk(p, kSummary);
  if (threadIdx.x == 0) prepare_barriers(memory.arrivals, std::size(memory.arrivals), 1);
  __syncthreads();
  if (threadIdx.x < 2 * D) {
    Pipe::take_registers();
    if constexpr (kBackward)
      walk_backward<D, kSummary>(p, memory, walk);
    else
      walk_forward<D, kSummary>(p, memory, walk);
  } else {
    Pipe::give_registers();
    copy_inputs<D, kBackward, kSummary>(p, memory, walk, maps);
  }
}

template <int D, bool kBackward, bool kSummary>
void launch_walks(const ChunkProblem& p, int walks, cudaStream_t stream) {
  const auto kernel = channel_state_kernel<D, kBackward, kSummary>;
  const int bytes = shared_bytes(sizeof(Memory<D>), kSummary ? 0 : D / 16);
  allow_shared_memory(kernel, bytes, "delta rule states");
  const dim3 grid(static_cast<unsigned>(p.batch) * p.heads, walks);
  signet::launch("delta rule states", kernel, grid, Memory<D>::Pipe::kThreads, bytes, Cuda{stream}, p,
                 row_maps(p));
}

template <int D>
void states(const ChunkProblem& p, cudaStream_t stream) {
  if (p.segments > 1) {
    launch_walks<D, false, true>(p, p.segments - 1 + (p.segments - 2) * p.pieces, stream);
    if (p.pieces > 1) join_pieces(p, stream);
    join_segments(p, false, stream);
  }
  launch_walks<D, false, false>(p, p.segments, stream);
}

template <int D>
void state_gradients(const ChunkProblem& p, cudaStream_t stream) {
  if (p.segments > 1) {
    launch_walks<D, true, true>(p, p.segments - 1, stream);
    join_segments(p, true, stream);
  }
  launch_walks<D, true, false>(p, p.segments, stream);
}

}  // namespace

void channel_states(const ChunkProblem& p, cudaStream_t stream) {
  p.dk == 128 ? states<128>(p, stream) : states<64>(p, stream);
}

void channel_state_gradients(const ChunkProblem& p, cudaStream_t stream) {
  p.dk == 128 ? state_gradients<128>(p, stream) : state_gradients<64>(p, stream);
}

}  // namespace signet::kernels::delta_rule
