// The states as gated_linear_states_cuda.cu has them, where there are many sequences and heads: a block walks
// with 64 or 128 rows of a state and two tiles side by side, which are 128 of its columns or, where heads
// share q and k, 64 of two heads. What comes from memory is there once for all of them; four warps have a
// tile, 16 of its rows each, which they scale in registers.
#include "signet/kernels/delta_rule/delta_rule_cuda_group.cuh"
#include "signet/kernels/gated_linear/gated_linear_chunks.cuh"

namespace signet::kernels::gated_linear {
namespace {

constexpr int kAcross = 2;

// kHeads: 2 where the tiles side by side are of two heads. kDown: tiles of rows.
template <bool kChannels, int kDown, int kHeads>
struct alignas(1024) WideMemory {
  static constexpr int kStages = kChannels && kDown == 2 ? 3 : 4, kThreads = 256 * kDown,
                       kWarps = kThreads / 32;
  struct Stage {
    alignas(1024) Half left[kDown][kTileSize];
    alignas(1024) Half right[kAcross][kTileSize];
    Gates<kChannels> gates[kChannels ? kDown : kHeads];
  } stage[kStages];
  // One gate per head: what scales each token; every warp has its own. Per channel: the gates of each eight
  // tokens.
  float factor[kWarps][kChunk];
  float whole[kChannels ? kDown * kWide : kWarps];
};

// Rows of 64 channels scaled by their decays to the end of the chunk (or from its beginning), by a warp for
// eight tokens: two channels in each lane. parts: the gates of the warps with the same channels. The block
// waits within.
template <bool kReverse>
__device__ void scale_rows_by_channels(Half* tile, float* whole, float (*parts)[kChunk],
                                       const Gates<true>& gates, float scale, int part, int lane) {
  constexpr int kTokens = 8, kParts = kChunk / kTokens;
  const int c = 2 * lane, first = part * kTokens;
  float2 g[kTokens], product = make_float2(1.f, 1.f);
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    g[i] = *reinterpret_cast<const float2*>(gates.g + (first + i) * kWide + c);
    product.x *= g[i].x, product.y *= g[i].y;
  }
  *reinterpret_cast<float2*>(parts[part] + c) = product;
  __syncthreads();  // the parts are there
  float2 beyond = make_float2(1.f, 1.f);
#pragma unroll
  for (int other = 0; other < kParts; ++other) {
    if (kReverse ? other < part : other > part) {
      const float2 x = *reinterpret_cast<const float2*>(parts[other] + c);
      beyond.x *= x.x, beyond.y *= x.y;
    }
  }
  if (part == (kReverse ? kParts - 1 : 0))
    *reinterpret_cast<float2*>(whole + c) = make_float2(beyond.x * product.x, beyond.y * product.y);
  beyond.x *= scale, beyond.y *= scale;
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    const int i = kReverse ? n : kTokens - 1 - n;
    uint32_t& x = *reinterpret_cast<uint32_t*>(tile + tile_index<kWide>(first + i, c));
    if constexpr (kReverse) beyond.x *= g[i].x, beyond.y *= g[i].y;
    x = pack(beyond.x * low_half(x), beyond.y * high_half(x));
    if constexpr (!kReverse) beyond.x *= g[i].x, beyond.y *= g[i].y;
  }
}

