// dq, dk, dv and the gates' gradients of one chunk, for one gate per head and states of at most 128 x 128: a
// block per chunk and head, two warps per 16 of its tokens, each with half of the columns, everything on
// tensor cores. With A = scale dO V^T, P = scale Q K^T and L_tr = D(r,t) for r <= t,
//   dq = scale c (dO S^T) + (A L) K        dk = D(.,n) (V dS^T) + (A L)^T Q        dv = D(.,n) (K dS) + (P
//   L)^T dO
// (products of rows or of elements where no matrices meet), and with M_tr = (q_t . k_r) A_tr what passes from
// r to t, the state before the chunk as r = -1 and the gradient behind it as t = n,
//   dg_u = sum_{t>=u} D(u,t) sum_{r<u} D(r,u-1) M_tr
// which needs no quotient.
#include "signet/kernels/gated_linear/gated_linear_head_chunks.cuh"

namespace signet::kernels::gated_linear {
namespace {

// Two blocks of 128 x 128 fill the shared memory of a multiprocessor.
template <int kDown, int kAcross>
struct alignas(1024) BackwardMemory {
  union {
    struct {
      Half state[2][kTileSize], d_state[2][kTileSize];  // of a tile, two under way
    };
    GateSums<kHeadThreads / 32, 2> sums;  // after these
  };
  Half q[kDown][kTileSize], k[kDown][kTileSize], v[kAcross][kTileSize], d_o[kAcross][kTileSize];
  union {
    struct {
      Half pairs[kTileSize], scores[kTileSize];  // A L and P L
    };
    Decays decays;  // before these
  };
  Gates<false> gates;
};

template <int kDown, int kAcross>
__global__ void __launch_bounds__(kHeadThreads, 2)
    head_backward_kernel(Problem<bf16> p, const Half* states, const Half* d_states) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<BackwardMemory<kDown, kAcross>*>(shared);
  const HeadWarp w;
  const int lane = w.lane, first = w.first, n0 = w.n0;
  const ChunkPlace at = chunk_of_block(p, blockIdx.x);
  if (at.tokens <= 0) return;
  const int64_t key = p.key(at.h), d_key = int64_t{at.h} * p.dk, value = int64_t{at.h} * p.dv;
  const auto fetch_states = [&](int item) {
    if (item < kDown * kAcross) {
      const int64_t from = (at.place * kDown * kAcross + item) * kTileSize;
      fetch_state<kHeadThreads>(m.state[item % 2], states + from);
      fetch_state<kHeadThreads>(m.d_state[item % 2], d_states + from);
    }
    copy_commit();
  };
  m.gates.fetch(p, at, 0);
#pragma unroll
  for (int j = 0; j < kAcross; ++j) {
    const int columns = min(kWide, p.dv - j * kWide);
    fetch_rows<kHeadThreads>(m.v[j], p.v + at.row * p.v_stride + value + j * kWide, p.v_stride, at.tokens,
                             columns);
    fetch_rows<kHeadThreads>(m.d_o[j], p.d_o + at.row * p.o_stride + value + j * kWide, p.o_stride, at.tokens,
                             columns);
  }
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
    const int channels = min(kWide, p.dk - i * kWide);
    fetch_rows<kHeadThreads>(m.q[i], p.q + at.row * p.q_stride + key + i * kWide, p.q_stride, at.tokens,
                             channels);
    fetch_rows<kHeadThreads>(m.k[i], p.k + at.row * p.k_stride + key + i * kWide, p.k_stride, at.tokens,
                             channels);
  }
  copy_commit();
  fetch_states(0);
  copy_wait<1>();
  m.gates.settle(p, at, 0);
  __syncthreads();
  m.decays.template fill<kHeadThreads>(m.gates.g);
  float passing[4][4], sums[4][4];  // A, then M; P
  clear(passing), clear(sums);
#pragma unroll
  for (int j = 0; j < kAcross; ++j)
    add_row_products(passing, m.d_o[j], first, m.v[j], n0, first + kBlock, lane);
#pragma unroll
  for (int i = 0; i < kDown; ++i) add_row_products(sums, m.q[i], first, m.k[i], n0, first + kBlock, lane);
  __syncthreads();  // the decays are there
  uint32_t pair_parts[4][2], score_parts[4][2];
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int t = first + lane / 4 + 8 * part, r = n0 + n * 8 + lane % 4 * 2;
      const float2 decay = m.decays.pair(r, t);
      const float low = p.scale * decay.x, high = p.scale * decay.y;
      float &a0 = passing[n][2 * part], &a1 = passing[n][2 * part + 1], p0 = sums[n][2 * part],
            p1 = sums[n][2 * part + 1];
      pair_parts[n][part] = pack(a0 * low, a1 * high), score_parts[n][part] = pack(p0 * low, p1 * high);
      a0 *= p.scale * p0, a1 *= p.scale * p1;
    }
  }
  const float2 of_pairs = gate_pairs(passing, first, n0, m.decays, lane);
  __syncthreads();  // everybody has read the decays
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int place = tile_index<kWide>(first + lane / 4 + 8 * part, n0 + n * 8 + lane % 4 * 2);
      *reinterpret_cast<uint32_t*>(m.pairs + place) = pair_parts[n][part];
      *reinterpret_cast<uint32_t*>(m.scores + place) = score_parts[n][part];
    }
  }

  const float *const before = m.decays.before + first + lane / 4,
                     *const behind = m.decays.behind + first + lane / 4;  // not where the pairs are
  float inner = 0.f, read[2] = {}, written[2] = {}, dv[kAcross][4][4];
