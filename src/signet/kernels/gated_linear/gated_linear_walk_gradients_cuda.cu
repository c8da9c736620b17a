// dq, dk, dv and the gates' gradients as gated_linear_head_walk_cuda.cu has them, where heads share q and k
// of 65 to 128 channels and have at most 64 columns: a block walks the heads of a chunk with three groups of
// four warps, 16 tokens for a warp, one barrier a head, and two heads on their way while one is worked on.
// With A = dO V^T, P = scale Q K^T and L_tr = D(r,t) the groups have
//
//   pairs      dv = D(.,n) (K dS) + (P L)^T dO, the sum of A L over the heads, and M_tr = A_tr P_tr
//   queries    Y = dO S^T, dq = scale (sum of c Y + (sum of A L) K), and what tokens read, scale q_t . Y_t
//   keys       Z = V dS^T, dk = sum of D(.,n) Z + scale (sum of A L)^T Q, and what they write, k_r . Z_r
//
// The gates' gradients, dg_u = sum_{t>=u} D(u,t) sum_{r<u} D(r,u-1) M_tr with the state before the chunk as r
// = -1 and the gradient behind it as t = n, are summed by groups of 8 tokens. With u in group b, r and t may
// be in that group or beyond it:
//   dg_u = own_u + until_{u-1} sum_{t>=u} D(u,t) R_t + after_u (sum_{r<u} D(r,u-1) W_r + until_{u-1} X_b)
//   R_t = sum over r before the group of D(r,begin-1) M_tr      W_r = sum over t behind it of D(end,t) M_tr
//   X_b = sum over both of D(end,t) D(r,begin-1) M_tr           own_u: both in the group, on tensor cores
// so that a pair of tokens takes a few products in registers, and none needs a table of decays.
#include "signet/kernels/gated_linear/gated_linear_group_decays.cuh"
#include "signet/kernels/gated_linear/gated_linear_head_chunks.cuh"

namespace signet::kernels::gated_linear {
namespace {

constexpr int kDown = 2, kGroupThreads = 128, kWalkThreads = 3 * kGroupThreads, kStages = 3;
constexpr int kGroups = GroupDecays::kGroups, kWarps = kGroupThreads / 32;

// A head's decays between tokens, and from the chunk's beginning and to its end: by tokens (before, behind)
// and by groups (head, tail; the group itself not included).
struct WalkDecays : GroupDecays {
  alignas(16) float gates[kChunk], before[kChunk], behind[kChunk], head[kGroups], tail[kGroups];
  float from[kGroups][kChunk];  // D(end of the group, t), 0 where t is not behind it
  float2 within[kGroups][32];   // D(r,t) of a group's tokens, as a tile of sums has them

  // By one warp, lane l for tokens 2l and 2l + 1.
  __device__ void fill_all(const float* source, int lane) {
    fill(source, lane);
    const int own = lane / 4;
    float on = whole[own], back = on;
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      const float earlier = __shfl_up_sync(kFullWarp, on, step),
                  later = __shfl_down_sync(kFullWarp, back, step);
      if (lane >= step) on *= earlier;
      if (lane + step < 32) back *= later;
    }
    const float earlier = __shfl_up_sync(kFullWarp, on, 4), later = __shfl_down_sync(kFullWarp, back, 4);
    const float begin = lane < 4 ? 1.f : earlier, end = lane < 28 ? later : 1.f;
    if (lane % 4 == 0) head[own] = begin, tail[own] = end;
    const auto pair = [&](float* x) -> float2& { return reinterpret_cast<float2*>(x)[lane]; };
    const auto scaled = [](float2 x, float factor) { return make_float2(factor * x.x, factor * x.y); };
    pair(gates) = reinterpret_cast<const float2*>(source)[lane];
    pair(before) = scaled(pair(until), begin), pair(behind) = scaled(pair(after), end);
    float2 reach = pair(until);
#pragma unroll
    for (int n = kGroups - 1; n >= 0; --n) {
      pair(from[n]) = n < own ? reach : make_float2(0.f, 0.f);
      if (n < own) reach = scaled(reach, whole[n]);
    }
  }
  // By every warp of a group, for its 16 tokens.
  __device__ void fill_within(const float* source, int warp, int lane) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
      within[2 * warp + n][lane] = decays_within(source + kBlock * warp + 8 * n, lane);
  }
};

