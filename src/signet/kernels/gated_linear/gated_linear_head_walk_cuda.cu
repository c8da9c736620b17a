// dq, dk, dv and the gates' gradients as gated_linear_head_backward_cuda.cu has them, where heads share q and
// k of 65 to 128 channels. A block walks the heads of a chunk that share them: 16 warps, one block on a
// multiprocessor, and the next head on its way while one is worked on. A warp has 16 tokens and
//   - of products between tokens 16 of the earlier ones (column = warp / 4); here its tokens are those of
//     another warp, so that every scheduler has pairs to work on,
//   - of dq and dk 32 channels of a tile, of dv 16 columns of every tile.
// q, k and Q K^T are there once, and with A L summed over the heads
//   dq = sum over heads of scale c (dO S^T) + (sum A L) K        dk = sum D(.,n) (V dS^T) + (sum A L)^T Q
#include "signet/kernels/gated_linear/gated_linear_head_chunks.cuh"

namespace signet::kernels::gated_linear {
namespace {

constexpr int kWalkThreads = 512, kDown = 2, kColumns = 4;
// Which warp writes the gates' gradients: its tokens are the first and the earlier ones the last, so that it
// has no pairs.
constexpr int kGateWarp = (kColumns - 1) * kBlocks + 1;

template <int kAcross>
struct alignas(1024) WalkMemory {
  struct alignas(1024) Inputs {
    Half v[kAcross][kTileSize], d_o[kAcross][kTileSize];
  } inputs[2];
  struct alignas(1024) States {  // of 64 columns of dv
    Half state[kDown][kTileSize], d_state[kDown][kTileSize];
  } states[2];
  struct alignas(1024) Keys {
    Half q[kDown][kTileSize], k[kDown][kTileSize];
  } keys;
  union {
    struct {
      Half pairs[kTileSize], scores[kTileSize];  // the sum of A L over the heads, at last, and P L
    };
    Decays decays;  // before these
  };
  GateSums<kWalkThreads / 32, kColumns> sums;
  alignas(16) float sums_gates[kChunk], sums_before[kChunk], sums_behind[kChunk];  // of the sums' head
  Gates<false> gates[2];
};

// C[16 tokens at first][16 earlier ones at r0] += products of rows over 64 columns.
__device__ inline void add_pair_products(float (&c)[2][4], const Half* left, int first, const Half* right,
                                         int r0, int lane) {
  if (r0 > first) return;  // none is earlier
#pragma unroll
  for (int k = 0; k < kWide; k += 16) {
    uint32_t a[4], b[4];
    load_left<Rows<kWide>>(a, left, first, k, lane);
    load_right_transposed<Rows<kWide>>(b, right, k, r0, lane);
    multiply_add_pair(c[0], c[1], a, b);
  }
}
__device__ inline void add_scaled(float (&to)[4][4], const float (&c)[4][4], float near, float far) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    to[n][0] = fmaf(near, c[n][0], to[n][0]), to[n][1] = fmaf(near, c[n][1], to[n][1]);
    to[n][2] = fmaf(far, c[n][2], to[n][2]), to[n][3] = fmaf(far, c[n][3], to[n][3]);
  }
}

// C[16 tokens][16 columns at n0] += A B over 64 rows of B, A stored [k][tokens] when kTransposed; tokens of
// the left operand before `begin` are zero. Between begin_products() and issue_products().
template <bool kTransposed>
__device__ void issue_columns(float (&c)[2][4], const Half* left, const Half* right, int n0, int begin,
                              const HeadWarp& w) {
#pragma unroll
  for (int k = 0; k < kWide; k += kBlock) {
    if (k >= begin) {
      uint32_t a[4], b[4];
      if constexpr (kTransposed)
        load_left_transposed<Rows<kWide>>(a, left, w.first, k, w.lane);
      else
        load_left<Rows<kWide>>(a, left, w.first, k, w.lane);
      load_right<Rows<kWide>>(b, right, k, n0, w.lane);
      multiply_add_pair(c[0], c[1], a, b);
    }
  }
}

// This lane's part of a 64 x 64 matrix of pairs of tokens, 16 columns from n0 on.
__device__ inline void put_pairs(Half* to, const uint32_t (&parts)[2][2], int first, int n0, int lane) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int part = 0; part < 2; ++part)
      *reinterpret_cast<uint32_t*>(
          to + tile_index<kWide>(first + lane / 4 + 8 * part, n0 + n * 8 + lane % 4 * 2)) = parts[n][part];
  }
}

