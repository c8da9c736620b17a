// What the chunked delta rule with a gate per channel makes of every chunk before the states: T, P and the
// keys and queries times the gates (delta_rule_cuda_channel.cuh).
#include "signet/kernels/delta_rule/delta_rule_cuda_channel.cuh"
#include "signet/kernels/delta_rule/delta_rule_cuda_inverse.cuh"

namespace signet::kernels::delta_rule {
namespace {

// Warps 0 to 3 have rows 16 w .. of K K^T, the others those of Q K^T, in opposite order: later rows take
// longer, and warps w and w + 4 share a scheduler.
constexpr int kThreads = 256;

constexpr int kRows = 8;  // of a block: half as many as in backward, where other things decide

template <int D>
struct ChunkMemory {
  Half keys[kChunk * D], queries[kChunk * D];
  float before[Table<D>::kSize];  // the gates, then before, then M
  union {
    Half keys_after[2][kChunk * D];  // k after, high and low parts
    float inverse[kChunk * kPitch];
  };
  float earlier[kChunk / kRows][D], later[kChunk / kRows][D];  // all gates before and after a block
  float diagonal[8][kBlockRows][kRows + 1];
  float beta[kChunk];
  int gate_places[kChunk];
};

// x_t . (k_s times the gates after s up to t), s <= t, within two blocks of which the first begins with
// `first`: to[t][s]. A lane has columns l and 7 - l of a block (l = lane % 4), one after the other, which are
// 9 places, and every fourth group of four channels.
template <int D>
__device__ void diagonal_products(float (&to)[kBlockRows][kRows + 1], const Half* rows, const Half* keys,
                                  Table<D> gates, int first, int lane) {
  const int column = lane % 4, block = lane / 16 * kRows, others = kRows - column;  // the first of 7 - l
  const auto row_of = [&](int i) { return block + (i < others ? column + i : i - 1); };
  float sums[kRows + 1] = {};
#pragma unroll 2
  for (int channel = lane / 4 % 4 * 4; channel < D; channel += 16) {
    float y[4], other[4];
    load_floats(y, keys + tile_index<D>(first + block + column, channel));
    load_floats(other, keys + tile_index<D>(first + block + kRows - 1 - column, channel));
#pragma unroll
    for (int i = 0; i <= kRows; ++i) {
      const int row = first + row_of(i);
      float g[4], x[4];
      load_floats(g, gates.at(row, channel));
      load_floats(x, rows + tile_index<D>(row, channel));
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (i > 0) y[e] = i == others ? other[e] : y[e] * g[e];
        sums[i] = fmaf(x[e], y[e], sums[i]);
      }
    }
  }
  sum_all<4, 4>(sums);
  if (lane / 4 % 4 == 0)
#pragma unroll
    for (int i = 0; i <= kRows; ++i) to[row_of(i)][i < others ? column : kRows - 1 - column] = sums[i];
}

// `before` in the place of the gates, and k after; two channels of a block per thread.
template <int D>
__device__ void scale_blocks(ChunkMemory<D>& memory) {
  const Table<D> before{memory.before};
  share<D / 2 * (kChunk / kRows), kThreads>(threadIdx.x, [&](int i) {
    const int channel = i % (D / 2) * 2, first = i / (D / 2) * kRows;
    float2 g[kRows], x = make_float2(1.f, 1.f);
#pragma unroll
    for (int t = 0; t < kRows; ++t) g[t] = *reinterpret_cast<const float2*>(before.at(first + t, channel));
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
      x.x *= g[t].x, x.y *= g[t].y;
      *reinterpret_cast<float2*>(before.at(first + t, channel)) = x;
    }
    x = make_float2(1.f, 1.f);
#pragma unroll
    for (int t = kRows - 1; t >= 0; --t) {
      const int at = tile_index<D>(first + t, channel);
      const uint32_t k = *reinterpret_cast<const uint32_t*>(memory.keys + at);
      const Split split(low_half(k) * x.x, high_half(k) * x.y);
      *reinterpret_cast<uint32_t*>(memory.keys_after[0] + at) = split.high;
      *reinterpret_cast<uint32_t*>(memory.keys_after[1] + at) = split.low;
      x.x *= g[t].x, x.y *= g[t].y;
    }
  });
}

