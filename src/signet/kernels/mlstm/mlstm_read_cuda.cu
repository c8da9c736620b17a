// mLSTM over short sequences as weighted sums, one block per head of a sequence
// (attention/short_attention.cuh). decay[t][j] = gate_{j+1} ... gate_t lies in shared memory. Backward makes
// everything again from the inputs. The gradients of the gates need no division: with E = dL/d(input_j
// decay_tj) and R_t(l) = sum over j < l of E_tj input_j decay[l-1][j], which a thread per t adds up along l,
//   dgate_l = sum over t >= l of decay[t][l] R_t(l)      dinput_j = sum over t >= j of E_tj decay[t][j]
#include "signet/kernels/attention/short_attention.cuh"
#include "signet/kernels/mlstm/mlstm_ends.h"

namespace signet::kernels {
namespace {

using namespace short_attention;

struct Gates {
  int time, heads;
  float scale;
  int64_t gate_stride, input_stride, m_stride;
  const float *gate, *input, *m;
  const int32_t* offsets;
  template <class Parameters>
  explicit Gates(const Parameters& p)
      : time(static_cast<int>(p.shape.time)),
        heads(static_cast<int>(p.shape.heads)),
        scale(static_cast<float>(p.shape.scale)),
        gate_stride(p.shape.gate_stride),
        input_stride(p.shape.input_stride),
        m_stride(p.shape.m_stride),
        gate(p.gate),
        input(p.input),
        m(p.m),
        offsets(p.shape.offsets) {}
};

// Steps along a row of the decays whose numbers are read at once.
constexpr int kTogether = 8;

template <int kTiles>
struct Decays {
  static constexpr int kRows = 16 * kTiles, kStride = kRows + 1;
  float gate[kRows], input[kRows], least[kRows];  // least: of the normaliser
  float decay[kRows * kStride];

  // By all threads; ends with a barrier. Rows beyond the sequence have gates and inputs of zero.
  __device__ void load(const Gates& g, const Place& at) {
    const int t = threadIdx.x;
    if (t < kRows) {
      const int64_t row = at.first + t;
      const int h = at.h;
      const bool live = t < at.time;
      gate[t] = live ? g.gate[row * g.gate_stride + h] : 0.0f;
      input[t] = live ? g.input[row * g.input_stride + h] : 0.0f;
      least[t] = live ? least_normaliser(g.m[row * g.m_stride + h]) : 1.0f;
    }
    __syncthreads();
    if (t < kRows) {
      float product = 1.0f;
      for (int first = kRows - kTogether; first >= 0; first -= kTogether) {
        float g[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) g[i] = gate[first + i];
#pragma unroll
        for (int i = kTogether - 1; i >= 0; --i) {
          if (first + i > t) continue;
          decay[t * kStride + first + i] = product;
          product *= g[i];
        }
      }
    }
    __syncthreads();
  }
  __device__ float weight(int row, int column) const { return decay[row * kStride + column] * input[column]; }
};

template <int kD, int kTiles>
struct ForwardTiles {
  alignas(256) Half q[16 * kTiles * kD], k[16 * kTiles * kD], v[16 * kTiles * kD];
  Decays<kTiles> decays;
};
template <int kD, int kTiles>
struct BackwardTiles {
  alignas(256) Half q[16 * kTiles * kD], k[16 * kTiles * kD], v[16 * kTiles * kD], dh[16 * kTiles * kD],
      weights[16 * kTiles * kScoreWidth], d_scores[16 * kTiles * kScoreWidth];
  Decays<kTiles> decays;
  float d_weights[Decays<kTiles>::kRows * Decays<kTiles>::kStride];  // E
};

extern __shared__ __align__(256) unsigned char short_memory[];

template <int kD, int kTiles>
__global__ void __launch_bounds__(32 * kTiles)
    read_kernel(Gates g, HeadRows<const Half> q_rows, HeadRows<const Half> k_rows,
                HeadRows<const Half> v_rows, HeadRows<Half> h_rows) {
  begin_kernel();
  auto& tiles = *reinterpret_cast<ForwardTiles<kD, kTiles>*>(short_memory);
  const Place at(g.heads, g.time, g.offsets);
  const int warp = at.warp, lane = at.lane;
  fetch<kD, kTiles>(tiles.q, q_rows.at(at.first, at.h, kD), q_rows.stride, at.time);
  fetch<kD, kTiles>(tiles.k, k_rows.at(at.first, at.h, kD), k_rows.stride, at.time);
  fetch<kD, kTiles>(tiles.v, v_rows.at(at.first, at.h, kD), v_rows.stride, at.time);
  delta_rule::copy_commit();
  const auto& decays = tiles.decays;
  tiles.decays.load(g, at);
  delta_rule::copy_wait<0>();
  __syncthreads();
  if (at.idle()) return;
  float p[8][4], total[2] = {};
  scores<kD>(p, tiles.q, tiles.k, warp, lane);
  for_causal(p, p, warp, lane, [&](float& x, float&, int r, int row, int column) {
    total[r] += x *= g.scale * decays.weight(row, column);
  });
  add_lanes(total);
  float o[kD / 8][4];
  weigh<kD>(o, p, tiles.v, warp, lane);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float inverse = 1.0f / std::max(fabsf(total[r]), decays.least[16 * warp + lane / 4 + 8 * r]);
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) o[n][2 * r] *= inverse, o[n][2 * r + 1] *= inverse;
  }
  write<kD>(tiles.q, o, h_rows.at(at.first, at.h, kD), h_rows.stride, at.time, warp, lane);
}

