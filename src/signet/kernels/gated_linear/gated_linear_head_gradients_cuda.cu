// dq, dk and the gates' gradients of one chunk, for one gate per head: a block per chunk and head, two warps
// per 16 of its tokens, each with half of the columns, everything on tensor cores. With A_tr = scale do_t .
// v_r and L_tr = D(r,t) for r <= t, where c, D and L multiply element by element,
//   dq = scale c (dO S^T) + (A L) K        dk = D(.,n) (V dS^T) + (A L)^T Q
// and with M_tr = (q_t . k_r) A_tr what passes from r to t, the state before the chunk as r = -1 and the
// gradient behind it as t = n,
//   dg_u = sum_{t>=u} D(u,t) sum_{r<u} D(r,u-1) M_tr
// which needs no quotient.
#include "signet/kernels/gated_linear/gated_linear_head_chunks.cuh"

namespace signet::kernels::gated_linear {
namespace {

struct alignas(1024) HeadMemory {
  union {
    struct {
      Half state[2][kTileSize], d_state[2][kTileSize];  // of a tile, two under way
    };
    GateSums<kHeadThreads / 32, 2> sums;  // after these
  };
  Half q[kTileSize], k[kTileSize];
  Half pairs[kTileSize];  // A L
  Decays decays;
  Gates<false> gates;
  // Behind it: all tiles of v, then of d_o.
};

__global__ void __launch_bounds__(kHeadThreads, 2)
    head_gradient_kernel(Problem<bf16> p, const Half* states, const Half* d_states) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<HeadMemory*>(shared);
  const HeadWarp w;
  const int lane = w.lane, first = w.first, n0 = w.n0;
  const int down = wide_tiles(p.dk), across = wide_tiles(p.dv);
  Half *const v = reinterpret_cast<Half*>(shared + sizeof(m)), *const d_o = v + across * kTileSize;
  const ChunkPlace at = chunk_of_block(p, blockIdx.x);
  if (at.tokens <= 0) return;
  const int64_t key = p.key(at.h), d_key = int64_t{at.h} * p.dk, value = int64_t{at.h} * p.dv;
  const auto fetch_states = [&](int item) {
    if (item < down * across) {
      const int64_t from = (at.place * down * across + item) * kTileSize;
      fetch_state<kHeadThreads>(m.state[item % 2], states + from);
      fetch_state<kHeadThreads>(m.d_state[item % 2], d_states + from);
    }
    copy_commit();
  };
  m.gates.fetch(p, at, 0);
  for (int j = 0; j < across; ++j) {
    const int columns = min(kWide, p.dv - j * kWide);
    fetch_rows<kHeadThreads>(v + j * kTileSize, p.v + at.row * p.v_stride + value + j * kWide, p.v_stride,
                             at.tokens, columns);
    fetch_rows<kHeadThreads>(d_o + j * kTileSize, p.d_o + at.row * p.o_stride + value + j * kWide, p.o_stride,
                             at.tokens, columns);
  }
  copy_commit();
  fetch_states(0);
  copy_wait<1>();
  m.gates.settle(p, at, 0);
  __syncthreads();
  m.decays.fill<kHeadThreads>(m.gates.g);
  float a[4][4], scores[4][4];
  clear(a), clear(scores);
  for (int j = 0; j < across; ++j)
    add_row_products(a, d_o + j * kTileSize, first, v + j * kTileSize, n0, first + kBlock, lane);
  __syncthreads();  // the decays are there
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) a[n][e] *= p.scale;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int t = first + lane / 4 + 8 * part, r = n0 + n * 8 + lane % 4 * 2;
      const float2 decay = m.decays.pair(r, t);
      *reinterpret_cast<uint32_t*>(m.pairs + tile_index<kWide>(t, r)) =
          pack(a[n][2 * part] * decay.x, a[n][2 * part + 1] * decay.y);
    }
  }

  float inner = 0.f, read[2] = {}, written[2] = {};
  const float near_before = m.decays.before[first + lane / 4] * p.scale,
              far_before = m.decays.before[first + lane / 4 + 8] * p.scale,
              near_behind = m.decays.behind[first + lane / 4],
              far_behind = m.decays.behind[first + lane / 4 + 8];
  for (int i = 0; i < down; ++i) {
    const int channels = min(kWide, p.dk - i * kWide);
    float y[4][4], z[4][4];
    clear(y), clear(z);
    for (int j = 0; j < across; ++j) {
      const int item = i * across + j;
      copy_wait<0>();
      show_to_products();
      __syncthreads();  // also: everybody is done with the tiles that come next, with q and with k
      if (j == 0) {
        fetch_rows<kHeadThreads>(m.q, p.q + at.row * p.q_stride + key + i * kWide, p.q_stride, at.tokens,
                                 channels);
        fetch_rows<kHeadThreads>(m.k, p.k + at.row * p.k_stride + key + i * kWide, p.k_stride, at.tokens,
                                 channels);
      }
      fetch_states(item + 1);
      const Half *const state = m.state[item % 2], *const d_state = m.d_state[item % 2];
      keep_in_place(y), keep_in_place(z);
      begin_products();
      issue_row_products(y, d_o + j * kTileSize, state, w);
      issue_row_products(z, v + j * kTileSize, d_state, w);
      issue_products();
      inner += inner_part(state, d_state);
      await_products();
      keep_in_place(y), keep_in_place(z);
    }
    copy_wait<0>();
    __syncthreads();  // q and k, and the pairs of all warps
    add_row_products(scores, m.q, first, m.k, n0, first + kBlock, lane);
    // What the tokens read from S and write through dS, then the gradients.
    add_read_and_written(read, written, y, z, m.q, m.k, w);
    scale_half(y, near_before, far_before), scale_half(z, near_behind, far_behind);
    add_pairs_of_tokens(y, z, m.pairs, m.q, m.k, w);
    __syncthreads();  // everybody has read q and k
    write_gradient(p.dq + at.row * p.dq_stride + d_key + i * kWide, p.dq_stride, at, m.q, y, w, channels);
    write_gradient(p.dk_out + at.row * p.dk_stride + d_key + i * kWide, p.dk_stride, at, m.k, z, w, channels);
  }
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) a[n][e] *= scores[n][e];
  }
  put_gate_sums(m.sums, gate_pairs(a, first, n0, m.decays, lane), read, written, inner, p.scale,
                w.warp / kBlocks, w);
  __syncthreads();  // the sums are there
  if (w.warp == 0) write_gate_gradients(p, at, m.sums, m.decays.before, m.decays.behind, m.gates.g, lane);
}

int head_gradient_bytes(int dv) {
  return static_cast<int>(sizeof(HeadMemory) + 2 * wide_tiles(dv) * kTileSize * sizeof(Half));
}

}  // namespace

bool head_gradients_apply(const Problem<bf16>& p) {
  return !p.channel_gates && fits_shared_memory(static_cast<size_t>(head_gradient_bytes(p.dv)));
}

void head_gradients(const Problem<bf16>& p, const Half* states, const Half* d_states, cudaStream_t stream) {
  const int bytes = head_gradient_bytes(p.dv);
  allow_shared_memory(head_gradient_kernel, bytes, "gated linear gradients");
  signet::launch("gated linear gradients", head_gradient_kernel,
                 static_cast<unsigned>(chunk_places(p) * p.heads), kHeadThreads, bytes, Cuda{stream}, p,
                 states, d_states);
}

}  // namespace signet::kernels::gated_linear
