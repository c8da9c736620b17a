// Softmax attention of short sequences, one block per head of a sequence (short_attention.cuh). Queries and
// keys are turned to their positions in shared memory. Backward makes P again from the saved logarithms; the
// sum o . d_o of the usual formula is that over a row of P dP, which lies in registers.
#include <cmath>

#include "signet/kernels/attention/attention_cuda.cuh"
#include "signet/kernels/attention/short_attention.cuh"

namespace signet::kernels::attention {
namespace {

using namespace short_attention;
constexpr float kLog2E = 1.4426950408889634f;

// The angle of pair `i` of kD / 2 at a position: position base^(-2i / kD). Errors of 1e-5 are far below those
// of the storage.
template <int kD>
struct Rotation {
  float log2_base;  // 0: no rotation
  __device__ void at(int position, int pair, float& cosine, float& sine) const {
    __sincosf(static_cast<float>(position) * exp2f(static_cast<float>(pair) * (-2.0f / kD) * log2_base),
              &sine, &cosine);
  }
};

// Turns all rows of two tiles to their positions.
template <int kD, int kTiles>
__device__ void turn(Half* q, Half* k, int time, const Rotation<kD>& rotation) {
  constexpr int kPieces = kD / 16;  // of 8 pairs
  for (int i = threadIdx.x; i < time * kPieces; i += 32 * kTiles) {
    const int row = i / kPieces, piece = i % kPieces;
    float cosine[8], sine[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) rotation.at(row, piece * 8 + j, cosine[j], sine[j]);
    const auto turn_row = [&](Half* tile) {
      uint4* low = reinterpret_cast<uint4*>(tile) + delta_rule::tile_piece<kD>(row, piece);
      uint4* high = reinterpret_cast<uint4*>(tile) + delta_rule::tile_piece<kD>(row, piece + kPieces);
      uint32_t x[4] = {low->x, low->y, low->z, low->w}, y[4] = {high->x, high->y, high->z, high->w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float x0 = delta_rule::low_half(x[j]), x1 = delta_rule::high_half(x[j]),
                    y0 = delta_rule::low_half(y[j]), y1 = delta_rule::high_half(y[j]);
        x[j] = delta_rule::pack(x0 * cosine[2 * j] - y0 * sine[2 * j],
                                x1 * cosine[2 * j + 1] - y1 * sine[2 * j + 1]);
        y[j] = delta_rule::pack(y0 * cosine[2 * j] + x0 * sine[2 * j],
                                y1 * cosine[2 * j + 1] + x1 * sine[2 * j + 1]);
      }
      *low = make_uint4(x[0], x[1], x[2], x[3]);
      *high = make_uint4(y[0], y[1], y[2], y[3]);
    };
    turn_row(q), turn_row(k);
  }
}

// Turns the gradients of a warp's rows back: both elements of a pair are in one lane.
template <int kD>
__device__ void turn_back(float (&x)[kD / 8][4], float (&y)[kD / 8][4], int warp, int lane,
                          const Rotation<kD>& rotation) {
#pragma unroll
  for (int n = 0; n < kD / 16; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float cosine, sine;
      rotation.at(16 * warp + lane / 4 + e / 2 * 8, n * 8 + lane % 4 * 2 + e % 2, cosine, sine);
      const auto turn_pair = [&](float& low, float& high) {
        const float turned = low * cosine + high * sine;
        high = high * cosine - low * sine;
        low = turned;
      };
      turn_pair(x[n][e], x[n + kD / 16][e]), turn_pair(y[n][e], y[n + kD / 16][e]);
    }
  }
}

struct Sizes {
  int time, heads;
  float scale, log2_base;
  bool rotates;
  const int32_t* offsets;
  explicit Sizes(const AttentionShape& s)
      : time(static_cast<int>(s.time)),
        heads(static_cast<int>(s.heads)),
        scale(static_cast<float>(s.scale)),
        log2_base(s.rotary_base > 0 ? static_cast<float>(std::log2(s.rotary_base)) : 0.0f),
        rotates(s.rotary_base > 0),
        offsets(s.offsets) {}
};

template <int kD, int kTiles>
__global__ void __launch_bounds__(32 * kTiles)
    short_forward_kernel(Sizes s, HeadRows<const Half> q_rows, HeadRows<const Half> k_rows,
                         HeadRows<const Half> v_rows, HeadRows<Half> o_rows, float* lse) {
  begin_kernel();
  __shared__ __align__(256) Half q[16 * kTiles * kD], k[16 * kTiles * kD], v[16 * kTiles * kD];
  const Place at(s.heads, s.time, s.offsets);
  fetch<kD, kTiles>(q, q_rows.at(at.first, at.h, kD), q_rows.stride, at.time);
  fetch<kD, kTiles>(k, k_rows.at(at.first, at.h, kD), k_rows.stride, at.time);
  fetch<kD, kTiles>(v, v_rows.at(at.first, at.h, kD), v_rows.stride, at.time);
  delta_rule::copy_commit();
  delta_rule::copy_wait<0>();
  __syncthreads();
  if (s.rotates) {
    turn<kD, kTiles>(q, k, at.time, Rotation<kD>{s.log2_base});
    __syncthreads();
  }
  if (at.idle()) return;
  float p[8][4], largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
  scores<kD>(p, q, k, at.warp, at.lane);
  const float scale = s.scale * kLog2E;
  for_causal(p, p, at.warp, at.lane,
             [&](float& x, float&, int r, int, int) { largest[r] = fmaxf(largest[r], x *= scale); });
  largest_of_lanes(largest);
  for_causal(p, p, at.warp, at.lane,
             [&](float& x, float&, int r, int, int) { total[r] += x = exp2f(x - largest[r]); });
  add_lanes(total);
  float o[kD / 8][4];
  weigh<kD>(o, p, v, at.warp, at.lane);
  const float inverse[2] = {1.0f / total[0], 1.0f / total[1]};
#pragma unroll
  for (int n = 0; n < kD / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) o[n][e] *= inverse[e / 2];
  }
  write<kD>(q, o, o_rows.at(at.first, at.h, kD), o_rows.stride, at.time, at.warp, at.lane);
  if (!lse || at.lane % 4 != 0) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = 16 * at.warp + at.lane / 4 + 8 * r;
    if (row < at.time) lse[int64_t{blockIdx.x} * s.time + row] = largest[r] / kLog2E + logf(total[r]);
  }
}