// earlier and later, from `before`.
template <int D>
__device__ void join_blocks(ChunkMemory<D>& memory) {
  share<2 * D, kThreads>(threadIdx.x, [&](int i) {
    const int channel = i % D;
    float x = 1.f;
#pragma unroll
    for (int b = 0; b < kChunk / kRows; ++b) {
      const int block = i < D ? b : kChunk / kRows - 1 - b;
      (i < D ? memory.earlier : memory.later)[block][channel] = x;
      x *= *Table<D>{memory.before}.at(block * kRows + kRows - 1, channel);
    }
  });
}

// Rows 16 a .. of X K^T, times the gates in between: block 2 a in its first 8 rows, block 2 a + 1 in the
// others, in the columns of earlier blocks. The first 8 rows get something else in their own columns.
template <int D>
__device__ void earlier_products(float (&c)[8][4], const Half* rows, const ChunkMemory<D>& memory, int a,
                                 int lane) {
  const Table<D> before{const_cast<float*>(memory.before)};
#pragma unroll 2
  for (int k = 0; k < D; k += 16) {
    const int channel = k + lane % 4 * 2;
    float2 x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = kBlockRows * a + lane / 4 + i % 2 * 8, column = channel + i / 2 * 8;
      const uint32_t y = *reinterpret_cast<const uint32_t*>(rows + tile_index<D>(row, column));
      const float2 factors = *reinterpret_cast<const float2*>(before.at(row, column));
      x[i] = make_float2(low_half(y) * factors.x, high_half(y) * factors.y);
    }
#pragma unroll
    for (int pair = 3; pair >= 0; --pair) {
      if (pair <= a) {
        uint32_t key_high[4], key_low[4];  // of blocks 2 pair and 2 pair + 1
        load_right_transposed<Rows<D>>(key_high, memory.keys_after[0], k, kBlockRows * pair, lane);
        load_right_transposed<Rows<D>>(key_low, memory.keys_after[1], k, kBlockRows * pair, lane);
#pragma unroll
        for (int half = 1; half >= 0; --half) {
          const int b = 2 * pair + half;
          if (b > 2 * a) continue;
          uint32_t high[4], low[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const Split split(x[i].x, x[i].y);
            high[i] = split.high, low[i] = split.low;
          }
          multiply_add(c[b], low, key_high[2 * half], key_high[2 * half + 1]);
          multiply_add(c[b], high, key_low[2 * half], key_low[2 * half + 1]);
          multiply_add(c[b], high, key_high[2 * half], key_high[2 * half + 1]);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float2 whole =
                *reinterpret_cast<const float2*>(before.at(kRows * b + kRows - 1, channel + i / 2 * 8));
            if (i % 2 == 1 || b < 2 * a) x[i].x *= whole.x, x[i].y *= whole.y;
          }
        }
      }
    }
  }
}

// 8 channels of a row, in bf16 parts, to tiles of 64 channels.
template <int D, bool kLow>
__device__ void write_scaled(Half* to, const float (&x)[8], int row, int piece) {
  const Split s0(x[0], x[1]), s1(x[2], x[3]), s2(x[4], x[5]), s3(x[6], x[7]);
  uint4* const place =
      reinterpret_cast<uint4*>(to) + piece / 8 * (kChunk * 8) + tile_piece<64>(row, piece % 8);
  *place = make_uint4(s0.high, s1.high, s2.high, s3.high);
  if constexpr (kLow) place[kChunk * D / 8] = make_uint4(s0.low, s1.low, s2.low, s3.low);
}
// K diag(c), K diag(r), Q diag(c) and c_last of a chunk.
template <int D>
__device__ void write_scaled_rows(const ChunkProblem& p, int64_t block, const ChunkMemory<D>& memory) {
  share<kChunk * D / 8, kThreads>(threadIdx.x, [&](int i) {
    const int row = i / (D / 8), piece = i % (D / 8), at = tile_piece<D>(row, piece) * 8;
    float c[8], x[8], y[8];
    load_floats(c, memory.before + row * Table<D>::kPitch + piece * 8);
    load_floats(x, memory.earlier[row / kRows] + piece * 8);
#pragma unroll
    for (int e = 0; e < 8; ++e) c[e] *= x[e];
    if (row == kChunk - 1) store_floats(p.last_of(block) + piece * 8, c);
    load_floats(x, memory.keys + at);
    load_floats(y, memory.queries + at);
#pragma unroll
    for (int e = 0; e < 8; ++e) x[e] *= c[e], y[e] *= c[e];
    write_scaled<D, true>(p.keys_before(block), x, row, piece);
    write_scaled<D, false>(p.queries_before(block), y, row, piece);
    load_floats(x, memory.keys_after[0] + at);
    load_floats(y, memory.keys_after[1] + at);
    load_floats(c, memory.later[row / kRows] + piece * 8);
#pragma unroll
    for (int e = 0; e < 8; ++e) x[e] = (x[e] + y[e]) * c[e];
    write_scaled<D, true>(p.keys_after(block), x, row, piece);
  });
}

