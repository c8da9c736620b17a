// Backward of the chunked delta rule: dV and the states' gradients one chunk after the other from the last
// (delta_rule_cuda_state_gradients.cu), then dQ, dK and dbeta per chunk.
#include "signet/kernels/delta_rule/delta_rule_cuda_bulk.cuh"

namespace signet::kernels::delta_rule {
namespace {

constexpr int kThreads = 128;  // 4 warps: one per 16 rows of a chunk
constexpr int kStages = 4;     // of a chunk's inputs

// The inputs of one chunk: whole chunks come by bulk copies, which one thread asks for.
template <int D>
struct Stages {
  const RowMaps& maps;
  uint64_t* arrivals;
  const Chunk& chunk;
  int thread;
  bool tensor;

  __device__ Stages(const ChunkProblem& p, const RowMaps& row_maps, uint64_t* barriers, const Chunk& of)
      : maps(row_maps),
        arrivals(barriers),
        chunk(of),
        thread(threadIdx.x),
        tensor(kWgmma && row_maps.usable && of.tokens == p.tokens) {
    if (thread == 0) prepare_barriers(arrivals, kStages, 1);
    __syncthreads();
  }
  // To be called first for every stage: how many elements of rows and of blocks it brings.
  __device__ void begin(int stage, int row_elements, int block_elements) const {
    if (thread == 0)
      expect_bytes(arrivals + stage, ((tensor ? row_elements : 0) + block_elements) * sizeof(Half));
  }
  __device__ void rows(int stage, Half* tile, const CUtensorMap& map, const Half* source,
                       const RowMap& places, int valid) const {
#pragma unroll
    for (int part = 0; part < D / 64; ++part) {
      if (!tensor)
        fetch_tile<64, kChunk, kThreads>(tile + part * kTile, source + 64 * part, places, valid, thread);
      else if (thread == 0)
        tensor_copy(tile + part * kTile, map, chunk.h * D + 64 * part, chunk.token, arrivals + stage);
    }
  }
  template <int kElements>
  __device__ void block(int stage, Half* tile, const Half* source) const {
    if constexpr (!kWgmma)
      fetch_linear<kElements, kThreads>(tile, source, thread);
    else if (thread == 0)
      bulk_copy(tile, source, kElements * sizeof(Half), arrivals + stage);
  }
  // The stage has come, and kLater stages after it may be under way.
  template <int kLater>
  __device__ void await(int stage) const {
    copy_wait<kLater>();
    await_phase(arrivals + stage, 0);
    show_to_products();
    __syncthreads();
  }
};

// Rows lane / 4 and 8 below of an accumulator times rows of bf16 (null: zero), summed over all columns.
template <int N>
__device__ void dot_rows(float (&dots)[2], const float (&c)[N][4], const Half* low, const Half* high,
                         int lane) {
  dots[0] = dots[1] = 0.f;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const int column = n * 8 + lane % 4 * 2;
    const uint32_t x = low ? *reinterpret_cast<const uint32_t*>(low + column) : 0u,
                   y = high ? *reinterpret_cast<const uint32_t*>(high + column) : 0u;
    dots[0] = fmaf(low_half(x), c[n][0], fmaf(high_half(x), c[n][1], dots[0]));
    dots[1] = fmaf(low_half(y), c[n][2], fmaf(high_half(y), c[n][3], dots[1]));
  }
  sum_all<4, 1>(dots);
}
// The same with rows m0 .. of a tile.
template <int D>
__device__ void dot_tile_rows(float (&dots)[2], const float (&c)[D / 8][4], const Half* tile, int m0,
                              int lane) {
  const int row = m0 + lane / 4;
  dots[0] = dots[1] = 0.f;
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    const int column = n * 8 + lane % 4 * 2;
    const uint32_t x = *reinterpret_cast<const uint32_t*>(tile + Panels<D>::index(row, column)),
                   y = *reinterpret_cast<const uint32_t*>(tile + Panels<D>::index(row + 8, column));
    dots[0] = fmaf(low_half(x), c[n][0], fmaf(high_half(x), c[n][1], dots[0]));
    dots[1] = fmaf(low_half(y), c[n][2], fmaf(high_half(y), c[n][3], dots[1]));
  }
  sum_all<4, 1>(dots);
}

// Q K^T for tokens token0 .. token0 + 15, with Q from global memory.
template <int D>
__device__ void query_key_products(float (&qk)[8][4], const Half* q, int64_t stride, int token0, int tokens,
                                   const Half* keys, int seen, int lane) {
  const int row = token0 + lane / 4;
  const Half* const low = q + row * stride + lane % 4 * 2;
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    uint32_t a[4], b[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[i] = row + i % 2 * 8 < tokens
                 ? *reinterpret_cast<const uint32_t*>(low + i % 2 * 8 * stride + k + i / 2 * 8)
                 : 0u;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      if (s < seen) {
        load_right_transposed<Panels<D>>(b, keys, k, 16 * s, lane);
        multiply_add_pair(qk[2 * s], qk[2 * s + 1], a, b);
      }
    }
  }
}

