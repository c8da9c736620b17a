// Attention of bf16 sequences of any length on tensor cores, heads of 64 or 128 units: blocks of queries walk
// over tiles of 64 keys with a running maximum, and blocks of keys over tiles of queries for their own
// gradients. dq has a pass of its own, which computes the scores again: sums stay in a fixed order without
// atomics. Queries and keys are turned to their positions once, into the workspace; gradients are turned back
// in registers, where a lane has both elements of a pair.
#include "signet/kernels/attention/attention_cuda.cuh"
#include "signet/kernels/delta_rule/delta_rule_cuda_group.cuh"
#include "signet/tensor/launch.cuh"

namespace signet::kernels::attention {
namespace {

using namespace delta_rule;  // NOLINT: the tensor core building blocks

constexpr int kKeys = 64;      // of a tile
constexpr int kGroup = 128;    // threads of a warpgroup, which has 64 rows: 16 a warp
constexpr int kQueries = 128;  // of a block of the forward pass: of two groups
constexpr int kGradRows = 64;  // of a block of a backward pass: of one
constexpr int kFewest = 32;    // tokens of a sequence: fewer, as in decoding, leave most of a block idle
constexpr float kLog2E = 1.4426950408889634f;

struct Views {
  const Half *q, *k;  // turned
  int64_t q_stride, k_stride;
  const float* angles;  // cosines [keys, width / 2], then sines; null: no rotation
  float* delta;         // [B, heads, time]
};

// y = x turned, rows [rows, heads, width]; a thread for 8 pairs. Row r stands at position `first` + r modulo
// `period`, or from the start of its sequence.
__global__ void __launch_bounds__(256)
    turn_kernel(const Half* x, int64_t stride, Half* y, int64_t rows, int heads, int width,
                const float* angles, int64_t keys, int64_t period, int64_t first, const int32_t* offsets,
                int batch) {
  begin_kernel();
  const int half = width / 2, pieces = half / 8;
  const int64_t at = int64_t{blockIdx.x} * 256 + threadIdx.x, row = at / (heads * pieces);
  if (row >= rows) return;
  const int rest = static_cast<int>(at % (heads * pieces)), head = rest / pieces, i = rest % pieces * 8;
  int64_t position = row % period + first;
  if (offsets) {  // the sequence that has the row
    int low = 0, high = batch;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (offsets[middle] <= row ? low : high) = middle;
    }
    position = row - offsets[low];
    if (row >= offsets[batch]) return;
  }
  const Half* const from = x + row * stride + head * width + i;
  Half* const to = y + (row * heads + head) * width + i;
  const float *const cosine = angles + position * half + i, *const sine =
                                                                angles + (keys + position) * half + i;
  float a[8], b[8];
  load_floats(a, from);
  load_floats(b, from + half);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float u = a[j], v = b[j];
    a[j] = u * cosine[j] - v * sine[j];
    b[j] = v * cosine[j] + u * sine[j];
  }
  store_floats(to, a);
  store_floats(to + half, b);
}

// delta = o . d_o; a warp per row and head.
__global__ void __launch_bounds__(256) delta_kernel(AttentionBackward<bf16> p, float* delta) {
  begin_kernel();
  const AttentionShape& s = p.shape;
  const int lane = threadIdx.x % 32;
  const int64_t at = (int64_t{blockIdx.x} * 256 + threadIdx.x) / 32, t = at % s.time, bh = at / s.time;
  if (bh >= s.batch * s.heads) return;
  const int64_t b = bh / s.heads, head = bh % s.heads;
  const Span span(s, b);
  float total = 0.f;
  if (t < span.time) {
    const int64_t row = (span.first_query + t) * s.o_stride + head * s.width;
    for (int i = lane * 2; i < s.width; i += 64) {
      const uint32_t o = *reinterpret_cast<const uint32_t*>(p.o + row + i),
                     d = *reinterpret_cast<const uint32_t*>(p.d_o + row + i);
      total = fmaf(low_half(o), low_half(d), fmaf(high_half(o), high_half(d), total));
    }
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) total += __shfl_xor_sync(kFullWarp, total, mask);
  if (lane == 0) delta[at] = total;
}

