// The delta rule one token after the other, for small heads and many sequences: one warp owns dk x SV of one
// state (a slice of dv) in registers, lane (r, c) = c * RL + r the tile of TR rows and TC columns. Sums over
// dk are sums over r, sums over dv sums over c. Inputs come a few tokens ahead by asynchronous copies into
// shared memory; nothing but w and the state after each segment is kept for backward.
#pragma once

#include "signet/kernels/delta_rule/delta_rule_cuda.cuh"

namespace signet::kernels::delta_rule {
inline constexpr int kWarps = 4;
inline constexpr int kStageSubsteps = 8;

// Half a warp per head of 32: twice as large tiles need half as many shuffles and loads per product.
template <int DK, int SV, int Rows>
struct Tile {
  static constexpr int Lanes = DK == 32 ? 16 : 32;
  static constexpr int TR = Rows, RL = DK / Rows, CL = Lanes / RL, TC = SV / CL;
  static_assert(RL * TR == DK && CL * TC == SV && RL * CL == Lanes);
};
// Forward sums only over dk: tall tiles need few shuffles. Backward sums both ways.
// kBlocks per multiprocessor bound the registers.
template <int DK, int SV>
struct ForwardTile : Tile<DK, SV, (DK == 16 && SV == 16) ? 8 : 16> {
  static constexpr int kBlocks = DK * SV / ForwardTile::Lanes <= 32 ? 5 : 4;
};
template <int DK, int SV>
struct BackwardTile : Tile<DK, SV, 8> {
  static constexpr int kBlocks = DK * SV / BackwardTile::Lanes <= 32 ? 4 : 2;
};

// One stage of inputs in shared memory: `tokens` tokens of the gate [DK] (a gate per head is repeated), of A
// [DK] and, in backward, of B [SV]; and for each of their substeps k [DK], x [SV] (v or w) and beta.
__host__ __device__ inline int stage_tokens(int factors) {
  return factors >= kStageSubsteps ? 1 : kStageSubsteps / factors;
}
template <class D, class X, int DK, int SV, bool kBackward, bool kGated>
__host__ __device__ constexpr int stage_bytes(int factors) {
  const int tokens = factors >= kStageSubsteps ? 1 : kStageSubsteps / factors;
  const int per_token = (DK + (kBackward ? SV : 0)) * static_cast<int>(sizeof(D)) + (kGated ? 4 * DK : 0);
  const int per_substep = DK * static_cast<int>(sizeof(D)) + SV * static_cast<int>(sizeof(X)) + 4;
  return (tokens * (per_token + factors * per_substep) + 15) / 16 * 16;
}

template <class D, class X, int DK, int SV, bool kBackward, bool kGated>
struct Stage {
  D *q, *d_o, *k;
  X* x;
  float *beta, *gate;
  __device__ Stage(char* memory, int factors) {
    const int tokens = stage_tokens(factors), substeps = tokens * factors;
    gate = reinterpret_cast<float*>(memory);
    q = reinterpret_cast<D*>(gate + (kGated ? tokens * DK : 0));
    d_o = q + tokens * DK;
    k = d_o + (kBackward ? tokens * SV : 0);
    x = reinterpret_cast<X*>(k + substeps * DK);
    beta = reinterpret_cast<float*>(x + substeps * SV);
  }
};

// Copies `rows` rows of Width elements; row i lies at source + token * token_stride + factor * factor_stride
// with i = token * factors + factor.
template <int Width, int Lanes, class D>
__device__ void fetch_rows(D* to, const D* source, int rows, int factors, int64_t token_stride,
                           int64_t factor_stride, int lane) {
  constexpr int kPieces = Width * static_cast<int>(sizeof(D)) / 16;
  constexpr int kElements = 16 / static_cast<int>(sizeof(D));
  for (int i = lane; i < rows * kPieces; i += Lanes) {
    const int row = i / kPieces, piece = i % kPieces;
    const int token = factors == 1 ? row : row / factors;
    copy_async<16>(
        to + row * Width + piece * kElements,
        source + token * token_stride + (row - token * factors) * factor_stride + piece * kElements);
  }
}

// The gates of `tokens` tokens, DK each.
template <int DK, int Lanes>
__device__ void fetch_gates(float* to, const float* source, int tokens, int channels, int64_t stride,
                            int lane) {
  if (channels > 1) return fetch_rows<DK, Lanes>(to, source, tokens, 1, stride, 0, lane);
  for (int i = lane; i < tokens * DK; i += Lanes) copy_async<4>(to + i, source + i / DK * stride);
}

// Which sequence, head and slice of dv these lanes work on. Lanes beyond the last job do that job too (they
// share shuffles with others of their warp) and write what it writes. A state may be replaced in place, so
// forward lets no second warp do a job.
template <int Lanes>
struct Job {
  static_assert(32 * kWarps / Lanes <= kJobsPerBlock);
  int b, h, slice;
  int64_t place;  // of these lanes' own memory
  bool surplus;   // no lane of this warp has a job of its own
  // Lanes of one warp walk together: where lengths differ, they must have the same sequence, and one with an
  // odd number of jobs has its last one done twice.
  static __host__ __device__ int64_t of_sequence(int heads, int slices, bool packed) {
    constexpr int kTogether = 32 / Lanes;
    const int64_t jobs = static_cast<int64_t>(heads) * slices;
    return packed ? (jobs + kTogether - 1) / kTogether * kTogether : jobs;
  }
  __device__ Job(int batch, int heads, int slices, bool packed) {
    const int64_t own = of_sequence(heads, slices, packed);
    place = static_cast<int64_t>(blockIdx.x) * (32 * kWarps / Lanes) + threadIdx.x / Lanes;
    surplus = place - threadIdx.x % 32 / Lanes >= batch * own;
    const int64_t all = min(place, batch * own - 1),
                  id = min(all % own, static_cast<int64_t>(heads) * slices - 1);
    slice = static_cast<int>(id % slices);
    h = static_cast<int>(id / slices);
    b = static_cast<int>(all / own);
  }
};

// Which tokens' outputs are used: all, or one of each sequence. The two jobs of a warp share shuffles, so
// what one needs the other does too.
template <bool kOne>
struct ReadTokens {
  int mine = 0, others = 0;
  template <class D>
  __device__ ReadTokens(const Problem<D>& p, int b) {
    if constexpr (kOne) {
      mine = static_cast<int>(p.read[b] - p.token(b, 0));
      others = __shfl_xor_sync(0xffffffffu, mine, 16);
    }
  }
  __device__ bool in(int begin, int count) const {
    return !kOne || static_cast<unsigned>(mine - begin) < static_cast<unsigned>(count) ||
           static_cast<unsigned>(others - begin) < static_cast<unsigned>(count);
  }
};
// One token read, one factor, no gate: the heads of 32 that many training jobs have are worth kernels of
// their own. All others compute what nobody reads.
template <int DK, int SV, bool kGated>
inline constexpr bool kReadsOne = DK == 32 && SV == 32 && !kGated;

// Tile of a [dk, dv] state in global memory.
template <class Tile>
__device__ void load_state(float (&s)[Tile::TR][Tile::TC], const float* state, int dv, int r, int c) {
#pragma unroll
  for (int i = 0; i < Tile::TR; ++i) load_floats(s[i], state + (r * Tile::TR + i) * dv + c * Tile::TC);
}
template <class Tile>
__device__ void store_state(const float (&s)[Tile::TR][Tile::TC], float* state, int dv, int r, int c) {
#pragma unroll
  for (int i = 0; i < Tile::TR; ++i) store_floats(state + (r * Tile::TR + i) * dv + c * Tile::TC, s[i]);
}
template <class Tile>
__device__ void set_zero(float (&s)[Tile::TR][Tile::TC]) {
#pragma unroll
  for (int i = 0; i < Tile::TR; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::TC; ++j) s[i][j] = 0.f;
  }
}