// This warp's part of the sum of products of two states of equal layout, in shared and in global memory.
template <int D>
__device__ float dot_states(const Half* state, const Half* other, int thread) {
  float sum[1] = {};
#pragma unroll 4
  for (int i = thread; i < D * D / 8; i += kThreads) {
    float x[8], y[8];
    load_floats(x, state + i * 8);
    load_floats(y, other + i * 8);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum[0] = fmaf(x[e], y[e], sum[0]);
  }
  sum_all<32, 1>(sum);
  return sum[0];
}

// dQ, dK and dbeta of one chunk. Buffers change hands (W's low part and Q, S0 and dS1, dO and dV's low part),
// so that two blocks fit on a multiprocessor and one computes while the other waits for its data.
// NW warps share the 16 tokens of a row tile of dQ (few tokens per chunk when n_h is large), each with its
// columns.
template <int D, int NW, bool kGated>
__global__ void __launch_bounds__(kThreads, 2)
    gradient_kernel(ChunkProblem p, const __grid_constant__ RowMaps maps) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  Half* const keys = reinterpret_cast<Half*>(shared);
  Half* const w = keys + kChunk * D;
  Half* const w_low_then_q = w + kChunk * D;
  Half* const d_o_then_dv_low = w_low_then_q + kChunk * D;
  Half* const dv = d_o_then_dv_low + kChunk * D;
  Half* const state = dv + kChunk * D;
  float* const beta = reinterpret_cast<float*>(state + D * D);
  const Chunk chunk(p);
  if (chunk.tokens == 0) return;
  const int h = chunk.h, thread = threadIdx.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, m0 = 16 * warp;
  const int tokens = chunk.tokens, rows = tokens * p.factors;
  const int64_t token = chunk.token, block = chunk.block;
  const RowMap key_rows(p.factors, p.k_stride, p.heads * D);
  const Stages<D> in(p, maps, reinterpret_cast<uint64_t*>(beta + kChunk), chunk);
  const RowMap token_rows(1, p.q_stride, 0);
  const Half* const q = p.q + token * p.q_stride + h * D;
  const int token_elements = p.tokens * D;
  in.begin(0, token_elements, 2 * kChunk * D);
  in.rows(0, d_o_then_dv_low, maps.d_o, p.d_o + token * p.o_stride + h * D, RowMap(1, p.o_stride, 0), tokens);
  in.template block<kChunk * D>(0, w, p.w + 2 * block * kChunk * D);
  in.template block<kChunk * D>(0, w_low_then_q, p.w + (2 * block + 1) * kChunk * D);
  copy_commit();
  in.begin(1, 2 * kChunk * D, D * D);
  in.template block<D * D>(1, state, p.s0 + block * D * D);
  in.rows(1, keys, maps.k, p.k + token * p.k_stride + h * D, key_rows, rows);
  in.rows(1, dv, maps.dv, p.dv_out + token * p.v_stride + h * D, RowMap(p.factors, p.v_stride, p.heads * D),
          rows);
  copy_commit();
  if (threadIdx.x < kChunk) beta[threadIdx.x] = chunk.beta_at(p, threadIdx.x);
  in.template await<1>(0);

  [[maybe_unused]] const float* const decay = kGated ? p.decay_of(block) : nullptr;
  [[maybe_unused]] const float* const factors = kGated ? p.factors_of(block) : nullptr;
  [[maybe_unused]] const GateParts parts(
      kGated ? p.gate_parts + block * GateParts::size(p.token_rows) : nullptr, p.token_rows);
  // R of the tokens of rows i and j.
  const auto decay_of_rows = [&](int i, int j) { return decay[i / p.factors * kChunk + j]; };
  float scores[8][4];
  const int token0 = warp % (4 / NW) * 16, n0 = warp / (4 / NW) * (D / NW);
  const int seen = min(4, ((token0 + 16) * p.factors + 15) / 16);
  constexpr bool kWholeGroup = NW == 1;  // every warp has tokens of its own: products of the group
  const bool has_tokens = kWholeGroup || token0 < tokens;
  if constexpr (kWholeGroup) {
    clear(scores);
    group_product<D, Panels<D>, false, Blocks<kChunk>, true>(scores, d_o_then_dv_low, token0, w, lane);
    group_product<D, Panels<D>, false, Blocks<kChunk>, true>(scores, d_o_then_dv_low, token0, w_low_then_q,
                                                             lane);
  } else if (has_tokens) {
    clear(scores);
    row_block_product<D, Panels<D>, false, Blocks<kChunk>, false>(scores, d_o_then_dv_low, token0, w, 0, seen,
                                                                  lane);
    row_block_product<D, Panels<D>, false, Blocks<kChunk>, false>(scores, d_o_then_dv_low, token0,
                                                                  w_low_then_q, 0, seen, lane);
  }
  if (has_tokens)
    for_each_element(scores, lane, [&](float& value, int row, int column) {
      value = column < (token0 + row + 1) * p.factors ? value * beta[column] : 0.f;
    });
  in.template await<0>(1);
  if (has_tokens) {  // dQ = scale (dO S0^T + mask(dO W^T) diag(beta) K)
    if constexpr (kGated) {
      if (n0 == 0) {
        float qk[8][4];
        clear(qk);
        query_key_products<D>(qk, q, p.q_stride, token0, tokens, keys, seen, lane);
        write_products(qk, scores, p.scale, lane,
                       [&](int row) { return parts.queries + (token0 + row) * kChunk; });
      }
      multiply_by_rows(scores, lane, [&](int row) { return decay + (token0 + row) * kChunk; });
    }
    float dq[D / 8 / NW][4];
    clear(dq);
    if constexpr (kWholeGroup)
      group_product<D, Panels<D>, false, Blocks<D>, true>(dq, d_o_then_dv_low, token0, state, lane);
    else
      product<D, Panels<D>, false, Blocks<D>, false>(dq, d_o_then_dv_low, token0, state, n0, lane);
    const int row = token0 + lane / 4;
    if constexpr (kGated) {  // scale q_t . (S0 dO_t), then c_t
      const Half* const q_row = q + row * p.q_stride + n0;
      float dots[2];
      dot_rows(dots, dq, row < tokens ? q_row : nullptr, row + 8 < tokens ? q_row + 8 * p.q_stride : nullptr,
               lane);
      if (lane % 4 == 0) {
        float* const to = parts.before_queries + n0 / (D / NW) * kChunk + row;
        to[0] = p.scale * dots[0], to[8] = p.scale * dots[1];
      }
      for_each_element(dq, lane,
                       [&](float& value, int i, int) { value *= factors[2 * kChunk + token0 + i]; });
    }
    if constexpr (kWholeGroup)
      group_product_of_sums<4, Panels<D>>(dq, scores, keys, lane);
    else
      product_of_sums<true, Panels<D>, false>(dq, scores, keys, n0, 0, seen, lane);
    Half* const out = p.dq + (token + row) * p.q_stride + h * D + n0;
    write_rows(dq, row < tokens ? out : nullptr, row + 8 < tokens ? out + 8 * p.q_stride : nullptr, p.scale,
               lane);
  }
  float x[D / 8][4];  // dV S0^T + lower(dV W^T) diag(beta) K
  clear(x);
  group_product<D, Panels<D>, false, Blocks<D>, true>(x, dv, m0, state, lane);
  if constexpr (kGated) {
    float dots[2];
    dot_tile_rows<D>(dots, x, keys, m0, lane);
    if (lane % 4 == 0)
      parts.before_keys[m0 + lane / 4] = -dots[0], parts.before_keys[m0 + lane / 4 + 8] = -dots[1];
    for_each_element(x, lane, [&](float& value, int row, int) { value *= factors[m0 + row]; });
    const float sum = dot_states<D>(state, p.ds1 + block * D * D, thread);
    if (lane == 0) parts.states[warp] = sum;
  }
  clear(scores);
  group_product<D, Panels<D>, false, Blocks<kChunk>, true>(scores, dv, m0, w, lane);
  group_product<D, Panels<D>, false, Blocks<kChunk>, true>(scores, dv, m0, w_low_then_q, lane);
  __syncthreads();
  in.begin(2, token_elements, D * D);
  in.rows(2, w_low_then_q, maps.q, q, token_rows, tokens);
  in.template block<D * D>(2, state, p.ds1 + block * D * D);
  copy_commit();
  for_each_element(scores, lane, [&](float& value, int row, int column) {
    value = column < m0 + row ? value * beta[column] : 0.f;
  });
  if constexpr (kGated) {
    float kk[8][4];
    clear(kk);
    row_block_product<D, Panels<D>, false, Panels<D>, true>(kk, keys, m0, keys, 0, warp + 1, lane);
    write_products(kk, scores, -1.f, lane, [&](int row) { return parts.keys + (m0 + row) * kChunk; });
    multiply_by_rows(scores, lane, [&](int row) { return decay + (m0 + row) / p.factors * kChunk; });
  }
  group_product_of_sums<4, Panels<D>>(x, scores, keys, lane);

  float z[D / 8][4];  // scale mask(dO W^T)^T Q + W dS1^T - upper(W dV^T) K
  clear(z);
  clear(scores);
  group_product<D, Blocks<kChunk>, true, Panels<D>, false>(scores, w, m0, d_o_then_dv_low, lane);
  for_each_element(scores, lane, [&](float& value, int row, int column) {
    value = m0 + row < (column + 1) * p.factors ? value * p.scale : 0.f;
    if constexpr (kGated)
      if (column < p.token_rows) value *= decay[column * kChunk + m0 + row];
  });
  __syncthreads();
  in.begin(3, 0, kChunk * D);
  in.template block<kChunk * D>(3, d_o_then_dv_low, p.dv_low + block * kChunk * D);
  copy_commit();
  in.template await<1>(2);
  group_product<D, Blocks<kChunk>, true, Blocks<D>, true>(z, w, m0, state, lane);
  if constexpr (kGated) {
    float dots[2];
    dot_tile_rows<D>(dots, z, keys, m0, lane);
    const int j = m0 + lane / 4;
    if (lane % 4 == 0) parts.after[j] = beta[j] * dots[0], parts.after[j + 8] = beta[j + 8] * dots[1];
    for_each_element(z, lane, [&](float& value, int row, int) { value *= factors[kChunk + m0 + row]; });
  }
  group_product_of_sums<4 / NW, Panels<D>>(z, scores, w_low_then_q, lane);
  clear(scores);
  group_product<D, Blocks<kChunk>, true, Panels<D>, false>(scores, w, m0, dv, lane);
  in.template await<0>(3);
  group_product<D, Blocks<kChunk>, true, Blocks<kChunk>, true>(scores, w, m0, d_o_then_dv_low, lane);
  for_each_element(scores, lane, [&](float& value, int row, int column) {
    value = column > m0 + row ? -value : 0.f;
    if constexpr (kGated) value *= decay_of_rows(column, m0 + row);
  });
  group_product_of_sums<4, Panels<D>>(z, scores, keys, lane);

  float dots[2];  // k . z of rows m0 + lane / 4 and 8 below
  dot_tile_rows<D>(dots, z, keys, m0, lane);
  const int row = m0 + lane / 4;
  const float beta_low = beta[row], beta_high = beta[row + 8];
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    z[n][0] = beta_low * z[n][0] - x[n][0], z[n][1] = beta_low * z[n][1] - x[n][1];
    z[n][2] = beta_high * z[n][2] - x[n][2], z[n][3] = beta_high * z[n][3] - x[n][3];
  }
  Half* const out = p.dk_out + token * p.k_stride + h * D;
  stage_rows<D>(w_low_then_q, z, m0, 0, lane);
  drain_rows<D, D>(w_low_then_q, m0, 0, lane,
                   [&](int i) { return i < rows ? out + key_rows.offset(i) : nullptr; });
  if (lane % 4 == 0) {
    const RowMap beta_rows(p.factors, p.beta_stride, p.heads);
    float* const to = p.dbeta + token * p.beta_stride + h;
    if (row < rows) to[beta_rows.offset(row)] = dots[0];
    if (row + 8 < rows) to[beta_rows.offset(row + 8)] = dots[1];
  }
}

