// Backward of the chunked delta rule: dU's local term per chunk, then dV and the states' gradients one chunk
// after the other from the last, then dQ, dK and dbeta per chunk.
#include "signet/kernels/delta_rule/delta_rule_cuda_chunked.cuh"
#include "signet/kernels/delta_rule/delta_rule_cuda_mma.cuh"

namespace signet::kernels::delta_rule {
namespace {

constexpr int kThreads = 128;  // 4 warps: one per 16 rows of a chunk

// Token blocks of 16 that see anything in substeps 16w .. 16w+15: from this one to the last.
__device__ int first_token_block(const ChunkProblem& p, int warp) { return 16 * warp / p.factors / 16; }
__device__ int token_blocks(const ChunkProblem& p) { return (p.tokens + 15) / 16; }

// dU = scale mask(Q K^T)^T dO, the part of a chunk's own tokens.
template <int D>
__global__ void __launch_bounds__(kThreads) local_kernel(ChunkProblem p) {
  extern __shared__ __align__(256) char shared[];
  Half* const queries = reinterpret_cast<Half*>(shared);
  Half* const keys = queries + kChunk * D;
  Half* const d_o = keys + kChunk * D;
  const int chunk = blockIdx.x, head = blockIdx.y, b = head / p.heads, h = head % p.heads;
  const int lane = threadIdx.x % 32, m0 = threadIdx.x / 32 * 16;
  const int tokens = p.tokens_in(chunk), blocks = token_blocks(p), first = first_token_block(p, m0 / 16);
  const int64_t token = p.token(b, chunk * p.tokens);
  fetch_tile<D, kChunk, kThreads>(queries, p.q + token * p.q_stride + h * D, RowMap(1, p.q_stride, 0), tokens,
                                  threadIdx.x);
  fetch_tile<D, kChunk, kThreads>(keys, p.k + token * p.k_stride + h * D,
                                  RowMap(p.factors, p.k_stride, p.heads * D), tokens * p.factors,
                                  threadIdx.x);
  copy_commit();
  fetch_tile<D, kChunk, kThreads>(d_o, p.d_o + token * p.o_stride + h * D, RowMap(1, p.o_stride, 0), tokens,
                                  threadIdx.x);
  copy_commit();
  copy_wait<1>();
  __syncthreads();
  float scores[8][4];  // [substep][token]
  clear(scores);
  row_block_product<D, D>(scores, keys, m0, queries, first, blocks, lane);
  for_each_element(scores, lane, [&](float& value, int row, int column) {
    value = m0 + row < (column + 1) * p.factors ? value * p.scale : 0.f;
  });
  copy_wait<0>();
  __syncthreads();
  float du[D / 8][4];
  clear(du);
  product_of_sums<false, D>(du, scores, d_o, 0, first, blocks, lane);
  for_each_pair(du, lane, [&](float x, float y, int row, int column) {
    store_split<D>(queries, keys, m0 + row, column, x, y);
  });
  Half* const out = p.du + p.block(head, chunk) * 2 * kChunk * D;
  drain_rows<D, D>(queries, m0, 0, lane, [&](int row) { return out + row * D; });
  drain_rows<D, D>(keys, m0, 0, lane, [&](int row) { return out + (kChunk + row) * D; });
}

// Roles in the state kernel: 4 warps compute and touch shared memory alone, the others copy. Narrow slices
// run alone on a multiprocessor and can have more of them.
template <int BV>
constexpr int kCopyThreads = BV == 16 ? 256 : 64;
template <int BV>
constexpr int kStateThreads = kThreads + kCopyThreads<BV>;

template <int DK, int BV>
struct StateMemory {
  Half keys[2][kChunk * DK];      // of this chunk and the one before
  Half local[2][2][kChunk * BV];  // likewise, high and low part; later in the chunk -dV lies there
  Half queries[kChunk * DK], d_o[kChunk * BV], t[2 * kChunk * kChunk];
  Half state[2][DK * BV], du[2][kChunk * BV];  // high and low parts
  float beta[2][kChunk];
};

// A chunk needs its keys, local term and beta first, then T, then its queries and dO: each is asked for as
// soon as the memory it goes to is free, and the copies end in the order they were asked for.
template <int DK, int BV>
__device__ void copy_states(const ChunkProblem& p, StateMemory<DK, BV>& memory, int head, int first_column) {
  const int thread = threadIdx.x - kThreads, b = head / p.heads, h = head % p.heads;
  const RowMap key_rows(p.factors, p.k_stride, p.heads * DK), value_rows(p.factors, p.v_stride, p.heads * DK),
      query_rows(1, p.q_stride, 0), output_rows(1, p.o_stride, 0), local_rows(1, DK, 0);
  const auto fetch_keys = [&](int chunk) {
    const int rows = p.tokens_in(chunk) * p.factors, slot = chunk & 1;
    const int64_t token = p.token(b, chunk * p.tokens);
    fetch_tile<DK, kChunk, kCopyThreads<BV>>(memory.keys[slot], p.k + token * p.k_stride + h * DK, key_rows,
                                             rows, thread);
    for (int part = 0; part < 2; ++part)
      fetch_tile<BV, kChunk, kCopyThreads<BV>>(
          memory.local[slot][part], p.du + (p.block(head, chunk) * 2 + part) * kChunk * DK + first_column,
          local_rows, kChunk, thread);
    if (thread < kChunk) {
      if (const float* from = p.beta_of(b, h, chunk, thread))
        copy_async<4>(memory.beta[slot] + thread, from);
      else
        memory.beta[slot][thread] = 0.f;
    }
  };
  const auto fetch_t = [&](int chunk) {
    fetch_linear<2 * kChunk * kChunk, kCopyThreads<BV>>(
        memory.t, p.t + p.block(head, chunk) * 2 * kChunk * kChunk, thread);
  };
  const auto fetch_queries = [&](int chunk) {
    const int tokens = p.tokens_in(chunk);
    const int64_t token = p.token(b, chunk * p.tokens);
    fetch_tile<DK, kChunk, kCopyThreads<BV>>(memory.queries, p.q + token * p.q_stride + h * DK, query_rows,
                                             tokens, thread);
    fetch_tile<BV, kChunk, kCopyThreads<BV>>(memory.d_o, p.d_o + token * p.o_stride + h * DK + first_column,
                                             output_rows, tokens, thread);
  };
  fetch_keys(p.chunks - 1);
  copy_commit();
  fetch_t(p.chunks - 1);
  copy_commit();
  for (int chunk = p.chunks - 1; chunk >= 0; --chunk) {
    const int64_t block = p.block(head, chunk);
    copy_wait<1>();  // keys, local term and beta are there; T may still be under way
    role_barrier<kStateThreads<BV>>();
    fetch_queries(chunk);
    copy_commit();
    if (chunk > 0) fetch_keys(chunk - 1);
    copy_commit();
    copy_wait<2>();  // T
    role_barrier<kStateThreads<BV>>();
    write_tile<BV, DK, DK, kCopyThreads<BV>>(p.ds1 + block * DK * DK, first_column, memory.state[0], thread);
    copy_wait<1>();  // queries and dO
    role_barrier<kStateThreads<BV>>();
    if (chunk > 0) fetch_t(chunk - 1);
    copy_commit();
    // dV: its high part is the output, the low part is kept for dK and dbeta.
    const int rows = p.tokens_in(chunk) * p.factors;
    Half* const out = p.dv_out + p.token(b, chunk * p.tokens) * p.v_stride + h * DK + first_column;
    uint4* const low = reinterpret_cast<uint4*>(p.dv_low + block * kChunk * DK);
    for (int i = thread; i < kChunk * (BV / 8); i += kCopyThreads<BV>) {
      const int row = i / (BV / 8), piece = i % (BV / 8), at = tile_piece<BV>(row, piece);
      const auto negate = [](uint4 x) {
        return make_uint4(x.x ^ 0x80008000u, x.y ^ 0x80008000u, x.z ^ 0x80008000u, x.w ^ 0x80008000u);
      };
      if (row < rows)
        *reinterpret_cast<uint4*>(out + value_rows.offset(row) + piece * 8) =
            negate(reinterpret_cast<const uint4*>(memory.local[chunk & 1][0])[at]);
      low[tile_piece<DK>(row, first_column / 8 + piece)] =
          negate(reinterpret_cast<const uint4*>(memory.local[chunk & 1][1])[at]);
    }
  }
}

// dS backwards: one block per head and BV columns of dv. dS lives in registers (fp32) and, split in two bf16
// parts, in shared memory for K dS.
template <int DK, int BV>
__global__ void __launch_bounds__(kStateThreads<BV>, BV == 16 ? 1 : 2) state_kernel(ChunkProblem p) {
  constexpr int kTiles = BV / 8, kRows = DK / 64;
  extern __shared__ __align__(256) char shared[];
  auto& memory = *reinterpret_cast<StateMemory<DK, BV>*>(shared);
  const int head = blockIdx.x, first_column = blockIdx.y * BV;
  if (threadIdx.x >= kThreads) return copy_states(p, memory, head, first_column);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, m0 = 16 * warp, first_row = m0 * kRows;
  const int blocks = token_blocks(p);

  float ds[kRows][kTiles][4];
  const int64_t state = head * p.state_size() + first_column;
  load_state(ds, p.d_final_state ? p.d_final_state + state : nullptr, p.dv, first_row, lane);
  publish_state<BV>(ds, memory.state[0], memory.state[1], first_row, lane);
  for (int chunk = p.chunks - 1; chunk >= 0; --chunk) {
    const int slot = chunk & 1;
    role_barrier<kStateThreads<BV>>();
    // diag(beta) dU = diag(beta) (local + K dS)
    float du[kTiles][4];
    const float beta_low = memory.beta[slot][m0 + lane / 4], beta_high = memory.beta[slot][m0 + lane / 4 + 8];
    product_split<DK, DK, BV>(du, memory.keys[slot], m0, memory.state[0], memory.state[1], lane);
    for_each_pair(du, lane, [&](float x, float y, int row, int column) {
      const float beta = row < 8 ? beta_low : beta_high;
      const int at = tile_index<BV>(m0 + row, column);
      const uint32_t high = *reinterpret_cast<const uint32_t*>(memory.local[slot][0] + at),
                     low = *reinterpret_cast<const uint32_t*>(memory.local[slot][1] + at);
      x += low_half(high) + low_half(low), y += high_half(high) + high_half(low);
      store_split<BV>(memory.du[0], memory.du[1], m0 + row, column, beta * x, beta * y);
    });
    role_barrier<kStateThreads<BV>>();
    // dV = T^T (diag(beta) dU)
    float dv[kTiles][4];
    triangle_product<true, BV>(dv, memory.t, m0, memory.du[0], memory.du[1], lane);
    for_each_pair(dv, lane, [&](float x, float y, int row, int column) {
      store_split<BV>(memory.local[slot][0], memory.local[slot][1], m0 + row, column, -x, -y);
    });
    role_barrier<kStateThreads<BV>>();
    // dS += scale Q^T dO - K^T dV
    float direct[kRows][kTiles][4];
#pragma unroll
    for (int i = 0; i < kRows; ++i) clear(direct[i]);
    for (int k = 0; k < blocks; ++k) {
      uint32_t a[4], x[4];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        load_left_transposed<DK>(a, memory.queries, first_row + i * 16, 16 * k, lane);
#pragma unroll
        for (int n = 0; n < kTiles; n += 2) {
          load_right<BV>(x, memory.d_o, 16 * k, n * 8, lane);
          multiply_add_pair(direct[i][n], direct[i][n + 1], a, x);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) ds[i][n][e] = fmaf(p.scale, direct[i][n][e], ds[i][n][e]);
      }
    }
    add_transposed_product<DK, BV>(ds, memory.keys[slot], first_row, memory.local[slot][0],
                                   memory.local[slot][1], lane);
    publish_state<BV>(ds, memory.state[0], memory.state[1], first_row, lane);
  }
  if (p.d_initial_state) store_state(ds, p.d_initial_state + state, p.dv, first_row, lane);
}

// dQ, dK and dbeta of one chunk. Buffers change hands (W's low part and Q, S0 and dS1, dO and dV's low part),
// so that two blocks fit on a multiprocessor and one computes while the other waits for its data.
// NW warps share the 16 tokens of a row tile of dQ (few tokens per chunk when n_h is large), each with its
// columns.
template <int D, int NW>
__global__ void __launch_bounds__(kThreads, 2) gradient_kernel(ChunkProblem p) {
  extern __shared__ __align__(256) char shared[];
  Half* const keys = reinterpret_cast<Half*>(shared);
  Half* const w = keys + kChunk * D;
  Half* const w_low_then_q = w + kChunk * D;
  Half* const d_o_then_dv_low = w_low_then_q + kChunk * D;
  Half* const dv = d_o_then_dv_low + kChunk * D;
  Half* const state = dv + kChunk * D;
  float* const beta = reinterpret_cast<float*>(state + D * D);
  const int chunk = blockIdx.x, head = blockIdx.y, b = head / p.heads, h = head % p.heads,
            thread = threadIdx.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, m0 = 16 * warp;
  const int tokens = p.tokens_in(chunk), rows = tokens * p.factors, blocks = token_blocks(p);
  const int64_t token = p.token(b, chunk * p.tokens), block = p.block(head, chunk);
  const RowMap key_rows(p.factors, p.k_stride, p.heads * D);
  fetch_tile<D, kChunk, kThreads>(d_o_then_dv_low, p.d_o + token * p.o_stride + h * D,
                                  RowMap(1, p.o_stride, 0), tokens, thread);
  fetch_linear<kChunk * D, kThreads>(w, p.w + 2 * block * kChunk * D, thread);
  fetch_linear<kChunk * D, kThreads>(w_low_then_q, p.w + (2 * block + 1) * kChunk * D, thread);
  copy_commit();
  fetch_linear<D * D, kThreads>(state, p.s0 + block * D * D, thread);
  fetch_tile<D, kChunk, kThreads>(keys, p.k + token * p.k_stride + h * D, key_rows, rows, thread);
  fetch_tile<D, kChunk, kThreads>(dv, p.dv_out + token * p.v_stride + h * D,
                                  RowMap(p.factors, p.v_stride, p.heads * D), rows, thread);
  copy_commit();
  if (threadIdx.x < kChunk) beta[threadIdx.x] = p.beta_at(b, h, chunk, threadIdx.x);
  copy_wait<1>();
  __syncthreads();

  float scores[8][4];
  const int token0 = warp % (4 / NW) * 16, n0 = warp / (4 / NW) * (D / NW);
  const int seen = min(4, ((token0 + 16) * p.factors + 15) / 16);
  if (token0 < tokens) {
    clear(scores);
    row_block_product<D, D>(scores, d_o_then_dv_low, token0, w, 0, seen, lane);
    row_block_product<D, D>(scores, d_o_then_dv_low, token0, w_low_then_q, 0, seen, lane);
    for_each_element(scores, lane, [&](float& value, int row, int column) {
      value = column < (token0 + row + 1) * p.factors ? value * beta[column] : 0.f;
    });
  }
  copy_wait<0>();
  __syncthreads();
  if (token0 < tokens) {  // dQ = scale (dO S0^T + mask(dO W^T) diag(beta) K)
    float dq[D / 8 / NW][4];
    clear(dq);
    product<D, D, D, true>(dq, d_o_then_dv_low, token0, state, n0, lane);
    product_of_sums<true, D>(dq, scores, keys, n0, 0, seen, lane);
    const int row = token0 + lane / 4;
    Half* const out = p.dq + (token + row) * p.q_stride + h * D + n0;
    write_rows(dq, row < tokens ? out : nullptr, row + 8 < tokens ? out + 8 * p.q_stride : nullptr, p.scale,
               lane);
  }
  float x[D / 8][4];  // dV S0^T + lower(dV W^T) diag(beta) K
  clear(x);
  product<D, D, D, true>(x, dv, m0, state, 0, lane);
  clear(scores);
  row_block_product<D, D>(scores, dv, m0, w, 0, warp + 1, lane);
  row_block_product<D, D>(scores, dv, m0, w_low_then_q, 0, warp + 1, lane);
  __syncthreads();
  fetch_tile<D, kChunk, kThreads>(w_low_then_q, p.q + token * p.q_stride + h * D, RowMap(1, p.q_stride, 0),
                                  tokens, thread);
  fetch_linear<D * D, kThreads>(state, p.ds1 + block * D * D, thread);
  copy_commit();
  for_each_element(scores, lane, [&](float& value, int row, int column) {
    value = column < m0 + row ? value * beta[column] : 0.f;
  });
  product_of_sums<true, D>(x, scores, keys, 0, 0, warp + 1, lane);

  float z[D / 8][4];  // scale mask(dO W^T)^T Q + W dS1^T - upper(W dV^T) K
  clear(z);
  const int first = first_token_block(p, warp);
  clear(scores);
  row_block_product<D, D>(scores, w, m0, d_o_then_dv_low, first, blocks, lane);
  for_each_element(scores, lane, [&](float& value, int row, int column) {
    value = m0 + row < (column + 1) * p.factors ? value * p.scale : 0.f;
  });
  __syncthreads();
  fetch_linear<kChunk * D, kThreads>(d_o_then_dv_low, p.dv_low + block * kChunk * D, thread);
  copy_commit();
  copy_wait<1>();
  __syncthreads();
  product_of_sums<true, D>(z, scores, w_low_then_q, 0, first, blocks, lane);
  product<D, D, D, true>(z, w, m0, state, 0, lane);
  clear(scores);
  row_block_product<D, D>(scores, w, m0, dv, warp, 4, lane);
  copy_wait<0>();
  __syncthreads();
  row_block_product<D, D>(scores, w, m0, d_o_then_dv_low, warp, 4, lane);
  for_each_element(scores, lane,
                   [&](float& value, int row, int column) { value = column > m0 + row ? -value : 0.f; });
  product_of_sums<true, D>(z, scores, keys, 0, warp, 4, lane);

  float dot_low = 0.f, dot_high = 0.f;  // k . z of rows m0 + lane / 4 and 8 below
  const int row = m0 + lane / 4;
  const float beta_low = beta[row], beta_high = beta[row + 8];
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    const int column = n * 8 + lane % 4 * 2;
    const uint32_t low = *reinterpret_cast<const uint32_t*>(keys + tile_index<D>(row, column)),
                   high = *reinterpret_cast<const uint32_t*>(keys + tile_index<D>(row + 8, column));
    dot_low = fmaf(low_half(low), z[n][0], fmaf(high_half(low), z[n][1], dot_low));
    dot_high = fmaf(low_half(high), z[n][2], fmaf(high_half(high), z[n][3], dot_high));
    z[n][0] = beta_low * z[n][0] - x[n][0], z[n][1] = beta_low * z[n][1] - x[n][1];
    z[n][2] = beta_high * z[n][2] - x[n][2], z[n][3] = beta_high * z[n][3] - x[n][3];
  }
  Half* const out = p.dk_out + token * p.k_stride + h * D;
  stage_rows<D>(w_low_then_q, z, m0, 0, lane);
  drain_rows<D, D>(w_low_then_q, m0, 0, lane,
                   [&](int i) { return i < rows ? out + key_rows.offset(i) : nullptr; });
  float dots[2] = {dot_low, dot_high};
  sum_all<4, 1>(dots);
  if (lane % 4 == 0) {
    const RowMap beta_rows(p.factors, p.beta_stride, p.heads);
    float* const to = p.dbeta + token * p.beta_stride + h;
    if (row < rows) to[beta_rows.offset(row)] = dots[0];
    if (row + 8 < rows) to[beta_rows.offset(row + 8)] = dots[1];
  }
}