// s = Diag(g) s
template <class Tile>
__device__ void decay(float (&s)[Tile::TR][Tile::TC], const float (&g)[Tile::TR]) {
#pragma unroll
  for (int i = 0; i < Tile::TR; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::TC; ++j) s[i][j] *= g[i];
  }
}

// y_c = sum over the tile's rows of s[.][c] x[.], in two chains for shorter latency.
template <class Tile>
__device__ void rows_dot(float (&y)[Tile::TC], const float (&s)[Tile::TR][Tile::TC],
                         const float (&x)[Tile::TR]) {
#pragma unroll
  for (int c = 0; c < Tile::TC; ++c) {
    float even = s[0][c] * x[0], odd = s[1][c] * x[1];
#pragma unroll
    for (int i = 2; i < Tile::TR; i += 2) {
      even = fmaf(s[i][c], x[i], even);
      odd = fmaf(s[i + 1][c], x[i + 1], odd);
    }
    y[c] = even + odd;
  }
}
// s += x y^T
template <class Tile>
__device__ void add_outer(float (&s)[Tile::TR][Tile::TC], const float (&x)[Tile::TR],
                          const float (&y)[Tile::TC]) {
#pragma unroll
  for (int i = 0; i < Tile::TR; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::TC; ++j) s[i][j] = fmaf(x[i], y[j], s[i][j]);
  }
}
template <class Tile>
__device__ void subtract_outer(float (&s)[Tile::TR][Tile::TC], const float (&x)[Tile::TR],
                               const float (&y)[Tile::TC]) {
#pragma unroll
  for (int i = 0; i < Tile::TR; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::TC; ++j) s[i][j] = fmaf(-x[i], y[j], s[i][j]);
  }
}
// y_i += sum over the tile's columns of s[i][.] x[.]
template <class Tile>
__device__ void add_columns_dot(float (&y)[Tile::TR], const float (&s)[Tile::TR][Tile::TC],
                                const float (&x)[Tile::TC]) {
#pragma unroll
  for (int i = 0; i < Tile::TR; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::TC; ++j) y[i] = fmaf(s[i][j], x[j], y[i]);
  }
}
template <class Tile>
__device__ void subtract_columns_dot(float (&y)[Tile::TR], const float (&s)[Tile::TR][Tile::TC],
                                     const float (&x)[Tile::TC]) {
#pragma unroll
  for (int i = 0; i < Tile::TR; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::TC; ++j) y[i] = fmaf(-s[i][j], x[j], y[i]);
  }
}

