// Backward of the tile kernels in two walks, for states that may grow (fp32, no gate): the gradient of the
// state from the last token to the first, then the state from the first to the last. Each walk has one tile
// in registers, not two, and every product of the backward pass is made once, in one of them.
#include "signet/kernels/delta_rule/delta_rule_cuda_tile.cuh"

namespace signet::kernels::delta_rule {
namespace {

constexpr int kWalkSubsteps = 4;  // of a stage: two stages of eight heads leave room for four blocks

// One stage of inputs in shared memory. Per token d_o [SV] and, for the first walk, q [DK]; per substep k
// [DK], w [SV], beta and, for the second walk, what the first left: dv [SV] and its part of dk [DK].
template <int DK, int SV, bool kSecond>
struct WalkStage {
  float *d_o, *q, *k, *w, *dv, *dk, *beta;
  static __host__ __device__ int tokens(int factors) {
    return factors >= kWalkSubsteps ? 1 : kWalkSubsteps / factors;
  }
  static __host__ __device__ int floats(int factors) {
    const int per_substep = (kSecond ? 2 : 1) * (DK + SV) + 1;
    return (tokens(factors) * (SV + (kSecond ? 0 : DK) + factors * per_substep) + 3) / 4 * 4;
  }
  __device__ WalkStage(float* memory, int factors) {
    const int all = tokens(factors), substeps = all * factors;
    d_o = memory;
    q = d_o + all * SV;
    k = q + (kSecond ? 0 : all * DK);
    w = k + substeps * DK;
    dv = w + substeps * SV;
    dk = dv + (kSecond ? substeps * SV : 0);
    beta = dk + (kSecond ? substeps * DK : 0);
  }
};

// Reads shared memory once more, so that nothing of it stays in registers in between.
template <int N>
__device__ void load_again(float (&x)[N], const float* source) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(source));
#pragma unroll
  for (int i = 0; i < N; i += 4)
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];\n"
                 : "=f"(x[i]), "=f"(x[i + 1]), "=f"(x[i + 2]), "=f"(x[i + 3])
                 : "r"(address + 4 * i));
}

