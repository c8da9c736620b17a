// dq, dk, dv and the gates' gradients as gated_linear_head_backward_cuda.cu has them, for 65 to 128 channels
// of dk, by blocks that walk heads of a chunk one after the other: 16 warps, one block on a multiprocessor,
// and the next head on its way while one is worked on. A warp has 16 tokens and
//   - of products between tokens 16 of the earlier ones (column = warp / 4),
//   - of dq and dk 32 channels of a tile, of dv 16 columns of every tile.
// Heads that share q and k are the walk of a block: q, k and Q K^T are there once, and with A L summed over
// the heads
//   dq = sum over heads of scale c (dO S^T) + (sum A L) K        dk = sum D(.,n) (V dS^T) + (sum A L)^T Q
#include "signet/kernels/gated_linear/gated_linear_head_chunks.cuh"

namespace signet::kernels::gated_linear {
namespace {

constexpr int kWalkThreads = 512, kDown = 2, kColumns = 4;

template <int kAcross>
struct alignas(1024) WalkMemory {
  struct alignas(1024) Inputs {
    Half v[kAcross][kTileSize], d_o[kAcross][kTileSize];
  } inputs[2];
  struct alignas(1024) States {  // of 64 columns of dv
    Half state[kDown][kTileSize], d_state[kDown][kTileSize];
  } states[2];
  Half q[kDown][kTileSize], k[kDown][kTileSize];
  union {
    struct {
      Half pairs[kTileSize], scores[kTileSize];  // the sum of A L at last, and P L
    };
    Decays decays;  // before these
  };
  GateSums<kWalkThreads / 32, kColumns> sums;
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

template <int kAcross>
__global__ void __launch_bounds__(kWalkThreads, 1)
    head_walk_kernel(Problem<bf16> p, const Half* states, const Half* d_states) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<WalkMemory<kAcross>*>(shared);
  const HeadWarp w;
  const int lane = w.lane, first = w.first, column = w.warp / kBlocks, tile = column / 2, n0 = 16 * column;
  const int64_t begin = int64_t{blockIdx.x} * p.sharing;
  const ChunkPlace group = chunk_of_block(p, begin);  // its first head
  if (group.tokens <= 0) return;
  const auto head = [&](int step) {
    ChunkPlace at = group;
    at.h += step, at.place += step;
    return at;
  };
  const auto fetch_inputs = [&](int step) {
    if (step < p.sharing) {
      const ChunkPlace at = head(step);
      auto& to = m.inputs[step % 2];
      m.gates[step % 2].fetch(p, at, 0);
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
  // Item: column j of tiles of head `step` as item = step kAcross + j.
  const auto fetch_states = [&](int item) {
    if (item < p.sharing * kAcross) {
      auto& to = m.states[item % 2];
      const int64_t from = head(item / kAcross).place * kDown * kAcross + item % kAcross;
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        fetch_state<kWalkThreads>(to.state[i], states + (from + i * kAcross) * kTileSize);
        fetch_state<kWalkThreads>(to.d_state[i], d_states + (from + i * kAcross) * kTileSize);
      }
    }
    copy_commit();
  };
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
    const int channels = min(kWide, p.dk - i * kWide);
    const int64_t key = p.key(group.h) + i * kWide;
    fetch_rows<kWalkThreads>(m.q[i], p.q + group.row * p.q_stride + key, p.q_stride, group.tokens, channels);
    fetch_rows<kWalkThreads>(m.k[i], p.k + group.row * p.k_stride + key, p.k_stride, group.tokens, channels);
  }
  fetch_inputs(0);
  fetch_states(0);

  float dq[4][4], dk[4][4], scores[2][4], sum_pairs[2][4];  // Q K^T; the sum of A L
  clear(dq), clear(dk), clear(scores), clear(sum_pairs);
  for (int step = 0; step < p.sharing; ++step) {
    const ChunkPlace at = head(step);
    const auto& in = m.inputs[step % 2];
    auto& gates = m.gates[step % 2];
    copy_wait<1>();
    gates.settle(p, at, 0);
    show_to_products();
    __syncthreads();  // the inputs are there, and everybody is done with the head before
    if constexpr (kAcross == 2) fetch_states(step * kAcross + 1);
    fetch_inputs(step + 1);
    if constexpr (kAcross == 1) fetch_states(step + 1);
    m.decays.template fill<kWalkThreads>(gates.g);
    if (step == 0) {
#pragma unroll
      for (int i = 0; i < kDown; ++i) add_pair_products(scores, m.q[i], first, m.k[i], n0, lane);
    }
    float passing[2][4];  // A, then M
    clear(passing);
#pragma unroll
    for (int j = 0; j < kAcross; ++j) add_pair_products(passing, in.d_o[j], first, in.v[j], n0, lane);
    __syncthreads();  // the decays are there
    uint32_t score_parts[2][2];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int t = first + lane / 4 + 8 * part, r = n0 + n * 8 + lane % 4 * 2;
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
    const float2 of_pairs = gate_pairs(passing, first, n0, m.decays, lane);
    __syncthreads();  // everybody has read the decays
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int part = 0; part < 2; ++part)
        *reinterpret_cast<uint32_t*>(
            m.scores + tile_index<kWide>(first + lane / 4 + 8 * part, n0 + n * 8 + lane % 4 * 2)) =
            score_parts[n][part];
    }