// Writes a vector over dv of which every r holds the columns of c: each element by one lane.
template <class Tile, class D>
__device__ void store_columns(D* to, const float (&x)[Tile::TC], int r, int c) {
  if constexpr (Tile::TC >= Tile::RL) {
    constexpr int kEach = Tile::TC / Tile::RL;
    float mine[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      mine[i] = x[i];
#pragma unroll
      for (int m = 1; m < Tile::RL; ++m)
        if (r == m) mine[i] = x[m * kEach + i];
    }
    store_floats(to + c * Tile::TC + r * kEach, mine);
  } else {
#pragma unroll
    for (int i = 0; i < Tile::TC; ++i)
      if (r == i) to[c * Tile::TC + i] = from_float<D>(x[i]);
  }
}
// Writes what sum_scatter over a group of kMembers lanes left of N elements; this lane is `member`.
template <int kMembers, int N, class D>
__device__ void store_scattered(D* to, const float (&x)[N], int member) {
  if constexpr (N >= kMembers) {
    constexpr int kEach = N / kMembers;
    float mine[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) mine[i] = x[i];
    store_floats(to + member * kEach, mine);
  } else {
    constexpr int kHolders = kMembers / N;
    if (member % kHolders == 0) to[member / kHolders] = from_float<D>(x[0]);
  }
}

