// The states of the gated linear recurrence before every chunk (backward in time: gradients behind it): a
// block walks the chunks of a sequence and head with one tile of the state in registers,
//   S <- Diag(c_n) S + sum_t D(t,n) k_t v_t^T        dS <- Diag(c_n) dS + sum_t c_t scale q_t do_t^T
#include "signet/kernels/gated_linear/gated_linear_chunks.cuh"

namespace signet::kernels::gated_linear {
namespace {

constexpr int kStages = 3;

template <bool kChannels>
struct alignas(1024) StateMemory {
  struct Stage {
    alignas(1024) Half left[kTileSize];
    alignas(1024) Half right[kTileSize];
    Gates<kChannels> gates;
  } stage[kStages];
  static constexpr int kWarps = kChunkThreads / 32;
  float factor[kWarps][kChunk];  // one gate per head: what scales each token; every warp has its own
  float whole[kChannels ? kWide : kWarps];
};

// Decays as head_factors() has them, but per channel, and the tile scaled by it: thread (channel, half of the
// chunk).
template <bool kReverse>
__device__ void scale_channels(Half* tile, float* whole, const Gates<true>& gates, float scale) {
  constexpr int kHalf = kChunk / 2, kAhead = 8;
  const int c = threadIdx.x % kWide, part = threadIdx.x / kWide;
  const bool second = part == (kReverse ? 1 : 0);  // walked last: behind the other half
  float product = 1.f;
  if (second) {
#pragma unroll 8
    for (int i = 0; i < kHalf; ++i) product *= gates.at((kReverse ? 0 : kHalf) + i, c);
  }
#pragma unroll 1
  for (int base = 0; base < kHalf; base += kAhead) {
    float g[kAhead], x[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int t = part * kHalf + (kReverse ? base + i : kHalf - 1 - base - i);
      g[i] = gates.at(t, c);
      x[i] = __bfloat162float(tile[tile_index<kWide>(t, c)]);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int t = part * kHalf + (kReverse ? base + i : kHalf - 1 - base - i);
      if constexpr (kReverse) product *= g[i];
      tile[tile_index<kWide>(t, c)] = __float2bfloat16(product * scale * x[i]);
      if constexpr (!kReverse) product *= g[i];
    }
  }
  if (second) whole[c] = product;
}

// 16 rows of a tile from registers to where the tile lies.
__device__ inline void write_state(Half* tile, const float (&s)[8][4], int first, int lane) {
  for_each_piece(s, lane, [&](int row, int piece, uint4 x) {
    reinterpret_cast<uint4*>(tile)[tile_piece<kWide>(first + row, piece)] = x;
  });
}

template <bool kReverse, bool kChannels>
__global__ void __launch_bounds__(kChunkThreads, 4) state_kernel(Problem<bf16> p, ChunkPass pass) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<StateMemory<kChannels>*>(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int across = wide_tiles(p.dv), tiles = across * wide_tiles(p.dk);
  const int tile = static_cast<int>(blockIdx.x % tiles), row0 = tile / across * kWide,
            column0 = tile % across * kWide;
  const int64_t head = blockIdx.x / tiles;
  const int b = static_cast<int>(head / p.heads), h = static_cast<int>(head % p.heads);
  const int chunks = chunks_of(p.length(b));
  const int rows = min(kWide, p.dk - row0), columns = min(kWide, p.dv - column0);
  const auto place = [&](int step) { return ChunkPlace(p, b, h, kReverse ? chunks - 1 - step : step); };
  const auto fetch = [&](int step) {
    if (step < chunks) {
      auto& to = m.stage[step % kStages];
      const ChunkPlace at = place(step);
      fetch_rows(to.left, pass.left + at.row * pass.left_stride + p.key(h) + row0, pass.left_stride,
                 at.tokens, rows);
      fetch_rows(to.right, pass.right + at.row * pass.right_stride + int64_t{h} * p.dv + column0,
                 pass.right_stride, at.tokens, columns);
      to.gates.fetch(p, at, row0);
    }
    copy_commit();
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) fetch(step);

  float s[8][4];
  clear(s);
  const int64_t state = head * p.state_size();
  if (pass.begin)
    for_each_element(s, lane, [&](float& x, int row, int column) {
      const int i = 16 * warp + row;
      if (i < rows && column < columns) x = pass.begin[state + int64_t{row0 + i} * p.dv + column0 + column];
    });
  const float scale = kReverse ? pass.scale : 1.f;
  for (int step = 0; step < chunks; ++step) {
    auto& in = m.stage[step % kStages];
    const ChunkPlace at = place(step);
    copy_wait<kStages - 2>();
    in.gates.settle(p, at, row0);
    __syncthreads();
    fetch(step + kStages - 1);
    // The state goes out while the tokens are scaled.
    write_state(pass.states + (at.place * tiles + tile) * kTileSize, s, 16 * warp, lane);
    if constexpr (kChannels) {
      scale_channels<kReverse>(in.left, m.whole, in.gates, scale);
      __syncthreads();
      const int low_row = 16 * warp + lane / 4;
      scale_rows_of(s, m.whole[low_row], m.whole[low_row + 8]);
    } else {
      head_factors<kReverse>(m.factor[warp], m.whole + warp, in.gates.g, scale, lane);
      __syncwarp();
      scale_rows_of(s, m.whole[warp], m.whole[warp]);
    }
#pragma unroll
    for (int k = 0; k < kChunk; k += 16) {
      uint32_t a[4];
      load_left_transposed<Rows<kWide>>(a, in.left, 16 * warp, k, lane);
      if constexpr (!kChannels) {
        const float2 near = *reinterpret_cast<const float2*>(m.factor[warp] + k + lane % 4 * 2),
                     far = *reinterpret_cast<const float2*>(m.factor[warp] + k + 8 + lane % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 f = i < 2 ? near : far;
          a[i] = pack(f.x * low_half(a[i]), f.y * high_half(a[i]));
        }
      }
      multiply_rows(s, a, in.right, k, lane);
    }
  }
  if (pass.end)
    for_each_element(s, lane, [&](float x, int row, int column) {
      const int i = 16 * warp + row;
      if (i < rows && column < columns) pass.end[state + int64_t{row0 + i} * p.dv + column0 + column] = x;
    });
}

template <bool kReverse, bool kChannels>
void launch_states(const Problem<bf16>& p, const ChunkPass& pass, cudaStream_t stream) {
  const auto kernel = state_kernel<kReverse, kChannels>;
  constexpr int kBytes = sizeof(StateMemory<kChannels>);
  allow_shared_memory(kernel, kBytes, "gated linear states");
  const int64_t blocks = int64_t{p.batch} * p.heads * state_tiles(p);
  signet::launch("gated linear states", kernel, static_cast<unsigned>(blocks), kChunkThreads, kBytes,
                 Cuda{stream}, p, pass);
}

}  // namespace

void chunk_states(const Problem<bf16>& p, const ChunkPass& pass, bool reverse, cudaStream_t stream) {
  if (wide_states_apply(p)) return wide_states(p, pass, reverse, stream);
  if (reverse)
    p.channel_gates ? launch_states<true, true>(p, pass, stream)
                    : launch_states<true, false>(p, pass, stream);
  else
    p.channel_gates ? launch_states<false, true>(p, pass, stream)
                    : launch_states<false, false>(p, pass, stream);
}

}  // namespace signet::kernels::gated_linear
