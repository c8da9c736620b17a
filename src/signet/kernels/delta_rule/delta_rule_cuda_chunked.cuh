// The chunked delta rule (bf16 storage): 64 substeps at a time by the UT transform. Per chunk, with S0 the
// state before it, G the strictly lower part of K K^T and T = (I + G diag(beta))^-1 (forward substitution in
// fp32):
//
//   W = T (V - K S0)      U = diag(beta) W      S1 = S0 + K^T U
//   P = mask(Q K^T)       O = scale (Q S0 + P U)
//
// Backward, with dS1 the gradient of S1 and the mask as before (token t sees substep j when j < (t + 1) n_h):
//
//   dU = scale P^T dO + K dS1                   dV = T^T diag(beta) dU      dS0 = dS1 + scale Q^T dO - K^T dV
//   dQ = scale (dO S0^T + mask(dO U^T) K)       Z = scale mask(dO W^T)^T Q + W dS1^T - upper(W dV^T) K
//   dK = diag(beta) Z - dV S0^T - lower(dV U^T) K                           dbeta_j = k_j . Z_j
//
// Everything that feeds the next chunk is exact to about 2^-16: bf16 inputs enter products as they are, and
// T, S, W and their gradients as sums of two bf16 numbers ("high" and "low"). So do the factors of sums in
// which repeated keys make large terms cancel; only what is left (S0 and dS1 in o, dq, dk) is rounded to
// bf16.
//
// A gate per head multiplies what passes between two times by the gates in between. With c_t = g_0 .. g_t of
// a chunk's tokens, R_tj = g_{token(j)+1} .. g_t (zero where t does not see j) and r_j = R_last,j,
//
//   G -> R * G      P -> R * P (element by element)     Q S0, K S0: row t times c_t
//   K^T U: row j of K times r_j                          S1 = c_last S0 + ...
//
// and backward the same factors on the gradients. All of them are products of gates, so zeros and signs need
// no special case. The gradients of R and c are walked back by R_t = g_t R_{t-1}. A gate per channel:
// delta_rule_cuda_channel.cuh.
//
// Few heads with long sequences: each sequence is cut into segments. A chunk's effect on the state is affine,
// so a segment's is, too: S_end = M S_begin + H. One pass over all segments at once gives M (the states that
// grow from the identity without values) and H, the states between the segments follow one after the other,
// and a second pass over all segments at once is the real one. Backward takes the same M, transposed. M may
// be the product of those of pieces of a segment.
//
// Per head and chunk; * marks tiles in the order of shared memory (tile_piece<64>), ** blocks (Blocks):
//   saved      bf16  T* [high, low][64][64]   W^T** [high, low][dv][64]   S0^T** [dv][dk]
//              fp32  M [segments][dk][dk]
//              with a gate per head   bf16  P* [tokens][64]   fp32  R [tokens][64], c of rows, r, c of
//              tokens [3][64]
//              with a gate per channel   bf16  P* [high, low][64][64]   K diag(c)*, K diag(r)* [high, low],
//              Q diag(c)*, each [dk / 64][64][64]   fp32  c_last [dk]
//   workspace  fp32  H [segments][dk][dv]   M of pieces [segments][pieces][dk][dk]
//              bf16  backward: low part of dV^T** [dv][64]   dS1^T** [dv][dk]
//              fp32  backward with a gate: what its gradient is made of (GateParts)
//              forward without saved: what saved holds
#pragma once

#include "signet/kernels/delta_rule/delta_rule_cuda.cuh"
#include "signet/tensor/launch.cuh"

