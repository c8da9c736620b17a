// What tokens read from the gated linear recurrence where heads share q and k of 65 to 128 channels and have
// at most 64 columns: as gated_linear_head_outputs_cuda.cu has it, but a block walks several heads of a chunk
// with q and Q K^T in registers, a warp for 16 tokens, and the states and values of two heads on their way.
#include <algorithm>

#include "signet/kernels/gated_linear/gated_linear_group_decays.cuh"

namespace signet::kernels::gated_linear {
namespace {

constexpr int kDown = 2, kHeads = 3;  // kHeads: under way or in use

struct alignas(1024) WalkOutputMemory {
  // A head's states, then its values. Until they are in registers, q and k are in place of the second
  // head's and of those behind it.
  Half tiles[kHeads * (kDown + 1)][kTileSize];
  GroupDecays decays[kChunkThreads / 32];
  Gates<false> gates[kHeads];
};

__global__ void __launch_bounds__(kChunkThreads, 3)
    walk_output_kernel(Problem<bf16> p, ChunkPass pass, int count) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<WalkOutputMemory*>(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = kBlock * warp;
  const int parts = (p.sharing + count - 1) / count, part = static_cast<int>(blockIdx.x) % parts;
  const ChunkPlace group = chunk_of_block(p, int64_t{blockIdx.x / parts} * p.sharing);
  if (group.tokens <= 0) return;
  const int begin = part * count, heads = min(count, p.sharing - begin);
  const auto fetch = [&](int step) {
    if (step < heads) {
      auto* const to = m.tiles + step % kHeads * (kDown + 1);
      ChunkPlace at = group;
      at.h += begin + step, at.place += begin + step;
      auto& gates = m.gates[step % kHeads];
      gates.fetch(p, at, 0);
      gates.settle(p, at, 0);
#pragma unroll
      for (int i = 0; i < kDown; ++i) fetch_state(to[i], pass.states + (at.place * kDown + i) * kTileSize);
      fetch_rows(to[kDown], pass.right + at.row * pass.right_stride + int64_t{at.h} * p.dv, pass.right_stride,
                 at.tokens, p.dv);
    }
    copy_commit();
  };
  auto *const queries = m.tiles + kDown + 1, *const keys = queries + kDown;
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
    const int channels = min(kWide, p.dk - i * kWide);
    const int64_t key = p.key(group.h) + i * kWide;
    fetch_rows(queries[i], pass.left + group.row * pass.left_stride + key, pass.left_stride, group.tokens,
               channels);
    fetch_rows(keys[i], pass.pair + group.row * pass.pair_stride + key, pass.pair_stride, group.tokens,
               channels);
  }
  copy_commit();
  fetch(0);
  copy_wait<1>();
  __syncthreads();
  float scores[2 * kBlocks][4];
  clear(scores);
  uint32_t q[kDown][4][4];
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      load_left<Rows<kWide>>(q[i][k], queries[i], first, 16 * k, lane);
#pragma unroll
      for (int s = 0; s < kBlocks; ++s) {
        if (s <= warp) {
          uint32_t b[4];
          load_right_transposed<Rows<kWide>>(b, keys[i], 16 * k, 16 * s, lane);
          multiply_add_pair(scores[2 * s], scores[2 * s + 1], q[i][k], b);
        }
      }
    }
  }
  __syncthreads();  // everybody has read q and k