template <class D, int DK, int SV, int NH, bool kGated, bool kOne = false>
__global__ void __launch_bounds__(32 * kWarps, ForwardTile<DK, SV>::kBlocks) forward_kernel(Problem<D> p) {
  using Shape = ForwardTile<DK, SV>;
  constexpr int TR = Shape::TR, TC = Shape::TC, RL = Shape::RL, Lanes = Shape::Lanes;
  extern __shared__ __align__(16) char shared[];
  const int factors = NH ? NH : p.factors;
  constexpr bool kMayBePacked = NH == 0;  // the kernels for n_h = 1 have no registers left for lengths
  const Job<Lanes> job(p.batch, p.heads, p.dv / SV, kMayBePacked && p.offsets);
  if (job.surplus) return;
  const ReadTokens<kOne> read(p, job.b);
  const int lane = threadIdx.x % Lanes, r = lane % RL, c = lane / RL;
  const int bytes = stage_bytes<D, D, DK, SV, false, kGated>(factors), tokens = stage_tokens(factors);
  char* const memory = shared + threadIdx.x / Lanes * 2 * bytes;
  const int64_t first = kMayBePacked ? p.token(job.b, 0) : static_cast<int64_t>(job.b) * p.time;
  const int time = kMayBePacked ? p.length(job.b) : p.time;
  const D* const q = p.q + first * p.q_stride + job.h * DK;
  const D* const k = p.k + first * p.k_stride + job.h * DK;
  const D* const v = p.v + first * p.v_stride + job.h * p.dv + job.slice * SV;
  const float* const beta = p.beta + first * p.beta_stride + job.h;
  const float* const gate = kGated ? p.gate + first * p.gate_stride + job.h * p.gate_channels : nullptr;

  const auto fetch = [&](int s) {
    const Stage<D, D, DK, SV, false, kGated> stage(memory + (s & 1) * bytes, factors);
    const int begin = s * tokens, count = min(tokens, time - begin), rows = count * factors;
    if (read.in(begin, count))
      fetch_rows<DK, Lanes>(stage.q, q + begin * p.q_stride, count, 1, p.q_stride, 0, lane);
    fetch_rows<DK, Lanes>(stage.k, k + begin * p.k_stride, rows, factors, p.k_stride, p.heads * DK, lane);
    fetch_rows<SV, Lanes>(stage.x, v + begin * p.v_stride, rows, factors, p.v_stride, p.heads * p.dv, lane);
    if constexpr (kGated)
      fetch_gates<DK, Lanes>(stage.gate, gate + begin * p.gate_stride, count, p.gate_channels, p.gate_stride,
                             lane);
    for (int i = lane; i < rows; i += Lanes)
      copy_async<4>(stage.beta + i, beta + (begin + i / factors) * p.beta_stride + i % factors * p.heads);
    copy_commit();
  };

  float s[TR][TC];
  const int64_t head = static_cast<int64_t>(job.b) * p.heads + job.h;
  const int64_t state = head * p.state_size() + job.slice * SV;
  if (p.initial_state)
    load_state<Shape>(s, p.initial_state + state, p.dv, r, c);
  else
    set_zero<Shape>(s);

  const int segment = segment_tokens(p);
  const int w_row = p.heads * p.dv, column = job.h * p.dv + job.slice * SV;
  float* w_out = p.saved ? p.saved + first * factors * w_row + column : nullptr;
  float* checkpoint = saved_states(p, job.b, job.h) + job.slice * SV;
  int checkpoint_at = p.saved && !p.growing ? min(segment, time) : -1;
  D* o = p.o + first * p.o_stride + column;

  const int stages = (time + tokens - 1) / tokens;
  if (stages > 0) fetch(0);
  for (int index = 0; index < stages; ++index) {
    if (index + 1 < stages) {
      fetch(index + 1);
      copy_wait<1>();
    } else {
      copy_wait<0>();
    }
    __syncwarp();
    const Stage<D, D, DK, SV, false, kGated> stage(memory + (index & 1) * bytes, factors);
    const int begin = index * tokens, count = min(tokens, time - begin);
    for (int local = 0; local < count; ++local, o += p.o_stride) {
      if constexpr (kGated) {
        float g[TR];
        load_floats(g, stage.gate + local * DK + r * TR);
        decay<Shape>(s, g);
      }
      for (int j = 0; j < factors; ++j) {
        const int row = local * factors + j;
        float key[TR], w[TC], u[TC], value[TC];
        load_floats(key, stage.k + row * DK + r * TR);
        load_floats(value, stage.x + row * SV + c * TC);
        const float b = stage.beta[row];
        rows_dot<Shape>(w, s, key);
        sum_all<RL, 1>(w);
#pragma unroll
        for (int i = 0; i < TC; ++i) {
          w[i] = value[i] - w[i];
          u[i] = b * w[i];
        }
        add_outer<Shape>(s, key, u);
        if (w_out) {
          store_columns<Shape>(w_out, w, r, c);
          w_out += w_row;
        }
      }
      if (read.in(begin + local, 1)) {
        float query[TR], y[TC];
        load_floats(query, stage.q + local * DK + r * TR);
        rows_dot<Shape>(y, s, query);
        sum_scatter<RL, 1>(y, lane);
#pragma unroll
        for (int i = 0; i < TC; ++i) y[i] *= p.scale;
        store_scattered<RL>(o + c * TC, y, r);
      }
      if (begin + local + 1 == checkpoint_at) {
        store_state<Shape>(s, checkpoint, p.dv, r, c);
        checkpoint += p.state_size();
        checkpoint_at = min(checkpoint_at + segment, time);
      }
    }
    __syncwarp();
  }
  if (p.final_state) store_state<Shape>(s, p.final_state + state, p.dv, r, c);
}

