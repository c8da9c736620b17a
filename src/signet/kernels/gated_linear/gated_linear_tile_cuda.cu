// The gated linear recurrence for every size: one warp per sequence, head and tile of 32 x 32 of the state,
// in registers. Two kinds of warps, neither of which sums over lanes:
//
//   column warps   a lane owns a column of S and walks the tokens: o forward, and dv by the same recurrence
//                  backwards in time (dS_t = q_t do_t^T + g_{t+1} dS_{t+1},  dv_t = dS_t^T k_t)
//   row warps      a lane owns a row of dS and takes chunks of 16 tokens from last to first: dq, dk, dg as
//                  gated_linear_chunked_cpu.cc has them, from the state before the chunk
//
// Heads wider than a tile leave partial sums in the workspace, o and dv per tile row, dq, dk and dg per tile
// column (they are linear in v and do); a last kernel adds them in order.
#include "signet/kernels/gated_linear/gated_linear_cuda.cuh"
#include "signet/tensor/reduce.cuh"

namespace signet::kernels::gated_linear {
namespace {

constexpr int kWarps = 4, kStage = 8;

// This warp's sequence, head and tile. Lane j is column (or row) j of the tile.
struct Tile {
  int64_t bh, row;                             // row: of the sequence's first token
  int h, tile_row, tile_column, lane, column;  // column: of dv, for this lane
  int time;                                    // of the sequence
  bool exists;
  template <class T>
  __device__ explicit Tile(const Problem<T>& p) {
    const int tile_columns = tiles(p.dv), tile_rows = tiles(p.dk);
    int64_t id = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
    lane = threadIdx.x % 32;
    tile_column = static_cast<int>(id % tile_columns), id /= tile_columns;
    tile_row = static_cast<int>(id % tile_rows), id /= tile_rows;
    bh = id;
    h = static_cast<int>(bh % p.heads);
    exists = bh < int64_t{p.batch} * p.heads;
    row = exists ? p.first_row(static_cast<int>(bh / p.heads)) : 0;
    time = exists ? p.length(static_cast<int>(bh / p.heads)) : 0;
    column = tile_column * kTile + lane;
  }
};

// How many states one head keeps, and the first of them that a warp's sequence has.
template <class T>
__host__ __device__ int64_t kept_states(const Problem<T>& p) {
  if (p.offsets) return p.packed_rows / kTileChunk;
  return p.time > 0 ? int64_t{p.batch} * (tile_chunks(p.time) - 1) : 0;
}
template <class T>
__device__ int64_t first_kept(const Problem<T>& p, const Tile& tile) {
  if (p.offsets) return tile.h * kept_states(p) + tile.row / kTileChunk;
  return tile.bh * (tile_chunks(p.time) - 1);
}

// What a column warp reads and writes: S <- Diag(g) S + write value^T, out = read^T S.
template <class T>
struct ColumnPass {
  const T *read, *write, *value;
  int64_t read_stride, write_stride, value_stride, out_stride;
  T* out;
  float* partial;  // [tile rows, B, T, H, dv] instead of out, or null
  const float* initial;
  float *final, *saved;
  float value_scale, out_scale;
};

// The inputs of kStage tokens, one row or column per lane.
struct Stage {
  float read[kStage], write[kStage], gate[kStage], value[kStage];
};

template <class T, bool kReverse, bool kChannels>
__device__ void fetch(Stage& s, const Problem<T>& p, const ColumnPass<T>& pass, const Tile& tile, int begin) {
  const int i = tile.tile_row * kTile + tile.lane;
#pragma unroll
  for (int j = 0; j < kStage; ++j) {
    const bool live = begin + j < tile.time;
    const int64_t row = tile.row + (kReverse ? tile.time - 1 - (begin + j) : begin + j);
    const bool inside = live && i < p.dk;
    s.read[j] = inside ? to_float(pass.read[row * pass.read_stride + p.key(tile.h) + i]) : 0.0f;
    s.write[j] = inside ? to_float(pass.write[row * pass.write_stride + p.key(tile.h) + i]) : 0.0f;
    if constexpr (kChannels)
      s.gate[j] = inside ? p.gate[row * p.gate_stride + tile.h * p.dk + i] : 0.0f;
    else
      s.gate[j] = live ? p.gate[row * p.gate_stride + tile.h] : 0.0f;
    s.value[j] = live && tile.column < p.dv
                     ? to_float(pass.value[row * pass.value_stride + tile.h * p.dv + tile.column])
                     : 0.0f;
  }
}

template <class T, bool kReverse, bool kChannels>
__global__ void __launch_bounds__(32 * kWarps, 4) column_kernel(Problem<T> p, ColumnPass<T> pass) {
  __shared__ __align__(16) float memory[kWarps][kChannels ? 3 : 2][kStage][kTile];
  const Tile tile(p);
  if (!tile.exists) return;
  auto& shared = memory[threadIdx.x / 32];
  const int first = tile.tile_row * kTile;
  const bool inside = tile.column < p.dv;
  float s[kTile];
  const int64_t state = tile.bh * p.state_size() + int64_t{first} * p.dv + tile.column;
#pragma unroll
  for (int i = 0; i < kTile; ++i)
    s[i] = pass.initial && inside && first + i < p.dk ? pass.initial[state + int64_t{i} * p.dv] : 0.0f;
  const auto write_state = [&](float* to) {
#pragma unroll
    for (int i = 0; i < kTile; ++i)
      if (inside && first + i < p.dk) to[int64_t{i} * p.dv] = s[i];
  };
  float* saved = pass.saved
                     ? pass.saved + first_kept(p, tile) * p.state_size() + int64_t{first} * p.dv + tile.column
                     : nullptr;

  Stage next;
  fetch<T, kReverse, kChannels>(next, p, pass, tile, 0);
  for (int begin = 0; begin < tile.time; begin += kStage) {
    float value[kStage], gate[kStage];
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kStage; ++j) {
      shared[0][j][tile.lane] = next.read[j];
      shared[1][j][tile.lane] = next.write[j];
      if constexpr (kChannels) shared[2][j][tile.lane] = next.gate[j];
      value[j] = next.value[j] * pass.value_scale;
      gate[j] = next.gate[j];
    }
    __syncwarp();
    fetch<T, kReverse, kChannels>(next, p, pass, tile, begin + kStage);
#pragma unroll
    for (int j = 0; j < kStage; ++j) {
      if (begin + j >= tile.time) break;
      if (j == 0 && saved && begin > 0 && begin % kTileChunk == 0) {
        write_state(saved);
        saved += p.state_size();
      }
      float sum[4] = {};
#pragma unroll
      for (int i = 0; i < kTile; i += 4) {
        const float4 r = *reinterpret_cast<const float4*>(&shared[0][j][i]),
                     w = *reinterpret_cast<const float4*>(&shared[1][j][i]);
        float4 g;
        if constexpr (kChannels)
          g = *reinterpret_cast<const float4*>(&shared[2][j][i]);
        else
          g = make_float4(gate[j], gate[j], gate[j], gate[j]);
        const auto step = [&](float& x, float rx, float wx, float gx, float& to) {
          x = fmaf(wx, value[j], kReverse ? x : gx * x);
          to = fmaf(rx, x, to);
          if constexpr (kReverse) x *= gx;
        };
        step(s[i], r.x, w.x, g.x, sum[0]), step(s[i + 1], r.y, w.y, g.y, sum[1]);
        step(s[i + 2], r.z, w.z, g.z, sum[2]), step(s[i + 3], r.w, w.w, g.w, sum[3]);
      }
      const float out = ((sum[0] + sum[1]) + (sum[2] + sum[3])) * pass.out_scale;
      const int64_t row = tile.row + (kReverse ? tile.time - 1 - (begin + j) : begin + j);
      if (!inside) continue;
      if (pass.partial)
        pass.partial[((tile.tile_row * p.rows() + row) * p.heads + tile.h) * p.dv + tile.column] = out;
      else
        pass.out[row * pass.out_stride + tile.h * p.dv + tile.column] = from_float<T>(out);
    }
  }
  if (pass.final) write_state(pass.final + state);
}

// Where a row warp's results go: the outputs, or this tile column's part of them.
template <class G>
struct RowSums {
  G *dq, *dk;
  float* dgate;
  int64_t q_stride, k_stride, gate_stride;  // token to token
  int64_t q_part, gate_part;                // from one tile column's part to the next; dk's as dq's
  int64_t gate_row_part;                    // from one tile row's part to the next, for gates per head
};

struct RowMemory {
  float v[kTileChunk][kTile + 4], d_o[kTileChunk][kTile + 4];  // reads of whole rows by 8 lanes: no conflicts
  float a[kTileChunk][kTileChunk];                             // a[r][s] = do_s . v_r
  float state[kTile][kTile + 1];
};

// This lane's row of a tile of a state in global memory, by way of shared memory.
template <class T>
__device__ void load_row(float (&row)[kTile], const float* state, const Problem<T>& p, const Tile& tile,
                         RowMemory& shared) {
  const int first = tile.tile_row * kTile;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kTile; ++i)
    shared.state[i][tile.lane] =
        first + i < p.dk && tile.column < p.dv ? state[int64_t{first + i} * p.dv + tile.column] : 0.0f;
  __syncwarp();
#pragma unroll
  for (int c = 0; c < kTile; ++c) row[c] = shared.state[tile.lane][c];
}

