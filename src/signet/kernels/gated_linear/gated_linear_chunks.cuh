// The gated linear recurrence on the tensor cores (bf16 storage) by chunks of 64 tokens, for any dk and dv
// that are multiples of 8. States are cut into tiles of 64 x 64 that do not depend on each other, tokens of a
// chunk into blocks of 16. Passes, each with the same code in both directions of time:
//
//   states      S before every chunk, by walking the chunks; backward: dS behind every chunk
//   outputs     o of all chunks at once, from S; backward: dv, from dS
//   gradients   dq, dk and the gate's, of all chunks at once, from S and dS
//
// Decays are products of gates without a quotient. Between tokens r < t of different blocks b < a they are
//   after_r (G_{b+1} .. G_{a-1}) before_t        G_m: all gates of block m
//   before_t: the gates of t's block up to g_t   after_r: those of r's block behind g_r
// so that blocks of pairs off the diagonal are products of scaled rows; blocks on it are summed in fp32.
// Products have bf16 factors and fp32 sums, states and decays are fp32.
#pragma once

#include "signet/kernels/delta_rule/delta_rule_cuda_mma.cuh"
#include "signet/kernels/gated_linear/gated_linear_cuda.cuh"
#include "signet/tensor/launch.cuh"

namespace signet::kernels::gated_linear {

using namespace delta_rule;  // NOLINT: the tensor core building blocks

inline constexpr int kChunk = 64, kBlock = 16, kBlocks = kChunk / kBlock;
inline constexpr int kWide = 64, kTileSize = kWide * kWide;  // of a tile of the state
inline constexpr int kChunkThreads = 128;  // a warp for every block of tokens or of channels

// What one pass reads and writes besides the gates. Forward: left = q or k, right = v; backward: left = k or
// q, right = d_o.
struct ChunkPass {
  const bf16 *left, *pair, *right;
  int64_t left_stride, pair_stride, right_stride, out_stride;
  float scale;
  const float* begin;  // the state where the walk begins, and where it ends; null: zero, not wanted
  float* end;
  Half* states;  // [places, tiles of dk, tiles of dv], each tile in the order of shared memory
  bf16* out;
};

__host__ __device__ inline int wide_tiles(int n) { return (n + kWide - 1) / kWide; }
__host__ __device__ inline int64_t state_tiles(const Problem<bf16>& p) {
  return int64_t{wide_tiles(p.dk)} * wide_tiles(p.dv);
}
__host__ __device__ inline int chunks_of(int tokens) { return (tokens + kChunk - 1) / kChunk; }
// Places for the chunks of all sequences, of one head. Packed sequences leave some unused, for the sake of
// places that need no table: sequence b has those from offsets[b] / kChunk + b on.
__host__ __device__ inline int64_t chunk_places(const Problem<bf16>& p) {
  return p.offsets ? p.packed_rows / kChunk + p.batch : int64_t{p.batch} * chunks_of(p.time);
}
__device__ inline int64_t first_place(const Problem<bf16>& p, int b) {
  return p.offsets ? p.offsets[b] / kChunk + b : int64_t{b} * chunks_of(p.time);
}

__device__ inline const Half* half(const bf16* p) { return reinterpret_cast<const Half*>(p); }
__device__ inline Half* half(bf16* p) { return reinterpret_cast<Half*>(p); }

// One chunk of a sequence and head.
struct ChunkPlace {
  int64_t row, place;  // of its first token, of its states
  int h, tokens;       // tokens: 0 or less where the place is unused
  __device__ ChunkPlace(const Problem<bf16>& p, int b, int head, int chunk)
      : row(p.first_row(b) + int64_t{chunk} * kChunk),
        place((first_place(p, b) + chunk) * p.heads + head),
        h(head),
        tokens(min(kChunk, p.length(b) - chunk * kChunk)) {}
};
// Of a grid with a block per place and head, fewer than 2^31.
__device__ inline ChunkPlace chunk_of_block(const Problem<bf16>& p, int64_t block) {
  const int place = static_cast<int>(block) / p.heads, h = static_cast<int>(block) % p.heads;
  int low = 0, high = p.batch;  // the last sequence whose places begin there or before
  if (p.offsets) {
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first_place(p, middle) <= place ? low : high) = middle;
    }
  } else {
    low = place / chunks_of(p.time);
  }
  return ChunkPlace(p, low, h, static_cast<int>(place - first_place(p, low)));
}

