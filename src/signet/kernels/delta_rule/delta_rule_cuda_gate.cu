// What a gate per head adds to the chunked delta rule: the products of gates within a chunk, and the gate's
// gradient.
#include "signet/kernels/delta_rule/delta_rule_cuda_chunked.cuh"

namespace signet::kernels::delta_rule {
namespace {

// The gates of a chunk's tokens, 1 beyond the last.
__device__ void load_gates(const ChunkProblem& p, const Chunk& chunk, float* gates) {
  const int t = threadIdx.x;
  if (t < kChunk) gates[t] = t < chunk.tokens ? p.gate[(chunk.token + t) * p.gate_stride + chunk.h] : 1.f;
}

// One thread per substep j: column j of R, and the factors of row j and of token j.
__global__ void __launch_bounds__(kChunk) decay_kernel(ChunkProblem p) {
  begin_kernel();
  __shared__ float gates[kChunk];
  const Chunk chunk(p);
  if (chunk.tokens == 0) return;
  const int j = threadIdx.x, own = j / p.factors;
  const int64_t block = chunk.block;
  load_gates(p, chunk, gates);
  __syncthreads();
  float* const r = const_cast<float*>(p.decay_of(block)) + j;
  float* const factors = const_cast<float*>(p.factors_of(block)) + j;
  float after = 0.f, before = 1.f, row = 1.f, token = 1.f;
#pragma unroll 4
  for (int t = 0; t < p.token_rows; ++t) {
    before *= gates[t];
    after = t == own ? 1.f : after * gates[t];
    if (t == own) row = before;
    if (t == j) token = before;
    r[t * kChunk] = after;
  }
  factors[0] = row, factors[kChunk] = after, factors[2 * kChunk] = token;
}

// With D_tj the whole gradient of R_tj (what the chunk's sums give, and through R_{t+1,j}) and D_t that of
// c_t:
//   D_t = dR_t + g_{t+1} D_{t+1}        dg_t = sum_j D_tj R_{t-1,j} + D_t c_{t-1}
// One thread per substep j walks its column; one more walks c. kFactors: 0 where they are many.
template <int kFactors>
__global__ void __launch_bounds__(kChunk + 32) gate_gradient_kernel(ChunkProblem p) {
  begin_kernel();
  __shared__ float gates[kChunk + 1], own[kChunk], terms[kChunk][kChunk + 1];
  const Chunk chunk(p);
  if (chunk.tokens == 0) return;
  const int j = threadIdx.x, tokens = chunk.tokens;
  const int64_t block = chunk.block;
  const GateParts parts(p.gate_parts + block * GateParts::size(p.token_rows), p.token_rows);
  const float *r = p.decay_of(block), *c = p.factors_of(block) + 2 * kChunk;
  load_gates(p, chunk, gates);
  if (j == kChunk) gates[kChunk] = 0.f;
  if (j < tokens) {
    float sum = 0.f;
    for (int part = 0; part < kChunk / p.token_rows; ++part) sum += parts.before_queries[part * kChunk + j];
    for (int i = 0; i < p.factors; ++i) sum += parts.before_keys[j * p.factors + i];
    own[j] = sum;
  }
  __syncthreads();
  if (j < kChunk) {
    const int factors = kFactors > 0 ? kFactors : p.factors;
    float d = 0.f;
#pragma unroll 16
    for (int t = tokens - 1; t > 0; --t) {
      float sum = parts.queries[t * kChunk + j];
#pragma unroll
      for (int i = 0; i < factors; ++i) sum += parts.keys[(t * factors + i) * kChunk + j];
      d = sum + (t == tokens - 1 ? parts.after[j] : gates[t + 1] * d);
      terms[t][j] = d * r[(t - 1) * kChunk + j];
    }
    terms[0][j] = 0.f;
  } else if (j == kChunk) {
    float d = 0.f;
    for (int t = tokens - 1; t >= 0; --t) {
      d = own[t] + (t == tokens - 1 ? parts.states[0] + parts.states[1] + parts.states[2] + parts.states[3]
                                    : gates[t + 1] * d);
      terms[t][kChunk] = d * (t > 0 ? c[t - 1] : 1.f);
    }
  }
  __syncthreads();
  if (j < tokens) {
    float sum = 0.f;
#pragma unroll 8
    for (int i = 0; i <= kChunk; ++i) sum += terms[j][i];
    p.dgate[(chunk.token + j) * p.gate_stride + chunk.h] = sum;
  }
}

}  // namespace

void chunked_decay(const ChunkProblem& p, cudaStream_t stream) {
  signet::launch("delta rule decay", decay_kernel, chunk_grid(p), kChunk, 0, Cuda{stream}, p);
}

void chunked_gate_gradient(const ChunkProblem& p, cudaStream_t stream) {
  const auto kernel = p.factors == 1   ? gate_gradient_kernel<1>
                      : p.factors == 2 ? gate_gradient_kernel<2>
                                       : gate_gradient_kernel<0>;
  signet::launch("delta rule gate gradient", kernel, chunk_grid(p), kChunk + 32, 0, Cuda{stream}, p);
}

}  // namespace signet::kernels::delta_rule