#pragma unroll
  for (int j = 0; j < kAcross; ++j) clear(dv[j]);
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
    const int channels = min(kWide, p.dk - i * kWide);
    float y[4][4], z[4][4];
    clear(y), clear(z);
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
      const int item = i * kAcross + j;
      copy_wait<0>();
      show_to_products();
      __syncthreads();  // also: everybody is done with the tiles that come next
      fetch_states(item + 1);
      const Half *const state = m.state[item % 2], *const d_state = m.d_state[item % 2];
      keep_in_place(y), keep_in_place(z);
      begin_products();
      issue_row_products(y, m.d_o[j], state, w);
      issue_row_products(z, m.v[j], d_state, w);
      issue_products();  // under way while the others are made
#pragma unroll
      for (int k0 = 0; k0 < kWide; k0 += 16) {
        uint32_t left[4];
        load_left<Rows<kWide>>(left, m.k[i], first, k0, lane);
        multiply_half(dv[j], left, d_state, k0, n0, lane);
      }
      inner += inner_part(state, d_state);
      await_products();
      keep_in_place(y), keep_in_place(z);
    }
    // What the tokens read from S and write through dS, then the gradients.
    add_read_and_written(read, written, y, z, m.q[i], m.k[i], w);
    scale_half(y, p.scale * before[0], p.scale * before[8]), scale_half(z, behind[0], behind[8]);
    add_pairs_of_tokens(y, z, m.pairs, m.q[i], m.k[i], w);
    __syncthreads();  // everybody has read these q and k
    write_gradient(p.dq + at.row * p.dq_stride + d_key + i * kWide, p.dq_stride, at, m.q[i], y, w, channels);
    write_gradient(p.dk_out + at.row * p.dk_stride + d_key + i * kWide, p.dk_stride, at, m.k[i], z, w,
                   channels);
  }
#pragma unroll
  for (int j = 0; j < kAcross; ++j) {  // everybody has read the values: there was a barrier
    scale_half(dv[j], behind[0], behind[8]);
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      if (k >= w.block) {
        uint32_t left[4];
        load_left_transposed<Rows<kWide>>(left, m.scores, first, k * kBlock, lane);
        multiply_half(dv[j], left, m.d_o[j], k * kBlock, n0, lane);
      }
    }
    write_gradient(p.dv_out + at.row * p.v_stride + value + j * kWide, p.v_stride, at, m.v[j], dv[j], w,
                   min(kWide, p.dv - j * kWide));
  }
  put_gate_sums(m.sums, of_pairs, read, written, inner, p.scale, w.warp / kBlocks, w);
  __syncthreads();  // the sums are there
  if (w.warp == 0) write_gate_gradients(p, at, m.sums, m.decays.before, m.decays.behind, m.gates.g, lane);
}

template <int kDown, int kAcross>
void launch_backward(const Problem<bf16>& p, const Half* states, const Half* d_states, cudaStream_t stream) {
  const auto kernel = head_backward_kernel<kDown, kAcross>;
  constexpr int kBytes = sizeof(BackwardMemory<kDown, kAcross>);
  allow_shared_memory(kernel, kBytes, "gated linear gradients");
  signet::launch("gated linear gradients", kernel, static_cast<unsigned>(chunk_places(p) * p.heads),
                 kHeadThreads, kBytes, Cuda{stream}, p, states, d_states);
}

}  // namespace

bool head_backward_applies(const Problem<bf16>& p) {
  return !p.channel_gates && wide_tiles(p.dk) <= 2 && wide_tiles(p.dv) <= 2 &&
         fits_shared_memory(sizeof(BackwardMemory<2, 2>));
}

void head_backward(const Problem<bf16>& p, const Half* states, const Half* d_states, cudaStream_t stream) {
  const bool deep = wide_tiles(p.dk) == 2, wide = wide_tiles(p.dv) == 2;
  (deep   ? wide ? launch_backward<2, 2> : launch_backward<2, 1>
     : wide ? launch_backward<1, 2>
          : launch_backward<1, 1>)(p, states, d_states, stream);
}

}  // namespace signet::kernels::gated_linear