// Asks for rows [0, rows) and columns [0, columns) of a tile; the others become zero. By kThreads threads.
template <int kThreads = kChunkThreads>
__device__ inline void fetch_rows(Half* tile, const bf16* source, int64_t stride, int rows, int columns) {
  const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(tile));
#pragma unroll
  for (int i = 0; i < kChunk * kWide / 8 / kThreads; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x), row = at / (kWide / 8),
              piece = at % (kWide / 8);
    const bool inside = row < rows && piece * 8 < columns;
    const bf16* from = inside ? source + row * stride + piece * 8 : source;
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(base + tile_piece<kWide>(row, piece) * 16),
        "l"(from), "r"(inside ? 16 : 0)
        : "memory");
  }
}
template <int kThreads = kChunkThreads>
__device__ inline void fetch_state(Half* tile, const Half* source) {
  fetch_linear<kTileSize, kThreads>(tile, source, static_cast<int>(threadIdx.x));
}

// The gates of a chunk: of 64 channels from `channel` on, or one per token.
template <bool kChannels>
struct Gates {
  alignas(16) float g[kChannels ? kChunk * kWide : kChunk];
  __device__ float at(int t, int c) const { return g[kChannels ? t * kWide + c : t]; }

  // Behind the end of the sequence and of the channels gates are 1: settle() writes those.
  template <int kThreads = kChunkThreads>
  __device__ void fetch(const Problem<bf16>& p, const ChunkPlace& at, int channel) {
    if constexpr (kChannels) {
      const int columns = min(kWide, p.dk - channel);
      for (int i = threadIdx.x; i < at.tokens * (kWide / 4); i += kThreads) {
        const int t = i / (kWide / 4), c = i % (kWide / 4) * 4;
        if (c < columns)
          copy_async<16>(g + t * kWide + c,
                         p.gate + (at.row + t) * p.gate_stride + int64_t{at.h} * p.dk + channel + c);
      }
    } else if (static_cast<int>(threadIdx.x) < at.tokens) {
      copy_async<4>(g + threadIdx.x, p.gate + (at.row + threadIdx.x) * p.gate_stride + at.h);
    }
  }
  template <int kThreads = kChunkThreads>
  __device__ void settle(const Problem<bf16>& p, const ChunkPlace& at, int channel) {
    if constexpr (kChannels) {
      const int columns = min(kWide, p.dk - channel);
      if (at.tokens == kChunk && columns == kWide) return;
      for (int i = threadIdx.x; i < kChunk * kWide; i += kThreads)
        if (i / kWide >= at.tokens || i % kWide >= columns) g[i] = 1.f;
    } else if (static_cast<int>(threadIdx.x) < kChunk && static_cast<int>(threadIdx.x) >= at.tokens) {
      g[threadIdx.x] = 1.f;
    }
  }
};

// Decays between the tokens of a chunk, one gate per head. Rows t of the table are pairs of r, permuted by t
// so that the pairs of an accumulator tile (four of r, eight of t) lie in different banks.
struct Decays {
  float table[kChunk * kChunk];
  float before[kChunk], behind[kChunk];  // from the chunk's beginning to t, g_t included; from t to its end

