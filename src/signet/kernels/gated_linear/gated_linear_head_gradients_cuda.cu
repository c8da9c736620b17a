// dq, dk and the gates' gradients of one chunk, for one gate per head: a block per chunk and head, a warp per
// 16 of its tokens, everything on tensor cores. With A_tr = scale do_t . v_r and L_tr = D(r,t) for r <= t,
//   dq = scale c (dO S^T) + (A L) K        dk = D(.,n) (V dS^T) + (A L)^T Q        products element by
//   element
// and with M_tr = (q_t . k_r) A_tr what passes from r to t, the state before the chunk as r = -1 and the
// gradient behind it as t = n,
//   dg_u = sum_{t>=u} D(u,t) sum_{r<u} D(r,u-1) M_tr
// which needs no quotient: X_t = sum_{r<u} D(r,u-1) M_tr is carried from u to u + 1 by X_t <- g_u X_t + M_tu.
#include "signet/kernels/gated_linear/gated_linear_chunks.cuh"

namespace signet::kernels::gated_linear {
namespace {

constexpr int kDecayStride = kChunk + 1, kPassStride = kChunk + 1;

struct alignas(1024) HeadMemory {
  union {
    struct {
      Half state[2][kTileSize], d_state[2][kTileSize];  // of a tile, two under way
      Half q[kTileSize], k[kTileSize];
    };
    float passed[(kChunk + 1) * kPassStride];  // M: row t, n last; column r + 1
  };
  Half pairs[kTileSize];                // A L
  float decays[kChunk * kDecayStride];  // L, row t
  Gates<false> gates;
  float before[kChunk], behind[kChunk];  // c_t, D(t,n)
  float inner[kChunkThreads / 32];       // S . dS, by warps
  // Behind it: all tiles of v, then of d_o.
};

// L of a column r: thread r.
__device__ inline void fill_decays(HeadMemory& m) {
  const int r = static_cast<int>(threadIdx.x);
  if (r < kChunk) {
    float product = 1.f;
#pragma unroll 8
    for (int t = 0; t < kChunk; ++t) {
      if (t > r) product *= m.gates.g[t];
      m.decays[t * kDecayStride + r] = t < r ? 0.f : product;
    }
    m.behind[r] = product;
    if (r == 0) {
      const float first = m.gates.g[0];
#pragma unroll 8
      for (int t = 0; t < kChunk; ++t) m.before[t] = first * m.decays[t * kDecayStride];
    }
  }
}

// C[16 tokens at m0][64 rows of the right tile] += products of rows over 64 columns, for the first `end`
// blocks of the right rows.
__device__ inline void add_row_products(float (&c)[8][4], const Half* left, int m0, const Half* right,
                                        int end, int lane) {
#pragma unroll
  for (int k = 0; k < kWide; k += 16) {
    uint32_t a[4], b[4];
    load_left<Rows<kWide>>(a, left, m0, k, lane);
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      if (n < end) {
        load_right_transposed<Rows<kWide>>(b, right, k, 16 * n, lane);
        multiply_add_pair(c[2 * n], c[2 * n + 1], a, b);
      }
    }
  }
}

__device__ inline void write_gradient(bf16* out, int64_t stride, const ChunkPlace& at, Half* tile,
                                      float (&c)[8][4], int first, int columns, int lane) {
  __syncwarp();
  stage_rows<kWide>(tile, c, first, 0, lane);
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int row = first + n * 4 + lane / 8, piece = lane % 8;
    if (row < at.tokens && piece * 8 < columns)
      *reinterpret_cast<uint4*>(out + row * stride + piece * 8) =
          reinterpret_cast<const uint4*>(tile)[tile_piece<kWide>(row, piece)];
  }
}

