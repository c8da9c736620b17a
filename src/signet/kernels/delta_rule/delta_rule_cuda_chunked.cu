// Forward of the chunked delta rule: T per chunk, then the states one chunk after the other, then the
// outputs.
#include "signet/kernels/delta_rule/delta_rule_cuda_chunked.cuh"
#include "signet/kernels/delta_rule/delta_rule_cuda_mma.cuh"

namespace signet::kernels::delta_rule {
namespace {

constexpr int kThreads = 128;  // 4 warps: one per 16 rows of a chunk

constexpr int kPitch = kChunk + 4;  // of 64 x 64 fp32 matrices
template <int DK>
constexpr int kInverseSize = kPitch > DK / 2 ? kChunk* kPitch : kChunk* DK / 2;  // floats

// T = (I + G diag(beta))^-1: two diagonal blocks of 32 by forward substitution, one column per lane, then
// T21 = -T22 (M21 T11), all in fp32; stored as high and low bf16 parts.
template <int DK>
__global__ void __launch_bounds__(kThreads) inverse_kernel(ChunkProblem p) {
  extern __shared__ __align__(256) char shared[];
  // The keys are not needed any more when the inverse is begun: the less memory, the more blocks at a time.
  Half* const keys = reinterpret_cast<Half*>(shared);
  float* const inverse = reinterpret_cast<float*>(shared);
  float* const m = inverse + kInverseSize<DK>;
  __shared__ float beta[kChunk];
  const int chunk = blockIdx.x, head = blockIdx.y, b = head / p.heads, h = head % p.heads;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Half* source = p.k + p.token(b, chunk * p.tokens) * p.k_stride + h * DK;
  fetch_tile<DK, kChunk, kThreads>(keys, source, RowMap(p.factors, p.k_stride, p.heads * DK),
                                   p.tokens_in(chunk) * p.factors, threadIdx.x);
  copy_commit();
  if (threadIdx.x < kChunk) beta[threadIdx.x] = p.beta_at(b, h, chunk, threadIdx.x);
  copy_wait<0>();
  __syncthreads();

  float g[8][4];
  clear(g);
  row_block_product<DK, DK>(g, keys, 16 * warp, keys, 0, warp + 1, lane);
  float2 column_beta[8];
#pragma unroll
  for (int n = 0; n < 8; ++n) column_beta[n] = *reinterpret_cast<const float2*>(beta + n * 8 + lane % 4 * 2);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = 16 * warp + lane / 4 + 8 * half;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int column = n * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(m + row * kPitch + column) =
          make_float2(column < row ? g[n][2 * half] * column_beta[n].x : 0.f,
                      column + 1 < row ? g[n][2 * half + 1] * column_beta[n].y : 0.f);
    }
  }
  __syncthreads();

  if (warp < 2) {
    const float* block = m + warp * 32 * (kPitch + 1);
    float x[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      float sum[4] = {i == lane ? -1.f : 0.f, 0.f, 0.f, 0.f};
#pragma unroll
      for (int l = 0; l < i; l += 4) {
        float y[4];
        load_floats(y, block + i * kPitch + l);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (l + e < i) sum[e] = fmaf(y[e], x[l + e], sum[e]);
      }
      x[i] = -((sum[0] + sum[1]) + (sum[2] + sum[3]));
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) inverse[(warp * 32 + i) * kPitch + warp * 32 + lane] = x[i];
  }
  __syncthreads();
  // Each thread makes 2 rows by 4 columns of a 32 x 32 product, twice. The upper right of m is free.
  const int row = threadIdx.x / 8 * 2, column = threadIdx.x % 8 * 4;
  const auto product32 = [&](const float* left, const float* right, float(&sum)[2][4]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i / 4][i % 4] = 0.f;
#pragma unroll 4
    for (int l = 0; l < 32; l += 4) {
      float x[2][4], y[4];
      load_floats(x[0], left + row * kPitch + l);
      load_floats(x[1], left + (row + 1) * kPitch + l);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        load_floats(y, right + (l + e) * kPitch + column);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          sum[0][c] = fmaf(x[0][e], y[c], sum[0][c]);
          sum[1][c] = fmaf(x[1][e], y[c], sum[1][c]);
        }
      }
    }
  };
  float sum[2][4];
  product32(m + 32 * kPitch, inverse, sum);
  store_floats(m + row * kPitch + 32 + column, sum[0]);
  store_floats(m + (row + 1) * kPitch + 32 + column, sum[1]);
  __syncthreads();
  product32(inverse + 32 * kPitch + 32, m + 32, sum);
  const float zeros[4] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int c = 0; c < 4; ++c) sum[i][c] = -sum[i][c];
    store_floats(inverse + (32 + row + i) * kPitch + column, sum[i]);
    store_floats(inverse + (row + i) * kPitch + 32 + column, zeros);
  }
  __syncthreads();

  uint4* const out = reinterpret_cast<uint4*>(p.t + p.block(head, chunk) * 2 * kChunk * kChunk);
  for (int i = threadIdx.x; i < kChunk * kChunk / 8; i += kThreads) {
    float x[8];
    load_floats(x, inverse + i / 8 * kPitch + i % 8 * 8);
    const Split s0(x[0], x[1]), s1(x[2], x[3]), s2(x[4], x[5]), s3(x[6], x[7]);
    const int at = tile_piece<64>(i / 8, i % 8);
    out[at] = make_uint4(s0.high, s1.high, s2.high, s3.high);
    out[at + kChunk * kChunk / 8] = make_uint4(s0.low, s1.low, s2.low, s3.low);
  }
}