// Where backward puts its sums over dv: the outputs, or one slice's part of them.
template <class G>
struct SumsOverDv {
  G *dq, *dk;
  float *dbeta, *dgate;
  int64_t q_stride, k_stride, beta_stride, gate_stride;
};
template <class D>
SumsOverDv<D> direct_sums(const Problem<D>& p) {
  return {p.dq, p.dk_out, p.dbeta, p.dgate, p.q_stride, p.k_stride, p.beta_stride, p.gate_stride};
}
template <class D>
SumsOverDv<float> partial_sums(const Problem<D>& p) {
  const Partials parts(p);
  return {parts.dq,       parts.dk,       parts.dbeta,       parts.dgate,
          parts.q_stride, parts.k_stride, parts.beta_stride, parts.gate_stride};
}

// The states before the tokens of a segment: each lane writes and reads its own tile alone.
template <class Tile>
struct KeptStates {
  float* memory;
  __device__ void store(int token, const float (&s)[Tile::TR][Tile::TC], int lane) const {
#pragma unroll
    for (int i = 0; i < Tile::TR; ++i) store_floats(at(token, i, lane), s[i]);
  }
  __device__ void load(int token, float (&s)[Tile::TR][Tile::TC], int lane) const {
#pragma unroll
    for (int i = 0; i < Tile::TR; ++i) load_floats(s[i], at(token, i, lane));
  }

 private:
  __device__ float* at(int token, int i, int lane) const {
    return memory + (static_cast<int64_t>(token * Tile::TR + i) * Tile::Lanes + lane) * Tile::TC;
  }
};

