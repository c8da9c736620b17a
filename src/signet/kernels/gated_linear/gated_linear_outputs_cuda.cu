// What tokens read from the gated linear recurrence, a block per chunk and head and a warp per 16 of its
// tokens: with L the rows q_t from the state before the chunk and P_tr = q_t D(r,t) k_r,
//   o_t = scale (c_t q_t S + sum_{r<=t} P_tr v_r)        dv_r = D(r,n) k_r dS + scale sum_{t>=r} P_tr do_t
// The second is the first with time reversed (dS has the scale already).
#include "signet/kernels/gated_linear/gated_linear_chunks.cuh"

namespace signet::kernels::gated_linear {
namespace {

constexpr int kRing = 4;  // tiles of states and values that are under way or in use
constexpr int kFour = kBlock / 4;

template <bool kChannels>
struct alignas(1024) OutputMemory {
  // Gates of channels lie where the last two tiles of the ring are afterwards.
  static constexpr int kEarly = kChannels ? kRing - 2 : kRing - 1;  // what is asked for before
  union {
    Half ring[kRing][kTileSize];
    struct {
      Half early[kEarly][kTileSize];
      Gates<kChannels> gates;
    };
  };
  Half pair[kTileSize];  // later: what goes out
  float whole[kBlocks][kWide];
  float diagonal[kBlocks][kBlock][kBlock + 1];
  // Behind it: tiles of the left rows, one for every 64 channels.
};

// Products of the 16 tokens of a warp over the channels of a tile.
__device__ inline void add_pairs(float (&c)[2][4], const Half* q, const Half* k, int first, int lane) {
#pragma unroll
  for (int at = 0; at < kWide; at += 16) {
    uint32_t a[4], b[4];
    load_left<Rows<kWide>>(a, q, first, at, lane);
    load_right_transposed<Rows<kWide>>(b, k, at, first, lane);
    multiply_add_pair(c[0], c[1], a, b);
  }
}

// q_t D(r,t) k_r of the 16 tokens of a warp for t and r in the same four of them, before q and k are scaled,
// added to sums[t][r]; two channels in each lane.
__device__ inline void add_fours(float (&sums)[kBlock][kBlock + 1], const Half* q, const Half* k,
                                 const Gates<true>& gates, int first, bool begin, int lane) {
  const int c = lane * 2;
  float queries[kBlock][2], g[kBlock][2];
#pragma unroll
  for (int t = 0; t < kBlock; ++t) {
    const uint32_t x = *reinterpret_cast<const uint32_t*>(q + tile_index<kWide>(first + t, c));
    queries[t][0] = low_half(x), queries[t][1] = high_half(x);
    g[t][0] = gates.at(first + t, c), g[t][1] = gates.at(first + t, c + 1);
  }
#pragma unroll
  for (int r = 0; r < kFour; ++r) {  // of each four
    float part[kBlock];
#pragma unroll
    for (int base = 0; base < kBlock; base += kFour) {
      const uint32_t x = *reinterpret_cast<const uint32_t*>(k + tile_index<kWide>(first + base + r, c));
      float low = low_half(x), high = high_half(x);
#pragma unroll
      for (int t = base; t < base + kFour; ++t) {
        part[t] = 0.f;
        if (t < base + r) continue;
        if (t > base + r) low *= g[t][0], high *= g[t][1];
        part[t] = fmaf(queries[t][0], low, queries[t][1] * high);
      }
    }
    sum_scatter<32, 1>(part, lane);
    float& sum = sums[lane / 2][lane / 2 / kFour * kFour + r];
    if (lane % 2 == 0) sum = begin ? part[0] : sum + part[0];
  }
}
// The same for t and r in different fours, as products of rows that are scaled within fours, then within
// eights; what scale_block() does is done with it.
__device__ inline void scale_and_add_across(float (&sums)[kBlock][kBlock + 1], Half* q, Half* k,
                                            float (*whole)[kWide], const Gates<true>& gates, int block,
                                            bool begin, int lane) {
  const int first = block * kBlock, c = lane * 2;
  const auto scale = [&](Half* tile, int t, float2 by) {
    uint32_t& x = *reinterpret_cast<uint32_t*>(tile + tile_index<kWide>(first + t, c));
    x = pack(by.x * low_half(x), by.y * high_half(x));
  };
  const auto multiply = [](float2& to, float2 by) { to.x *= by.x, to.y *= by.y; };
  const auto gate = [&](int t) {
    return *reinterpret_cast<const float2*>(gates.g + (first + t) * kWide + c);
  };
  const auto add = [&](int t, int r, float x, float y) {
    float* const to = sums[t] + r;
    to[0] = begin ? x : to[0] + x, to[1] = begin ? y : to[1] + y;
  };
  // Products of all tokens; the rows of a lane are lane / 4 and 8 further.
  const auto pairs = [&](float(&products)[2][4]) {
    __syncwarp();
    clear(products);
    add_pairs(products, q, k, first, lane);
    __syncwarp();  // every lane has read what others write below
  };
  float2 fours[4];
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    float2 product = make_float2(1.f, 1.f);
#pragma unroll
    for (int t = part * kFour; t < (part + 1) * kFour; ++t) multiply(product, gate(t)), scale(q, t, product);
    fours[part] = product;
    product = make_float2(1.f, 1.f);
#pragma unroll
    for (int t = (part + 1) * kFour - 1; t >= part * kFour; --t)
      scale(k, t, product), multiply(product, gate(t));
  }
  float products[2][4];
  const int row = lane / 4, column = lane % 4 * 2;
  pairs(products);
  if (row >= kFour && column < kFour) {  // the second four of an eight and the first
    add(row, column, products[0][0], products[0][1]);
    add(row + 8, column + 8, products[1][2], products[1][3]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int t = 8 * half; t < 8 * half + kFour; ++t)
      scale(q, t + kFour, fours[2 * half]), scale(k, t, fours[2 * half + 1]);
    multiply(fours[2 * half], fours[2 * half + 1]);  // of the eight
  }
  pairs(products);
  add(row + 8, column, products[0][2], products[0][3]);
#pragma unroll
  for (int t = 0; t < 8; ++t) scale(q, 8 + t, fours[0]), scale(k, t, fours[2]);
  multiply(fours[0], fours[2]);
  *reinterpret_cast<float2*>(whole[block] + c) = fours[0];
}
// kOne: dk <= 64, and sums over tiles of channels need no registers while pairs are summed over lanes.
template <bool kReverse, bool kChannels, bool kOne>
__global__ void __launch_bounds__(kChunkThreads, kOne ? 4 : 3)
    output_kernel(Problem<bf16> p, ChunkPass pass) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<OutputMemory<kChannels>*>(shared);
  Half* const left = reinterpret_cast<Half*>(shared + sizeof(m));
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = kBlock * warp;
  const int down = kOne ? 1 : wide_tiles(p.dk), across = wide_tiles(p.dv);
  const ChunkPlace at = chunk_of_block(p, blockIdx.x);
  if (at.tokens <= 0) return;