// Rows [first, first + 64) as panels of 64 columns, by kThreads threads; rows from `end` on become zero.
template <int D, int kThreads>
__device__ void fetch(Half* tile, const Half* source, int64_t stride, int64_t first, int64_t end) {
  const int valid = static_cast<int>(max(int64_t{0}, min(int64_t{64}, end - first)));
#pragma unroll
  for (int part = 0; part < D / 64; ++part)
    fetch_tile<64, 64, kThreads>(tile + part * kTile, source + first * stride + 64 * part,
                                 RowMap(1, stride, 0), valid, static_cast<int>(threadIdx.x));
}
// What has been fetched is there for all threads and their products.
__device__ inline void await_tiles() {
  copy_wait<0>();
  show_to_products();
  __syncthreads();
}

// C[16 rows at m0 of the left panels][64 rows of the right ones] += products of rows over D columns. All
// warps of a group together; the sums are there after end_products().
template <int D>
__device__ void add_row_products(float (&c)[8][4], const Half* left, int m0, const Half* right, int lane) {
  if constexpr (!kWgmma) {
    product<D, Panels<D>, false, Panels<D>, true>(c, left, m0, right, 0, lane);
  } else {
#pragma unroll
    for (int k = 0; k < D; k += 16)
      multiply_shared(c, operand_of<false>(Panels<D>{}, left, k, 0),
                      operand_of<false>(Panels<D>{}, right, k, 0));
  }
}
// C[16][D] += A[16][64] times 64 rows of D columns.
template <int D>
__device__ void add_rows(float (&c)[D / 8][4], const uint32_t (&a)[4][4], const Half* panels, int lane) {
#pragma unroll
  for (int n = 0; n < D / 8; n += 8) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (kWgmma) {
        multiply_wide<true>(c, n, a[k], operand_of<true>(Panels<D>{}, panels, 16 * k, n * 8));
      } else {
#pragma unroll
        for (int i = n; i < n + 8; i += 2) {
          uint32_t b[4];
          load_right<Panels<D>>(b, panels, 16 * k, i * 8, lane);
          multiply_add_pair(c[i], c[i + 1], a[k], b);
        }
      }
    }
  }
}
// Sums of 16 rows, rounded, as the left operand of the next product.
__device__ inline void rounded_left(uint32_t (&a)[4][4], const float (&x)[8][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k][i] = pack(x[2 * k + i / 2][i % 2 * 2], x[2 * k + i / 2][i % 2 * 2 + 1]);
  }
}
// 2^x, 0 far below
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// This block's sequence, head and first row.
struct Place {
  int64_t b, head, first;
  __device__ Place(const AttentionShape& s, int rows, bool last_first)
      : b(blockIdx.x / s.heads),
        head(blockIdx.x % s.heads),
        first(int64_t{last_first ? gridDim.y - 1 - blockIdx.y : blockIdx.y} * rows) {}
};

template <int D>
struct alignas(1024) ForwardMemory {
  Half q[2][64 * D];  // of the groups
  Half k[2][kKeys * D], v[2][kKeys * D];
};

template <int D>
__global__ void __launch_bounds__(2 * kGroup, 2) forward_kernel(AttentionForward<bf16> p, Views view) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<ForwardMemory<D>*>(shared);
  const AttentionShape& s = p.shape;
  const Place at(s, kQueries, /*last_first=*/true);  // the longest walks first
  const Span span(s, at.b);
  if (at.first >= span.time) return;
  const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16, group = threadIdx.x / kGroup;
  const int64_t column = at.head * D, offset = span.keys - span.time;
  const Half* const keys = view.k + span.first_key * view.k_stride + column;
  const Half* const values = reinterpret_cast<const Half*>(p.v) + span.first_key * s.v_stride + column;
  const int64_t end = min(span.keys, offset + at.first + kQueries);  // keys that some query sees
  const auto fetch_keys = [&](int64_t first, int slot) {
    if (first < end) {
      fetch<D, 2 * kGroup>(m.k[slot], keys, view.k_stride, first, span.keys);
      fetch<D, 2 * kGroup>(m.v[slot], values, s.v_stride, first, span.keys);
    }
    copy_commit();
  };
