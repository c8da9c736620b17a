// Copies of whole chunks into shared memory (Hopper; tensor/bulk_copy.cuh): one thread asks for tiles of rows
// and for contiguous blocks.
#pragma once

#include <cuda.h>

#include "signet/kernels/delta_rule/delta_rule_cuda_chunked.cuh"
#include "signet/kernels/delta_rule/delta_rule_cuda_group.cuh"

namespace signet::kernels::delta_rule {

// How tensor copies find the rows of whole chunks: tiles of 64 channels in the order tile_piece<64>.
struct RowMaps {
  CUtensorMap q, k, v, d_o, dv;
  bool usable;  // else, and for chunks that are not whole, copying threads copy 16 bytes at a time
};
// Needs a Hopper GPU, whole chunks of 64 substeps and at least 16 tokens; not usable otherwise.
RowMaps row_maps(const ChunkProblem& p);

// Channels channel .. channel + 63 of the rows of a chunk that begins with this token.
__device__ inline void tensor_copy(Half* tile, const CUtensorMap& map, int channel, int64_t token,
                                   uint64_t* barrier) {
  if constexpr (kWgmma)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
        "%4}], [%5];\n" ::"r"(shared_address(tile)),
        "l"(&map), "r"(channel), "r"(0), "r"(static_cast<int>(token)), "r"(shared_address(barrier))
        : "memory");
}

// beta of a chunk's rows (0 where there is none) and, with a gate, its factors.
template <bool kGated, int kThreads>
__device__ void fetch_factors(const ChunkProblem& p, const Chunk& chunk, float* beta, float* factors,
                              int thread) {
  if constexpr (kGated)
    for (int i = thread; i < 3 * kChunk / 4; i += kThreads)
      copy_async<16>(factors + i * 4, p.factors_of(chunk.block) + i * 4);
#pragma unroll
  for (int i = thread; i < kChunk; i += kThreads) {
    const float* const from = chunk.beta_of(p, i);
    beta[i] = from ? *from : 0.f;
  }
}

// P = mask(Q K^T) of 16 kBlocks tokens, in the order tile_piece<64>, by the two warps of a set that copies
// (Pipeline): the chain from state to state, which the others compute, does not wait for it. 16 x 32 elements
// at a time, since copying warps have few registers; every other 16 tokens are as much work when n_h = 1.
template <int D, int kBlocks>
__device__ void make_scores(Half* scores, const Half* queries, const Half* keys, int factors, int thread) {
  int lane = thread % 32;
#pragma unroll 1
  for (int m0 = thread / 32 * 16; m0 < 16 * kBlocks; m0 += 32) {
#pragma unroll 1
    for (int n0 = 0; n0 < kChunk; n0 += 32) {
      asm volatile("" : "+r"(lane));  // addresses are made anew here, too
      float block[4][4];
      clear(block);
      if (n0 < (m0 + 16) * factors)
        product<D, Panels<D>, false, Panels<D>, true>(block, queries, m0, keys, n0, lane);
      for_each_element(block, lane, [&](float& value, int row, int column) {
        value = n0 + column < (m0 + row + 1) * factors ? value : 0.f;
      });
      stage_rows<64>(scores, block, m0, n0, lane);
    }
  }
}

// What the state passes leave for the gradients, 16 columns of a chunk per warp: W in two parts, and of dV
// (in units of `unit`) the high part as output and the low one for dK and dbeta.
template <int D>
__device__ void keep_w(const ChunkProblem& p, int64_t block, WarpMemory& own, const float (&w)[8][4],
                       int column, int lane) {
  uint32_t high[4][4], low[4][4];
  split_rows(high, low, w);
  Half *const to_high = p.w + 2 * block * kChunk * D, *const to_low = to_high + kChunk * D;
  if constexpr (kWgmma) {
    put_blocks<kChunk>(own.high, high, 0, lane);
    put_blocks<kChunk>(own.low, low, 0, lane);
  } else {
    write_blocks<kChunk>(to_high, high, column, 0, lane);
    write_blocks<kChunk>(to_low, low, column, 0, lane);
  }
  send_blocks<kChunk>(to_high, own.high, column, lane);
  send_blocks<kChunk>(to_low, own.low, column, lane);
}
template <int D>
__device__ void write_dv(const ChunkProblem& p, const Chunk& chunk, int head, WarpMemory& own,
                         float (&dv)[8][4], float unit, const RowMap& value_rows, int column, int lane) {
  uint32_t high[4][4], low[4][4];
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) dv[n][e] *= unit;
  }
  split_rows(high, low, dv);
  Half* const to = p.dv_low + chunk.block * kChunk * D;
  if constexpr (kWgmma)
    put_blocks<kChunk>(own.low, low, 0, lane);
  else
    write_blocks<kChunk>(to, low, column, 0, lane);
  send_blocks<kChunk>(to, own.low, column, lane);
  const int rows = chunk.tokens * p.factors;
  Half* const out = p.dv_out + chunk.token * p.v_stride + head * D + column;
  write_columns(high, own.high, lane,
                [&](int row) { return row < rows ? out + value_rows.offset(row) : nullptr; });
}