// What a head's gates are summed from; every part is written by one warp.
struct WalkSums {
  alignas(16) float own[kChunk], read[kChunk], written[kChunk];  // own_u with what R adds to it
  alignas(16) float columns[kWarps][kChunk];                     // W_r by the warps of t
  alignas(16) float middle[kWarps][32];                          // X_b by the warps of t, in four parts
  float inner[2 * kWarps];                                       // <S, dS>, by 16 rows
};

struct alignas(1024) WalkMemory {
  struct Stage {
    Half v[kTileSize], d_o[kTileSize], state[kDown][kTileSize], d_state[kDown][kTileSize];
  } stage[kStages];
  Half q[kDown][kTileSize], k[kDown][kTileSize];
  Half pairs[kTileSize];  // P L, and at last the sum of A L
  Half dv[kTileSize];     // on its way out
  WalkDecays decays[3];
  WalkSums sums[2];
  Gates<false> gates[3];
};

// Until `threads` threads are here.
__device__ inline void meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(barrier), "r"(threads) : "memory");
}
// C[16 tokens of this warp][64] += A B over 64, all tiles in shared memory; A stored [m][k], or [k][m] when
// kLeftColumns, B [n][k], or [k][n] when kRows. By a group of warps, between begin_products() and
// issue_products().
template <bool kLeftColumns, bool kRows>
__device__ void issue_tiles(float (&c)[8][4], const Half* left, const Half* right, int warp, int lane) {
  if constexpr (kWgmma) {
    const uint64_t a = operand_of<kLeftColumns>(Panels<64>{}, left, 0, 0),
                   b = operand_of<kRows>(Panels<64>{}, right, 0, 0);
    // 16 of k are 16 rows or 32 bytes of each; addresses are in units of 16 bytes.
    constexpr int kLeftStep = kLeftColumns ? 128 : 2, kRightStep = kRows ? 128 : 2;
#pragma unroll
    for (int k = 0; k < kWide / 16; ++k)
      multiply_shared<kLeftColumns, kRows>(c, a + k * kLeftStep, b + k * kRightStep);
  } else {
    product<kWide, Rows<kWide>, kLeftColumns, Rows<kWide>, !kRows>(c, left, kBlock * warp, right, 0, lane);
  }
}