namespace signet::kernels::delta_rule {

inline constexpr int kChunk = 64;
inline constexpr int kMostPieces = 3;  // of a segment, on Hopper: elsewhere they have no room

// Backward with a gate, per head and chunk: the gradients of R times U W's products, before the walk to dg.
//   queries [tokens][64]    = scale (dO_t . u_j) (q_t . k_j)
//   keys [64][64]           = -(dV_i . u_j) (k_i . k_j), j < i
//   after [64]              = u_j . dS1^T k_j
//   before_keys [64]        = -dV_i . S0^T k_i
//   before_queries [4][64]  = scale dO_t . S0^T q_t, in up to 4 parts
//   states [4]              = parts of S0 . dS1
struct GateParts {
  float *queries, *keys, *after, *before_keys, *before_queries, *states;
  static constexpr int64_t size(int token_rows) { return (token_rows + kChunk + 7) * kChunk; }
  __device__ GateParts(float* at, int token_rows)
      : queries(at),
        keys(queries + token_rows * kChunk),
        after(keys + kChunk * kChunk),
        before_keys(after + kChunk),
        before_queries(before_keys + kChunk),
        states(before_queries + 4 * kChunk) {}
};

struct ChunkPlan {
  int tokens = 0;      // per chunk
  int token_rows = 0;  // rows of P: 16, 32 or 64
  int chunks = 0;      // of the longest sequence there may be
  int segments = 1, segment_chunks = 0;
  int pieces = 1;                     // of a segment, each with an M of its own
  int64_t blocks = 0, sequences = 0;  // chunks and sequences of all heads
  int64_t table_size = 0;             // floats for the table of packed sequences
  // Elements per chunk and head, and per segment and head.
  int64_t t_size = 0, row_size = 0, state_size = 0, p_size = 0, decay_size = 0, gate_size = 0,
          scaled_size = 0;
  ChunkPlan(const Problem<__nv_bfloat16>& p, int multiprocessors, int most_pieces)
      : tokens(kChunk / p.factors),
        token_rows(tokens > 32   ? 64
                   : tokens > 16 ? 32
                                 : 16),
        chunks((p.time + tokens - 1) / tokens),
        blocks(p.places(tokens) * p.heads),
        sequences(static_cast<int64_t>(p.batch) * p.heads),
        table_size(p.offsets ? (p.places(tokens) + 63) / 64 * 64 : 0),
        t_size(2 * kChunk * kChunk),
        row_size(static_cast<int64_t>(kChunk) * p.dv),
        state_size(p.state_size()),
        p_size(p.gate_channels > 1 ? 2 * kChunk * kChunk
               : p.gate_channels   ? static_cast<int64_t>(token_rows) * kChunk
                                   : 0),
        decay_size(p.gate_channels > 1 ? p.dk
                   : p.gate_channels   ? (token_rows + 3) * kChunk
                                       : 0),
        gate_size(p.gate_channels == 1 ? GateParts::size(token_rows) : 0),
        scaled_size(p.gate_channels > 1 ? 5 * static_cast<int64_t>(kChunk) * p.dk : 0) {
    // Two segments would take as long as one; short ones are not worth a pass of their own.
    const int64_t most = p.offsets ? 1 : chunks / 8, room = multiprocessors / (sequences > 0 ? sequences : 1);
    segments = static_cast<int>(most < room ? most : room);
    if (segments < 3) segments = 1;
    segment_chunks = (chunks + segments - 1) / segments;
    segments = (chunks + segment_chunks - 1) / segment_chunks;
    if (segments > 1 && most_pieces > 1) choose_pieces(multiprocessors, most_pieces);
  }
  // H of all segments but the last and M of all but the first and the last are found by as many blocks of
  // equal length, one to a multiprocessor. Where that leaves the last round half empty, M is made in pieces.
  void choose_pieces(int multiprocessors, int most) {
    const int64_t h = sequences * (segments - 1), m = sequences * (segments - 2);
    double best = 1e30;
    for (int n = 1; n <= most; ++n) {
      const int64_t idle = multiprocessors > h ? multiprocessors - h : 0, rest = n * (m - idle);
      const double rounds =
          rest > 0 ? static_cast<double>((rest + multiprocessors - 1) / multiprocessors) : 0;
      const double time = segment_chunks * (1 + rounds / n) + 4 * n;  // in chunks, with what a piece costs
      if (time < best) best = time, pieces = n;
    }
  }
  // In floats.
  int64_t segments_size() const { return segments > 1 ? sequences * segments * state_size : 0; }
  int64_t pieces_size() const { return pieces > 1 ? pieces * segments_size() : 0; }
  int64_t saved_size() const {
    return blocks * ((t_size + 2 * row_size + state_size + p_size + scaled_size) / 2 + decay_size) +
           segments_size();
  }
  int64_t workspace_size() const {
    const int64_t backward = blocks * ((row_size + state_size) / 2 + gate_size);
    return table_size + segments_size() + pieces_size() + (saved_size() > backward ? saved_size() : backward);
  }
};

// What the chunk kernels get. D pointers are bf16; per chunk blocks as laid out above.
struct ChunkProblem : Problem<__nv_bfloat16> {
  int tokens, token_rows, chunks, segments, segment_chunks, pieces;
  __nv_bfloat16 *t, *w, *s0, *scores, *dv_low, *ds1, *scaled;
  float *transitions, *increments;  // M, H
  float* piece_transitions;         // M of pieces of segments
  float *decay, *gate_parts;
  int* sequence_of;  // packed: the sequence of every place, -1 where there is none