template <class D, class G, int DK, int SV, int NH, bool kGated, bool kOne = false>
__global__ void __launch_bounds__(32 * kWarps, BackwardTile<DK, SV>::kBlocks)
    backward_kernel(Problem<D> p, SumsOverDv<G> sums) {
  using Shape = BackwardTile<DK, SV>;
  constexpr int TR = Shape::TR, TC = Shape::TC, RL = Shape::RL, CL = Shape::CL, Lanes = Shape::Lanes;
  extern __shared__ __align__(16) char shared[];
  const int factors = NH ? NH : p.factors;
  constexpr bool kMayBePacked = NH == 0;  // the kernels for n_h = 1 have no registers left for lengths
  const Job<Lanes> job(p.batch, p.heads, p.dv / SV, kMayBePacked && p.offsets);
  const ReadTokens<kOne> read(p, job.b);
  const int lane = threadIdx.x % Lanes, r = lane % RL, c = lane / RL;
  const int bytes = stage_bytes<D, float, DK, SV, true, kGated>(factors), tokens = stage_tokens(factors);
  char* const memory = shared + threadIdx.x / Lanes * 2 * bytes;
  const int64_t first = kMayBePacked ? p.token(job.b, 0) : static_cast<int64_t>(job.b) * p.time;
  const int time = kMayBePacked ? p.length(job.b) : p.time;
  const int column = job.h * p.dv + job.slice * SV, w_row = p.heads * p.dv;
  const D* const q = p.q + first * p.q_stride + job.h * DK;
  const D* const k = p.k + first * p.k_stride + job.h * DK;
  const D* const d_o = p.d_o + first * p.o_stride + column;
  const float* const w = p.saved + first * factors * w_row + column;
  const float* const beta = p.beta + first * p.beta_stride + job.h;
  const float* const gate = kGated ? p.gate + first * p.gate_stride + job.h * p.gate_channels : nullptr;

  const auto fetch = [&](int s) {
    const Stage<D, float, DK, SV, true, kGated> stage(memory + (s & 1) * bytes, factors);
    const int begin = s * tokens, count = min(tokens, time - begin), rows = count * factors;
    if (read.in(begin, count)) {
      fetch_rows<DK, Lanes>(stage.q, q + begin * p.q_stride, count, 1, p.q_stride, 0, lane);
      fetch_rows<SV, Lanes>(stage.d_o, d_o + begin * p.o_stride, count, 1, p.o_stride, 0, lane);
    }
    fetch_rows<DK, Lanes>(stage.k, k + begin * p.k_stride, rows, factors, p.k_stride, p.heads * DK, lane);
    fetch_rows<SV, Lanes>(stage.x, w + static_cast<int64_t>(begin) * factors * w_row, rows, 1, w_row, 0,
                          lane);
    if constexpr (kGated)
      fetch_gates<DK, Lanes>(stage.gate, gate + begin * p.gate_stride, count, p.gate_channels, p.gate_stride,
                             lane);
    for (int i = lane; i < rows; i += Lanes)
      copy_async<4>(stage.beta + i, beta + (begin + i / factors) * p.beta_stride + i % factors * p.heads);
    copy_commit();
  };

  float s[TR][TC], ds[TR][TC];
  const int64_t head = static_cast<int64_t>(job.b) * p.heads + job.h;
  const int64_t state = head * p.state_size() + job.slice * SV;
  if (p.d_final_state)
    load_state<Shape>(ds, p.d_final_state + state, p.dv, r, c);
  else
    set_zero<Shape>(ds);
  set_zero<Shape>(s);

  const int64_t end = first + time - 1;  // everything is walked from the last token to the first
  const int64_t part = job.slice * partial_size(p);
  G* dq = sums.dq + part + end * sums.q_stride + job.h * DK;
  G* dk_out = sums.dk + part + end * sums.k_stride + job.h * DK;
  D* dv_out = p.dv_out + end * p.v_stride + column;
  float* dbeta = sums.dbeta + part + end * sums.beta_stride + job.h;

  float* dgate = kGated ? sums.dgate + part + end * sums.gate_stride + job.h * p.gate_channels : nullptr;

  const int segment = segment_tokens(p);
  const float* checkpoint =  // behind the last
      saved_states(p, job.b, job.h) + (time + segment - 1) / segment * p.state_size() + job.slice * SV;
  int segment_end = time;
  const KeptStates<Shape> kept{kGated ? segment_states(p, p.dv / SV) + job.place * segment * DK * SV
                                      : nullptr};
  // Runs the segment that ends before token segment_end again; `checkpoint` is the state after it.
  const auto replay = [&] {
    const int begin = (segment_end - 1) / segment * segment;
    if (begin > 0)
      load_state<Shape>(s, checkpoint - p.state_size(), p.dv, r, c);
    else if (p.initial_state)
      load_state<Shape>(s, p.initial_state + state, p.dv, r, c);
    else
      set_zero<Shape>(s);
    for (int t = begin; t < segment_end; ++t) {
      kept.store(t - begin, s, lane);
      float g[TR];
#pragma unroll
      for (int i = 0; i < TR; ++i) g[i] = gate[t * p.gate_stride + (p.gate_channels > 1 ? r * TR + i : 0)];
      decay<Shape>(s, g);
      for (int j = 0; j < factors; ++j) {
        float key[TR], u[TC];
        load_floats(key, k + t * p.k_stride + j * p.heads * DK + r * TR);
        load_floats(u, w + (static_cast<int64_t>(t) * factors + j) * w_row + c * TC);
        const float b = beta[t * p.beta_stride + j * p.heads];
#pragma unroll
        for (int i = 0; i < TC; ++i) u[i] *= b;
        add_outer<Shape>(s, key, u);
      }
    }
  };

  const int stages = (time + tokens - 1) / tokens;
  if (stages > 0) fetch(stages - 1);
  for (int index = stages - 1; index >= 0; --index) {
    if (index > 0) {
      fetch(index - 1);
      copy_wait<1>();
    } else {
      copy_wait<0>();
    }
    __syncwarp();
    const Stage<D, float, DK, SV, true, kGated> stage(memory + (index & 1) * bytes, factors);
    const int begin = index * tokens, count = min(tokens, time - begin);
    for (int local = count - 1; local >= 0; --local) {
      if (begin + local + 1 == segment_end) {
        checkpoint -= p.state_size();
        if constexpr (kGated)
          replay();
        else
          load_state<Shape>(s, checkpoint, p.dv, r, c);
        segment_end = (segment_end - 1) / segment * segment;
      }
      float dquery[TR] = {};
      if (read.in(begin + local, 1)) {
        float query[TR], g[TC];
        load_floats(query, stage.q + local * DK + r * TR);
        load_floats(g, stage.d_o + local * SV + c * TC);
#pragma unroll
        for (int i = 0; i < TC; ++i) g[i] *= p.scale;
        add_columns_dot<Shape>(dquery, s, g);  // dq = scale S d_o
        add_outer<Shape>(ds, query, g);
        sum_scatter<CL, RL>(dquery, lane);
      }
      store_scattered<CL>(dq + r * TR, dquery, c);
      for (int j = factors - 1; j >= 0; --j) {
        const int row = local * factors + j;
        float key[TR], u[TC], du[TC], y[TR] = {}, dot[1] = {0.f};
        load_floats(key, stage.k + row * DK + r * TR);
        load_floats(u, stage.x + row * SV + c * TC);
        const float b = stage.beta[row];
        rows_dot<Shape>(du, ds, key);
        sum_all<RL, 1>(du);
#pragma unroll
        for (int i = 0; i < TC; ++i) {
          dot[0] = fmaf(du[i], u[i], dot[0]);  // u is still w here
          u[i] *= b;
          du[i] *= b;
        }
        subtract_outer<Shape>(s, key, u);  // the state before this substep
        add_columns_dot<Shape>(y, ds, u);
        subtract_columns_dot<Shape>(y, s, du);  // dk = ds u - s (beta du)
        subtract_outer<Shape>(ds, key, du);
        sum_all<CL, RL>(dot);
        sum_scatter<CL, RL>(y, lane);
        store_columns<Shape>(dv_out + j * w_row, du, r, c);
        store_scattered<CL>(dk_out + j * p.heads * DK + r * TR, y, c);
        if (lane == 0) dbeta[j * p.heads] = dot[0];
      }
      if constexpr (kGated) {  // dgate_i = S_i . dS_i with S before this token, dS = Diag(g) dS
        float g[TR], y[TR] = {};
        kept.load((begin + local) % segment, s, lane);
        load_floats(g, stage.gate + local * DK + r * TR);
#pragma unroll
        for (int i = 0; i < TR; ++i) {
#pragma unroll
          for (int n = 0; n < TC; ++n) y[i] = fmaf(s[i][n], ds[i][n], y[i]);
        }
        if (p.gate_channels > 1) {
          sum_scatter<CL, RL>(y, lane);
          store_scattered<CL>(dgate + r * TR, y, c);
        } else {
          float total[1] = {0.f};
#pragma unroll
          for (int i = 0; i < TR; ++i) total[0] += y[i];
          sum_all<Lanes, 1>(total);
          if (lane == 0) dgate[0] = total[0];
        }
        decay<Shape>(ds, g);
        dgate -= sums.gate_stride;
      }
      dq -= sums.q_stride, dk_out -= sums.k_stride, dv_out -= p.v_stride, dbeta -= sums.beta_stride;
    }
    __syncwarp();
  }
  if (p.d_initial_state) store_state<Shape>(ds, p.d_initial_state + state, p.dv, r, c);
}