// The gates' gradients of a head, by one warp when all parts are there, lane l for u = 2l and 2l + 1.
__device__ void write_gates(const Problem<bf16>& p, const ChunkPlace& at, const WalkSums& sums,
                            const WalkDecays& d, int lane) {
  const int u = 2 * lane, group = lane / 4, place = lane % 4;
  const auto pair = [&](const float* x) { return *reinterpret_cast<const float2*>(x + u); };
  const float2 own = pair(sums.own), read = pair(sums.read), written = pair(sums.written);
  const float2 g = pair(d.gates), until = pair(d.until), after = pair(d.after);
  const float whole = d.whole[group], head = d.head[group], tail = d.tail[group];
  float2 w = make_float2(tail * written.x, tail * written.y);  // W of pairs and of the gradient behind
  float x = 0.f, inner = 0.f;
#pragma unroll
  for (int part = 0; part < kWarps; ++part) {
    const float2 column = pair(sums.columns[part]);
    const float4 middle = *reinterpret_cast<const float4*>(sums.middle[part] + 4 * group);
    w.x += column.x, w.y += column.y;
    x += middle.x + middle.y + (middle.z + middle.w);
  }
#pragma unroll
  for (int part = 0; part < 2 * kWarps; ++part) inner += sums.inner[part];
  // What the groups write and read, Z_{b+1} = whole_b Z_b + on_b from the beginning (Z_0: inner) and Y_{b-1}
  // = whole_b Y_b + back_b from behind.
  float ends[2] = {after.x * written.x + after.y * written.y, until.x * read.x + until.y * read.y};
  sum_all<4, 1>(ends);
  float on = ends[0], back = ends[1], on_factor = whole, back_factor = whole;
#pragma unroll
  for (int step = 4; step < 32; step *= 2) {
    const float earlier = __shfl_up_sync(kFullWarp, on, step),
                earlier_factor = __shfl_up_sync(kFullWarp, on_factor, step),
                later = __shfl_down_sync(kFullWarp, back, step),
                later_factor = __shfl_down_sync(kFullWarp, back_factor, step);
    if (lane >= step) on = fmaf(on_factor, earlier, on), on_factor *= earlier_factor;
    if (lane + step < 32) back = fmaf(back_factor, later, back), back_factor *= later_factor;
  }
  const float earlier = __shfl_up_sync(kFullWarp, on, 4), later = __shfl_down_sync(kFullWarp, back, 4);
  x += tail * fmaf(head, inner, lane < 4 ? 0.f : earlier) + (lane < 28 ? head * later : 0.f);
  // Within the group, V_{u+1} = g_u V_u + W_u and T_u = R_u + g_{u+1} T_{u+1}.
  const float next = place < 3 ? d.gates[u + 2] : 0.f;
  const float2 r = make_float2(head * read.x, head * read.y);
  float v = fmaf(g.y, w.x, w.y), v_factor = g.x * g.y, t = fmaf(g.y, r.y, r.x), t_factor = g.y * next;
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    const float before = __shfl_up_sync(kFullWarp, v, step),
                before_factor = __shfl_up_sync(kFullWarp, v_factor, step),
                behind = __shfl_down_sync(kFullWarp, t, step),
                behind_factor = __shfl_down_sync(kFullWarp, t_factor, step);
    if (place >= step) v = fmaf(v_factor, before, v), v_factor *= before_factor;
    if (place + step < 4) t = fmaf(t_factor, behind, t), t_factor *= behind_factor;
  }
  const float v_before = __shfl_up_sync(kFullWarp, v, 1), t_behind = __shfl_down_sync(kFullWarp, t, 1);
  const float v_near = place > 0 ? v_before : 0.f, v_far = fmaf(g.x, v_near, w.x);
  const float t_far = fmaf(next, t_behind, r.y);
  const float from = place > 0 ? d.until[u - 1] : 1.f;
  const float near = own.x + fmaf(from, t, after.x * fmaf(from, x, v_near)),
              far = own.y + fmaf(until.x, t_far, after.y * fmaf(until.x, x, v_far));
  if (u < at.tokens) p.dgate[(at.row + u) * p.gate_stride + at.h] = near;
  if (u + 1 < at.tokens) p.dgate[(at.row + u + 1) * p.gate_stride + at.h] = far;
}

// The pairs' part of a chunk: what is in a lane's registers from head to head, and one head.
struct Pairs {
  float scores[8][4], sums[8][4];  // P; the sum of A L

