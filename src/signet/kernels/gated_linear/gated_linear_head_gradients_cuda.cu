// dq, dk and the gates' gradients of one chunk, for one gate per head: a block per chunk and head, two warps
// per 16 of its tokens, each with half of the columns, everything on tensor cores. With A_tr = scale do_t .
// v_r and L_tr = D(r,t) for r <= t,
//   dq = scale c (dO S^T) + (A L) K        dk = D(.,n) (V dS^T) + (A L)^T Q        products element by
//   element
// and with M_tr = (q_t . k_r) A_tr what passes from r to t, the state before the chunk as r = -1 and the
// gradient behind it as t = n,
//   dg_u = sum_{t>=u} D(u,t) sum_{r<u} D(r,u-1) M_tr
// which needs no quotient: X_t = sum_{r<u} D(r,u-1) M_tr is carried from u to u + 1 by X_t <- g_u X_t + M_tu.
#include "signet/kernels/gated_linear/gated_linear_chunks.cuh"

namespace signet::kernels::gated_linear {
namespace {

constexpr int kThreads = 256, kHalf = kWide / 2;  // kHalf: columns of a warp
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
  float inner[kThreads / 32];            // S . dS, by warps
  // Behind it: all tiles of v, then of d_o.
};

// L of a column r by four threads, which have 16 of its rows each.
__device__ inline void fill_decays(HeadMemory& m) {
  constexpr int kRows = kChunk / (kThreads / kChunk);
  const int r = static_cast<int>(threadIdx.x) % kChunk,
            begin = static_cast<int>(threadIdx.x) / kChunk * kRows;
  float product = 1.f, g[kRows];
#pragma unroll 8
  for (int t = 1; t < begin; ++t) product *= t > r ? m.gates.g[t] : 1.f;
#pragma unroll
  for (int i = 0; i < kRows; ++i) g[i] = m.gates.g[begin + i];
  const float first = m.gates.g[0];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int t = begin + i;
    if (t > r) product *= g[i];
    m.decays[t * kDecayStride + r] = t < r ? 0.f : product;
    if (r == 0) m.before[t] = first * product;
  }
  if (begin + kRows == kChunk) m.behind[r] = product;
}

// C[16 tokens at m0][kHalf rows of the right tile at n0] += products of rows over 64 columns, for right rows
// below `end`.
__device__ inline void add_row_products(float (&c)[4][4], const Half* left, int m0, const Half* right, int n0,
                                        int end, int lane) {
#pragma unroll
  for (int k = 0; k < kWide; k += 16) {
    uint32_t a[4], b[4];
    load_left<Rows<kWide>>(a, left, m0, k, lane);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      if (n0 + 16 * n < end) {
        load_right_transposed<Rows<kWide>>(b, right, k, n0 + 16 * n, lane);
        multiply_add_pair(c[2 * n], c[2 * n + 1], a, b);
      }
    }
  }
}
// C[16][kHalf] += A[16][16] B[16 rows at k0][kHalf columns at n0]
__device__ inline void multiply_half(float (&c)[4][4], const uint32_t (&a)[4], const Half* tile, int k0,
                                     int n0, int lane) {
#pragma unroll
  for (int n = 0; n < 4; n += 2) {
    uint32_t b[4];
    load_right<Rows<kWide>>(b, tile, k0, n0 + n * 8, lane);
    multiply_add_pair(c[n], c[n + 1], a, b);
  }
}

__device__ inline void write_gradient(bf16* out, int64_t stride, const ChunkPlace& at, Half* tile,
                                      float (&c)[4][4], int first, int n0, int columns, int lane) {
  stage_rows<kWide>(tile, c, first, n0, lane);
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int row = first + n * 8 + lane / 4, piece = n0 / 8 + lane % 4;
    if (row < at.tokens && piece * 8 < columns)
      *reinterpret_cast<uint4*>(out + row * stride + piece * 8) =
          reinterpret_cast<const uint4*>(tile)[tile_piece<kWide>(row, piece)];
  }
}

