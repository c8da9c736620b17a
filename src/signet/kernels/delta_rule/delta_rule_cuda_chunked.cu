// Forward of the chunked delta rule: T and, with a gate, P per chunk, then the states and outputs one chunk
// after the other (delta_rule_cuda_states.cu).
#include "signet/kernels/delta_rule/delta_rule_cuda_inverse.cuh"

namespace signet::kernels::delta_rule {
namespace {

constexpr int kThreads = 128;  // 4 warps: one per 16 rows of a chunk

template <int DK>
constexpr int kInverseSize = kPitch > DK / 2 ? kChunk* kPitch : kChunk* DK / 2;  // floats

// T = (I + G diag(beta))^-1 and, with a gate, P = R * Q K^T. Without one the walks over the states make P of
// the rows that they read anyway.
template <int DK, bool kGated>
__global__ void __launch_bounds__(kThreads) inverse_kernel(ChunkProblem p) {
  begin_kernel();
  extern __shared__ __align__(256) char shared[];
  // The keys are not needed any more when the inverse is begun: the less memory, the more blocks at a time.
  Half* const keys = reinterpret_cast<Half*>(shared);
  float* const inverse = reinterpret_cast<float*>(shared);
  float* const m = inverse + kInverseSize<DK>;
  [[maybe_unused]] Half* const queries = reinterpret_cast<Half*>(m);  // until M is written
  __shared__ float beta[kChunk];
  const Chunk chunk(p, true);  // the states begin with what comes last here
  if (chunk.tokens == 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Half* source = p.k + chunk.token * p.k_stride + chunk.h * DK;
  fetch_tile<DK, kChunk, kThreads>(keys, source, RowMap(p.factors, p.k_stride, p.heads * DK),
                                   chunk.tokens * p.factors, threadIdx.x);
  if constexpr (kGated)
    fetch_tile<DK, kChunk, kThreads>(queries, p.q + chunk.token * p.q_stride + chunk.h * DK,
                                     RowMap(1, p.q_stride, 0), chunk.tokens, threadIdx.x);
  copy_commit();
  if (threadIdx.x < kChunk) beta[threadIdx.x] = chunk.beta_at(p, threadIdx.x);
  copy_wait<0>();
  __syncthreads();

  if constexpr (kGated) {
    if (16 * warp < p.token_rows) {
      float scores[8][4];
      clear(scores);
      row_block_product<DK, Rows<DK>, false, Rows<DK>, true>(scores, queries, 16 * warp, keys, 0, 4, lane);
      const float* const decay = p.decay_of(chunk.block);
      Half* const to = p.scores + chunk.block * p.token_rows * kChunk;
      multiply_by_rows(scores, lane, [&](int row) { return decay + (16 * warp + row) * kChunk; });
      // By way of this warp's queries, which nobody else reads.
      __syncwarp();
      Half* const staged = queries + 16 * warp * DK;
      stage_rows<64>(staged, scores, 0, 0, lane);
      __syncwarp();
#pragma unroll
      for (int i = lane; i < 16 * kChunk / 8; i += 32)
        reinterpret_cast<uint4*>(to + 16 * warp * kChunk)[i] = reinterpret_cast<const uint4*>(staged)[i];
    }
  }
  float g[8][4];
  clear(g);
  row_block_product<DK, Rows<DK>, false, Rows<DK>, true>(g, keys, 16 * warp, keys, 0, warp + 1, lane);
  if constexpr (kGated) {
    const float* const decay = p.decay_of(chunk.block);
    multiply_by_rows(g, lane, [&](int row) { return decay + (16 * warp + row) / p.factors * kChunk; });
  }
  __syncthreads();
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

  invert<kThreads>(m, inverse, p.t + chunk.block * 2 * kChunk * kChunk);
}

template <int D, bool kGated>
void forward(const ChunkProblem& p, cudaStream_t stream) {
  constexpr int kBytes = (kInverseSize<D> + kChunk * kPitch) * sizeof(float);
  if constexpr (kGated) chunked_decay(p, stream);
  allow_shared_memory(inverse_kernel<D, kGated>, kBytes, "delta rule inverse");
  const dim3 grid = chunk_grid(p);
  signet::launch("delta rule inverse", inverse_kernel<D, kGated>, grid, kThreads, kBytes, Cuda{stream}, p);
  chunked_states(p, stream);
}

}  // namespace

bool chunked_covers(const DeltaRuleShape& shape) {
  const DeltaRuleShape s = with_strides(shape);
  const int64_t strides[] = {s.q_stride, s.k_stride, s.v_stride, s.o_stride, s.beta_stride, s.gate_stride};
  for (int i = 0; i < 6; ++i)
    if (strides[i] >= 1 << 24 || (i < 4 && strides[i] % 8)) return false;
  // Of the state kernels at dk = 128 and, with a gate per channel, of the gradients, at least.
  const int shared_memory = s.gate_channels > 1 ? (s.dk == 128 ? 231424 : 130048) : s.dk == 128 ? 160000 : 0;
  if (cuda_device().shared_per_block < shared_memory) return false;
  if (s.batch >= int64_t{1} << 24 || s.time >= int64_t{1} << 29) return false;
  return s.dk == s.dv && (s.dk == 64 || s.dk == 128) && s.factors >= 1 && s.factors <= kChunk && s.time > 0 &&
         s.heads < 65536;
}

ChunkPlan chunk_plan(const Problem<Half>& p) {
  return {p, cuda_device().multiprocessors, cuda_device().hopper ? kMostPieces : 1};
}

dim3 chunk_grid(const ChunkProblem& p) { return dim3(static_cast<unsigned>(p.places(p.tokens)), p.heads); }

// One thread per place looks for its sequence: the last one that begins no later.
__global__ void sequence_table_kernel(ChunkProblem p) {
  begin_kernel();
  const int place = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (place >= p.places(p.tokens)) return;
  int low = 0, high = p.batch;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (p.first_place(middle, p.tokens) <= place ? low : high) = middle;
  }
  const int chunk = place - static_cast<int>(p.first_place(low, p.tokens));
  p.sequence_of[place] = chunk * p.tokens < p.length(low) ? low : -1;
}

void find_sequences(const ChunkProblem& p, cudaStream_t stream) {
  if (!p.offsets) return;
  constexpr int kBlock = 256;
  const auto blocks = static_cast<unsigned>((p.places(p.tokens) + kBlock - 1) / kBlock);
  signet::launch("delta rule packed sequences", sequence_table_kernel, blocks, kBlock, 0, Cuda{stream}, p);
}

ChunkProblem chunk_problem(const Problem<Half>& p) {
  const ChunkPlan plan = chunk_plan(p);
  ChunkProblem c{p};
  c.tokens = plan.tokens, c.token_rows = plan.token_rows, c.chunks = plan.chunks;
  // Segments run at once: a state that is replaced in place must be read before it is written.
  const bool in_place = p.final_state && p.final_state == p.initial_state;
  c.segments = in_place ? 1 : plan.segments, c.segment_chunks = in_place ? plan.chunks : plan.segment_chunks;
  c.sequence_of = reinterpret_cast<int*>(p.workspace);
  c.increments = p.workspace + plan.table_size;
  c.pieces = plan.pieces, c.piece_transitions = c.increments + plan.segments_size();
  float* const workspace = c.piece_transitions + plan.pieces_size();
  const int64_t blocks = plan.blocks;
  c.transitions = p.saved ? p.saved : workspace;
  c.decay = c.transitions + plan.segments_size();
  c.t = reinterpret_cast<Half*>(c.decay + blocks * plan.decay_size);
  c.w = c.t + blocks * plan.t_size;
  c.s0 = c.w + 2 * blocks * plan.row_size;
  c.scores = c.s0 + blocks * plan.state_size;
  c.scaled = c.scores + blocks * plan.p_size;
  c.gate_parts = workspace;
  c.dv_low = reinterpret_cast<Half*>(workspace + blocks * plan.gate_size);
  c.ds1 = c.dv_low + blocks * plan.row_size;
  const void* const pointers[] = {p.q, p.k, p.v, p.o, p.d_o, p.dq, p.dk_out, p.dv_out, p.saved, p.workspace};
  for (const void* pointer : pointers)
    if (reinterpret_cast<uintptr_t>(pointer) % 16)
      bad_input("the chunked delta rule needs 16-byte aligned pointers; kRecurrent takes any");
  return c;
}

void chunked_forward(const Problem<Half>& p, cudaStream_t stream) {
  const ChunkProblem c = chunk_problem(p);
  find_sequences(c, stream);
  if (p.gate_channels > 1) {
    channel_chunks(c, stream);
    return channel_states(c, stream);
  }
  if (p.dk == 128)
    p.gate_channels ? forward<128, true>(c, stream) : forward<128, false>(c, stream);
  else
    p.gate_channels ? forward<64, true>(c, stream) : forward<64, false>(c, stream);
}

}  // namespace signet::kernels::delta_rule