template <int kD, int kTiles>
__global__ void __launch_bounds__(32 * kTiles)
    read_backward_kernel(Gates g, HeadRows<const Half> q_rows, HeadRows<const Half> k_rows,
                         HeadRows<const Half> v_rows, HeadRows<const Half> dh_rows, Half* dq_out,
                         Half* dk_out, Half* dv_out, float* dgate, float* dinput) {
  begin_kernel();
  auto& tiles = *reinterpret_cast<BackwardTiles<kD, kTiles>*>(short_memory);
  constexpr int kStride = Decays<kTiles>::kStride;
  const Place at(g.heads, g.time, g.offsets);
  const int warp = at.warp, lane = at.lane;
  fetch<kD, kTiles>(tiles.q, q_rows.at(at.first, at.h, kD), q_rows.stride, at.time);
  fetch<kD, kTiles>(tiles.k, k_rows.at(at.first, at.h, kD), k_rows.stride, at.time);
  fetch<kD, kTiles>(tiles.v, v_rows.at(at.first, at.h, kD), v_rows.stride, at.time);
  fetch<kD, kTiles>(tiles.dh, dh_rows.at(at.first, at.h, kD), dh_rows.stride, at.time);
  delta_rule::copy_commit();
  Decays<kTiles>& decays = tiles.decays;
  decays.load(g, at);
  delta_rule::copy_wait<0>();
  __syncthreads();

  float sums[kD / 8][4];
  if (!at.idle()) {
    float s[8][4], dp[8][4], total[2] = {}, along[2] = {};
    scores<kD>(s, tiles.q, tiles.k, warp, lane);
    scores<kD>(dp, tiles.dh, tiles.v, warp, lane);
    for_causal(s, dp, warp, lane, [&](float& x, float& dx, int r, int row, int column) {
      const float p = g.scale * x * decays.weight(row, column);
      total[r] += p;
      along[r] = fmaf(p, dx, along[r]);
    });
    add_lanes(total), add_lanes(along);
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float least = decays.least[16 * warp + lane / 4 + 8 * r];
      inverse[r] = 1.0f / std::max(fabsf(total[r]), least);
      const float slope = total[r] > least ? 1.0f : total[r] < -least ? -1.0f : 0.0f;  // of the maximum
      along[r] = slope * along[r] * inverse[r] * inverse[r];  // in this order nothing overflows on the way
    }
    for_causal(s, dp, warp, lane, [&](float& x, float& dx, int r, int row, int column) {
      const float d_weight = fmaf(dx, inverse[r], -along[r]), w = g.scale * decays.weight(row, column);
      tiles.d_weights[row * kStride + column] = g.scale * x * d_weight;
      x *= w * inverse[r];
      dx = w * d_weight;
    });
    keep(tiles.weights, s, warp, lane);
    keep(tiles.d_scores, dp, warp, lane);
    weigh<kD>(sums, dp, tiles.k, warp, lane);
  }
  __syncthreads();  // from here on the tiles k and v are free
  if (!at.idle()) {
    const int end = at.row_blocks();
    const auto out = [&](Half* data, int64_t stride) {
      return HeadRows<Half>{data, stride}.at(at.first, at.h, kD);
    };
    write<kD>(tiles.k, sums, out(dq_out, q_rows.stride), q_rows.stride, at.time, warp, lane);
    weigh_transposed<kD, kTiles>(sums, tiles.d_scores, tiles.q, warp, end, lane);
    write<kD>(tiles.v, sums, out(dk_out, k_rows.stride), k_rows.stride, at.time, warp, lane);
    weigh_transposed<kD, kTiles>(sums, tiles.weights, tiles.dh, warp, end, lane);
    write<kD>(tiles.k, sums, out(dv_out, v_rows.stride), v_rows.stride, at.time, warp, lane);
  }

  const int t = threadIdx.x;
  if (t < at.time) {
    float running = 0.0f;
    float *const e = tiles.d_weights + t * kStride, *const decay = decays.decay + t * kStride;
    for (int first = 0; first <= t; first += kTogether) {
      float given[kTogether], decayed[kTogether], gate[kTogether], input[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int l = first + i;
        given[i] = l <= t ? e[l] : 0.0f, decayed[i] = l <= t ? decay[l] : 0.0f;
        gate[i] = decays.gate[l], input[i] = decays.input[l];
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i <= t) e[first + i] = decayed[i] * running, decay[first + i] = decayed[i] * given[i];
        running = fmaf(gate[i], running, given[i] * input[i]);
      }
    }
  }
  __syncthreads();
  if (t < at.time) {
    float gate_sum = 0.0f, input_sum = 0.0f;
#pragma unroll 4
    for (int i = t; i < at.time; ++i) {
      gate_sum += tiles.d_weights[i * kStride + t];
      input_sum += decays.decay[i * kStride + t];
    }
    dgate[(at.first + t) * g.gate_stride + at.h] = gate_sum;
    dinput[(at.first + t) * g.input_stride + at.h] = input_sum;
  }
}

