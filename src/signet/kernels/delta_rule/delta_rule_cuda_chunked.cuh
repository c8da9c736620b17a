// The chunked delta rule (bf16 storage): 64 substeps at a time by the UT transform. Per chunk, with S0 the
// state before it, G the strictly lower part of K K^T and T = (I + G diag(beta))^-1 (forward substitution in
// fp32):
//
//   W = T (V - K S0)      U = diag(beta) W      S1 = S0 + K^T U      O = scale (Q S0 + mask(Q K^T) U)
//
// Backward, with dS1 the gradient of S1 and M the mask (token t sees substep j when j < (t + 1) n_h):
//
//   dU = scale mask(Q K^T)^T dO + K dS1         dV = T^T diag(beta) dU      dS0 = dS1 + scale Q^T dO - K^T dV
//   dQ = scale (dO S0^T + mask(dO U^T) K)       Z = scale mask(dO W^T)^T Q + W dS1^T - upper(W dV^T) K
//   dK = diag(beta) Z - dV S0^T - lower(dV U^T) K                           dbeta_j = k_j . Z_j
//
// Everything that feeds the next chunk is exact to about 2^-16: bf16 inputs enter products as they are, and
// T, S, W and their gradients as sums of two bf16 numbers ("high" and "low"). So do the factors of sums in
// which repeated keys make large terms cancel; only what is left (S0 and dS1 in o, dq, dk) is rounded to
// bf16.
//
// All bf16, per head and chunk; * marks tiles in the permuted order of shared memory (tile_piece):
//   saved      T* [high, low][64][64]   W* [high, low][64][dv]   S0* [dk][dv]
//   workspace  backward: dU's local term [high, low][64][dv]   low part of dV* [64][dv]   dS1* [dk][dv]
//              forward without saved: what saved holds
#pragma once

#include "signet/kernels/delta_rule/delta_rule_cuda.cuh"

namespace signet::kernels::delta_rule {

inline constexpr int kChunk = 64;

struct ChunkPlan {
  int tokens = 0;  // per chunk
  int chunks = 0;
  int64_t heads = 0;                                 // B H
  int64_t t_size = 0, row_size = 0, state_size = 0;  // bf16 elements per chunk and head
  ChunkPlan(int batch, int time, int heads_per_row, int dk, int dv, int factors)
      : tokens(kChunk / factors),
        chunks((time + tokens - 1) / tokens),
        heads(static_cast<int64_t>(batch) * heads_per_row),
        t_size(2 * kChunk * kChunk),
        row_size(static_cast<int64_t>(kChunk) * dv),
        state_size(static_cast<int64_t>(dk) * dv) {}
  // In floats.
  int64_t saved_size() const { return heads * chunks * (t_size + 2 * row_size + state_size) / 2; }
  int64_t backward_size() const { return heads * chunks * (3 * row_size + state_size) / 2; }
};

// What the chunk kernels get. D pointers are bf16; per chunk blocks as laid out above.
struct ChunkProblem : Problem<__nv_bfloat16> {
  int tokens, chunks;
  __nv_bfloat16 *t, *w, *s0, *du, *dv_low, *ds1;

  __device__ int64_t block(int head, int chunk) const { return static_cast<int64_t>(head) * chunks + chunk; }
  __device__ int tokens_in(int chunk) const { return min(tokens, time - chunk * tokens); }
  // Where beta of a chunk's row lies, or null where there is no such row.
  __device__ const float* beta_of(int b, int h, int chunk, int row) const {
    const int local = row / factors;
    if (local >= tokens_in(chunk)) return nullptr;
    return beta + token(b, chunk * tokens + local) * beta_stride + row % factors * heads + h;
  }
  __device__ float beta_at(int b, int h, int chunk, int row) const {
    const float* from = beta_of(b, h, chunk, row);
    return from ? *from : 0.f;
  }
};

// Sizes only: forward and backward of one shape must agree. dk = dv = 64 or 128, n_h <= 64.
bool chunked_covers(const DeltaRuleShape& shape);
void chunked_forward(const Problem<__nv_bfloat16>& p, cudaStream_t stream);
void chunked_backward(const Problem<__nv_bfloat16>& p, cudaStream_t stream);
// Whether 32 columns of dv per block would leave multiprocessors idle.
bool narrow_slices(const ChunkProblem& p);
ChunkProblem chunk_problem(const Problem<__nv_bfloat16>& p, bool backward);

}  // namespace signet::kernels::delta_rule