  __device__ static int place(int r, int t) { return t * kChunk + (r ^ (t % 4 * 8)); }
  __device__ float between(int r, int t) const { return table[place(r, t)]; }  // D(r,t), 0 for r > t
  // D(r,t) and D(r+1,t), r even.
  __device__ float2 pair(int r, int t) const { return *reinterpret_cast<const float2*>(table + place(r, t)); }
  // By all threads of a block; a barrier afterwards. Several threads share a column r, and 32 columns a warp.
  template <int kThreads>
  __device__ void fill(const float* gates) {
    constexpr int kRows = kChunk / (kThreads / kChunk);
    const int r = static_cast<int>(threadIdx.x) % kChunk,
              begin = static_cast<int>(threadIdx.x) / kChunk * kRows;
    const float first = gates[0];
    // D(r,begin-1): the gates of the lanes behind this one, and those of later columns.
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float own = r < begin ? gates[r] : 1.f;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float other = __shfl_down_sync(kFullWarp, own, step);
      if (lane + step < 32) own *= other;
    }
    float product = __shfl_down_sync(kFullWarp, own, 1);
    if (lane == 31) product = 1.f;
    if (r < 32 && begin > 32) {  // the same for the warp
      float later = lane + 32 < begin ? gates[lane + 32] : 1.f;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) later *= __shfl_xor_sync(kFullWarp, later, step);
      product *= later;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int t = begin + i;
      if (t > r) product *= gates[t];
      table[place(r, t)] = t < r ? 0.f : product;
      if (r == 0) before[t] = first * product;
    }
    if (begin + kRows == kChunk) behind[r] = product;
  }
};

// One warp's 16 tokens from `first` on, a pair of channels in each lane: x <- before x (the gates up to its
// token's) or after x (those behind it), within the block; both at once, and all gates of the block.
template <bool kChannels>
__device__ void scale_block(Half* before_tile, float before_scale, Half* after_tile, float (*whole)[kWide],
                            const Gates<kChannels>& gates, int block, int lane) {
  const int c = lane * 2;
  float low = 1.f, high = 1.f;
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    const int t = block * kBlock + i;
    low *= gates.at(t, c), high *= gates.at(t, c + 1);
    uint32_t& x = *reinterpret_cast<uint32_t*>(before_tile + tile_index<kWide>(t, c));
    x = pack(low * before_scale * low_half(x), high * before_scale * high_half(x));
  }
  whole[block][c] = low, whole[block][c + 1] = high;
  low = high = 1.f;
#pragma unroll
  for (int i = kBlock - 1; i >= 0; --i) {
    const int t = block * kBlock + i;
    uint32_t& x = *reinterpret_cast<uint32_t*>(after_tile + tile_index<kWide>(t, c));
    x = pack(low * low_half(x), high * high_half(x));
    low *= gates.at(t, c), high *= gates.at(t, c + 1);
  }
}

// A tile of a state in accumulators: 16 rows of a warp.
__device__ inline void widen_rows(float (&s)[8][4], const uint32_t (&f)[4][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[2 * k + i / 2][i % 2 * 2] = low_half(f[k][i]);
      s[2 * k + i / 2][i % 2 * 2 + 1] = high_half(f[k][i]);
    }
  }
}
__device__ inline void narrow_rows(uint32_t (&f)[4][4], const float (&s)[8][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) f[k][i] = pack(s[2 * k + i / 2][i % 2 * 2], s[2 * k + i / 2][i % 2 * 2 + 1]);
  }
}
__device__ inline void scale_rows_of(float (&s)[8][4], float low, float high) {
#pragma unroll
  for (int n = 0; n < 8; ++n) s[n][0] *= low, s[n][1] *= low, s[n][2] *= high, s[n][3] *= high;
}
// C[16][64] += A[16][16] B[16 rows at k0][64]
__device__ inline void multiply_rows(float (&c)[8][4], const uint32_t (&a)[4], const Half* tile, int k0,
                                     int lane) {
#pragma unroll
  for (int n = 0; n < 8; n += 2) {
    uint32_t b[4];
    load_right<Rows<kWide>>(b, tile, k0, n * 8, lane);
    multiply_add_pair(c[n], c[n + 1], a, b);
  }
}