template <int DK, int BV>
void launch_states(const ChunkProblem& p, cudaStream_t stream) {
  constexpr int kBytes = sizeof(StateMemory<DK, BV>);
  allow_shared_memory(state_kernel<DK, BV>, kBytes, "delta rule state gradients");
  const dim3 grid(static_cast<unsigned>(p.batch) * p.heads, p.dv / BV);
  state_kernel<DK, BV><<<grid, kStateThreads<BV>, kBytes, stream>>>(p);
  check_launch("delta rule state gradients");
}

template <int D, int NW>
void launch_gradients(const ChunkProblem& p, cudaStream_t stream) {
  constexpr int kBytes = (5 * kChunk * D + D * D) * sizeof(Half) + kChunk * sizeof(float);
  allow_shared_memory(gradient_kernel<D, NW>, kBytes, "delta rule gradients");
  const dim3 grid(p.chunks, static_cast<unsigned>(p.batch) * p.heads);
  gradient_kernel<D, NW><<<grid, kThreads, kBytes, stream>>>(p);
  check_launch("delta rule gradients");
}

template <int D>
void backward(const ChunkProblem& p, cudaStream_t stream) {
  const dim3 grid(p.chunks, static_cast<unsigned>(p.batch) * p.heads);
  constexpr int kLocal = 3 * kChunk * D * sizeof(Half);
  allow_shared_memory(local_kernel<D>, kLocal, "delta rule local gradients");
  local_kernel<D><<<grid, kThreads, kLocal, stream>>>(p);
  check_launch("delta rule local gradients");
  if (narrow_slices(p))
    launch_states<D, 16>(p, stream);
  else
    launch_states<D, 32>(p, stream);
  if (p.tokens > 32) return launch_gradients<D, 1>(p, stream);
  if (p.tokens > 16) return launch_gradients<D, 2>(p, stream);
  launch_gradients<D, 4>(p, stream);
}

}  // namespace

void chunked_backward(const Problem<Half>& p, cudaStream_t stream) {
  const ChunkProblem c = chunk_problem(p, true);
  if (p.dk == 128)
    backward<128>(c, stream);
  else
    backward<64>(c, stream);
}

}  // namespace signet::kernels::delta_rule