  // Phase 1: pairs of tokens, and the left rows scaled from the chunk's end on.
  const auto fetch_pair = [&](int i) {
    const int channels = min(kWide, p.dk - i * kWide);
    const int64_t channel = p.key(at.h) + i * kWide;
    fetch_rows(left + i * kTileSize, pass.left + at.row * pass.left_stride + channel, pass.left_stride,
               at.tokens, channels);
    fetch_rows(m.pair, pass.pair + at.row * pass.pair_stride + channel, pass.pair_stride, at.tokens,
               channels);
    if (kChannels || i == 0) m.gates.fetch(p, at, i * kWide);
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
  fetch_pair(0);
#pragma unroll
  for (int item = 0; item < kRing - 1; ++item) item < m.kEarly ? fetch_item(item) : copy_commit();

  float pairs[kBlocks][2][4], own[2][4];
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) clear(pairs[block]);
  clear(own);
  for (int i = 0; i < down; ++i) {
    if (i == 0) {
      copy_wait<kRing - 1>();
    } else {
      __syncthreads();  // everybody has read the pair tile and its gates
      fetch_pair(i);
      copy_wait<0>();
    }
    if (kChannels || i == 0) m.gates.settle(p, at, i * kWide);
    __syncthreads();
    Half* const mine = left + i * kTileSize;
    const Half *const q = kReverse ? m.pair : mine, *const k = kReverse ? mine : m.pair;
    if constexpr (kChannels) {
      add_fours(m.diagonal[warp], q, k, m.gates, first, i == 0, lane);
      __syncwarp();
      scale_and_add_across(m.diagonal[warp], kReverse ? m.pair : mine, kReverse ? mine : m.pair, m.whole,
                           m.gates, warp, i == 0, lane);
    } else {  // the decays when all channels have been summed
      add_pairs(own, q, k, first, lane);
      __syncwarp();
      scale_block(kReverse ? m.pair : mine, 1.f, kReverse ? mine : m.pair, m.whole, m.gates, warp, lane);
    }
    __syncthreads();
#pragma unroll
    for (int k0 = 0; k0 < kWide; k0 += 16) {
      uint32_t a[4], b[4];
      load_left<Rows<kWide>>(a, mine, first, k0, lane);
      __syncwarp();  // every lane has read what others write below
      const int c = k0 + lane % 4 * 2;
      float x[8];
#pragma unroll
      for (int e = 0; e < 4; ++e) x[2 * e] = low_half(a[e]), x[2 * e + 1] = high_half(a[e]);
#pragma unroll
      for (int step = 1; step < kBlocks; ++step) {
        // The blocks before this warp's, nearest first; backward in time those behind it.
        const int block = kReverse ? warp + step : warp - step;
        if (block >= 0 && block < kBlocks) {
          load_right_transposed<Rows<kWide>>(b, m.pair, k0, block * kBlock, lane);
          multiply_add_pair(pairs[step][0], pairs[step][1], a, b);
          const float2 near = *reinterpret_cast<const float2*>(m.whole[block] + c),
                       far = *reinterpret_cast<const float2*>(m.whole[block] + c + 8);
          x[0] *= near.x, x[1] *= near.y, x[2] *= near.x, x[3] *= near.y;
          x[4] *= far.x, x[5] *= far.y, x[6] *= far.x, x[7] *= far.y;
#pragma unroll
          for (int e = 0; e < 4; ++e) a[e] = pack(x[2 * e], x[2 * e + 1]);
        }
      }
      const int row = first + lane / 4;
      *reinterpret_cast<uint32_t*>(mine + tile_index<kWide>(row, c)) = a[0];
      *reinterpret_cast<uint32_t*>(mine + tile_index<kWide>(row + 8, c)) = a[1];
      *reinterpret_cast<uint32_t*>(mine + tile_index<kWide>(row, c + 8)) = a[2];
      *reinterpret_cast<uint32_t*>(mine + tile_index<kWide>(row + 8, c + 8)) = a[3];
    }
  }
  __syncwarp();
  if constexpr (!kChannels) {
    for_each_element(own, lane, [&](float x, int t, int r) {
      float decay = t < r ? 0.f : 1.f;
      for (int u = r + 1; u <= t; ++u) decay *= m.gates.g[first + u];
      m.diagonal[warp][t][r] = x * decay;
    });
    __syncwarp();
  }
  for_each_element(pairs[0], lane, [&](float& x, int i, int j) {
    const int t = kReverse ? j : i, r = kReverse ? i : j;
    x = t < r ? 0.f : m.diagonal[warp][t][r];
  });
  uint32_t high[kBlocks][4], low[kBlocks][4];
#pragma unroll
  for (int step = 0; step < kBlocks; ++step) {
    if constexpr (kReverse) for_each_element(pairs[step], lane, [&](float& x, int, int) { x *= pass.scale; });
    as_left(high[step], low[step], pairs[step][0], pairs[step][1]);
  }