// Decays of all tokens to the end of the chunk (or from its beginning), one gate per head: lane l of a warp
// has tokens 2l and 2l + 1.
template <bool kReverse>
__device__ void head_factors(float* factor, float* whole, const float* gates, float scale, int lane) {
  const float first = gates[2 * lane], second = gates[2 * lane + 1];
  float product = first * second;  // of this lane's and all before (after)
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float other =
        kReverse ? __shfl_up_sync(kFullWarp, product, step) : __shfl_down_sync(kFullWarp, product, step);
    if (kReverse ? lane >= step : lane + step < 32) product *= other;
  }
  const float beyond =
      kReverse ? __shfl_up_sync(kFullWarp, product, 1) : __shfl_down_sync(kFullWarp, product, 1);
  const float outer = lane == (kReverse ? 0 : 31) ? 1.f : beyond;
  factor[2 * lane] = scale * (kReverse ? outer * first : outer * second);
  factor[2 * lane + 1] = scale * (kReverse ? outer * first * second : outer);
  if (lane == (kReverse ? 31 : 0)) *whole = product;
}

// f(row, piece, x) over the rounded 16-byte pieces of an accumulator block, for memory without a detour: four
// lanes that share a row exchange their columns, so that each has one of four pieces.
template <int N, class F>
__device__ void for_each_piece(const float (&c)[N][4], int lane, F f) {
  const bool odd = lane & 1, upper = lane & 2;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
#pragma unroll
    for (int base = 0; base < N; base += 4) {
      uint32_t x[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) x[n] = pack(c[base + n][2 * part], c[base + n][2 * part + 1]);
        // A 4 x 4 transposition: blocks of two, then within them.
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const uint32_t other = __shfl_xor_sync(kFullWarp, upper ? x[n] : x[n + 2], 2);
        (upper ? x[n] : x[n + 2]) = other;
      }
#pragma unroll
      for (int n = 0; n < 4; n += 2) {
        const uint32_t other = __shfl_xor_sync(kFullWarp, odd ? x[n] : x[n + 1], 1);
        (odd ? x[n] : x[n + 1]) = other;
      }
      f(lane / 4 + 8 * part, base + lane % 4, make_uint4(x[0], x[1], x[2], x[3]));
    }
  }
}

void chunk_states(const Problem<bf16>& p, const ChunkPass& pass, bool reverse, cudaStream_t stream);
// The same by blocks that walk four tiles of a state at once, or two of dk <= 64, where it applies.
bool wide_states_apply(const Problem<bf16>& p);
void wide_states(const Problem<bf16>& p, const ChunkPass& pass, bool reverse, cudaStream_t stream);
void chunk_outputs(const Problem<bf16>& p, const ChunkPass& pass, bool reverse, cudaStream_t stream);
// Of a block, of outputs and of gradients.
int64_t output_shared_bytes(int dk, bool channel_gates);
int64_t gradient_shared_bytes(bool channel_gates);
// The same for one gate per head and keys of at most 128 channels.
bool head_outputs_apply(const Problem<bf16>& p);
void head_outputs(const Problem<bf16>& p, const ChunkPass& pass, bool reverse, cudaStream_t stream);
// The same forward in time where heads share q and k.
bool walk_outputs_apply(const Problem<bf16>& p);
void walk_outputs(const Problem<bf16>& p, const ChunkPass& pass, cudaStream_t stream);
// sums: [tiles of dk, rows, heads] of gates per head where dk has several tiles.
void chunk_gradients(const Problem<bf16>& p, const Half* states, const Half* d_states, float* sums,
                     cudaStream_t stream);
// dq, dk, dv and the gates' gradients for one gate per head in one kernel, where it applies.
bool head_backward_applies(const Problem<bf16>& p);
void head_backward(const Problem<bf16>& p, const Half* states, const Half* d_states, cudaStream_t stream);
// The same where heads share q and k and the sums over them are made in the kernel.
bool head_walk_applies(const Problem<bf16>& p);
void head_walk(const Problem<bf16>& p, const Half* states, const Half* d_states, cudaStream_t stream);
// The same of at most 64 columns.
bool walk_gradients_apply(const Problem<bf16>& p);
void walk_gradients(const Problem<bf16>& p, const Half* states, const Half* d_states, cudaStream_t stream);
// The same for one gate per head on tensor cores throughout, where they apply; they need no sums.
bool head_gradients_apply(const Problem<bf16>& p);
void head_gradients(const Problem<bf16>& p, const Half* states, const Half* d_states, cudaStream_t stream);
}  // namespace signet::kernels::gated_linear
