// What tokens read from the gated linear recurrence with one gate per head and at most 128 channels, a block
// per chunk and head and a warp per 16 of its tokens: with L_tr = D(r,t) for r <= t, and products element by
// element,
//   o = scale (c (Q S) + ((Q K^T) L) V)        dv = D(.,n) (K dS) + scale ((Q K^T) L)^T dO
// The second is the first with time reversed (dS has the scale already).
#include "signet/kernels/gated_linear/gated_linear_chunks.cuh"

namespace signet::kernels::gated_linear {
namespace {

constexpr int kRing = 3;       // tiles of states and values that are under way or in use
constexpr int kMostTiles = 2;  // of channels: more would leave room for one block on a multiprocessor

struct alignas(1024) HeadOutputMemory {
  Half ring[kRing][kTileSize];
  Half pair[kMostTiles][kTileSize];  // the first is later what goes out
  Decays decays;
  Gates<false> gates;
  // Behind it: tiles of the left rows, one for every 64 channels.
};

template <bool kReverse>
__global__ void __launch_bounds__(kChunkThreads, 3) head_output_kernel(Problem<bf16> p, ChunkPass pass) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<HeadOutputMemory*>(shared);
  Half* const left = reinterpret_cast<Half*>(shared + sizeof(m));
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = kBlock * warp;
  const int down = wide_tiles(p.dk), across = wide_tiles(p.dv);
  const ChunkPlace at = chunk_of_block(p, blockIdx.x);
  if (at.tokens <= 0) return;

  const auto fetch_pair = [&](int i) {
    if (i < down) {
      const int channels = min(kWide, p.dk - i * kWide);
      const int64_t channel = p.key(at.h) + i * kWide;
      fetch_rows(left + i * kTileSize, pass.left + at.row * pass.left_stride + channel, pass.left_stride,
                 at.tokens, channels);
      fetch_rows(m.pair[i], pass.pair + at.row * pass.pair_stride + channel, pass.pair_stride, at.tokens,
                 channels);
    }
    copy_commit();
  };
  // Phase 2 goes through these tiles: the states of a column of tiles, then its values.
  const auto fetch_item = [&](int item) {
    if (item < across * (down + 1)) {
      const int j = item / (down + 1), i = item % (down + 1);
      Half* const to = m.ring[item % kRing];
      if (i < down)
        fetch_state(to, pass.states + ((at.place * down + i) * across + j) * kTileSize);
      else
        fetch_rows(to, pass.right + at.row * pass.right_stride + int64_t{at.h} * p.dv + j * kWide,
                   pass.right_stride, at.tokens, min(kWide, p.dv - j * kWide));
    }
    copy_commit();
  };
  m.gates.fetch(p, at, 0);
  fetch_pair(0);
  fetch_pair(1);
#pragma unroll
  for (int item = 0; item < kRing - 1; ++item) fetch_item(item);

  // Phase 1: pairs of tokens. Forward the blocks up to the warp's own, backward in time those from it on.
  const int begin = kReverse ? warp : 0, end = kReverse ? kBlocks : warp + 1;
  float pairs[2 * kBlocks][4];
  clear(pairs);
  for (int i = 0; i < down; ++i) {
    // Behind the pair that is needed may be under way: the next one and the first items.
    if (i == 0) {
      copy_wait<kRing>();
      m.gates.settle(p, at, 0);
    } else {
      copy_wait<kRing - 1>();
    }
    __syncthreads();
    if (i == 0) m.decays.fill<kChunkThreads>(m.gates.g);
    row_block_product<kWide, Rows<kWide>, false, Rows<kWide>, true>(pairs, left + i * kTileSize, first,
                                                                    m.pair[i], begin, end, lane);
  }
  __syncthreads();  // the decays are there
  for_each_pair(pairs, lane, [&](float& x, float& y, int i, int j) {
    if constexpr (kReverse) {
      x *= pass.scale * m.decays.between(first + i, j), y *= pass.scale * m.decays.between(first + i, j + 1);
    } else {
      const float2 decay = m.decays.pair(j, first + i);
      x *= decay.x, y *= decay.y;
    }
  });
  uint32_t high[kBlocks][4], low[kBlocks][4];
#pragma unroll
  for (int s = 0; s < kBlocks; ++s) as_left(high[s], low[s], pairs[2 * s], pairs[2 * s + 1]);
  const float* const of_rows = kReverse ? m.decays.behind : m.decays.before;
  const float near = of_rows[first + lane / 4], far = of_rows[first + lane / 4 + 8];

  // Phase 2: the states and the values, tile by tile.
  float o[8][4];
  const int items = across * (down + 1);
  for (int item = 0; item < items; ++item) {
    const int j = item / (down + 1), i = item % (down + 1);
    copy_wait<kRing - 2>();
    __syncthreads();
    fetch_item(item + kRing - 1);
    const Half* const tile = m.ring[item % kRing];
    if (i == 0) clear(o);
    if (i < down) {
#pragma unroll
      for (int k0 = 0; k0 < kWide; k0 += 16) {
        uint32_t a[4];
        load_left<Rows<kWide>>(a, left + i * kTileSize, first, k0, lane);
        multiply_rows(o, a, tile, k0, lane);
      }
      continue;
    }
    scale_rows_of(o, near, far);
#pragma unroll
    for (int s = 0; s < kBlocks; ++s) {
      if (s >= begin && s < end) {
        multiply_rows(o, high[s], tile, s * kBlock, lane);
        multiply_rows(o, low[s], tile, s * kBlock, lane);
      }
    }
    if constexpr (!kReverse) scale_rows_of(o, pass.scale, pass.scale);
    stage_rows<kWide>(m.pair[0], o, first, 0, lane);
    bf16* const out = pass.out + at.row * pass.out_stride + int64_t{at.h} * p.dv + j * kWide;
    const int columns = min(kWide, p.dv - j * kWide);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int row = first + n * 4 + lane / 8, piece = lane % 8;
      if (row < at.tokens && piece * 8 < columns)
        *reinterpret_cast<uint4*>(out + row * pass.out_stride + piece * 8) =
            reinterpret_cast<const uint4*>(m.pair[0])[tile_piece<kWide>(row, piece)];
    }
    __syncwarp();
  }
}

int64_t head_output_bytes(int dk) {
  return static_cast<int64_t>(sizeof(HeadOutputMemory)) +
         wide_tiles(dk) * kTileSize * static_cast<int64_t>(sizeof(Half));
}

template <bool kReverse>
void launch_head_outputs(const Problem<bf16>& p, const ChunkPass& pass, cudaStream_t stream) {
  const auto kernel = head_output_kernel<kReverse>;
  const int bytes = static_cast<int>(head_output_bytes(p.dk));
  allow_shared_memory(kernel, bytes, "gated linear outputs");
  signet::launch("gated linear outputs", kernel, static_cast<unsigned>(chunk_places(p) * p.heads),
                 kChunkThreads, bytes, Cuda{stream}, p, pass);
}

}  // namespace

bool head_outputs_apply(const Problem<bf16>& p) {
  return !p.channel_gates && wide_tiles(p.dk) <= kMostTiles &&
         fits_shared_memory(static_cast<size_t>(head_output_bytes(p.dk)));
}

void head_outputs(const Problem<bf16>& p, const ChunkPass& pass, bool reverse, cudaStream_t stream) {
  reverse ? launch_head_outputs<true>(p, pass, stream) : launch_head_outputs<false>(p, pass, stream);
}

}  // namespace signet::kernels::gated_linear