// NH: how many factors there are, 0: p.factors. In the first walk `s` is the gradient of the state.
template <int DK, int SV, int NH, bool kSecond>
__global__ void __launch_bounds__(32 * kWarps, NH == 1 ? 4 : 3)
    walk_kernel(Problem<float> p, SumsOverDv<float> sums) {
  using Shape = BackwardTile<DK, SV>;
  using Stage = WalkStage<DK, SV, kSecond>;
  constexpr int TR = Shape::TR, TC = Shape::TC, RL = Shape::RL, CL = Shape::CL, Lanes = Shape::Lanes;
  extern __shared__ __align__(16) float shared_floats[];
  const int factors = NH ? NH : p.factors;
  const Job<Lanes> job(p.batch, p.heads, p.dv / SV, p.offsets);
  // The second walk adds to dk. Lanes of one warp that do the same job have all read before one writes; no
  // second warp may do it.
  if (job.surplus) return;
  const int lane = threadIdx.x % Lanes, r = lane % RL, c = lane / RL;
  const int size = Stage::floats(factors), tokens = Stage::tokens(factors);
  float* const memory = shared_floats + threadIdx.x / Lanes * 2 * size;
  const int64_t first = p.token(job.b, 0);
  const int time = p.length(job.b);
  const int column = job.h * p.dv + job.slice * SV, v_row = p.heads * p.dv, k_row = p.heads * DK;
  const int64_t part = job.slice * partial_size(p);
  // Where rows of this head begin, from the rows of the whole batch: no pointer but `first` is kept.
  const auto dk_at = [&](int token) { return sums.dk + part + (first + token) * sums.k_stride + job.h * DK; };
  const auto dv_at = [&](int token) { return p.dv_out + (first + token) * p.v_stride + column; };

  const auto fetch = [&](int index) {
    const Stage stage(memory + (index & 1) * size, factors);
    const int begin = index * tokens, count = min(tokens, time - begin), rows = count * factors;
    const int64_t row = first + begin;
    if constexpr (!kSecond)
      fetch_rows<DK, Lanes>(stage.q, p.q + row * p.q_stride + job.h * DK, count, 1, p.q_stride, 0, lane);
    fetch_rows<SV, Lanes>(stage.d_o, p.d_o + row * p.o_stride + column, count, 1, p.o_stride, 0, lane);
    fetch_rows<DK, Lanes>(stage.k, p.k + row * p.k_stride + job.h * DK, rows, factors, p.k_stride, k_row,
                          lane);
    fetch_rows<SV, Lanes>(stage.w, p.saved + row * factors * v_row + column, rows, 1, v_row, 0, lane);
    if constexpr (kSecond) {
      fetch_rows<SV, Lanes>(stage.dv, dv_at(begin), rows, factors, p.v_stride, v_row, lane);
      fetch_rows<DK, Lanes>(stage.dk, dk_at(begin), rows, factors, sums.k_stride, k_row, lane);
    }
    for (int i = lane; i < rows; i += Lanes)
      copy_async<4>(stage.beta + i,
                    p.beta + (row + i / factors) * p.beta_stride + i % factors * p.heads + job.h);
    copy_commit();
  };

  float s[TR][TC];
  const int64_t head = static_cast<int64_t>(job.b) * p.heads + job.h;
  const int64_t state = head * p.state_size() + job.slice * SV;
  const float* const from = kSecond ? p.initial_state : p.d_final_state;
  if (from)
    load_state<Shape>(s, from + state, p.dv, r, c);
  else
    set_zero<Shape>(s);

  const int stages = (time + tokens - 1) / tokens;
  const auto stage_at = [&](int n) { return kSecond ? n : stages - 1 - n; };
  if (stages > 0) fetch(stage_at(0));
  for (int n = 0; n < stages; ++n) {
    if (n + 1 < stages) {
      fetch(stage_at(n + 1));
      copy_wait<1>();
    } else {
      copy_wait<0>();
    }
    __syncwarp();
    const int index = stage_at(n), begin = index * tokens, count = min(tokens, time - begin);
    const Stage stage(memory + (index & 1) * size, factors);
#pragma unroll 1
    for (int m = 0; m < count; ++m) {
      const int local = kSecond ? m : count - 1 - m, token = begin + local;
      float g[TC];
      load_floats(g, stage.d_o + local * SV + c * TC);
#pragma unroll
      for (int i = 0; i < TC; ++i) g[i] *= p.scale;
      if constexpr (!kSecond) {
        float query[TR];
        load_floats(query, stage.q + local * DK + r * TR);
        add_outer<Shape>(s, query, g);
        for (int j = factors - 1; j >= 0; --j) {
          const int row = local * factors + j;
          float key[TR], u[TC], x[TC], y[TR] = {}, dot[1] = {0.f};
          load_floats(key, stage.k + row * DK + r * TR);
          load_floats(u, stage.w + row * SV + c * TC);
          const float b = stage.beta[row];
          rows_dot<Shape>(x, s, key);
          sum_all<RL, 1>(x);
#pragma unroll
          for (int i = 0; i < TC; ++i) {
            dot[0] = fmaf(x[i], u[i], dot[0]);  // u is still w here, and x is dS^T k
            u[i] *= b;
            x[i] *= b;
          }
          add_columns_dot<Shape>(y, s, u);
          sum_scatter<CL, RL>(y, lane);
          load_again(key, stage.k + row * DK + r * TR);
          subtract_outer<Shape>(s, key, x);
          sum_all<CL, RL>(dot);
          store_columns<Shape>(dv_at(token) + j * v_row, x, r, c);
          store_scattered<CL>(dk_at(token) + j * k_row + r * TR, y, c);
          if (lane == 0) sums.dbeta[part + (first + token) * sums.beta_stride + j * p.heads + job.h] = dot[0];
        }
      } else {
        for (int j = 0; j < factors; ++j) {
          const int row = local * factors + j;
          float key[TR], u[TC], x[TC], y[TR] = {};
          load_floats(key, stage.k + row * DK + r * TR);
          load_floats(u, stage.w + row * SV + c * TC);
          load_floats(x, stage.dv + row * SV + c * TC);
          if (c == 0) load_floats(y, stage.dk + row * DK + r * TR);
          const float b = stage.beta[row];
#pragma unroll
          for (int i = 0; i < TC; ++i) u[i] *= b;
          subtract_columns_dot<Shape>(y, s, x);
          add_outer<Shape>(s, key, u);
          sum_scatter<CL, RL>(y, lane);
          store_scattered<CL>(dk_at(token) + j * k_row + r * TR, y, c);
        }
        float y[TR] = {};
        add_columns_dot<Shape>(y, s, g);
        sum_scatter<CL, RL>(y, lane);
        store_scattered<CL>(sums.dq + part + (first + token) * sums.q_stride + job.h * DK + r * TR, y, c);
      }
    }
    __syncwarp();
  }
  if (!kSecond && p.d_initial_state) store_state<Shape>(s, p.d_initial_state + state, p.dv, r, c);
}

template <int DK, int SV, bool kSecond>
int walk_bytes(int factors) {
  return 32 * kWarps / BackwardTile<DK, SV>::Lanes * 2 * WalkStage<DK, SV, kSecond>::floats(factors) *
         static_cast<int>(sizeof(float));
}

template <int DK, int SV, bool kSecond>
void launch_walk(const Problem<float>& p, const SumsOverDv<float>& sums, cudaStream_t stream) {
  constexpr int Lanes = BackwardTile<DK, SV>::Lanes, kJobs = 32 * kWarps / Lanes;
  const int64_t jobs = p.batch * Job<Lanes>::of_sequence(p.heads, p.dv / SV, p.offsets);
  const int bytes = walk_bytes<DK, SV, kSecond>(p.factors);
  const auto kernel = p.factors == 1 ? walk_kernel<DK, SV, 1, kSecond> : walk_kernel<DK, SV, 0, kSecond>;
  allow_shared_memory(kernel, bytes, "delta rule backward");
  kernel<<<static_cast<unsigned>((jobs + kJobs - 1) / kJobs), 32 * kWarps, bytes, stream>>>(p, sums);
  check_launch("delta rule backward");
}

}  // namespace

int two_walks_bytes(const Problem<float>& p) {
  int bytes = 0;
  with_tile(p.dk, p.dv, [&]<int DK, int SV>() {
    bytes = std::max(walk_bytes<DK, SV, false>(p.factors), walk_bytes<DK, SV, true>(p.factors));
  });
  return bytes;
}

void tile_backward_in_two_walks(const Problem<float>& p, cudaStream_t stream) {
  with_tile(p.dk, p.dv, [&]<int DK, int SV>() {
    const int slices = p.dv / SV;
    const auto sums = slices == 1 ? direct_sums(p) : partial_sums(p);
    launch_walk<DK, SV, false>(p, sums, stream);
    launch_walk<DK, SV, true>(p, sums, stream);
    if (slices > 1) add_partials(p, slices, stream);
  });
}

}  // namespace signet::kernels::delta_rule