  __device__ void head(const Problem<bf16>& p, const ChunkPlace& at, WalkMemory& m,
                       const WalkMemory::Stage& in, const WalkDecays& d, WalkSums& to, int warp, int lane) {
    const int first = kBlock * warp, g = lane / 4, q = lane % 4;
    float passing[8][4];  // A
    clear(passing);
    keep_in_place(passing);
    begin_products();
    issue_tiles<false, false>(passing, in.d_o, in.v, warp, lane);
    issue_products();
    const float2 near_own = d.within[2 * warp][lane], far_own = d.within[2 * warp + 1][lane];
    await_products();
    keep_in_place(passing);
    float near_sum = 0.f, far_sum = 0.f;             // of R, over the lane's columns
    float parts[3 * kGroups];                        // W of two columns and X, of every group
    uint32_t near_pairs[4] = {}, far_pairs[4] = {};  // M within the groups of the two tokens
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      float &x = parts[3 * n], &y = parts[3 * n + 1], &middle = parts[3 * n + 2];
      x = y = middle = 0.f;
      if (n / 2 <= warp) {  // the same for the warp
        const bool own = n / 2 == warp;
        const float2 after = *reinterpret_cast<const float2*>(d.after + 8 * n + 2 * q);
        const float from = d.from[n][first + g], far = d.from[n][first + 8 + g], whole = d.whole[n];
        float2 near_decay = make_float2(from * after.x, from * after.y),
               far_decay = make_float2(far * after.x, far * after.y);
        if (own && n % 2 == 0) near_decay = near_own;
        if (own && n % 2 == 1) far_decay = far_own;
        const float(&a)[4] = passing[n];
        const float(&score)[4] = scores[n];
        float(&sum)[4] = sums[n];
        sum[0] = fmaf(a[0], near_decay.x, sum[0]), sum[1] = fmaf(a[1], near_decay.y, sum[1]);
        sum[2] = fmaf(a[2], far_decay.x, sum[2]), sum[3] = fmaf(a[3], far_decay.y, sum[3]);
        const int place = tile_index<kWide>(first + g, 8 * n + 2 * q);
        *reinterpret_cast<uint32_t*>(m.pairs + place) =
            pack(score[0] * near_decay.x, score[1] * near_decay.y);
        *reinterpret_cast<uint32_t*>(m.pairs + place + 8 * kWide) =
            pack(score[2] * far_decay.x, score[3] * far_decay.y);
        const float e[4] = {a[0] * score[0], a[1] * score[1], a[2] * score[2], a[3] * score[3]};
        x = fmaf(from, e[0], far * e[2]), y = fmaf(from, e[1], far * e[3]);
        middle = fmaf(from, near_sum, far * far_sum);
        if (!own) near_sum = fmaf(near_sum, whole, fmaf(after.x, e[0], after.y * e[1]));
        if (!own || n % 2 == 0) far_sum = fmaf(far_sum, whole, fmaf(after.x, e[2], after.y * e[3]));
        if (own && n % 2 == 0) near_pairs[0] = as_tf32(e[0]), near_pairs[1] = as_tf32(e[1]);
        if (own && n % 2 == 1) far_pairs[2] = as_tf32(e[2]), far_pairs[3] = as_tf32(e[3]);
      }
    }
    show_to_products();
    meet(1, kGroupThreads);  // P L is there
    float dv[8][4];
    clear(dv);
    keep_in_place(dv);
    begin_products();
#pragma unroll
    for (int i = 0; i < kDown; ++i) issue_tiles<false, true>(dv, m.k[i], in.d_state[i], warp, lane);
    issue_products();
    put_gates(to, d, near_own, far_own, near_pairs, far_pairs, near_sum, far_sum, parts, warp, lane);
    const float near = d.behind[first + g], far = d.behind[first + 8 + g];
    await_products();
    keep_in_place(dv);
    scale_rows_of(dv, near, far);
    keep_in_place(dv);
    begin_products();
    issue_tiles<true, true>(dv, m.pairs, in.d_o, warp, lane);
    end_products();
    keep_in_place(dv);
    bf16* const out = p.dv_out + at.row * p.v_stride + int64_t{at.h} * p.dv;
    // By way of the warp's rows of a tile: whole rows go out.
    if constexpr (kWgmma) {
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        const uint32_t x[4] = {pack(dv[n][0], dv[n][1]), pack(dv[n][2], dv[n][3]),
                               pack(dv[n + 1][0], dv[n + 1][1]), pack(dv[n + 1][2], dv[n + 1][3])};
        store_matrices<false>(x, m.dv + 8 * tile_piece<kWide>(first + lane % 16, n + lane / 16));
      }
    } else {
      stage_rows<kWide>(m.dv, dv, first, 0, lane);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kBlock / 4; ++i) {
      const int row = first + 4 * i + lane / 8, piece = lane % 8;
      if (row < at.tokens && piece * 8 < p.dv)
        *reinterpret_cast<uint4*>(out + row * p.v_stride + piece * 8) =
            reinterpret_cast<const uint4*>(m.dv)[tile_piece<kWide>(row, piece)];
    }
  }

  // This warp's part of the sums for the gates' gradients.
  __device__ static void put_gates(WalkSums& to, const WalkDecays& d, float2 near_own, float2 far_own,
                                   const uint32_t (&near_pairs)[4], const uint32_t (&far_pairs)[4],
                                   float near_sum, float far_sum, float (&parts)[3 * kGroups], int warp,
                                   int lane) {
    const int first = kBlock * warp, g = lane / 4, q = lane % 4;
    // own_u of pairs within a group: M times D(r,u-1), whose columns u are then weighted.
    float own[1][4];
    clear(own);
    const auto before = [&](float2 within) {  // D(r,u-1) of u = g
      const float x = __shfl_up_sync(kFullWarp, within.x, 4), y = __shfl_up_sync(kFullWarp, within.y, 4);
      return g > 0 ? make_float2(x, y) : make_float2(0.f, 0.f);
    };
    multiply_add_tf32(own[0], near_pairs, before(near_own));
    multiply_add_tf32(own[0], far_pairs, before(far_own));
    float r[2] = {near_sum, far_sum};
    sum_all<4, 1>(r);
    const auto until = [&](int at) { return q > 0 ? d.until[at + 2 * q - 1] : 1.f; };
    float sums[4] = {near_own.x * fmaf(until(first), r[0], own[0][0]),
                     near_own.y * fmaf(d.until[first + 2 * q], r[0], own[0][1]),
                     far_own.x * fmaf(until(first + 8), r[1], own[0][2]),
                     far_own.y * fmaf(d.until[first + 8 + 2 * q], r[1], own[0][3])};
    sum_scatter<8, 4>(sums, lane);  // lanes g have element g / 2
    if (g % 2 == 0) to.own[first + g / 4 * 8 + 2 * q + g / 2 % 2] = sums[0];
    sum_scatter<8, 4>(parts, lane);  // lanes g have group g's
    reinterpret_cast<float2*>(to.columns[warp])[lane] = make_float2(parts[0], parts[1]);
    to.middle[warp][lane] = parts[2];
  }
};