  __device__ const float* decay_of(int64_t block) const { return decay + block * (token_rows + 3) * kChunk; }
  // Of a block of decay: c of rows, r and c of tokens, each [64].
  __device__ const float* factors_of(int64_t block) const { return decay_of(block) + token_rows * kChunk; }

  // With a gate per channel: c_last [dk], and K diag(c), K diag(r) in two parts and Q diag(c) in one, each
  // [dk / 64][64][64].
  __device__ float* last_of(int64_t block) const { return decay + block * dk; }
  __device__ __nv_bfloat16* keys_before(int64_t block) const { return scaled + block * 5 * kChunk * dk; }
  __device__ __nv_bfloat16* keys_after(int64_t block) const { return keys_before(block) + 2 * kChunk * dk; }
  __device__ __nv_bfloat16* queries_before(int64_t block) const {
    return keys_before(block) + 4 * kChunk * dk;
  }

  __device__ int64_t segment(int64_t head, int i) const { return (head * segments + i) * dk * dv; }
  __device__ float* piece(int64_t head, int segment, int i) const {
    return piece_transitions + ((head * segments + segment) * pieces + i) * dk * dv;
  }
  __device__ int64_t block(int b, int h, int chunk) const {
    return h * places(tokens) + first_place(b, tokens) + chunk;
  }
};

// One chunk of a sequence and head: its tokens and where its blocks lie.
struct Chunk {
  int h, tokens = 0;  // 0: there is none
  int64_t token, block;

  // Of a grid of all places by heads. Neighbouring blocks take neighbouring heads, and all segments of all
  // sequences from their first chunks on, or from their last ones when `backwards`: a walk over the segments
  // finds in the cache what was written last for the chunks it begins with, and leaves there what the blocks
  // that run first need.
  __device__ explicit Chunk(const ChunkProblem& p, bool backwards = false) : h(blockIdx.y) {
    if (p.offsets) {
      const int place = blockIdx.x, b = p.sequence_of[place];
      if (b < 0) return;
      const int chunk = place - static_cast<int>(p.first_place(b, p.tokens));
      *this = Chunk(p, p.token(b, 0), p.length(b), h, chunk, h * p.places(p.tokens) + place - chunk);
      return;
    }
    const int64_t i = static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
    const int head = static_cast<int>(i % p.heads), b = static_cast<int>(i / p.heads % p.batch);
    int chunk = static_cast<int>(i / p.heads / p.batch);
    if (backwards) chunk = p.chunks - 1 - chunk;
    if (p.segments * p.segment_chunks == p.chunks)
      chunk = chunk % p.segments * p.segment_chunks + chunk / p.segments;
    *this = Chunk(p, p.token(b, 0), p.length(b), head, chunk, p.block(b, head, 0));
  }
  // Number `chunk` of a sequence with these first token, length and first block.
  __device__ Chunk(const ChunkProblem& p, int64_t first_token, int length, int head, int chunk,
                   int64_t first_block)
      : h(head),
        tokens(min(p.tokens, length - chunk * p.tokens)),
        token(first_token + chunk * p.tokens),
        block(first_block + chunk) {}

  // Where beta of a row lies, or null where there is no such row.
  __device__ const float* beta_of(const ChunkProblem& p, int row) const {
    const int local = row / p.factors;
    if (local >= tokens) return nullptr;
    return p.beta + (token + local) * p.beta_stride + row % p.factors * p.heads + h;
  }
  __device__ float beta_at(const ChunkProblem& p, int row) const {
    const float* from = beta_of(p, row);
    return from ? *from : 0.f;
  }
};

// One walk of the state kernels over neighbouring chunks of one sequence and head: from `begin` (null: zero),
// `steps` chunks beginning with `chunk` (backward: ending with it), to `end` (null: not wanted).
struct Walk {
  int b, h, chunk, steps, length;
  int64_t first_token, first_block;
  const float* begin;
  float* end;
  bool identity;  // begin with the identity, take values (or gradients of o) for zero: `end` becomes M
  bool summary;   // write `end` only