// Roles in the state kernel: 4 warps compute and touch shared memory alone, the others copy. Narrow slices
// run alone on a multiprocessor and can have more of them.
template <int BV>
constexpr int kCopyThreads = BV == 16 ? 256 : 64;
template <int BV>
constexpr int kStateThreads = kThreads + kCopyThreads<BV>;

template <int DK, int BV>
struct StateMemory {
  Half keys[2][kChunk * DK], t[2][2 * kChunk * kChunk], values[2][kChunk * BV];
  Half state[2][DK * BV];  // high and low parts, here and below
  Half rest[2][kChunk * BV], w[2][kChunk * BV], updates[2][kChunk * BV];
  float beta[2][kChunk];
};

template <int DK, int BV>
__device__ void copy_states(const ChunkProblem& p, StateMemory<DK, BV>& memory, int head, int first_column) {
  const int thread = threadIdx.x - kThreads, b = head / p.heads, h = head % p.heads;
  const RowMap key_rows(p.factors, p.k_stride, p.heads * DK), value_rows(p.factors, p.v_stride, p.heads * DK);
  const auto fetch = [&](int chunk) {
    const int rows = p.tokens_in(chunk) * p.factors, slot = chunk & 1;
    const int64_t token = p.token(b, chunk * p.tokens);
    fetch_tile<DK, kChunk, kCopyThreads<BV>>(memory.keys[slot], p.k + token * p.k_stride + h * DK, key_rows,
                                             rows, thread);
    fetch_tile<BV, kChunk, kCopyThreads<BV>>(
        memory.values[slot], p.v + token * p.v_stride + h * DK + first_column, value_rows, rows, thread);
    fetch_linear<2 * kChunk * kChunk, kCopyThreads<BV>>(
        memory.t[slot], p.t + p.block(head, chunk) * 2 * kChunk * kChunk, thread);
    if (thread < kChunk) {
      if (const float* from = p.beta_of(b, h, chunk, thread))
        copy_async<4>(memory.beta[slot] + thread, from);
      else
        memory.beta[slot][thread] = 0.f;
    }
    copy_commit();
  };
  fetch(0);
  for (int chunk = 0; chunk < p.chunks; ++chunk) {
    const int64_t block = p.block(head, chunk);
    copy_wait<0>();
    role_barrier<kStateThreads<BV>>();
    if (chunk + 1 < p.chunks) fetch(chunk + 1);
    role_barrier<kStateThreads<BV>>();
    write_tile<BV, DK, DK, kCopyThreads<BV>>(p.s0 + block * DK * DK, first_column, memory.state[0], thread);
    role_barrier<kStateThreads<BV>>();
    for (int part = 0; part < 2; ++part)
      write_tile<BV, DK, kChunk, kCopyThreads<BV>>(p.w + (2 * block + part) * kChunk * DK, first_column,
                                                   memory.w[part], thread);
  }
}