#pragma unroll
  for (int part = 0; part < 2; ++part)
    fetch<D, 2 * kGroup>(m.q[part], view.q + span.first_query * view.q_stride + column, view.q_stride,
                         at.first + 64 * part, span.time);
  fetch_keys(0, 0);
  const float scale = static_cast<float>(s.scale) * kLog2E;
  float o[D / 8][4], largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
  clear(o);
  int slot = 0;
  for (int64_t j0 = 0; j0 < end; j0 += kKeys, slot ^= 1) {
    await_tiles();
    fetch_keys(j0 + kKeys, slot ^ 1);
    if (j0 >= offset + at.first + 64 * (group + 1)) continue;  // no query of this group sees these
    float x[8][4];
    clear(x);
    keep_in_place(x);
    begin_products();
    add_row_products<D>(x, m.q[group], row0 % 64, m.k[slot], lane);
    end_products();
    keep_in_place(x);
    if (j0 + kKeys > offset + at.first + row0 + 1 || j0 + kKeys > span.keys) {
      for_each_element(x, lane, [&](float& value, int row, int key) {
        if (j0 + key > offset + at.first + row0 + row || j0 + key >= span.keys) value = -INFINITY;
      });
    }
#pragma unroll
    for (int part = 0; part < 2; ++part) {  // rows lane / 4 and 8 further
      float most = largest[part];
#pragma unroll
      for (int n = 0; n < 8; ++n) most = fmaxf(most, fmaxf(x[n][2 * part], x[n][2 * part + 1]));
      most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 2));
      const float base = most == -INFINITY ? 0.f : most * scale;
      const float shrink = power_of_two(largest[part] * scale - base);
      largest[part] = most;
      float sum = 0.f;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 2 * part; e < 2 * part + 2; ++e) {
          x[n][e] = power_of_two(fmaf(x[n][e], scale, -base));
          sum += x[n][e];
        }
      }
      total[part] = fmaf(total[part], shrink, sum);
#pragma unroll
      for (int n = 0; n < D / 8; ++n) o[n][2 * part] *= shrink, o[n][2 * part + 1] *= shrink;
    }
    uint32_t weights[4][4];
    rounded_left(weights, x);
    keep_in_place(o);
    begin_products();
    add_rows<D>(o, weights, m.v[slot], lane);
    end_products();
    keep_in_place(o);
  }
  float inverse[2];
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    float sum = total[part];
    sum += __shfl_xor_sync(kFullWarp, sum, 1);
    sum += __shfl_xor_sync(kFullWarp, sum, 2);
    inverse[part] = 1.f / sum;
    const int64_t t = at.first + row0 + 8 * part + lane / 4;
    if (p.lse && lane % 4 == 0 && t < span.time)
      p.lse[(at.b * s.heads + at.head) * s.time + t] =
          largest[part] * static_cast<float>(s.scale) + logf(sum);
  }
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    o[n][0] *= inverse[0], o[n][1] *= inverse[0];
    o[n][2] *= inverse[1], o[n][3] *= inverse[1];
  }
  __syncthreads();  // nobody reads q any more, whose place takes the results
  Half* const staged = m.q[0];
  stage_rows<D>(staged, o, row0, 0, lane);
  Half* const out = reinterpret_cast<Half*>(p.o) + span.first_query * s.o_stride + column;
  drain_rows<D, D>(staged, row0, 0, lane, [&](int row) {
    return at.first + row < span.time ? out + (at.first + row) * s.o_stride : nullptr;
  });
}

// Turns the gradients of 16 rows of a warp back; row r stands at position + r.
template <int D>
__device__ void turn_back(float (&c)[D / 8][4], const Views& view, int64_t keys, int64_t position,
                          int64_t last, int lane) {
  if (!view.angles) return;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const int64_t at = min(position + lane / 4 + 8 * part, last);
    const float *const cosine = view.angles + at * (D / 2), *const sine = view.angles + (keys + at) * (D / 2);
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int i = n * 8 + lane % 4 * 2 + e;
        float &x = c[n][2 * part + e], &y = c[n + D / 16][2 * part + e];
        const float u = x, v = y;
        x = u * cosine[i] + v * sine[i];
        y = v * cosine[i] - u * sine[i];
      }
    }
  }
}

template <int D>
struct alignas(1024) GradientMemory {
  Half first[kGradRows * D], second[kGradRows * D];  // of the block: q and d_o, or k and v
  Half third[2][kKeys * D], fourth[2][kKeys * D];    // the tiles it walks over
  float lse[2][kKeys], delta[2][kKeys];              // of queries walked over
};