  __device__ Walk(const ChunkProblem& p, int segment)
      : b(blockIdx.x / p.heads),
        h(blockIdx.x % p.heads),
        chunk(segment * p.segment_chunks),
        length(p.length(b)),
        first_token(p.token(b, 0)),
        first_block(p.block(b, h, 0)),
        begin(nullptr),
        end(nullptr),
        identity(false),
        summary(false) {
    steps = min(p.segment_chunks, (length + p.tokens - 1) / p.tokens - chunk);
  }
  __device__ Chunk at(const ChunkProblem& p, int index) const {
    return Chunk(p, first_token, length, h, index, first_block);
  }
};

// The walk of a block of the forward state pass.
__device__ inline Walk forward_walk(const ChunkProblem& p, bool summary) {
  const int head = blockIdx.x, y = blockIdx.y, last = p.segments - 1;
  const bool identity = summary && y >= last;
  const int segment = identity ? 1 + (y - last) / p.pieces : y;
  const int64_t state = head * p.state_size();
  Walk walk(p, segment);
  walk.identity = identity, walk.summary = summary;
  if (!identity && segment == 0)
    walk.begin = p.initial_state ? p.initial_state + state : nullptr;
  else if (!summary)
    walk.begin = p.increments + p.segment(head, segment - 1);
  if (identity) {
    const int piece = (y - last) % p.pieces, length = (p.segment_chunks + p.pieces - 1) / p.pieces;
    walk.chunk += piece * length;
    walk.steps = max(0, min(length, p.segment_chunks - piece * length));
    walk.end = p.pieces > 1 ? p.piece(head, segment, piece) : p.transitions + p.segment(head, segment);
  } else if (summary)
    walk.end = p.increments + p.segment(head, segment);
  else if (segment == last && p.final_state)
    walk.end = p.final_state + state;
  return walk;
}

// The same of the pass over the states' gradients.
__device__ inline Walk backward_walk(const ChunkProblem& p, bool summary) {
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

// Sizes only: forward and backward of one shape must agree. dk = dv = 64 or 128, n_h <= 64.
bool chunked_covers(const DeltaRuleShape& shape);
ChunkPlan chunk_plan(const Problem<__nv_bfloat16>& p);
ChunkProblem chunk_problem(const Problem<__nv_bfloat16>& p);
// All places by heads: the grid of the kernels that take every chunk at once (Chunk).
dim3 chunk_grid(const ChunkProblem& p);
// Fills sequence_of.
void find_sequences(const ChunkProblem& p, cudaStream_t stream);
void chunked_forward(const Problem<__nv_bfloat16>& p, cudaStream_t stream);
void chunked_backward(const Problem<__nv_bfloat16>& p, cudaStream_t stream);

// The states before every chunk, and W; the gradients of the states after every chunk, and dV.
void chunked_states(const ChunkProblem& p, cudaStream_t stream);
void chunked_state_gradients(const ChunkProblem& p, cudaStream_t stream);
// R, c and r of every chunk; dg from its parts.
void chunked_decay(const ChunkProblem& p, cudaStream_t stream);
void chunked_gate_gradient(const ChunkProblem& p, cudaStream_t stream);
// The same with a gate per channel, with what forward makes of every chunk before, and dQ, dK,
// dbeta and dg after.
void channel_chunks(const ChunkProblem& p, cudaStream_t stream);
void channel_states(const ChunkProblem& p, cudaStream_t stream);
void channel_state_gradients(const ChunkProblem& p, cudaStream_t stream);
void channel_gradients(const ChunkProblem& p, cudaStream_t stream);
// The states between segments: in `increments`, H_s += M_s H_{s-1} from the first, or H_s += M_s^T H_{s+1}
// from the last.
void join_segments(const ChunkProblem& p, bool backward, cudaStream_t stream);
// M of every segment that needs it, the product of its pieces' M.
void join_pieces(const ChunkProblem& p, cudaStream_t stream);

}  // namespace signet::kernels::delta_rule