__global__ void __launch_bounds__(kThreads, 2)
    head_gradient_kernel(Problem<bf16> p, const Half* states, const Half* d_states) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<HeadMemory*>(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, block = warp % kBlocks, first = kBlock * block,
            n0 = warp / kBlocks * kHalf;
  const int down = wide_tiles(p.dk), across = wide_tiles(p.dv);
  Half *const v = reinterpret_cast<Half*>(shared + sizeof(m)), *const d_o = v + across * kTileSize;
  const ChunkPlace at = chunk_of_block(p, blockIdx.x);
  if (at.tokens <= 0) return;
  const int64_t key = int64_t{at.h} * p.dk, value = int64_t{at.h} * p.dv;
  const auto fetch_states = [&](int item) {
    if (item < down * across) {
      const int64_t from = (at.place * down * across + item) * kTileSize;
      fetch_state<kThreads>(m.state[item % 2], states + from);
      fetch_state<kThreads>(m.d_state[item % 2], d_states + from);
    }
    copy_commit();
  };
  m.gates.fetch(p, at, 0);
  for (int j = 0; j < across; ++j) {
    const int columns = min(kWide, p.dv - j * kWide);
    fetch_rows<kThreads>(v + j * kTileSize, p.v + at.row * p.v_stride + value + j * kWide, p.v_stride,
                         at.tokens, columns);
    fetch_rows<kThreads>(d_o + j * kTileSize, p.d_o + at.row * p.o_stride + value + j * kWide, p.o_stride,
                         at.tokens, columns);
  }
  copy_commit();
  fetch_states(0);
  copy_wait<1>();
  m.gates.settle(p, at, 0);
  __syncthreads();
  fill_decays(m);
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
    float y[4][4], z[4][4];
    clear(y), clear(z);
    for (int j = 0; j < across; ++j) {
      const int item = i * across + j;
      copy_wait<0>();
      __syncthreads();  // also: everybody is done with the tiles that come next, with q and with k
      if (j == 0) {
        fetch_rows<kThreads>(m.q, p.q + at.row * p.q_stride + key + i * kWide, p.q_stride, at.tokens,
                             channels);
        fetch_rows<kThreads>(m.k, p.k + at.row * p.k_stride + key + i * kWide, p.k_stride, at.tokens,
                             channels);
      }
      fetch_states(item + 1);
      const Half *const state = m.state[item % 2], *const d_state = m.d_state[item % 2];
      add_row_products(y, d_o + j * kTileSize, first, state, n0, kWide, lane);
      add_row_products(z, v + j * kTileSize, first, d_state, n0, kWide, lane);
#pragma unroll
      for (int n = 0; n < kTileSize / 8 / kThreads; ++n) {
        const int piece = n * kThreads + static_cast<int>(threadIdx.x);
        float x[8], dx[8];
        load_floats(x, state + piece * 8);
        load_floats(dx, d_state + piece * 8);
#pragma unroll
        for (int e = 0; e < 8; ++e) inner = fmaf(x[e], dx[e], inner);
      }
    }
    copy_wait<0>();
    __syncthreads();  // q and k, and the pairs of all warps
    add_row_products(scores, m.q, first, m.k, n0, first + kBlock, lane);
    // What the tokens read from S and write through dS, then the gradients.
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int place = tile_index<kWide>(first + lane / 4 + 8 * part, n0 + n * 8 + lane % 4 * 2);
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
      if (k <= block) {
        load_left<Rows<kWide>>(left, m.pairs, first, k * kBlock, lane);
        multiply_half(y, left, m.k, k * kBlock, n0, lane);
      }
      if (k >= block) {
        load_left_transposed<Rows<kWide>>(left, m.pairs, first, k * kBlock, lane);
        multiply_half(z, left, m.q, k * kBlock, n0, lane);
      }
    }
    __syncthreads();  // everybody has read q and k
    write_gradient(p.dq + at.row * p.q_stride + key + i * kWide, p.q_stride, at, m.q, y, first, n0, channels,
                   lane);
    write_gradient(p.dk_out + at.row * p.k_stride + key + i * kWide, p.k_stride, at, m.k, z, first, n0,
                   channels, lane);
  }
  sum_all<4, 1>(read);
  sum_all<4, 1>(written);
  float whole[1] = {inner};
  sum_all<32, 1>(whole);
  __syncthreads();  // what is passed on lies where the tiles were
  for_each_element(a, lane,
                   [&](float& x, int t, int r) { m.passed[(first + t) * kPassStride + n0 + r + 1] = x; });
  __syncwarp();
  for_each_element(scores, lane,
                   [&](float& x, int t, int r) { m.passed[(first + t) * kPassStride + n0 + r + 1] *= x; });
  // Of half of the channels, then of both.
  for (int half = 0; half < 2; ++half) {
    if (lane % 4 == 0 && n0 == half * kHalf) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int t = first + lane / 4 + 8 * part;
        float &from = m.passed[t * kPassStride], &to = m.passed[kChunk * kPassStride + t + 1];
        from = p.scale * read[part] + (half ? from : 0.f), to = written[part] + (half ? to : 0.f);
      }
    }
    if (half == 0) __syncthreads();
  }
  if (lane == 0) m.inner[warp] = whole[0];
  __syncthreads();
  if (const int t = static_cast<int>(threadIdx.x); t <= kChunk) {
    constexpr int kAhead = 8;
    float* const row = m.passed + t * kPassStride;
    const float* const to_t = t < kChunk ? m.decays + t * kDecayStride : m.behind;
    float x = row[0];
    if (t == kChunk) {
      x = 0.f;
#pragma unroll
      for (float each : m.inner) x += each;
    }
#pragma unroll 1
    for (int base = 0; base < kChunk; base += kAhead) {
      float passing[kAhead], decay[kAhead], g[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        passing[i] = row[base + i + 1], decay[i] = to_t[base + i], g[i] = m.gates.g[base + i];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        row[base + i + 1] = base + i <= t ? decay[i] * x : 0.f;
        x = fmaf(g[i], x, passing[i]);
      }
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
                 static_cast<unsigned>(chunk_places(p) * p.heads), kThreads, bytes, Cuda{stream}, p, states,
                 d_states);
}

}  // namespace signet::kernels::gated_linear