template <int D, int NW, bool kGated>
void launch_gradients(const ChunkProblem& p, cudaStream_t stream) {
  constexpr int kBytes =
      (5 * kChunk * D + D * D) * sizeof(Half) + kChunk * sizeof(float) + kStages * sizeof(uint64_t);
  allow_shared_memory(gradient_kernel<D, NW, kGated>, kBytes, "delta rule gradients");
  signet::launch("delta rule gradients", gradient_kernel<D, NW, kGated>, chunk_grid(p), kThreads, kBytes,
                 Cuda{stream}, p, row_maps(p));
}

template <int D, bool kGated>
void backward(const ChunkProblem& p, cudaStream_t stream) {
  chunked_state_gradients(p, stream);
  if (p.token_rows == 64)
    launch_gradients<D, 1, kGated>(p, stream);
  else if (p.token_rows == 32)
    launch_gradients<D, 2, kGated>(p, stream);
  else
    launch_gradients<D, 4, kGated>(p, stream);
  if constexpr (kGated) chunked_gate_gradient(p, stream);
}

}  // namespace

void chunked_backward(const Problem<Half>& p, cudaStream_t stream) {
  const ChunkProblem c = chunk_problem(p);
  find_sequences(c, stream);
  if (p.gate_channels > 1) {
    channel_state_gradients(c, stream);
    return channel_gradients(c, stream);
  }
  if (p.dk == 128)
    p.gate_channels ? backward<128, true>(c, stream) : backward<128, false>(c, stream);
  else
    p.gate_channels ? backward<64, true>(c, stream) : backward<64, false>(c, stream);
}

}  // namespace signet::kernels::delta_rule