template <int kD, int kTiles>
__global__ void __launch_bounds__(32 * kTiles)
    short_backward_kernel(Sizes s, HeadRows<const Half> q_rows, HeadRows<const Half> k_rows,
                          HeadRows<const Half> v_rows, HeadRows<const Half> d_o_rows, const float* lse,
                          Half* dq_out, Half* dk_out, Half* dv_out) {
  begin_kernel();
  __shared__ __align__(256) Half q[16 * kTiles * kD], k[16 * kTiles * kD], v[16 * kTiles * kD],
      d_o[16 * kTiles * kD], weights[16 * kTiles * kScoreWidth], d_scores[16 * kTiles * kScoreWidth];
  const Place at(s.heads, s.time, s.offsets);
  fetch<kD, kTiles>(q, q_rows.at(at.first, at.h, kD), q_rows.stride, at.time);
  fetch<kD, kTiles>(k, k_rows.at(at.first, at.h, kD), k_rows.stride, at.time);
  fetch<kD, kTiles>(v, v_rows.at(at.first, at.h, kD), v_rows.stride, at.time);
  fetch<kD, kTiles>(d_o, d_o_rows.at(at.first, at.h, kD), d_o_rows.stride, at.time);
  delta_rule::copy_commit();
  float denominator[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = 16 * at.warp + at.lane / 4 + 8 * r;
    denominator[r] = row < at.time ? lse[int64_t{blockIdx.x} * s.time + row] * kLog2E : 0.0f;
  }
  delta_rule::copy_wait<0>();
  __syncthreads();
  const Rotation<kD> rotation{s.log2_base};
  if (s.rotates) {
    turn<kD, kTiles>(q, k, at.time, rotation);
    __syncthreads();
  }
  float dq[kD / 8][4], dk[kD / 8][4];
  if (!at.idle()) {
    float p[8][4], dp[8][4], delta[2] = {};
    scores<kD>(p, q, k, at.warp, at.lane);
    scores<kD>(dp, d_o, v, at.warp, at.lane);
    const float scale = s.scale * kLog2E;
    for_causal(p, dp, at.warp, at.lane, [&](float& x, float& dx, int r, int, int) {
      x = exp2f(fmaf(x, scale, -denominator[r]));
      delta[r] = fmaf(x, dx, delta[r]);
    });
    add_lanes(delta);
    keep(weights, p, at.warp, at.lane);
    for_causal(dp, p, at.warp, at.lane,
               [&](float& dx, float& x, int r, int, int) { dx = s.scale * x * (dx - delta[r]); });
    keep(d_scores, dp, at.warp, at.lane);
    weigh<kD>(dq, dp, k, at.warp, at.lane);
  }
  __syncthreads();  // from here on the tiles k and v are free
  if (at.idle()) return;
  const int end = at.row_blocks();
  weigh_transposed<kD, kTiles>(dk, d_scores, q, at.warp, end, at.lane);
  if (s.rotates) turn_back<kD>(dq, dk, at.warp, at.lane, rotation);
  const auto out = [&](Half* data, int64_t stride) {
    return HeadRows<Half>{data, stride}.at(at.first, at.h, kD);
  };
  write<kD>(k, dq, out(dq_out, q_rows.stride), q_rows.stride, at.time, at.warp, at.lane);
  write<kD>(v, dk, out(dk_out, k_rows.stride), k_rows.stride, at.time, at.warp, at.lane);
  weigh_transposed<kD, kTiles>(dq, weights, d_o, at.warp, end, at.lane);  // now dv
  write<kD>(k, dq, out(dv_out, v_rows.stride), v_rows.stride, at.time, at.warp, at.lane);
}

