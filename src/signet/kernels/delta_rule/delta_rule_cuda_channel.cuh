// A gate per channel in chunks. Products of gates from token s to token t differ from channel to channel, so
// that they do not come out of k_t . k_s as a factor. Blocks of 8 or 16 tokens make them factors of rows:
// with s in block b and t in block a > b, channel by channel,
//
//   g_{s+1} .. g_t = after_s (G_{b+1} .. G_{a-1}) before_t
//   after_s: from g_{s+1} to the last gate of s's block     G_m: the product of all gates of block m
//   before_t: from the first gate of t's block to g_t
//
// and blocks off the diagonal are products of matrices of scaled rows. Within a block the products of gates
// are walked channel by channel in fp32. Nothing is divided by a gate.
//
// With n_h > 1 "tokens" above are substeps: the gate of a token is that of its first substep and the others
// have 1; its query (and dO) is that of its last substep and the others have zero.
#pragma once

#include "signet/kernels/delta_rule/delta_rule_cuda_chunked.cuh"
#include "signet/kernels/delta_rule/delta_rule_cuda_mma.cuh"

namespace signet::kernels::delta_rule {

inline constexpr int kBlockRows = 16, kRowBlocks = kChunk / kBlockRows;

// fp32 [64][D] with rows that begin 8 banks apart.
template <int D>
struct Table {
  static constexpr int kPitch = D + 8, kSize = kChunk * kPitch;
  float* rows;
  __device__ float* at(int row, int channel) const { return rows + row * kPitch + channel; }
};

// f(i) for i < kCount by kThreads threads of which this is number `thread`, all steps known when compiled.
template <int kCount, int kThreads, class F>
__device__ void share(int thread, F f) {
#pragma unroll
  for (int i = 0; i < kCount; i += kThreads)
    if (kCount % kThreads == 0 || i + thread < kCount) f(i + thread);
}

// The substeps of a chunk.
struct Substeps {
  int factors, rows, inverse;
  __device__ Substeps(const ChunkProblem& p, const Chunk& chunk)
      : factors(p.factors), rows(chunk.tokens * p.factors), inverse(65536 / p.factors + 1) {}
  __device__ int token(int row) const { return (row * inverse) >> 16; }
  __device__ bool begins_token(int row) const { return row < rows && token(row) * factors == row; }
  __device__ bool ends_token(int row) const { return row < rows && (token(row) + 1) * factors == row + 1; }
};

// The gates of one head from the chunk's first token on. places[row] is where those of a row begin, -1 where
// it has none: a table in shared memory, which find_places fills.
struct RowGates {
  const float* gates;
  const int* places;
  __device__ RowGates(const ChunkProblem& p, const Chunk& chunk, const int* places_of_rows)
      : gates(p.gate + chunk.token * p.gate_stride + chunk.h * p.dk), places(places_of_rows) {}
  __device__ float operator()(int row, int channel) const {
    const int place = places[row];
    const float gate = gates[max(place, 0) + channel];
    return place < 0 ? 1.f : gate;
  }
};
__device__ inline void find_places(int (&places)[kChunk], const ChunkProblem& p, const Substeps& substeps) {
  const int row = threadIdx.x;
  if (row < kChunk)
    places[row] = substeps.begins_token(row) ? substeps.token(row) * static_cast<int>(p.gate_stride) : -1;
}

// W channels of the tokens' rows (queries or dO, `stride` apart) to those of their last substeps, zero
// elsewhere; asynchronous, by kThreads threads.
template <int W, int kThreads>
__device__ void fetch_token_rows(Half* tile, const Half* source, int64_t stride, const Substeps& substeps,
                                 int thread) {
  share<kChunk * W / 8, kThreads>(thread, [&](int i) {
    const int row = i / (W / 8), piece = i % (W / 8);
    Half* const to = tile + tile_piece<W>(row, piece) * 8;
    if (substeps.ends_token(row))
      copy_async<16>(to, source + substeps.token(row) * stride + piece * 8);
    else
      *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
  });
}

}  // namespace signet::kernels::delta_rule