// Of a block.
template <bool kGated, class D, int DK, int SV>
int forward_bytes(int factors) {
  return 32 * kWarps / ForwardTile<DK, SV>::Lanes * 2 * stage_bytes<D, D, DK, SV, false, kGated>(factors);
}
template <bool kGated, class D, int DK, int SV>
int backward_bytes(int factors) {
  return 32 * kWarps / BackwardTile<DK, SV>::Lanes * 2 * stage_bytes<D, float, DK, SV, true, kGated>(factors);
}

template <bool kGated, class D, class G, int DK, int SV>
void launch_backward(const Problem<D>& p, const SumsOverDv<G>& sums, unsigned blocks, cudaStream_t stream) {
  const int bytes = backward_bytes<kGated, D, DK, SV>(p.factors);
  constexpr int kOne = kGated ? 0 : 1;  // n_h = 1 is worth a kernel of its own without a gate
  const bool one = p.factors == 1 && !p.offsets;
  auto kernel = one ? backward_kernel<D, G, DK, SV, kOne, kGated> : backward_kernel<D, G, DK, SV, 0, kGated>;
  if constexpr (kReadsOne<DK, SV, kGated> && std::is_same_v<D, G>)
    if (p.read && one) kernel = backward_kernel<D, G, DK, SV, 1, false, true>;
  allow_shared_memory(kernel, bytes, "delta rule backward");
  kernel<<<blocks, 32 * kWarps, bytes, stream>>>(p, sums);
  check_launch("delta rule backward");
}