// <S, dS> over 16 rows of a tile: the diagonal of their products, of which lanes have two elements or none.
__device__ inline float inner_of_rows(const Half* state, const Half* d_state, int first, int lane) {
  float c[2][4];
  clear(c);
#pragma unroll
  for (int k = 0; k < kWide; k += 16) {
    uint32_t a[4], b[4];
    load_left<Rows<kWide>>(a, state, first, k, lane);
    load_right_transposed<Rows<kWide>>(b, d_state, k, first, lane);
    multiply_add_pair(c[0], c[1], a, b);
  }
  const int g = lane / 4;
  float sum[1] = {g / 2 != lane % 4 ? 0.f : g % 2 == 0 ? c[0][0] + c[1][2] : c[0][1] + c[1][3]};
  sum_all<32, 1>(sum);
  return sum[0];
}

// The queries' part of a chunk, or the keys'.
struct States {
  float gradient[kDown][8][4];  // the sum over heads of c Y or of D(.,n) Z

  // left: dO or V, states: S or dS, own: q or k, near and far: how two tokens' rows are scaled. `inside`
  // takes place while the products run; dots: own . Y, times `scale`.
  template <class F>
  __device__ void head(const Half* left, const Half (*states)[kTileSize], const Half (*own)[kTileSize],
                       float near, float far, float scale, float* dots, int warp, int lane, F inside) {
    const int first = kBlock * warp, g = lane / 4, q = lane % 4;
    float y[kDown][8][4];
#pragma unroll
    for (int i = 0; i < kDown; ++i) clear(y[i]), keep_in_place(y[i]);
    begin_products();
#pragma unroll
    for (int i = 0; i < kDown; ++i) issue_tiles<false, false>(y[i], left, states[i], warp, lane);
    issue_products();
    inside();
    await_products();
    float sum[2] = {};
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
      keep_in_place(y[i]);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const Half* const at = own[i] + tile_index<kWide>(first + g, 8 * n + 2 * q);
        const uint32_t x0 = *reinterpret_cast<const uint32_t*>(at),
                       x1 = *reinterpret_cast<const uint32_t*>(at + 8 * kWide);
        float(&c)[4] = y[i][n];
        float(&to)[4] = gradient[i][n];
        sum[0] = fmaf(low_half(x0), c[0], fmaf(high_half(x0), c[1], sum[0]));
        sum[1] = fmaf(low_half(x1), c[2], fmaf(high_half(x1), c[3], sum[1]));
        to[0] = fmaf(near, c[0], to[0]), to[1] = fmaf(near, c[1], to[1]);
        to[2] = fmaf(far, c[2], to[2]), to[3] = fmaf(far, c[3], to[3]);
      }
    }
    sum_all<4, 1>(sum);
    if (q == 0) dots[first + g] = scale * sum[0], dots[first + 8 + g] = scale * sum[1];
  }
  // The gradient with X or, when kLeftColumns, X^T of the pairs X times the others' rows.
  template <bool kLeftColumns>
  __device__ void add_pairs(const Half* pairs, const Half (*rows)[kTileSize], int warp, int lane) {
#pragma unroll
    for (int i = 0; i < kDown; ++i) keep_in_place(gradient[i]);
    begin_products();
#pragma unroll
    for (int i = 0; i < kDown; ++i) issue_tiles<kLeftColumns, true>(gradient[i], pairs, rows[i], warp, lane);
    end_products();
#pragma unroll
    for (int i = 0; i < kDown; ++i) keep_in_place(gradient[i]);
  }
  __device__ void write(bf16* out, int64_t stride, const ChunkPlace& at, int channels, int warp, int lane) {
#pragma unroll
    for (int i = 0; i < kDown; ++i)
      for_each_piece(gradient[i], lane, [&](int row, int piece, uint4 x) {
        const int t = kBlock * warp + row, channel = i * kWide + piece * 8;
        if (t < at.tokens && channel < channels) *reinterpret_cast<uint4*>(out + t * stride + channel) = x;
      });
  }
};