    float inner = 0.f, read[2] = {}, written[2] = {}, dv[kAcross][2][4], y[4][4], z[4][4];
    clear(y), clear(z);
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
      const int item = step * kAcross + j;
      if (kAcross == 2 && j == 1)
        copy_wait<1>();  // behind it: the next inputs
      else
        copy_wait<2>();
      show_to_products();
      __syncthreads();  // the states and the scores are there; everybody is done with the tiles before them
      if (kAcross == 2 && j == 1) fetch_states(item + 1);
      const auto& from = m.states[item % 2];
      keep_in_place(y), keep_in_place(z);
      begin_products();
      issue_row_products(y, in.d_o[j], from.state[tile], w);
      issue_row_products(z, in.v[j], from.d_state[tile], w);
      issue_products();  // under way while the others are made
      clear(dv[j]);
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
#pragma unroll
        for (int k0 = 0; k0 < kWide; k0 += 16) {
          uint32_t left[4], right[4];
          load_left<Rows<kWide>>(left, m.k[i], first, k0, lane);
          load_right<Rows<kWide>>(right, from.d_state[i], k0, n0, lane);
          multiply_add_pair(dv[j][0], dv[j][1], left, right);
        }
        inner += inner_part<kWalkThreads>(from.state[i], from.d_state[i]);
      }
      await_products();
      keep_in_place(y), keep_in_place(z);
    }
    const float *const before = m.decays.before + first + lane / 4,
                       *const behind = m.decays.behind + first + lane / 4;  // not where the scores are
    add_read_and_written(read, written, y, z, m.q[tile], m.k[tile], w);
    add_scaled(dq, y, p.scale * before[0], p.scale * before[8]);
    add_scaled(dk, z, behind[0], behind[8]);
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
#pragma unroll
      for (float(&c)[4] : dv[j]) c[0] *= behind[0], c[1] *= behind[0], c[2] *= behind[8], c[3] *= behind[8];
#pragma unroll
      for (int k = 0; k < kBlocks; ++k) {
        if (k >= w.block) {
          uint32_t left[4], right[4];
          load_left_transposed<Rows<kWide>>(left, m.scores, first, k * kBlock, lane);
          load_right<Rows<kWide>>(right, in.d_o[j], k * kBlock, n0, lane);
          multiply_add_pair(dv[j][0], dv[j][1], left, right);
        }
      }
    }
    put_gate_sums(m.sums, of_pairs, read, written, inner, p.scale, column, w);
    __syncthreads();  // the sums are there, and everybody has read the values
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
    if (w.warp == 0) write_gate_gradients(p, at, m.sums, m.decays, gates.g, lane);
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int part = 0; part < 2; ++part)
      *reinterpret_cast<uint32_t*>(
          m.pairs + tile_index<kWide>(first + lane / 4 + 8 * part, n0 + n * 8 + lane % 4 * 2)) =
          pack(sum_pairs[n][2 * part], sum_pairs[n][2 * part + 1]);
  }
  __syncthreads();  // the pairs are there
  add_pairs_of_tokens(dq, dk, m.pairs, m.q[tile], m.k[tile], w);
  __syncthreads();  // everybody has read q and k
  const int64_t key = p.key(group.h) + tile * kWide;
  const int channels = min(kWide, p.dk - tile * kWide);
  write_gradient(p.dq + group.row * p.dq_stride + key, p.dq_stride, group, m.q[tile], dq, w, channels);
  write_gradient(p.dk_out + group.row * p.dk_stride + key, p.dk_stride, group, m.k[tile], dk, w, channels);
}

template <int kAcross>
void launch_walk(const Problem<bf16>& p, const Half* states, const Half* d_states, cudaStream_t stream) {
  const auto kernel = head_walk_kernel<kAcross>;
  constexpr int kBytes = sizeof(WalkMemory<kAcross>);
  allow_shared_memory(kernel, kBytes, "gated linear gradients");
  signet::launch("gated linear gradients", kernel,
                 static_cast<unsigned>(chunk_places(p) * p.heads / p.sharing), kWalkThreads, kBytes,
                 Cuda{stream}, p, states, d_states);
}

}  // namespace

bool head_walk_applies(const Problem<bf16>& p) {
  return p.sharing > 1 && !p.channel_gates && wide_tiles(p.dk) == kDown && wide_tiles(p.dv) <= 2 &&
         chunk_places(p) * p.heads / p.sharing >= cuda_device().multiprocessors / 2 &&
         fits_shared_memory(sizeof(WalkMemory<2>));
}

void head_walk(const Problem<bf16>& p, const Half* states, const Half* d_states, cudaStream_t stream) {
  (wide_tiles(p.dv) == 2 ? launch_walk<2> : launch_walk<1>)(p, states, d_states, stream);
}

}  // namespace signet::kernels::gated_linear