// Calls run<kD, kTiles>().
template <class Run>
void choose_read(const MlstmSequenceShape& s, Run run) {
  const auto of_width = [&]<int kD>() {
    choose_tiles(s.time, [&]<int kTiles>() { run.template operator()<kD, kTiles>(); });
  };
  if (s.width == 32) return of_width.template operator()<32>();
  if (s.width == 64) return of_width.template operator()<64>();
  if (s.width == 128) return of_width.template operator()<128>();
  fail(ErrorCode::kFailure, "mlstm_read takes heads of 32, 64 or 128 units; got {}", s.width);
}

}  // namespace

bool mlstm_read_covers(const MlstmSequenceShape& s) {
  constexpr int64_t kMostStride = int64_t{1} << 24;
  const auto fits = [](int64_t stride) { return stride % 8 == 0 && stride < kMostStride; };
  if (s.time > kMostTokens || (s.width != 32 && s.width != 64 && s.width != 128) || !fits(s.q_stride) ||
      !fits(s.k_stride) || !fits(s.v_stride))
    return false;
  bool enough = false;
  choose_read(s,
              [&]<int kD, int kTiles>() { enough = fits_shared_memory(sizeof(BackwardTiles<kD, kTiles>)); });
  return enough;
}

void mlstm_read(const MlstmRead& p, Cuda device) {
  const MlstmSequenceShape& s = p.shape;
  if (s.batch * s.time * s.heads == 0) return;
  choose_read(s, [&]<int kD, int kTiles>() {
    using Tiles = ForwardTiles<kD, kTiles>;
    allow_shared_memory(read_kernel<kD, kTiles>, sizeof(Tiles), "mlstm_read");
    launch("mlstm_read", read_kernel<kD, kTiles>, static_cast<unsigned>(s.batch * s.heads), 32 * kTiles,
           sizeof(Tiles), device, Gates(p), {halves(p.q), s.q_stride}, {halves(p.k), s.k_stride},
           {halves(p.v), s.v_stride}, {halves(p.h), s.heads * s.width});
  });
}

void mlstm_read_backward(const MlstmReadBackward& p, Cuda device) {
  const MlstmSequenceShape& s = p.shape;
  if (s.batch * s.time * s.heads == 0) return;
  choose_read(s, [&]<int kD, int kTiles>() {
    using Tiles = BackwardTiles<kD, kTiles>;
    allow_shared_memory(read_backward_kernel<kD, kTiles>, sizeof(Tiles), "mlstm_read_backward");
    launch("mlstm_read_backward", read_backward_kernel<kD, kTiles>, static_cast<unsigned>(s.batch * s.heads),
           32 * kTiles, sizeof(Tiles), device, Gates(p), {halves(p.q), s.q_stride}, {halves(p.k), s.k_stride},
           {halves(p.v), s.v_stride}, {halves(p.dh), s.heads * s.width}, halves(p.dq), halves(p.dk),
           halves(p.dv), p.dgate, p.dinput);
  });
}

}  // namespace signet::kernels