template <int kAcross>
__global__ void __launch_bounds__(kWalkThreads, 1)
    head_walk_kernel(Problem<bf16> p, const Half* states, const Half* d_states) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<WalkMemory<kAcross>*>(shared);
  const HeadWarp w;
  const int lane = w.lane, first = w.first, column = w.warp / kBlocks, tile = column / 2, n0 = 16 * column;
  const int later = (w.block + column) % kBlocks * kBlock;  // the first of its tokens in pairs
  const int count = p.sharing;
  const ChunkPlace group = chunk_of_block(p, int64_t{blockIdx.x} * count);
  if (group.tokens <= 0) return;
  const auto head = [&](int step) {
    ChunkPlace at = group;
    at.h += step, at.place += step;
    return at;
  };
  const auto fetch_keys = [&] {
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
      const int channels = min(kWide, p.dk - i * kWide);
      const int64_t key = p.key(group.h) + i * kWide;
      fetch_rows<kWalkThreads>(m.keys.q[i], p.q + group.row * p.q_stride + key, p.q_stride, group.tokens,
                               channels);
      fetch_rows<kWalkThreads>(m.keys.k[i], p.k + group.row * p.k_stride + key, p.k_stride, group.tokens,
                               channels);
    }
  };
  const auto fetch_inputs = [&](const ChunkPlace& at, int step) {
    if (step < count) {
      auto& to = m.inputs[step % 2];
      m.gates[step % 2].fetch(p, at, 0);
      if (step == 0) fetch_keys();
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        const int columns = min(kWide, p.dv - j * kWide);
        const int64_t value = int64_t{at.h} * p.dv + j * kWide;
        fetch_rows<kWalkThreads>(to.v[j], p.v + at.row * p.v_stride + value, p.v_stride, at.tokens, columns);
        fetch_rows<kWalkThreads>(to.d_o[j], p.d_o + at.row * p.o_stride + value, p.o_stride, at.tokens,
                                 columns);
      }
    }
    copy_commit();
  };
  // Column j of the tiles of the head at `step`.
  const auto fetch_states = [&](const ChunkPlace& at, int step, int j) {
    if (step < count) {
      auto& to = m.states[(step * kAcross + j) % 2];
      const int64_t from = at.place * kDown * kAcross + j;
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        fetch_state<kWalkThreads>(to.state[i], states + (from + i * kAcross) * kTileSize);
        fetch_state<kWalkThreads>(to.d_state[i], d_states + (from + i * kAcross) * kTileSize);
      }
    }
    copy_commit();
  };
  // Of the head whose sums are there, by a warp that has time for it.
  const auto write_gates = [&](int step) {
    if (w.warp == kGateWarp)
      write_gate_gradients(p, head(step), m.sums, m.sums_before, m.sums_behind, m.sums_gates, lane);
  };
  fetch_inputs(group, 0);
  fetch_states(group, 0, 0);

  float dq[4][4], dk[4][4], scores[2][4], sum_pairs[2][4];  // Q K^T; the sum of A L
  clear(dq), clear(dk), clear(scores), clear(sum_pairs);
  ChunkPlace next = group;
  for (int step = 0; step < count; ++step) {
    const ChunkPlace at = next;
    if (step + 1 < count) next = head(step + 1);
    const auto& in = m.inputs[step % 2];
    const auto& keys = m.keys;
    auto& gates = m.gates[step % 2];
    copy_wait<1>();
    gates.settle(p, at, 0);
    show_to_products();
    __syncthreads();  // the inputs are there, and everybody is done with the head before
    if constexpr (kAcross == 2) fetch_states(at, step, 1);
    fetch_inputs(next, step + 1);
    if constexpr (kAcross == 1) fetch_states(next, step + 1, 0);
    m.decays.template fill<kWalkThreads>(gates.g);
    if (step == 0) {
#pragma unroll
      for (int i = 0; i < kDown; ++i) add_pair_products(scores, keys.q[i], later, keys.k[i], n0, lane);
    }
    float passing[2][4];  // A, then M
    clear(passing);
#pragma unroll
    for (int j = 0; j < kAcross; ++j) add_pair_products(passing, in.d_o[j], later, in.v[j], n0, lane);
    __syncthreads();  // the decays are there
    if (step > 0) write_gates(step - 1);
    uint32_t score_parts[2][2];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int t = later + lane / 4 + 8 * part, r = n0 + n * 8 + lane % 4 * 2;
        const float2 decay = m.decays.pair(r, t);
        const float low = p.scale * decay.x, high = p.scale * decay.y;
        float &a0 = passing[n][2 * part], &a1 = passing[n][2 * part + 1];
        const float p0 = scores[n][2 * part], p1 = scores[n][2 * part + 1];
        sum_pairs[n][2 * part] = fmaf(a0, low, sum_pairs[n][2 * part]);
        sum_pairs[n][2 * part + 1] = fmaf(a1, high, sum_pairs[n][2 * part + 1]);
        score_parts[n][part] = pack(p0 * low, p1 * high);
        a0 *= p.scale * p0, a1 *= p.scale * p1;
      }
    }
    const float2 of_pairs = gate_pairs(passing, later, n0, m.decays, lane);
    __syncthreads();  // everybody has read the decays
    put_pairs(m.scores, score_parts, later, n0, lane);

    float inner = 0.f, read[2] = {}, written[2] = {}, dv[kAcross][2][4], y[4][4], z[4][4];
    clear(y), clear(z);
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
      if (kAcross == 2 && j == 1)
        copy_wait<1>();  // behind it: the next inputs
      else
        copy_wait<2>();
      show_to_products();
      __syncthreads();  // the states and the scores are there; everybody is done with the tiles before them
      if (kAcross == 2 && j == 1) fetch_states(next, step + 1, 0);
      const auto& from = m.states[(step * kAcross + j) % 2];
      clear(dv[j]);
      keep_in_place(y), keep_in_place(z), keep_in_place(dv[j]);
      begin_products();
      issue_row_products(y, in.d_o[j], from.state[tile], w);
      issue_row_products(z, in.v[j], from.d_state[tile], w);