#pragma unroll
  for (int step = 1; step < kHeads - 1; ++step) fetch(step);

  auto& decays = m.decays[warp];
  for (int step = 0; step < heads; ++step) {
    copy_wait<kHeads - 2>();
    __syncthreads();  // the head is there, and everybody is done with the one before
    fetch(step + kHeads - 1);
    const auto* const in = m.tiles + step % kHeads * (kDown + 1);
    const float* const gates = m.gates[step % kHeads].g;
    decays.fill(gates, lane);
    const float2 near_own = decays_within(gates + first, lane),
                 far_own = decays_within(gates + first + 8, lane);
    float o[8][4];
    clear(o);
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply_rows(o, q[i][k], in[i], 16 * k, lane);
    }
    float near = decays.until[first + lane / 4], far = decays.until[first + 8 + lane / 4];
    {
      float from_near = near, from_far = far * decays.whole[2 * warp];  // from the chunk's beginning
#pragma unroll
      for (int n = 0; n < GroupDecays::kGroups - 2; ++n)
        if (n < 2 * warp) from_near *= decays.whole[n], from_far *= decays.whole[n];
      scale_rows_of(o, from_near, from_far);
    }
    // P L from the last group to the first; near and far: from behind the group to the lane's two tokens.
#pragma unroll
    for (int s = kBlocks - 1; s >= 0; --s) {
      if (s <= warp) {
        float pairs[2][4];
#pragma unroll
        for (int n = 1; n >= 0; --n) {
          const float2 after = *reinterpret_cast<const float2*>(decays.after + 16 * s + 8 * n + lane % 4 * 2);
          const float whole = decays.whole[2 * s + n];
          const float(&x)[4] = scores[2 * s + n];
          float2 of_near = make_float2(near * after.x, near * after.y),
                 of_far = make_float2(far * after.x, far * after.y);
          if (s == warp) {
            of_near = n == 0 ? near_own : make_float2(0.f, 0.f);
            if (n == 1) of_far = far_own;
          }
          pairs[n][0] = x[0] * of_near.x, pairs[n][1] = x[1] * of_near.y;
          pairs[n][2] = x[2] * of_far.x, pairs[n][3] = x[3] * of_far.y;
          // The groups of the two tokens themselves are in `until`.
          if (s < warp) near *= whole;
          if (s < warp || n == 0) far *= whole;
        }
        uint32_t high[4], low[4];
        as_left(high, low, pairs[0], pairs[1]);
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
          uint32_t b[4];
          load_right<Rows<kWide>>(b, in[kDown], s * kBlock, n * 8, lane);
          multiply_add_pair(o[n], o[n + 1], high, b);
          multiply_add_pair(o[n], o[n + 1], low, b);
        }
      }
    }
    scale_rows_of(o, pass.scale, pass.scale);
    bf16* const out = pass.out + group.row * pass.out_stride + int64_t{group.h + begin + step} * p.dv;
    for_each_piece(o, lane, [&](int row, int piece, uint4 x) {
      if (first + row < group.tokens && piece * 8 < p.dv)
        *reinterpret_cast<uint4*>(out + (first + row) * pass.out_stride + piece * 8) = x;
    });
  }
}

// Heads of a block: as many as leave two blocks for every place of one on the GPU.
int heads_of_block(const Problem<bf16>& p) {
  const int64_t groups = chunk_places(p) * p.heads / p.sharing,
                places = int64_t{3} * cuda_device().multiprocessors,
                parts = std::max<int64_t>(1, (2 * places + groups / 2) / groups);
  return static_cast<int>((p.sharing + parts - 1) / parts);
}

}  // namespace

bool walk_outputs_apply(const Problem<bf16>& p) {
  return p.sharing > 1 && !p.channel_gates && wide_tiles(p.dk) == kDown && p.dv <= kWide &&
         fits_shared_memory(sizeof(WalkOutputMemory));
}

void walk_outputs(const Problem<bf16>& p, const ChunkPass& pass, cudaStream_t stream) {
  constexpr int kBytes = sizeof(WalkOutputMemory);
  allow_shared_memory(walk_output_kernel, kBytes, "gated linear outputs");
  const int count = heads_of_block(p), parts = (p.sharing + count - 1) / count;
  signet::launch("gated linear outputs", walk_output_kernel,
                 static_cast<unsigned>(chunk_places(p) * (p.heads / p.sharing) * parts), kChunkThreads,
                 kBytes, Cuda{stream}, p, pass, count);
}

}  // namespace signet::kernels::gated_linear