__device__ inline float dot(const float (&x)[kTile], const float* y) {
  float sum[4] = {};
#pragma unroll
  for (int c = 0; c < kTile; c += 4) {
    const float4 v = *reinterpret_cast<const float4*>(y + c);
    sum[0] = fmaf(x[c], v.x, sum[0]), sum[1] = fmaf(x[c + 1], v.y, sum[1]);
    sum[2] = fmaf(x[c + 2], v.z, sum[2]), sum[3] = fmaf(x[c + 3], v.w, sum[3]);
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

template <class T, class G, bool kChannels>
__global__ void __launch_bounds__(32 * kWarps, 3) row_kernel(Problem<T> p, RowSums<G> sums) {
  extern __shared__ __align__(16) char memory[];
  const Tile tile(p);
  if (!tile.exists) return;
  RowMemory& shared = reinterpret_cast<RowMemory*>(memory)[threadIdx.x / 32];
  const int lane = tile.lane, i = tile.tile_row * kTile + lane;
  const int64_t state = tile.bh * p.state_size();
  float ds[kTile] = {};
  if (p.d_final_state) load_row(ds, p.d_final_state + state, p, tile, shared);
  G* const dq = sums.dq + tile.tile_column * sums.q_part + tile.h * p.dk + i;
  G* const dk = sums.dk + tile.tile_column * sums.q_part + tile.h * p.dk + i;
  float* const dgate = sums.dgate + tile.tile_column * sums.gate_part + tile.tile_row * sums.gate_row_part +
                       (kChannels ? tile.h * p.dk + i : tile.h);

  for (int chunk = tile_chunks(tile.time) - 1; chunk >= 0; --chunk) {
    // Tokens beyond the end: keys, queries, values and gradients 0, gates 1.
    const int begin = chunk * kTileChunk, n = min(kTileChunk, tile.time - begin);
    float q[kTileChunk], k[kTileChunk], g[kTileChunk], y[kTileChunk] = {}, z[kTileChunk], x = 0.0f;
    {
      float row[kTile] = {};
      const float* from = chunk > 0         ? p.saved + (first_kept(p, tile) + chunk - 1) * p.state_size()
                          : p.initial_state ? p.initial_state + state
                                            : nullptr;
      if (from) load_row(row, from, p, tile, shared);
      __syncwarp();
#pragma unroll
      for (int t = 0; t < kTileChunk; ++t) {
        const int64_t token = tile.row + begin + t;
        const bool live = t < n, inside = live && i < p.dk, value = live && tile.column < p.dv;
        q[t] = inside ? to_float(p.q[token * p.q_stride + p.key(tile.h) + i]) : 0.0f;
        k[t] = inside ? to_float(p.k[token * p.k_stride + p.key(tile.h) + i]) : 0.0f;
        if constexpr (kChannels)
          g[t] = inside ? p.gate[token * p.gate_stride + tile.h * p.dk + i] : 1.0f;
        else
          g[t] = live ? p.gate[token * p.gate_stride + tile.h] : 1.0f;
        shared.v[t][lane] = value ? to_float(p.v[token * p.v_stride + tile.h * p.dv + tile.column]) : 0.0f;
        shared.d_o[t][lane] =
            value ? p.scale * to_float(p.d_o[token * p.o_stride + tile.h * p.dv + tile.column]) : 0.0f;
      }
      __syncwarp();
      if (from) {
#pragma unroll
        for (int t = 0; t < kTileChunk; ++t) y[t] = dot(row, shared.d_o[t]);
#pragma unroll
        for (int c = 0; c < kTile; ++c) x = fmaf(row[c], ds[c], x);
      }
#pragma unroll
      for (int c = 0; c < kTile; c += 4) {  // row: the output gradient of token lane % 16
        const float4 v = *reinterpret_cast<const float4*>(&shared.d_o[lane % kTileChunk][c]);
        row[c] = v.x, row[c + 1] = v.y, row[c + 2] = v.z, row[c + 3] = v.w;
      }
#pragma unroll
      for (int r = 0; r < kTileChunk; r += 2)
        shared.a[r + lane / kTileChunk][lane % kTileChunk] = dot(row, shared.v[r + lane / kTileChunk]);
    }
#pragma unroll
    for (int t = 0; t < kTileChunk; ++t) z[t] = dot(ds, shared.v[t]);
    __syncwarp();

    float suffix[kTileChunk], whole = 1.0f;
#pragma unroll
    for (int t = kTileChunk - 1; t >= 0; --t) {
      suffix[t] = whole;
      whole *= g[t];
    }
#pragma unroll
    for (int t = 0; t < kTileChunk; ++t) {
      float along = 0.0f, d_key = z[t];
#pragma unroll
      for (int s = kTileChunk - 1; s >= t; --s) {
        const float a = shared.a[t][s], decay = s + 1 < kTileChunk ? g[s + 1] : 1.0f;
        along = fmaf(along, decay, q[s] * y[s]);
        d_key = fmaf(d_key, decay, a * q[s]);
        y[s] = fmaf(g[t], y[s], a * k[t]);
      }
      float d_gate = fmaf(suffix[t], x, along);
      x = fmaf(g[t], x, k[t] * z[t]);
      if constexpr (!kChannels) d_gate = lane_sum<32>(i < p.dk ? d_gate : 0.0f);
      const int64_t token = tile.row + begin + t;
      if (t < n && i < p.dk) {
        dq[token * sums.q_stride] = from_float<G>(y[t]);
        dk[token * sums.k_stride] = from_float<G>(d_key);
      }
      if (t < n && (kChannels ? i < p.dk : lane == 0)) dgate[token * sums.gate_stride] = d_gate;
    }
#pragma unroll
    for (int c = 0; c < kTile; ++c) ds[c] *= whole;
    float prefix = 1.0f;
#pragma unroll
    for (int t = 0; t < kTileChunk; ++t) {
      prefix *= g[t];
      const float query = prefix * q[t];
#pragma unroll
      for (int c = 0; c < kTile; c += 4) {
        const float4 v = *reinterpret_cast<const float4*>(&shared.d_o[t][c]);
        ds[c] = fmaf(query, v.x, ds[c]), ds[c + 1] = fmaf(query, v.y, ds[c + 1]);
        ds[c + 2] = fmaf(query, v.z, ds[c + 2]), ds[c + 3] = fmaf(query, v.w, ds[c + 3]);
      }
    }
    __syncwarp();
  }
}

// to[row, c] = sum over parts of partial[part, row, c]
template <class G>
__global__ void __launch_bounds__(256)
    add_kernel(G* to, int64_t stride, const float* partial, int64_t rows, int64_t width, int parts) {
  const int64_t at = int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (at >= rows * width) return;
  float sum = partial[at];
  for (int part = 1; part < parts; ++part) sum += partial[part * rows * width + at];
  to[at / width * stride + at % width] = from_float<G>(sum);
}
template <class G>
void add_parts(G* to, int64_t stride, const float* partial, int64_t rows, int64_t width, int parts,
               cudaStream_t stream) {
  const int64_t blocks = (rows * width + 255) / 256;
  add_kernel<<<static_cast<unsigned>(blocks), 256, 0, stream>>>(to, stride, partial, rows, width, parts);
  check_launch("gated linear partial sums");
}

template <class T>
unsigned block_count(const Problem<T>& p) {
  const int64_t warps = int64_t{p.batch} * p.heads * tiles(p.dk) * tiles(p.dv);
  return static_cast<unsigned>((warps + kWarps - 1) / kWarps);
}

template <bool kReverse, class T>
void run_columns(const Problem<T>& p, const ColumnPass<T>& pass, cudaStream_t stream) {
  const auto kernel = p.channel_gates ? column_kernel<T, kReverse, true> : column_kernel<T, kReverse, false>;
  kernel<<<block_count(p), 32 * kWarps, 0, stream>>>(p, pass);
  check_launch("gated linear columns");
  if (pass.partial)
    add_parts(pass.out, pass.out_stride, pass.partial, p.rows(), int64_t{p.heads} * p.dv, tiles(p.dk),
              stream);
}

template <class T, class G>
void run_rows(const Problem<T>& p, const RowSums<G>& sums, cudaStream_t stream) {
  constexpr int kBytes = kWarps * sizeof(RowMemory);
  const auto kernel = p.channel_gates ? row_kernel<T, G, true> : row_kernel<T, G, false>;
  allow_shared_memory(kernel, kBytes, "gated linear rows");
  kernel<<<block_count(p), 32 * kWarps, kBytes, stream>>>(p, sums);
  check_launch("gated linear rows");
}

// Parts of the workspace, in floats: o or dv per tile row; dq, dk and dgate per tile column.
template <class T>
struct Parts {
  int64_t values, keys, gates;
  explicit Parts(const Problem<T>& p) {
    const int64_t rows = p.rows() * p.heads;
    const int tile_rows = tiles(p.dk), tile_columns = tiles(p.dv);
    values = tile_rows > 1 ? tile_rows * rows * p.dv : 0;
    keys = tile_columns > 1 ? tile_columns * rows * p.dk : 0;
    gates = p.channel_gates ? keys : tile_rows * tile_columns > 1 ? tile_rows * tile_columns * rows : 0;
  }
};

}  // namespace

template <class T>
int64_t tile_saved_size(const Problem<T>& p) {
  return p.heads * kept_states(p) * p.state_size();
}

template <class T>
int64_t tile_workspace_size(const Problem<T>& p) {
  const Parts<T> parts(p);
  return parts.values + 2 * parts.keys + parts.gates;
}

template <class T>
void tile_forward(const Problem<T>& p, cudaStream_t stream) {
  float* partial = tiles(p.dk) > 1 ? p.workspace : nullptr;
  run_columns<false>(p,
                     ColumnPass<T>{p.q, p.k, p.v, p.q_stride, p.k_stride, p.v_stride, p.o_stride, p.o,
                                   partial, p.initial_state, p.final_state, p.saved, 1.0f, p.scale},
                     stream);
}

template <class T>
void tile_backward(const Problem<T>& p, cudaStream_t stream) {
  const Parts<T> parts(p);
  float* const keys = p.workspace + parts.values;
  float* const gates = keys + 2 * parts.keys;
  run_columns<true>(p,
                    ColumnPass<T>{p.k, p.q, p.d_o, p.k_stride, p.q_stride, p.o_stride, p.v_stride, p.dv_out,
                                  parts.values ? p.workspace : nullptr, p.d_final_state, p.d_initial_state,
                                  nullptr, p.scale, 1.0f},
                    stream);
  const int64_t key_width = int64_t{p.heads} * p.dk, gate_width = p.channel_gates ? key_width : p.heads;
  float* const dgate = parts.gates ? gates : p.dgate;
  const int64_t gate_stride = parts.gates ? gate_width : p.gate_stride, gate_part = p.rows() * gate_width;
  const int64_t gate_row_part = p.channel_gates ? 0 : tiles(p.dv) * gate_part;
  if (parts.keys) {
    run_rows(p,
             RowSums<float>{keys, keys + parts.keys, dgate, key_width, key_width, gate_stride,
                            p.rows() * key_width, gate_part, gate_row_part},
             stream);
    add_parts(p.dq, p.dq_stride, keys, p.rows(), key_width, tiles(p.dv), stream);
    add_parts(p.dk_out, p.dk_stride, keys + parts.keys, p.rows(), key_width, tiles(p.dv), stream);
  } else {
    run_rows(
        p,
        RowSums<T>{p.dq, p.dk_out, dgate, p.dq_stride, p.dk_stride, gate_stride, 0, gate_part, gate_row_part},
        stream);
  }
  if (parts.gates)
    add_parts(p.dgate, p.gate_stride, gates, p.rows(), gate_width,
              p.channel_gates ? tiles(p.dv) : tiles(p.dv) * tiles(p.dk), stream);
}

#define SIGNET_INSTANTIATE(T)                                  \
  template int64_t tile_saved_size(const Problem<T>&);         \
  template int64_t tile_workspace_size(const Problem<T>&);     \
  template void tile_forward(const Problem<T>&, cudaStream_t); \
  template void tile_backward(const Problem<T>&, cudaStream_t);
SIGNET_INSTANTIATE(float)
SIGNET_INSTANTIATE(bf16)
#undef SIGNET_INSTANTIATE

}  // namespace signet::kernels::gated_linear