__global__ void __launch_bounds__(kWalkThreads, 1)
    walk_gradient_kernel(Problem<bf16> p, const Half* states, const Half* d_states) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<WalkMemory*>(shared);
  // Known to be the same for a warp, which products of groups need.
  const int group = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / kGroupThreads, 0);
  const int warp = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / 32 % kWarps, 0);
  const int lane = threadIdx.x % 32, thread = threadIdx.x % kGroupThreads, count = p.sharing;
  const ChunkPlace chunk = chunk_of_block(p, int64_t{blockIdx.x} * count);
  if (chunk.tokens <= 0) return;
  const auto head = [&](int step) {
    ChunkPlace at = chunk;
    at.h += step, at.place += step;
    return at;
  };
  const auto fetch_gates = [&](int step) {
    if (step < count) m.gates[step % 3].fetch(p, head(step), 0);
  };
  // A head's inputs, each group what it is there for, and the gates of the next head.
  const auto fetch = [&](int step) {
    if (step < count) {
      const ChunkPlace at = head(step);
      auto& to = m.stage[step % kStages];
      if (group == 0) {
        const int64_t value = int64_t{at.h} * p.dv;
        fetch_gates(step + 1);
        fetch_rows<kGroupThreads>(to.v, p.v + at.row * p.v_stride + value, p.v_stride, at.tokens, p.dv);
        fetch_rows<kGroupThreads>(to.d_o, p.d_o + at.row * p.o_stride + value, p.o_stride, at.tokens, p.dv);
      } else {
        fetch_linear<kDown * kTileSize, kGroupThreads>(
            group == 1 ? to.state[0] : to.d_state[0],
            (group == 1 ? states : d_states) + at.place * kDown * kTileSize, thread);
      }
    }
    copy_commit();
  };
  if (group == 0) {
    fetch_gates(0);
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
      const int channels = min(kWide, p.dk - i * kWide);
      const int64_t key = p.key(chunk.h) + i * kWide;
      fetch_rows<kGroupThreads>(m.q[i], p.q + chunk.row * p.q_stride + key, p.q_stride, chunk.tokens,
                                channels);
      fetch_rows<kGroupThreads>(m.k[i], p.k + chunk.row * p.k_stride + key, p.k_stride, chunk.tokens,
                                channels);
    }
  }
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) fetch(step);
  for (auto& gates : m.gates) gates.settle(p, chunk, 0);
  for (int i = threadIdx.x; i < kTileSize / 8; i += kWalkThreads)  // pairs that are none stay zero
    reinterpret_cast<uint4*>(m.pairs)[i] = make_uint4(0, 0, 0, 0);
  // The head at `step` is there, its decays are, and everybody is done with the one before.
  const auto begin = [&](int step) {
    copy_wait<kStages - 2>();
    show_to_products();
    meet(0, kWalkThreads);
    fetch(step + kStages - 1);
  };
  copy_wait<kStages - 2>();
  show_to_products();
  meet(0, kWalkThreads);
  if (group == 0) {
    Pairs pairs;
    clear(pairs.scores), clear(pairs.sums);
    keep_in_place(pairs.scores);
    begin_products();
#pragma unroll
    for (int i = 0; i < kDown; ++i) issue_tiles<false, false>(pairs.scores, m.q[i], m.k[i], warp, lane);
    end_products();
    keep_in_place(pairs.scores);
    scale_rows_of(pairs.scores, p.scale, p.scale);
    for (int step = 0; step < count; ++step) {
      begin(step);
      pairs.head(p, head(step), m, m.stage[step % kStages], m.decays[step % 3], m.sums[step % 2], warp, lane);
    }
    scale_rows_of(pairs.sums, p.scale, p.scale);
    meet(1, kGroupThreads);  // everybody has read P L
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      if (n / 2 <= warp) {
        const int place = tile_index<kWide>(kBlock * warp + lane / 4, 8 * n + lane % 4 * 2);
        *reinterpret_cast<uint32_t*>(m.pairs + place) = pack(pairs.sums[n][0], pairs.sums[n][1]);
        *reinterpret_cast<uint32_t*>(m.pairs + place + 8 * kWide) = pack(pairs.sums[n][2], pairs.sums[n][3]);
      }
    }
    show_to_products();
    meet(0, kWalkThreads);
  } else {
    const bool keys = group == 2;
    const int row = kBlock * warp + lane / 4;
    States part;
#pragma unroll
    for (int i = 0; i < kDown; ++i) clear(part.gradient[i]);
    const auto fill = [&](int step, bool all) {
      auto& d = m.decays[step % 3];
      const float* const gates = m.gates[step % 3].g;
      d.fill_within(gates, warp, lane);
      if (all) d.fill_all(gates, lane);
    };
    if (!keys) fill(0, warp == 0);
    for (int step = 0; step < count; ++step) {
      begin(step);
      const auto& in = m.stage[step % kStages];
      const auto& d = m.decays[step % 3];
      auto& sums = m.sums[step % 2];
      const float scale = keys ? 1.f : p.scale;
      const float* const factors = keys ? d.behind : d.before;
      part.head(keys ? in.v : in.d_o, keys ? in.d_state : in.state, keys ? m.k : m.q, scale * factors[row],
                scale * factors[row + 8], scale, keys ? sums.written : sums.read, warp, lane, [&] {
                  const int tile = group - 1;
                  const float inner = inner_of_rows(in.state[tile], in.d_state[tile], kBlock * warp, lane);
                  if (lane == 0) sums.inner[tile * kWarps + warp] = inner;
                });
      // The decays of the next head and the gates of the one before, the most of it by warps in turn.
      const bool turn = warp == step % kWarps;
      if (!keys && step + 1 < count) fill(step + 1, turn);
      if (keys && turn && step > 0)
        write_gates(p, head(step - 1), m.sums[(step - 1) % 2], m.decays[(step - 1) % 3], lane);
    }
    meet(0, kWalkThreads);  // the sum of A L is there
    keys ? part.add_pairs<true>(m.pairs, m.q, warp, lane) : part.add_pairs<false>(m.pairs, m.k, warp, lane);
    if (keys && warp == 0)
      write_gates(p, head(count - 1), m.sums[(count - 1) % 2], m.decays[(count - 1) % 3], lane);
    const int64_t key = p.key(chunk.h);
    part.write(keys ? p.dk_out + chunk.row * p.dk_stride + key : p.dq + chunk.row * p.dq_stride + key,
               keys ? p.dk_stride : p.dq_stride, chunk, p.dk, warp, lane);
  }
}

int64_t walks(const Problem<bf16>& p) { return chunk_places(p) * p.heads / p.sharing; }

}  // namespace

// Where walks fill the GPU.
bool walk_gradients_apply(const Problem<bf16>& p) {
  return p.sharing > 1 && !p.channel_gates && wide_tiles(p.dk) == kDown && p.dv <= kWide &&
         walks(p) >= cuda_device().multiprocessors / 2 && fits_shared_memory(sizeof(WalkMemory));
}

void walk_gradients(const Problem<bf16>& p, const Half* states, const Half* d_states, cudaStream_t stream) {
  constexpr int kBytes = sizeof(WalkMemory);
  allow_shared_memory(walk_gradient_kernel, kBytes, "gated linear gradients");
  signet::launch("gated linear gradients", walk_gradient_kernel, static_cast<unsigned>(walks(p)),
                 kWalkThreads, kBytes, Cuda{stream}, p, states, d_states);
}

}  // namespace signet::kernels::gated_linear