#pragma unroll
      for (int i = 0; i < kDown; ++i) issue_columns<false>(dv[j], keys.k[i], from.d_state[i], n0, 0, w);
      issue_products();  // under way while others are made
#pragma unroll
      for (int i = 0; i < kDown; ++i) inner += inner_part<kWalkThreads>(from.state[i], from.d_state[i]);
      await_products();
      keep_in_place(y), keep_in_place(z), keep_in_place(dv[j]);
    }
    const float *const before = m.decays.before + first + lane / 4,
                       *const behind = m.decays.behind + first + lane / 4;  // not where the scores are
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
#pragma unroll
      for (float(&c)[4] : dv[j]) c[0] *= behind[0], c[1] *= behind[0], c[2] *= behind[8], c[3] *= behind[8];
      keep_in_place(dv[j]);
    }
    begin_products();
#pragma unroll
    for (int j = 0; j < kAcross; ++j) issue_columns<true>(dv[j], m.scores, in.d_o[j], n0, first, w);
    issue_products();
    add_read_and_written(read, written, y, z, keys.q[tile], keys.k[tile], w);
    add_scaled(dq, y, p.scale * before[0], p.scale * before[8]);
    add_scaled(dk, z, behind[0], behind[8]);
    await_products();
#pragma unroll
    for (int j = 0; j < kAcross; ++j) keep_in_place(dv[j]);
    put_gate_sums(m.sums, of_pairs, read, written, inner, p.scale, column, w);
    if (const int t = static_cast<int>(threadIdx.x); t < kChunk)
      m.sums_gates[t] = gates.g[t], m.sums_before[t] = m.decays.before[t],
      m.sums_behind[t] = m.decays.behind[t];
    __syncthreads();  // the sums are there, and everybody has read the inputs
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
      Half* const out = m.inputs[step % 2].v[j];
      stage_rows<kWide>(out, dv[j], first, n0, lane);
      drain_rows<kWide, 16>(out, first, n0, lane, [&](int row) {
        return row < at.tokens && n0 + lane % 2 * 8 < p.dv - j * kWide
                   ? half(p.dv_out) + (at.row + row) * p.v_stride + int64_t{at.h} * p.dv + j * kWide
                   : nullptr;
      });
    }
  }
  write_gates(count - 1);
  uint32_t pair_parts[2][2];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int part = 0; part < 2; ++part)
      pair_parts[n][part] = pack(sum_pairs[n][2 * part], sum_pairs[n][2 * part + 1]);
  }
  put_pairs(m.pairs, pair_parts, later, n0, lane);
  __syncthreads();  // the pairs are there
  add_pairs_of_tokens(dq, dk, m.pairs, m.keys.q[tile], m.keys.k[tile], w);
  __syncthreads();  // everybody has read q and k
  const int64_t key = p.key(group.h) + tile * kWide;
  const int channels = min(kWide, p.dk - tile * kWide);
  write_gradient(p.dq + group.row * p.dq_stride + key, p.dq_stride, group, m.keys.q[tile], dq, w, channels);
  write_gradient(p.dk_out + group.row * p.dk_stride + key, p.dk_stride, group, m.keys.k[tile], dk, w,
                 channels);
}

int64_t walks(const Problem<bf16>& p) { return chunk_places(p) * p.heads / p.sharing; }

template <int kAcross>
void launch_walk(const Problem<bf16>& p, const Half* states, const Half* d_states, cudaStream_t stream) {
  const auto kernel = head_walk_kernel<kAcross>;
  constexpr int kBytes = sizeof(WalkMemory<kAcross>);
  allow_shared_memory(kernel, kBytes, "gated linear gradients");
  signet::launch("gated linear gradients", kernel, static_cast<unsigned>(walks(p)), kWalkThreads, kBytes,
                 Cuda{stream}, p, states, d_states);
}

}  // namespace

// Where walks fill the GPU.
bool head_walk_applies(const Problem<bf16>& p) {
  return p.sharing > 1 && !p.channel_gates && wide_tiles(p.dk) == kDown && wide_tiles(p.dv) <= 2 &&
         walks(p) >= cuda_device().multiprocessors / 2 && fits_shared_memory(sizeof(WalkMemory<2>));
}

void head_walk(const Problem<bf16>& p, const Half* states, const Half* d_states, cudaStream_t stream) {
  (wide_tiles(p.dv) == 2 ? launch_walk<2> : launch_walk<1>)(p, states, d_states, stream);
}

}  // namespace signet::kernels::gated_linear