template <int D>
__device__ void write_block(GradientMemory<D>& m, float (&c)[D / 8][4], bf16* to, int64_t stride,
                            int64_t first, int64_t end, int lane, int row0) {
  __syncwarp();
  stage_rows<D>(m.first, c, row0, 0, lane);
  drain_rows<D, D>(m.first, row0, 0, lane, [&](int row) {
    return first + row < end ? reinterpret_cast<Half*>(to) + (first + row) * stride : nullptr;
  });
}

template <int D>
__global__ void __launch_bounds__(kGroup, 2) query_gradient_kernel(AttentionBackward<bf16> p, Views view) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<GradientMemory<D>*>(shared);
  const AttentionShape& s = p.shape;
  const Place at(s, kGradRows, /*last_first=*/true);
  const Span span(s, at.b);
  if (at.first >= span.time) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row0 = 16 * warp;
  const int64_t column = at.head * D, offset = span.keys - span.time;
  const Half* const keys = view.k + span.first_key * view.k_stride + column;
  const Half* const values = reinterpret_cast<const Half*>(p.v) + span.first_key * s.v_stride + column;
  const int64_t end = min(span.keys, offset + at.first + kGradRows);
  const auto fetch_keys = [&](int64_t first, int slot) {
    if (first < end) {
      fetch<D, kGroup>(m.third[slot], keys, view.k_stride, first, span.keys);
      fetch<D, kGroup>(m.fourth[slot], values, s.v_stride, first, span.keys);
    }
    copy_commit();
  };
  fetch<D, kGroup>(m.first, view.q + span.first_query * view.q_stride + column, view.q_stride, at.first,
                   span.time);
  fetch<D, kGroup>(m.second, reinterpret_cast<const Half*>(p.d_o) + span.first_query * s.o_stride + column,
                   s.o_stride, at.first, span.time);
  fetch_keys(0, 0);
  const float scale = static_cast<float>(s.scale) * kLog2E;
  float lse[2], delta[2];
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const int64_t t = at.first + row0 + lane / 4 + 8 * part,
                  statistic = (at.b * s.heads + at.head) * s.time + t;
    lse[part] = t < span.time ? p.lse[statistic] * kLog2E : 0.f;
    delta[part] = t < span.time ? view.delta[statistic] : 0.f;
  }
  float dq[D / 8][4];
  clear(dq);
  int slot = 0;
  for (int64_t j0 = 0; j0 < end; j0 += kKeys, slot ^= 1) {
    await_tiles();
    fetch_keys(j0 + kKeys, slot ^ 1);
    float x[8][4], along[8][4];
    clear(x), clear(along);
    keep_in_place(x), keep_in_place(along);
    begin_products();
    add_row_products<D>(x, m.first, row0, m.third[slot], lane);
    add_row_products<D>(along, m.second, row0, m.fourth[slot], lane);
    end_products();
    keep_in_place(x), keep_in_place(along);
    const int64_t seen = offset + at.first + row0 - j0;  // the last key that row 0 of the warp sees
    const int64_t there = span.keys - j0;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = n * 8 + lane % 4 * 2 + e % 2, row = lane / 4 + e / 2 * 8;
        const bool sees = key <= seen + row && key < there;
        const float weight = sees ? power_of_two(fmaf(x[n][e], scale, -lse[e / 2])) : 0.f;
        x[n][e] = weight * (along[n][e] - delta[e / 2]);
      }
    }
    uint32_t a[4][4];
    rounded_left(a, x);
    keep_in_place(dq);
    begin_products();
    add_rows<D>(dq, a, m.third[slot], lane);
    end_products();
    keep_in_place(dq);
  }
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) dq[n][e] *= static_cast<float>(s.scale);
  }
  __syncthreads();  // nobody reads q any more, whose place takes the results
  turn_back<D>(dq, view, s.keys, offset + at.first + row0, span.keys - 1, lane);
  write_block<D>(m, dq, p.dq + span.first_query * s.q_stride + column, s.q_stride, at.first, span.time, lane,
                 row0);
}