// The states: one block per head and BV columns of dv walks the chunks. S lives in registers (fp32; warp w
// has rows DK/4 w ..) and, split in two bf16 parts, in shared memory for the next chunk's K S.
template <int DK, int BV>
__global__ void __launch_bounds__(kStateThreads<BV>, BV == 16 ? 1 : 2) state_kernel(ChunkProblem p) {
  constexpr int kTiles = BV / 8, kRows = DK / 64;  // row tiles of 16 per warp
  extern __shared__ __align__(256) char shared[];
  auto& memory = *reinterpret_cast<StateMemory<DK, BV>*>(shared);
  const int head = blockIdx.x, first_column = blockIdx.y * BV;
  if (threadIdx.x >= kThreads) return copy_states(p, memory, head, first_column);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, m0 = 16 * warp, first_row = m0 * kRows;

  float s[kRows][kTiles][4];
  const int64_t state = head * p.state_size() + first_column;
  load_state(s, p.initial_state ? p.initial_state + state : nullptr, p.dv, first_row, lane);
  publish_state<BV>(s, memory.state[0], memory.state[1], first_row, lane);
  for (int chunk = 0; chunk < p.chunks; ++chunk) {
    const int slot = chunk & 1;
    role_barrier<kStateThreads<BV>>();
    // R = V - K S
    float r[kTiles][4];
    product_split<DK, DK, BV>(r, memory.keys[slot], m0, memory.state[0], memory.state[1], lane);
    for_each_pair(r, lane, [&](float x, float y, int row, int column) {
      const uint32_t v =
          *reinterpret_cast<const uint32_t*>(memory.values[slot] + tile_index<BV>(m0 + row, column));
      store_split<BV>(memory.rest[0], memory.rest[1], m0 + row, column, low_half(v) - x, high_half(v) - y);
    });
    role_barrier<kStateThreads<BV>>();
    // W = T R, U = diag(beta) W
    float w[kTiles][4];
    const float beta_low = memory.beta[slot][m0 + lane / 4], beta_high = memory.beta[slot][m0 + lane / 4 + 8];
    triangle_product<false, BV>(w, memory.t[slot], m0, memory.rest[0], memory.rest[1], lane);
    for_each_pair(w, lane, [&](float x, float y, int row, int column) {
      const float beta = row < 8 ? beta_low : beta_high;
      store_split<BV>(memory.w[0], memory.w[1], m0 + row, column, x, y);
      store_split<BV>(memory.updates[0], memory.updates[1], m0 + row, column, beta * x, beta * y);
    });
    role_barrier<kStateThreads<BV>>();
    // S += K^T U
    add_transposed_product<DK, BV>(s, memory.keys[slot], first_row, memory.updates[0], memory.updates[1],
                                   lane);
    publish_state<BV>(s, memory.state[0], memory.state[1], first_row, lane);
  }
  if (p.final_state) store_state(s, p.final_state + state, p.dv, first_row, lane);
}

// O = scale (Q S0 + mask(Q K^T) diag(beta) W). NW warps share the 16 tokens of a row tile (few tokens per
// chunk when n_h is large), each with its columns.
template <int D, int NW>
__global__ void __launch_bounds__(kThreads) output_kernel(ChunkProblem p) {
  constexpr int kRowTiles = 4 / NW, kTiles = D / 8 / NW;
  extern __shared__ __align__(256) char shared[];
  Half* const queries = reinterpret_cast<Half*>(shared);
  Half* const keys = queries + kChunk * D;
  Half* const w = keys + kChunk * D;
  Half* const state = w + 2 * kChunk * D;
  __shared__ float beta[kChunk];
  const int chunk = blockIdx.x, head = blockIdx.y, b = head / p.heads, h = head % p.heads;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int m0 = warp % kRowTiles * 16, n0 = warp / kRowTiles * (D / NW);
  const int tokens = p.tokens_in(chunk);
  const int64_t token = p.token(b, chunk * p.tokens);
  fetch_tile<D, 16 * kRowTiles, kThreads>(queries, p.q + token * p.q_stride + h * D, RowMap(1, p.q_stride, 0),
                                          tokens, threadIdx.x);
  fetch_tile<D, kChunk, kThreads>(keys, p.k + token * p.k_stride + h * D,
                                  RowMap(p.factors, p.k_stride, p.heads * D), tokens * p.factors,
                                  threadIdx.x);
  copy_commit();
  fetch_linear<D * D, kThreads>(state, p.s0 + p.block(head, chunk) * D * D, threadIdx.x);
  fetch_linear<2 * kChunk * D, kThreads>(w, p.w + 2 * p.block(head, chunk) * kChunk * D, threadIdx.x);
  copy_commit();
  if (threadIdx.x < kChunk) beta[threadIdx.x] = p.scale * p.beta_at(b, h, chunk, threadIdx.x);
  copy_wait<1>();
  __syncthreads();

  const int blocks = min(4, ((m0 + 16) * p.factors + 15) / 16);  // column blocks that this row tile sees
  float scores[8][4];
  clear(scores);
  row_block_product<D, D>(scores, queries, m0, keys, 0, blocks, lane);
  for_each_element(scores, lane, [&](float& value, int row, int column) {
    value = column < (m0 + row + 1) * p.factors ? value * beta[column] : 0.f;
  });
  copy_wait<0>();
  __syncthreads();
  float o[kTiles][4];
  clear(o);
  product<D, D, D, false>(o, queries, m0, state, n0, lane);
  for_each_element(o, lane, [&](float& value, int, int) { value *= p.scale; });
  product_of_sums<false, D>(o, scores, w, n0, 0, blocks, lane);
  product_of_sums<false, D>(o, scores, w + kChunk * D, n0, 0, blocks, lane);
  Half* const out = p.o + token * p.o_stride + h * D;
  stage_rows<D>(keys, o, m0, n0, lane);
  drain_rows<D, D / NW>(keys, m0, n0, lane,
                        [&](int row) { return row < tokens ? out + row * p.o_stride : nullptr; });
}