// Calls run<kD, kTiles>() where the kernels cover the shape.
template <class Run>
bool choose(const AttentionShape& s, Run run) {
  if (s.keys != s.time || s.capacity != s.time || s.time > kMostTokens) return false;
  const auto of_width = [&]<int kD>() {
    choose_tiles(s.time, [&]<int kTiles>() { run.template operator()<kD, kTiles>(); });
    return true;
  };
  if (s.width == 16) return of_width.template operator()<16>();
  if (s.width == 32) return of_width.template operator()<32>();
  if (s.width == 64) return of_width.template operator()<64>();
  return false;
}

template <class Forward>
bool inputs_fit(const Forward& p) {
  const AttentionShape& s = p.shape;
  return pieces_fit(p.q, s.q_stride) && pieces_fit(p.k, s.k_stride) && pieces_fit(p.v, s.v_stride);
}
unsigned blocks_of(const AttentionShape& s) { return static_cast<unsigned>(s.batch * s.heads); }

}  // namespace

bool short_forward(const AttentionForward<bf16>& p, Cuda device) {
  const AttentionShape& s = p.shape;
  if (!inputs_fit(p) || !pieces_fit(p.o, s.o_stride)) return false;
  return choose(s, [&]<int kD, int kTiles>() {
    launch("attention_forward", short_forward_kernel<kD, kTiles>, blocks_of(s), 32 * kTiles, 0, device,
           Sizes(s), {halves(p.q), s.q_stride}, {halves(p.k), s.k_stride}, {halves(p.v), s.v_stride},
           {halves(p.o), s.o_stride}, p.lse);
  });
}

bool short_backward(const AttentionBackward<bf16>& p, Cuda device) {
  const AttentionShape& s = p.shape;
  if (!inputs_fit(p) || !pieces_fit(p.d_o, s.o_stride) || !pieces_fit(p.dq, s.q_stride) ||
      !pieces_fit(p.dk, s.k_stride) || !pieces_fit(p.dv, s.v_stride))
    return false;
  return choose(s, [&]<int kD, int kTiles>() {
    launch("attention_backward", short_backward_kernel<kD, kTiles>, blocks_of(s), 32 * kTiles, 0, device,
           Sizes(s), {halves(p.q), s.q_stride}, {halves(p.k), s.k_stride}, {halves(p.v), s.v_stride},
           {halves(p.d_o), s.o_stride}, p.lse, halves(p.dq), halves(p.dk), halves(p.dv));
  });
}

}  // namespace signet::kernels::attention