template <bool kReverse, bool kChannels, int kDown, int kHeads>
__global__ void __launch_bounds__(256 * kDown, 1) wide_state_kernel(Problem<bf16> p, ChunkPass pass) {
  begin_kernel();
  using Memory = WideMemory<kChannels, kDown, kHeads>;
  constexpr int kStages = Memory::kStages, kThreads = Memory::kThreads;
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<Memory*>(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // The warp's tile, and its rows in it.
  const int i = warp / 8, j = warp / 4 % kAcross, m0 = warp % 4 * 16;
  const int across = wide_tiles(p.dv), walks = kHeads == 2 ? 1 : across / kAcross;
  const int first_tile = static_cast<int>(blockIdx.x % walks) * kAcross;
  const int64_t first_head = blockIdx.x / walks * kHeads, head = first_head + (kHeads == 2 ? j : 0);
  const int b = static_cast<int>(first_head / p.heads), h = static_cast<int>(first_head % p.heads);
  const int row0 = i * kWide + m0, column0 = (kHeads == 2 ? 0 : first_tile + j) * kWide;
  const int64_t tile = i * across + column0 / kWide;
  const int chunks = chunks_of(p.length(b));
  const auto place = [&](int step) { return ChunkPlace(p, b, h, kReverse ? chunks - 1 - step : step); };
  const auto fetch = [&](int step) {
    if (step < chunks) {
      auto& to = m.stage[step % kStages];
      ChunkPlace at = place(step);
#pragma unroll
      for (int n = 0; n < kDown; ++n) {
        fetch_rows<kThreads>(to.left[n], pass.left + at.row * pass.left_stride + p.key(h) + n * kWide,
                             pass.left_stride, at.tokens, min(kWide, p.dk - n * kWide));
        if constexpr (kChannels)
          to.gates[n].template fetch<kThreads>(p, at, n * kWide),
              to.gates[n].template settle<kThreads>(p, at, n * kWide);
      }
#pragma unroll
      for (int n = 0; n < kAcross; ++n) {
        const int column = (kHeads == 2 ? 0 : first_tile + n) * kWide;
        fetch_rows<kThreads>(
            to.right[n],
            pass.right + at.row * pass.right_stride + int64_t{h + (kHeads == 2 ? n : 0)} * p.dv + column,
            pass.right_stride, at.tokens, min(kWide, p.dv - column));
      }
      if constexpr (!kChannels) {
#pragma unroll
        for (int n = 0; n < kHeads; ++n, ++at.h) to.gates[n].fetch(p, at, 0), to.gates[n].settle(p, at, 0);
      }
    }
    copy_commit();
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) fetch(step);

  float s[8][4];
  const auto for_each = [&](auto f) {
    for_each_element(s, lane, [&](float& x, int row, int column) {
      const int r = row0 + row, c = column0 + column;
      if (r < p.dk && c < p.dv) f(x, head * p.state_size() + int64_t{r} * p.dv + c);
    });
  };
  clear(s);
  if (pass.begin) for_each([&](float& x, int64_t at) { x = pass.begin[at]; });
  const float scale = kReverse ? pass.scale : 1.f;
  for (int step = 0; step < chunks; ++step) {
    auto& in = m.stage[step % kStages];
    const int64_t at = place(step).place + (kHeads == 2 ? j : 0);
    copy_wait<kStages - 2>();
    show_to_products();
    __syncthreads();
    fetch(step + kStages - 1);
    // The state goes out while the tokens are scaled.
    Half* const out = pass.states + (at * kDown * across + tile) * kTileSize;
    for_each_piece(s, lane, [&](int row, int piece, uint4 x) {
      reinterpret_cast<uint4*>(out)[tile_piece<kWide>(m0 + row, piece)] = x;
    });
    float near, far;
    if constexpr (kChannels) {
      const int part = warp % 8;
      scale_rows_by_channels<kReverse>(in.left[i], m.whole + i * kWide, m.factor + 8 * i, in.gates[i], scale,
                                       part, lane);
      __syncthreads();
      near = m.whole[row0 + lane / 4], far = m.whole[row0 + lane / 4 + 8];
    } else {
      head_factors<kReverse>(m.factor[warp], m.whole + warp, in.gates[kHeads == 2 ? j : 0].g, scale, lane);
      __syncwarp();
      near = far = m.whole[warp];
    }
    uint32_t left[kChunk / 16][4];
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
      load_left_transposed<Rows<kWide>>(left[k], in.left[i], m0, 16 * k, lane);
      if constexpr (!kChannels) {
        const float* const factor = m.factor[warp] + 16 * k + lane % 4 * 2;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float2 f = *reinterpret_cast<const float2*>(factor + e / 2 * 8);
          left[k][e] = pack(f.x * low_half(left[k][e]), f.y * high_half(left[k][e]));
        }
      }
    }
    scale_rows_of(s, near, far);
    keep_in_place(s);
    begin_products();
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) multiply_tile<true>(s, left[k], in.right[j], 16 * k, lane);
    end_products();
    keep_in_place(s);
  }
  if (pass.end) for_each([&](float x, int64_t at) { pass.end[at] = x; });
}

bool heads_together(const Problem<bf16>& p) {
  return !p.channel_gates && wide_tiles(p.dv) == 1 && p.sharing % 2 == 0;
}
int64_t wide_walks(const Problem<bf16>& p) { return int64_t{p.batch} * p.heads * wide_tiles(p.dv) / kAcross; }

template <bool kReverse, bool kChannels, int kDown, int kHeads>
void launch_wide(const Problem<bf16>& p, const ChunkPass& pass, cudaStream_t stream) {
  const auto kernel = wide_state_kernel<kReverse, kChannels, kDown, kHeads>;
  constexpr int kBytes = sizeof(WideMemory<kChannels, kDown, kHeads>);
  allow_shared_memory(kernel, kBytes, "gated linear states");
  signet::launch("gated linear states", kernel, static_cast<unsigned>(wide_walks(p)), 256 * kDown, kBytes,
                 Cuda{stream}, p, pass);
}
template <bool kReverse>
void launch_wide(const Problem<bf16>& p, const ChunkPass& pass, cudaStream_t stream) {
  const bool two = wide_tiles(p.dk) == 2;
  if (p.channel_gates)
    (two ? launch_wide<kReverse, true, 2, 1> : launch_wide<kReverse, true, 1, 1>)(p, pass, stream);
  else
    (heads_together(p) ? launch_wide<kReverse, false, 2, 2> : launch_wide<kReverse, false, 2, 1>)(p, pass,
                                                                                                  stream);
}

}  // namespace

// Where walks fill the GPU.
bool wide_states_apply(const Problem<bf16>& p) {
  const int down = wide_tiles(p.dk);
  return (down == 2 || (down == 1 && p.channel_gates)) &&
         (wide_tiles(p.dv) % kAcross == 0 || heads_together(p)) &&
         wide_walks(p) >= cuda_device().multiprocessors / 2 &&
         fits_shared_memory(sizeof(WideMemory<true, 2, 1>));
}

void wide_states(const Problem<bf16>& p, const ChunkPass& pass, bool reverse, cudaStream_t stream) {
  reverse ? launch_wide<true>(p, pass, stream) : launch_wide<false>(p, pass, stream);
}

}  // namespace signet::kernels::gated_linear