__global__ void __launch_bounds__(kChunkThreads)
    head_gradient_kernel(Problem<bf16> p, const Half* states, const Half* d_states) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<HeadMemory*>(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = kBlock * warp;
  const int down = wide_tiles(p.dk), across = wide_tiles(p.dv);
  Half *const v = reinterpret_cast<Half*>(shared + sizeof(m)), *const d_o = v + across * kTileSize;
  const ChunkPlace at = chunk_of_block(p, blockIdx.x);
  if (at.tokens <= 0) return;
  const int64_t key = int64_t{at.h} * p.dk, value = int64_t{at.h} * p.dv;
  const auto fetch_states = [&](int item) {
    if (item < down * across) {
      const int64_t from = (at.place * down * across + item) * kTileSize;
      fetch_state(m.state[item % 2], states + from);
      fetch_state(m.d_state[item % 2], d_states + from);
    }
    copy_commit();
  };
  m.gates.fetch(p, at, 0);
  for (int j = 0; j < across; ++j) {
    const int columns = min(kWide, p.dv - j * kWide);
    fetch_rows(v + j * kTileSize, p.v + at.row * p.v_stride + value + j * kWide, p.v_stride, at.tokens,
               columns);
    fetch_rows(d_o + j * kTileSize, p.d_o + at.row * p.o_stride + value + j * kWide, p.o_stride, at.tokens,
               columns);
  }
  copy_commit();
  fetch_states(0);
  copy_wait<1>();
  m.gates.settle(p, at, 0);
  __syncthreads();
  fill_decays(m);
  float a[8][4], scores[8][4];
  clear(a), clear(scores);
  for (int j = 0; j < across; ++j)
    add_row_products(a, d_o + j * kTileSize, first, v + j * kTileSize, warp + 1, lane);
  __syncthreads();  // the decays are there
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) a[n][e] *= p.scale;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int t = first + lane / 4 + 8 * part, r = n * 8 + lane % 4 * 2;
      const float* const decay = m.decays + t * kDecayStride + r;
      *reinterpret_cast<uint32_t*>(m.pairs + tile_index<kWide>(t, r)) =
          pack(a[n][2 * part] * decay[0], a[n][2 * part + 1] * decay[1]);
    }
  }

  float inner = 0.f, read[2] = {}, written[2] = {};
  const float near_before = m.before[first + lane / 4] * p.scale,
              far_before = m.before[first + lane / 4 + 8] * p.scale, near_behind = m.behind[first + lane / 4],
              far_behind = m.behind[first + lane / 4 + 8];
  for (int i = 0; i < down; ++i) {
    const int channels = min(kWide, p.dk - i * kWide);
    float y[8][4], z[8][4];
    clear(y), clear(z);
    for (int j = 0; j < across; ++j) {
      const int item = i * across + j;
      copy_wait<0>();
      __syncthreads();  // also: everybody is done with the tiles that come next, with q and with k
      if (j == 0) {
        fetch_rows(m.q, p.q + at.row * p.q_stride + key + i * kWide, p.q_stride, at.tokens, channels);
        fetch_rows(m.k, p.k + at.row * p.k_stride + key + i * kWide, p.k_stride, at.tokens, channels);
      }
      fetch_states(item + 1);
      const Half *const state = m.state[item % 2], *const d_state = m.d_state[item % 2];
      add_row_products(y, d_o + j * kTileSize, first, state, kBlocks, lane);
      add_row_products(z, v + j * kTileSize, first, d_state, kBlocks, lane);
#pragma unroll
      for (int n = 0; n < kTileSize / 8 / kChunkThreads; ++n) {
        const int piece = n * kChunkThreads + static_cast<int>(threadIdx.x);
        float x[8], dx[8];
        load_floats(x, state + piece * 8);
        load_floats(dx, d_state + piece * 8);
#pragma unroll
        for (int e = 0; e < 8; ++e) inner = fmaf(x[e], dx[e], inner);
      }
    }
    copy_wait<0>();
    __syncthreads();  // q and k, and the pairs of all warps
    add_row_products(scores, m.q, first, m.k, warp + 1, lane);
    // What the tokens read from S and write through dS, then the gradients.
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int place = tile_index<kWide>(first + lane / 4 + 8 * part, n * 8 + lane % 4 * 2);
        const uint32_t query = *reinterpret_cast<const uint32_t*>(m.q + place),
                       written_key = *reinterpret_cast<const uint32_t*>(m.k + place);
        read[part] =
            fmaf(low_half(query), y[n][2 * part], fmaf(high_half(query), y[n][2 * part + 1], read[part]));
        written[part] = fmaf(low_half(written_key), z[n][2 * part],
                             fmaf(high_half(written_key), z[n][2 * part + 1], written[part]));
      }
      y[n][0] *= near_before, y[n][1] *= near_before, y[n][2] *= far_before, y[n][3] *= far_before;
      z[n][0] *= near_behind, z[n][1] *= near_behind, z[n][2] *= far_behind, z[n][3] *= far_behind;
    }
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      uint32_t left[4];
      if (k <= warp) {
        load_left<Rows<kWide>>(left, m.pairs, first, k * kBlock, lane);
        multiply_rows(y, left, m.k, k * kBlock, lane);
      }
      if (k >= warp) {
        load_left_transposed<Rows<kWide>>(left, m.pairs, first, k * kBlock, lane);
        multiply_rows(z, left, m.q, k * kBlock, lane);
      }
    }
    __syncthreads();  // everybody has read q and k
    write_gradient(p.dq + at.row * p.q_stride + key + i * kWide, p.q_stride, at, m.q, y, first, channels,
                   lane);
    write_gradient(p.dk_out + at.row * p.k_stride + key + i * kWide, p.k_stride, at, m.k, z, first, channels,
                   lane);
  }
  sum_all<4, 1>(read);
  sum_all<4, 1>(written);
  float whole[1] = {inner};
  sum_all<32, 1>(whole);
  __syncthreads();  // what is passed on lies where the tiles were
  for_each_element(a, lane, [&](float& x, int t, int r) { m.passed[(first + t) * kPassStride + r + 1] = x; });
  __syncwarp();
  for_each_element(scores, lane,
                   [&](float& x, int t, int r) { m.passed[(first + t) * kPassStride + r + 1] *= x; });
  if (lane % 4 == 0) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int t = first + lane / 4 + 8 * part;
      m.passed[t * kPassStride] = p.scale * read[part];
      m.passed[kChunk * kPassStride + t + 1] = written[part];
    }
  }
  if (lane == 0) m.inner[warp] = whole[0];
  __syncthreads();
  if (const int t = static_cast<int>(threadIdx.x); t <= kChunk) {
    float* const row = m.passed + t * kPassStride;
    const float* const to_t = t < kChunk ? m.decays + t * kDecayStride : m.behind;
    float x = t < kChunk ? row[0] : m.inner[0] + m.inner[1] + m.inner[2] + m.inner[3];
#pragma unroll 8
    for (int u = 0; u < kChunk; ++u) {
      const float passing = row[u + 1];
      row[u + 1] = u <= t ? to_t[u] * x : 0.f;
      x = fmaf(m.gates.g[u], x, passing);
    }
  }
  __syncthreads();
  if (const int u = static_cast<int>(threadIdx.x); u < at.tokens) {
    float total = 0.f;
#pragma unroll 13
    for (int t = 0; t <= kChunk; ++t) total += m.passed[t * kPassStride + u + 1];
    p.dgate[(at.row + u) * p.gate_stride + at.h] = total;
  }
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
                 static_cast<unsigned>(chunk_places(p) * p.heads), kChunkThreads, bytes, Cuda{stream}, p,
                 states, d_states);
}

}  // namespace signet::kernels::gated_linear