template <int D>
__global__ void __launch_bounds__(kThreads, 2) channel_chunk_kernel(ChunkProblem p) {
  begin_kernel();
  extern __shared__ __align__(256) char shared[];
  auto& memory = *reinterpret_cast<ChunkMemory<D>*>(shared);
  const Chunk chunk(p, true);  // the states begin with what comes last here
  if (chunk.tokens == 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool of_keys = warp < kRowBlocks;
  const int a = of_keys ? warp : 7 - warp;
  const Table<D> gates{memory.before};
  Half *const keys = memory.keys, *const queries = memory.queries;
  const Substeps substeps(p, chunk);
  fetch_tile<D, kChunk, kThreads>(keys, p.k + chunk.token * p.k_stride + chunk.h * D,
                                  RowMap(p.factors, p.k_stride, p.heads * D), substeps.rows, threadIdx.x);
  fetch_token_rows<D, kThreads>(queries, p.q + chunk.token * p.q_stride + chunk.h * D, p.q_stride, substeps,
                                threadIdx.x);
  copy_commit();
  find_places(memory.gate_places, p, substeps);
  __syncthreads();
  const RowGates gate(p, chunk, memory.gate_places);
  share<kChunk * D, kThreads>(threadIdx.x, [&](int i) { *gates.at(i / D, i % D) = gate(i / D, i % D); });
  if (threadIdx.x < kChunk) memory.beta[threadIdx.x] = chunk.beta_at(p, threadIdx.x);
  copy_wait<0>();
  __syncthreads();

  const Half* const rows = of_keys ? keys : queries;
  diagonal_products<D>(memory.diagonal[warp], rows, keys, gates, kBlockRows * a, lane);
  __syncthreads();
  scale_blocks(memory);
  __syncthreads();

  float c[8][4];
  clear(c);
  join_blocks(memory);
  earlier_products(c, rows, memory, a, lane);
  for_each_element(c, lane, [&](float& value, int row, int column) {
    const float diagonal = column % kRows <= row % kRows ? memory.diagonal[warp][row][column % kRows] : 0.f;
    value = column / kRows == 2 * a + row / kRows ? diagonal : value;
  });
  if (!of_keys) {  // P in two parts
    Half* const to = p.scores + chunk.block * 2 * kChunk * kChunk;
    for_each_pair(c, lane, [&](float x, float y, int row, int column) {
      const Split split(x, y);
      uint32_t* const place = reinterpret_cast<uint32_t*>(to + tile_index<64>(kBlockRows * a + row, column));
      *place = split.high, place[kChunk * kChunk / 2] = split.low;
    });
  }
  __syncthreads();  // earlier and later are there
  write_scaled_rows(p, chunk.block, memory);
  __syncthreads();
  float* const m = memory.before;
  if (of_keys)
    for_each_pair(c, lane, [&](float x, float y, int row, int column) {
      const float2 beta = *reinterpret_cast<const float2*>(memory.beta + column);
      row += kBlockRows * a;
      *reinterpret_cast<float2*>(m + row * kPitch + column) =
          make_float2(column < row ? x * beta.x : 0.f, column + 1 < row ? y * beta.y : 0.f);
    });
  __syncthreads();
  invert<kThreads>(m, memory.inverse, p.t + chunk.block * 2 * kChunk * kChunk);
}

template <int D>
void launch_chunks(const ChunkProblem& p, cudaStream_t stream) {
  constexpr int kBytes = sizeof(ChunkMemory<D>);
  static_assert(Table<D>::kSize >= kChunk * kPitch);
  allow_shared_memory(channel_chunk_kernel<D>, kBytes, "delta rule chunks");
  signet::launch("delta rule chunks", channel_chunk_kernel<D>, chunk_grid(p), kThreads, kBytes, Cuda{stream},
                 p);
}

}  // namespace

void channel_chunks(const ChunkProblem& p, cudaStream_t stream) {
  p.dk == 128 ? launch_chunks<128>(p, stream) : launch_chunks<64>(p, stream);
}

}  // namespace signet::kernels::delta_rule