template <int DK, int BV>
void launch_states(const ChunkProblem& p, cudaStream_t stream) {
  constexpr int kBytes = sizeof(StateMemory<DK, BV>);
  allow_shared_memory(state_kernel<DK, BV>, kBytes, "delta rule states");
  const dim3 grid(static_cast<unsigned>(p.batch) * p.heads, p.dv / BV);
  state_kernel<DK, BV><<<grid, kStateThreads<BV>, kBytes, stream>>>(p);
  check_launch("delta rule states");
}

template <int D, int NW>
void launch_outputs(const ChunkProblem& p, cudaStream_t stream) {
  constexpr int kBytes = (4 * kChunk * D + D * D) * sizeof(Half);
  allow_shared_memory(output_kernel<D, NW>, kBytes, "delta rule outputs");
  const dim3 grid(p.chunks, static_cast<unsigned>(p.batch) * p.heads);
  output_kernel<D, NW><<<grid, kThreads, kBytes, stream>>>(p);
  check_launch("delta rule outputs");
}

template <int D>
void forward(const ChunkProblem& p, cudaStream_t stream) {
  constexpr int kBytes = (kInverseSize<D> + kChunk * kPitch) * sizeof(float);
  allow_shared_memory(inverse_kernel<D>, kBytes, "delta rule inverse");
  const dim3 grid(p.chunks, static_cast<unsigned>(p.batch) * p.heads);
  inverse_kernel<D><<<grid, kThreads, kBytes, stream>>>(p);
  check_launch("delta rule inverse");
  if (narrow_slices(p))
    launch_states<D, 16>(p, stream);
  else
    launch_states<D, 32>(p, stream);
  if (p.tokens > 32) return launch_outputs<D, 1>(p, stream);
  if (p.tokens > 16) return launch_outputs<D, 2>(p, stream);
  launch_outputs<D, 4>(p, stream);
}

}  // namespace

bool chunked_covers(const DeltaRuleShape& shape) {
  const DeltaRuleShape s = with_strides(shape);
  const int64_t strides[] = {s.q_stride, s.k_stride, s.v_stride, s.o_stride, s.beta_stride};
  for (int i = 0; i < 5; ++i)
    if (strides[i] >= 1 << 24 || (i < 4 && strides[i] % 8)) return false;
  return s.dk == s.dv && (s.dk == 64 || s.dk == 128) && s.factors >= 1 && s.factors <= kChunk && s.time > 0 &&
         s.batch * s.heads < 65536;
}

ChunkProblem chunk_problem(const Problem<Half>& p, bool backward) {
  const ChunkPlan plan(p.batch, p.time, p.heads, p.dk, p.dv, p.factors);
  ChunkProblem c{p, plan.tokens, plan.chunks, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
  const int64_t blocks = plan.heads * plan.chunks;
  c.t = reinterpret_cast<Half*>(p.saved ? p.saved : p.workspace);
  c.w = c.t + blocks * plan.t_size;
  c.s0 = c.w + 2 * blocks * plan.row_size;
  if (backward) {
    c.du = reinterpret_cast<Half*>(p.workspace);
    c.dv_low = c.du + 2 * blocks * plan.row_size;
    c.ds1 = c.dv_low + blocks * plan.row_size;
  }
  const void* const pointers[] = {p.q, p.k, p.v, p.o, p.d_o, p.dq, p.dk_out, p.dv_out, p.saved, p.workspace};
  for (const void* pointer : pointers)
    if (reinterpret_cast<uintptr_t>(pointer) % 16)
      bad_input("the chunked delta rule needs 16-byte aligned pointers; kRecurrent takes any");
  return c;
}

bool narrow_slices(const ChunkProblem& p) {
  return static_cast<int64_t>(p.batch) * p.heads * (p.dv / 32) < cuda_device().multiprocessors;
}

void chunked_forward(const Problem<Half>& p, cudaStream_t stream) {
  const ChunkProblem c = chunk_problem(p, false);
  if (p.dk == 128)
    forward<128>(c, stream);
  else
    forward<64>(c, stream);
}

}  // namespace signet::kernels::delta_rule