// The warps that copy and the kGroups warpgroups that compute, joined by named barriers over kSlots slots of
// shared memory: copy(i, slot, group, thread) asks for step i's data (and says at the slot's barrier of
// `arrivals` how many bytes come by bulk copies), which each computing group awaits and gives back. Two sets
// of copying warps take turns, so that one asks for a step's data while the other's is on its way. Of a set,
// `kGroupThreads` threads wait for a group to give back what they write for it. What a set then makes of the
// data, make(slot, thread of the set), is awaited on its own (await_made), since not all products need it:
// `made` has a barrier of kCopyThreads arrivals for every slot.
template <int kGroups, int kSlots>
struct Pipeline {
  static constexpr int kCopyThreads = 64;                       // of a set
  static constexpr int kGroupThreads = kCopyThreads / kGroups;  // of them, for one group
  static constexpr int kThreads = 128 * kGroups + 2 * kCopyThreads;

  template <class Copy>
  __device__ static void feed(int steps, uint64_t* arrivals, Copy copy) {
    feed(steps, arrivals, copy, nullptr, [](int, int) {});
  }
  template <class Copy, class Make>
  __device__ static void feed(int steps, uint64_t* arrivals, Copy copy, uint64_t* made, Make make) {
    const int set = (threadIdx.x - 128 * kGroups) / kCopyThreads;
    for (int i = set; i < steps; i += 2) {
      // Every step makes its addresses anew: these warps have no registers to keep them in.
      int thread = threadIdx.x % kCopyThreads;
      asm volatile("" : "+r"(thread));
      const int group = thread / kGroupThreads, slot = i % kSlots;
      if (i >= kSlots) {
        wait(empty(i, group), 128 + kGroupThreads);
        wait(turn(set), kCopyThreads);
      }
      copy(i, slot, group, thread % kGroupThreads);
      copy_commit();
      copy_wait<0>();
      await_phase(arrivals + slot, i / kSlots % 2);
      show_to_products();
      wait(turn(set), kCopyThreads);
      if constexpr (!kWgmma) {  // no barriers in memory: the data is there when all of it is
        make(slot, thread);
        wait(turn(set), kCopyThreads);
      }
      come(full(i, group), 128 + kGroupThreads);
      if constexpr (kWgmma) {
        make(slot, thread);
        show_to_products();
        if (made) arrive(made + slot);
      }
    }
  }
  // Two groups need more registers than a block of 12 warps starts with: the copying warps give theirs away.
  __device__ static void give_registers() {
    if constexpr (kWgmma && kGroups == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 56;\n");
  }
  __device__ static void take_registers() {
    if constexpr (kWgmma && kGroups == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 224;\n");
  }
  // Both sides wait where a slot is given back, so that is done when those who fill it next are free to come:
  // with two slots the set that filled it, which is; with three the other one, once step i + 1 has come.
  __device__ static void await(int i, int steps, int group) {
    wait(full(i, group), 128 + kGroupThreads);
    if constexpr (kSlots == 3)
      if (i > 0) hand_over(i - 1, steps, group);
  }
  __device__ static void await_made(int i, uint64_t* made) { await_phase(made + i % kSlots, i / kSlots % 2); }
  __device__ static void give_back(int i, int steps, int group) {
    if constexpr (kSlots == 2) hand_over(i, steps, group);
  }

 private:
  static_assert(kSlots == 2 || kSlots == 3);
  __device__ static void hand_over(int i, int steps, int group) {
    if (i + kSlots < steps) wait(empty(i, group), 128 + kGroupThreads);
  }
  __device__ static int full(int i, int group) { return 1 + i % kSlots * kGroups + group; }
  __device__ static int empty(int i, int group) { return full(i, group) + kSlots * kGroups; }
  __device__ static int turn(int set) { return 1 + 2 * kSlots * kGroups + set; }
  __device__ static void wait(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;\n" ::"r"(barrier), "r"(threads) : "memory");
  }
  __device__ static void come(int barrier, int threads) {  // and go on
    asm volatile("bar.arrive %0, %1;\n" ::"r"(barrier), "r"(threads) : "memory");
  }
};

}  // namespace signet::kernels::delta_rule