template <int D>
__global__ void __launch_bounds__(kGroup, 2) key_gradient_kernel(AttentionBackward<bf16> p, Views view) {
  begin_kernel();
  extern __shared__ __align__(1024) char shared[];
  auto& m = *reinterpret_cast<GradientMemory<D>*>(shared);
  const AttentionShape& s = p.shape;
  const Place at(s, kGradRows, /*last_first=*/false);  // the first keys are seen by most queries
  const Span span(s, at.b);
  if (at.first >= span.keys) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row0 = 16 * warp;
  const int64_t column = at.head * D, offset = span.keys - span.time;
  const Half* const queries = view.q + span.first_query * view.q_stride + column;
  const Half* const d_o = reinterpret_cast<const Half*>(p.d_o) + span.first_query * s.o_stride + column;
  const int64_t statistics = (at.b * s.heads + at.head) * s.time;
  const int64_t begin = max(int64_t{0}, at.first - offset) / kKeys * kKeys;
  const auto fetch_queries = [&](int64_t first, int slot) {
    if (first < span.time) {
      fetch<D, kGroup>(m.third[slot], queries, view.q_stride, first, span.time);
      fetch<D, kGroup>(m.fourth[slot], d_o, s.o_stride, first, span.time);
      const int64_t t = first + threadIdx.x % kKeys;
      const bool there = t < span.time;
      if (threadIdx.x < kKeys)
        m.lse[slot][threadIdx.x] = there ? p.lse[statistics + t] * kLog2E : 0.f;
      else
        m.delta[slot][threadIdx.x - kKeys] = there ? view.delta[statistics + t] : 0.f;
    }
    copy_commit();
  };
  fetch<D, kGroup>(m.first, view.k + span.first_key * view.k_stride + column, view.k_stride, at.first,
                   span.keys);
  fetch<D, kGroup>(m.second, reinterpret_cast<const Half*>(p.v) + span.first_key * s.v_stride + column,
                   s.v_stride, at.first, span.keys);
  fetch_queries(begin, 0);
  const float scale = static_cast<float>(s.scale) * kLog2E;
  float dk[D / 8][4], dv[D / 8][4];
  clear(dk), clear(dv);
  int slot = 0;
  for (int64_t t0 = begin; t0 < span.time; t0 += kKeys, slot ^= 1) {
    await_tiles();
    fetch_queries(t0 + kKeys, slot ^ 1);
    float x[8][4], along[8][4];
    clear(x), clear(along);
    keep_in_place(x), keep_in_place(along);
    begin_products();
    add_row_products<D>(x, m.first, row0, m.third[slot], lane);
    add_row_products<D>(along, m.second, row0, m.fourth[slot], lane);
    end_products();
    keep_in_place(x), keep_in_place(along);
    const int64_t first_seen = at.first + row0 - offset - t0;  // the query of the tile that sees row 0
    const int64_t there = span.time - t0;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int t = n * 8 + lane % 4 * 2 + e % 2, row = lane / 4 + e / 2 * 8;
        const bool sees = t >= first_seen + row && t < there;
        x[n][e] = sees ? power_of_two(fmaf(x[n][e], scale, -m.lse[slot][t])) : 0.f;
      }
    }
    uint32_t weights[4][4], a[4][4];
    rounded_left(weights, x);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) x[n][e] *= along[n][e] - m.delta[slot][n * 8 + lane % 4 * 2 + e % 2];
    }
    rounded_left(a, x);
    keep_in_place(dv), keep_in_place(dk);
    begin_products();
    add_rows<D>(dv, weights, m.fourth[slot], lane);
    add_rows<D>(dk, a, m.third[slot], lane);
    end_products();
    keep_in_place(dv), keep_in_place(dk);
  }
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) dk[n][e] *= static_cast<float>(s.scale);
  }
  __syncthreads();  // nobody reads k any more
  turn_back<D>(dk, view, s.keys, at.first + row0, span.keys - 1, lane);
  write_block<D>(m, dk, p.dk + span.first_key * s.k_stride + column, s.k_stride, at.first, span.keys, lane,
                 row0);
  write_block<D>(m, dv, p.dv + span.first_key * s.v_stride + column, s.v_stride, at.first, span.keys, lane,
                 row0);
}

int64_t query_rows(const AttentionShape& s) { return s.batch * s.time; }
int64_t key_rows(const AttentionShape& s) { return s.batch * s.capacity; }