  // Phase 2: the states and the values, tile by tile.
  float o[8][4];
  const int items = across * (down + 1);
  for (int item = 0; item < items; ++item) {
    const int j = item / (down + 1), i = item % (down + 1);
    copy_wait<kRing - 2>();
    __syncthreads();
    if (item == 0) {
#pragma unroll
      for (int late = m.kEarly; late < kRing - 1; ++late) fetch_item(late);
    }
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
#pragma unroll
    for (int step = 0; step < kBlocks; ++step) {
      const int block = kReverse ? warp + step : warp - step;
      if (block >= 0 && block < kBlocks) {
        multiply_rows(o, high[step], tile, block * kBlock, lane);
        multiply_rows(o, low[step], tile, block * kBlock, lane);
      }
    }
    if constexpr (!kReverse) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) o[n][e] *= pass.scale;
      }
    }
    stage_rows<kWide>(m.pair, o, first, 0, lane);
    bf16* const out = pass.out + at.row * pass.out_stride + int64_t{at.h} * p.dv + j * kWide;
    const int columns = min(kWide, p.dv - j * kWide);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int row = first + n * 4 + lane / 8, piece = lane % 8;
      if (row < at.tokens && piece * 8 < columns)
        *reinterpret_cast<uint4*>(out + row * pass.out_stride + piece * 8) =
            reinterpret_cast<const uint4*>(m.pair)[tile_piece<kWide>(row, piece)];
    }
    __syncwarp();
  }
}

template <bool kReverse, bool kChannels, bool kOne = false>
void launch_outputs(const Problem<bf16>& p, const ChunkPass& pass, cudaStream_t stream) {
  if (kChannels && !kOne && wide_tiles(p.dk) == 1)
    return launch_outputs<kReverse, kChannels, kChannels>(p, pass, stream);
  const auto kernel = output_kernel<kReverse, kChannels, kOne>;
  const int bytes =
      static_cast<int>(sizeof(OutputMemory<kChannels>) + wide_tiles(p.dk) * kTileSize * sizeof(Half));
  allow_shared_memory(kernel, bytes, "gated linear outputs");
  const int64_t blocks = chunk_places(p) * p.heads;
  signet::launch("gated linear outputs", kernel, static_cast<unsigned>(blocks), kChunkThreads, bytes,
                 Cuda{stream}, p, pass);
}

}  // namespace

int64_t output_shared_bytes(int dk, bool channel_gates) {
  return (channel_gates ? sizeof(OutputMemory<true>) : sizeof(OutputMemory<false>)) +
         wide_tiles(dk) * kTileSize * sizeof(Half);
}

void chunk_outputs(const Problem<bf16>& p, const ChunkPass& pass, bool reverse, cudaStream_t stream) {
  if (reverse)
    p.channel_gates ? launch_outputs<true, true>(p, pass, stream)
                    : launch_outputs<true, false>(p, pass, stream);
  else
    p.channel_gates ? launch_outputs<false, true>(p, pass, stream)
                    : launch_outputs<false, false>(p, pass, stream);
}

}  // namespace signet::kernels::gated_linear