template <bool kGated, class D, int DK, int SV>
void launch(const Problem<D>& p, bool backward, cudaStream_t stream) {
  const int slices = p.dv / SV;
  constexpr int Lanes = ForwardTile<DK, SV>::Lanes, kJobs = 32 * kWarps / Lanes;
  const int64_t jobs = p.batch * Job<Lanes>::of_sequence(p.heads, slices, p.offsets);
  static_assert(Lanes == BackwardTile<DK, SV>::Lanes);
  const auto blocks = static_cast<unsigned>((jobs + kJobs - 1) / kJobs);
  if (!backward) {
    const int bytes = forward_bytes<kGated, D, DK, SV>(p.factors);
    constexpr int kOne = kGated ? 0 : 1;
    const bool one = p.factors == 1 && !p.offsets;
    auto kernel = one ? forward_kernel<D, DK, SV, kOne, kGated> : forward_kernel<D, DK, SV, 0, kGated>;
    if constexpr (kReadsOne<DK, SV, kGated>)
      if (p.read && one) kernel = forward_kernel<D, DK, SV, 1, false, true>;
    allow_shared_memory(kernel, bytes, "delta rule forward");
    kernel<<<blocks, 32 * kWarps, bytes, stream>>>(p);
    check_launch("delta rule forward");
  } else if (DK <= 32 && slices == 1) {
    if constexpr (DK <= 32) launch_backward<kGated, D, D, DK, SV>(p, direct_sums(p), blocks, stream);
  } else {
    launch_backward<kGated, D, float, DK, SV>(p, partial_sums(p), blocks, stream);
    add_partials(p, slices, stream);
  }
}

// Calls f with the sizes of the tile for these heads, DK and SV.
template <class F>
void with_tile(int dk, int dv, F f) {
  if (dk == 16 && dv % 32 == 0) return f.template operator()<16, 32>();
  if (dk == 16) return f.template operator()<16, 16>();
  if (dk == 32) return f.template operator()<32, 32>();
  if (dk == 64) return f.template operator()<64, 32>();
  return f.template operator()<128, 16>();
}

// Of a block in the pass that needs more.
template <bool kGated, class D>
int tile_bytes(const Problem<D>& p) {
  int bytes = 0;
  with_tile(p.dk, p.dv, [&]<int DK, int SV>() {
    bytes =
        std::max(forward_bytes<kGated, D, DK, SV>(p.factors), backward_bytes<kGated, D, DK, SV>(p.factors));
  });
  return bytes;
}

template <bool kGated, class D>
void tile_dispatch(const Problem<D>& p, bool backward, cudaStream_t stream) {
  with_tile(p.dk, p.dv, [&]<int DK, int SV>() { launch<kGated, D, DK, SV>(p, backward, stream); });
}

}  // namespace signet::kernels::delta_rule