// Turned copies of q and k in the workspace, or q and k themselves.
Views prepare(const AttentionShape& s, const bf16* q, const bf16* k, const float* angles, float* copies,
              Cuda device) {
  Views view{reinterpret_cast<const Half*>(q),
             reinterpret_cast<const Half*>(k),
             s.q_stride,
             s.k_stride,
             angles,
             nullptr};
  if (!angles) return view;
  const int64_t stride = s.heads * s.width;
  Half *const turned_q = reinterpret_cast<Half*>(copies), *const turned_k = turned_q + query_rows(s) * stride;
  const auto turn = [&](const Half* from, int64_t from_stride, Half* to, int64_t rows, int64_t period,
                        int64_t first) {
    const int64_t threads = rows * s.heads * (s.width / 16);
    launch("attention: rotation", turn_kernel, static_cast<unsigned>((threads + 255) / 256), 256, 0, device,
           from, from_stride, to, rows, static_cast<int>(s.heads), static_cast<int>(s.width), angles, s.keys,
           period, first, s.offsets, static_cast<int>(s.batch));
  };
  turn(view.q, s.q_stride, turned_q, query_rows(s), s.time, s.keys - s.time);
  // Of a cache only the rows that hold keys: each sequence has its own.
  if (s.capacity == s.keys)
    turn(view.k, s.k_stride, turned_k, key_rows(s), s.keys, 0);
  else
    for (int64_t b = 0; b < s.batch; ++b)
      turn(view.k + b * s.capacity * s.k_stride, s.k_stride, turned_k + b * s.capacity * stride, s.keys,
           s.keys, 0);
  view.q = turned_q, view.k = turned_k, view.q_stride = view.k_stride = stride;
  return view;
}

dim3 grid_of(const AttentionShape& s, int64_t rows, int64_t of_block) {
  return dim3(static_cast<unsigned>(s.batch * s.heads),
              static_cast<unsigned>((rows + of_block - 1) / of_block));
}

template <int D>
void run_forward(const AttentionForward<bf16>& p, const Views& view, Cuda device) {
  constexpr int kBytes = sizeof(ForwardMemory<D>);
  allow_shared_memory(forward_kernel<D>, kBytes, "attention");
  launch("attention_forward", forward_kernel<D>, grid_of(p.shape, p.shape.time, kQueries), 2 * kGroup, kBytes,
         device, p, view);
}
template <int D>
void run_backward(const AttentionBackward<bf16>& p, const Views& view, Cuda device) {
  constexpr int kBytes = sizeof(GradientMemory<D>);
  const AttentionShape& s = p.shape;
  allow_shared_memory(query_gradient_kernel<D>, kBytes, "attention");
  allow_shared_memory(key_gradient_kernel<D>, kBytes, "attention");
  launch("attention: dq", query_gradient_kernel<D>, grid_of(s, s.time, kGradRows), kGroup, kBytes, device, p,
         view);
  launch("attention: dk, dv", key_gradient_kernel<D>, grid_of(s, s.keys, kGradRows), kGroup, kBytes, device,
         p, view);
}

}  // namespace

bool long_covers(const AttentionShape& s) {
  if ((s.width != 64 && s.width != 128) || s.time < kFewest) return false;
  for (int64_t stride : {s.q_stride, s.k_stride, s.v_stride, s.o_stride})
    if (stride % 8 != 0 || stride >= 1 << 24) return false;
  if (s.time > int64_t{65535} * kGradRows || s.keys > int64_t{65535} * kGradRows) return false;
  return fits_shared_memory(s.width == 64 ? sizeof(GradientMemory<64>) : sizeof(GradientMemory<128>));
}

int64_t long_copies_size(const AttentionShape& s) {
  return s.rotary_base > 0 ? (query_rows(s) + key_rows(s)) * s.heads * s.width / 2 : 0;
}

void long_forward(const AttentionForward<bf16>& p, const float* angles, float* copies, Cuda device) {
  const Views view = prepare(p.shape, p.q, p.k, angles, copies, device);
  p.shape.width == 64 ? run_forward<64>(p, view, device) : run_forward<128>(p, view, device);
}

void long_backward(const AttentionBackward<bf16>& p, const float* angles, float* deltas, float* copies,
                   Cuda device) {
  const AttentionShape& s = p.shape;
  Views view = prepare(s, p.q, p.k, angles, copies, device);
  view.delta = deltas;
  launch("attention: delta", delta_kernel,
         static_cast<unsigned>((s.batch * s.heads * s.time * 32 + 255) / 256), 256, 0, device, p, deltas);
  s.width == 64 ? run_backward<64>(p, view, device) : run_backward<128>(p, view, device);
}

}  // namespace signet::kernels::attention
